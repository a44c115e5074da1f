"""What tests of experiments share: one small data folder and an encoder for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.experiment_data import lsa_folder, small_data


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small STS set and a list of terms."""
    return small_data(tmp_path_factory.mktemp("data") / "sets")


@pytest.fixture(scope="session")
def encoder(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an encoder fitted on the texts of ``data``."""
    return lsa_folder(data, tmp_path_factory.mktemp("encoder") / "lsa")
