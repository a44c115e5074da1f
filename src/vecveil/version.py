"""The version of the package; kept equal to ``pyproject.toml`` by a test."""

__version__ = "0.1.0"
