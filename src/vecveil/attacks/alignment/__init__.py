"""Alignment: undo a secret map of the space, then re-identify the vectors behind it."""
