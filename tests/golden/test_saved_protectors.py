"""Protector files of this format keep their meaning: what they release with a key never changes.

The files and digests here were written once and are not to be written again: a change of the noise law,
of the arithmetic or of the file format needs another mechanism name or another schema. `write_golden.py` adds
files for what is new; CONTRIBUTING.md states the promise.
"""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from golden.write_golden import FILES, IDS, KEY, TEXTS, vectors
from vecveil.privacy.mechanisms import MECHANISMS
from vecveil.privacy.mechanisms.steps import STEP_KINDS
from vecveil.privacy.protector import METHODS, TEXT_METHODS
from vecveil.privacy.protector.fitting import refit_refusal
from vecveil.privacy.protector.serialisation import SCHEMA

HERE = Path(__file__).parent
EXPECTED = json.loads((HERE / "releases.json").read_text(encoding="utf-8"))
VECTORS = sorted(name for name in EXPECTED if "texts" not in EXPECTED[name])
EXACT = {"laplace", "sparse", "gaussian", "ldp-gaussian", "shuffle", "subspace"}
"""Those whose arithmetic is the same on every machine, to the last bit."""


def header(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the record of a file and what it says of its arrays, read without the package."""
    data = path.read_bytes()
    arrays = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    return json.loads(arrays.pop("__metadata__")["vecveil"]), arrays


def about(name: str) -> dict[str, Any]:
    """Return the record of a golden file."""
    return header(HERE / f"{name}.vecveil")[0]


def shape_of(path: Path) -> Any:
    """Return a file without what tells one fit from another: names, types and shapes, schema and method."""
    record, arrays = header(path)
    kept = {key: record[key] for key in ("schema", "method", "mechanism", "fingerprint")}
    del record["report"]
    return (
        kept,
        {key: skeleton(value) for key, value in record.items()},
        {name: (one["dtype"], one["shape"]) for name, one in arrays.items()},
    )


def skeleton(value: Any) -> Any:
    """Return a value of JSON with types in place of what it holds."""
    if isinstance(value, dict):
        return {key: skeleton(one) for key, one in value.items()}
    return [skeleton(one) for one in value] if isinstance(value, list) else type(value).__name__


@pytest.mark.parametrize("name", VECTORS)
def test_a_saved_protector_releases_what_it_always_did(name: str) -> None:
    protector = vecveil.load(HERE / f"{name}.vecveil")
    expected = EXPECTED[name]
    assert protector.fingerprint == expected["fingerprint"]
    released = protector.protect(vectors(), ids=IDS, key=KEY)
    np.testing.assert_allclose(released[0], expected["first"], rtol=1e-5, atol=1e-6)
    if protector.method in EXACT:
        assert hashlib.sha256(released.tobytes()).hexdigest() == expected["sha256"]


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - set(VECTORS)))
def test_a_saved_protector_of_texts_writes_what_it_always_did(name: str) -> None:
    protector = vecveil.load(HERE / f"{name}.vecveil")
    assert protector.fingerprint == EXPECTED[name]["fingerprint"]
    assert protector.rewrite(TEXTS[:6]) == EXPECTED[name]["texts"]


def test_every_file_here_is_tested() -> None:
    assert {path.stem for path in HERE.glob("*.vecveil")} == set(EXPECTED)
    assert set(FILES) <= set(EXPECTED), "run python tests/golden/write_golden.py"


def test_there_is_a_file_of_every_method_mechanism_and_step() -> None:
    """A method or step that is added needs a golden file: its parameters are part of the format."""
    records = [about(name) for name in EXPECTED]
    assert {record["method"] for record in records} == {*METHODS, *TEXT_METHODS}
    assert {record["mechanism"] for record in records} >= set(MECHANISMS)
    assert {step["kind"] for record in records for step in record["after"]} == set(STEP_KINDS)
    assert {record["before"]["kind"] for record in records} == {"none", "normalise", "clip"}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_what_is_written_now_has_the_parts_of_the_golden_file(name: str, tmp_path: Path) -> None:
    """A part that comes, goes or changes its type is another schema, and needs new golden files."""
    vecveil.load(HERE / f"{name}.vecveil").save(tmp_path / "again.vecveil")
    before, after = shape_of(HERE / f"{name}.vecveil"), shape_of(tmp_path / "again.vecveil")
    assert before == after


def test_a_part_that_is_added_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vecveil.privacy.protector import serialisation

    protector = vecveil.load(HERE / "laplace.vecveil")
    monkeypatch.setattr(serialisation, "SCHEMA", "vecveil.protector/3")
    protector.save(tmp_path / "again.vecveil")
    assert shape_of(tmp_path / "again.vecveil") != shape_of(HERE / "laplace.vecveil")


def test_the_schema_that_is_written_has_golden_files() -> None:
    assert SCHEMA in {about(name)["schema"] for name in EXPECTED}


def test_a_subspace_of_noise_in_all_dimensions_keeps_its_law_and_is_not_fitted_again() -> None:
    """The file says which law; a refit would draw another, in the kept dimensions."""
    old, new = (vecveil.load(HERE / f"{name}.vecveil") for name in ("subspace", "subspace-projected"))
    assert [one.mechanism.name for one in (old, new)] == ["laplace", "projected-laplace"]
    assert refit_refusal(old) is not None
    assert refit_refusal(new) is None
    assert not old.mechanism.exact_behind(old.map.down)
    assert new.mechanism.exact_behind(new.map.down)
