"""Reconstruction attacks, which write the text of a released vector."""
