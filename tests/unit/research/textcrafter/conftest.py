"""A data folder of a few rows, for the tests of the experiment."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.research.textcrafter.files import write_data


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with every set, the PII corpus and the sentences."""
    folder = tmp_path / "data"
    write_data(folder)
    return folder
