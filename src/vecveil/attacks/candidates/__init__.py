"""Candidate matching: which of some known texts is the one behind a released vector?"""
