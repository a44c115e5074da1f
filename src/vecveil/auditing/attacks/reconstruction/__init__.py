"""Reconstruction: the text itself, written anew from its released vector."""
