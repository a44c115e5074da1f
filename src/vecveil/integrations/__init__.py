"""Adapters for frameworks and databases, one module each."""
