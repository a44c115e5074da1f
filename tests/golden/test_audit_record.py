"""An audit of a saved protector finds what it always found: the record is that of ``audit.json``.

Left out are times, versions and sentences, which may be written anew; keys stay. Figures agree to 1e-6, and less
closely where an attack works in single precision or trains with torch: see `TOLERANCES`.
``write_contracts.py --audit`` writes the file anew after a deliberate change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.contracts import GOLDEN, differences, read_contract
from harness.small_attacks import small_attacks  # knows internal paths of the ladder, and nothing here does

DRUGS = ("aspirin", "codeine", "heparin", "insulin", "lithium", "metformin")
TOPICS = ("knee", "heart", "sleep", "skin", "travel", "music", "garden", "school")
ROWS, DIMENSION = 300, 8
LEFT_OUT = {"created", "seconds", "vecveil"}
PROSE = {
    "conditional_on",
    "cost",
    "description",
    "finding",
    "label",
    "limits",
    "message",
    "not_promised",
    "promised",
    "reason",
    "statement",
    "title",
    "guarantee / metric",
    "guarantee / neighbours",
    "guarantee / unit",
    "split / unit",
}
"""Keys, some with the key above, whose values are sentences or phrases for people."""
TRAINED = ("mlp-512", "mlc-published", "network", "probe-mlp")
"""Attacks that train with torch, whose arithmetic depends on the processor."""
SINGLE_PRECISION = ("kernel", "transplant", "ensemble", "averaging-")
"""Beginnings of the names of attacks whose figures the kernels of BLAS move by about 1e-5."""
VOTING = "nearest-neighbours"
"""Its ties are broken by rounding: the kernels of BLAS move its AUC by up to 2e-3."""
ROUNDING = "faint-directions"
"""It reads what rounding leaves, so that its figures are those of one BLAS on one processor: no figure is kept."""
TOLERANCES = {
    "": 1e-6,
    **{f"attacks / {name}": 1e-3 for name in (*TRAINED, *SINGLE_PRECISION)},
    f"attacks / {VOTING}": 5e-3,
}


class WordEncoder:
    """The mean of one direction per word, made of a digest: the same on every machine, without a model."""

    name = "word-encoder"
    fingerprint = "word-encoder-1"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        rows = np.array([np.sum([self._word(word) for word in text.split()], axis=0) for text in texts])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    @staticmethod
    @cache
    def _word(word: str) -> Any:
        digest = hashlib.shake_256(word.encode()).digest(4 * DIMENSION)
        weight = 1.5 if word in TOPICS else 1.0 if word in DRUGS else 0.1
        return weight * np.frombuffer(digest, "<i4") / 2**31


def notes() -> list[str]:
    """Return texts of which two in three hold one drug or two."""
    texts = []
    for i in range(ROWS):
        draw = hashlib.sha256(str(i).encode()).digest()
        words = ["note", str(i), "about", TOPICS[draw[0] % 8], TOPICS[draw[1] % 8]]
        if i % 3:
            second = [DRUGS[(draw[2] + 1 + draw[3] % 5) % 6]] if draw[4] % 2 else []
            words += ["takes", DRUGS[draw[2] % 6], *second]
        texts.append(" ".join(words))
    return texts


def observe() -> dict[str, Any]:
    """Return what is frozen of the record of an audit as it is now."""
    texts, encoder = notes(), WordEncoder()
    with small_attacks():
        record = vecveil.audit(
            vecveil.load(GOLDEN / "laplace.vecveil"),
            texts,
            vecveil.Concept.from_terms("drug", DRUGS),
            encoder=encoder,
            embeddings=encoder.encode(texts),
            show_terms=True,
            show_progress=False,
        ).to_record()
    return frozen(record)


def frozen(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record with attacks by name and without what is no part of the contract."""
    kept: dict[str, Any] = _without_prose(record, "")
    kept["names of attacks"] = [one["name"] for one in kept["attacks"]]
    kept["attacks"] = {one["name"]: one for one in kept["attacks"]}
    kept["attacks"][ROUNDING] = _without_figures(kept["attacks"][ROUNDING])
    return kept


def _without_figures(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_figures(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_figures(one) for one in value]
    return "(figure)" if isinstance(value, float) else value


def _without_prose(value: Any, above: str) -> Any:
    if isinstance(value, list):
        return [_without_prose(one, above) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: "(prose)" if {key, f"{above} / {key}"} & PROSE else _without_prose(inner, key)
        for key, inner in value.items()
        if key not in LEFT_OUT
    }


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return observe()


def test_the_record_is_what_it_was(found: dict[str, Any]) -> None:
    lines = differences(read_contract("audit"), found, tolerances=TOLERANCES)
    assert not lines, "\n".join(lines)


def test_every_trained_attack_is_in_the_contract() -> None:
    assert set(TRAINED) <= set(read_contract("audit")["attacks"])


def test_a_figure_and_a_key_that_change_are_noticed(found: dict[str, Any]) -> None:
    """Negative control: what is within the tolerance passes, and what is not is named."""
    attacks = found["attacks"]
    within = {**attacks["linear"], "value": attacks["linear"]["value"] * (1 + 1e-8)}
    outside = {**attacks["probe-linear"], "low": attacks["probe-linear"]["low"] * (1 + 1e-4)}
    trained = {**attacks["mlp-512"], "value": attacks["mlp-512"]["value"] * (1 + 1e-4)}
    changed = {**attacks, "linear": within, "probe-linear": outside, "mlp-512": trained}
    lines = differences(found, {**found, "attacks": changed, "new": 1}, tolerances=TOLERANCES)
    assert [line.split(": was")[0].split(" (")[0] for line in lines] == [
        "changed: attacks / probe-linear / low",
        "appeared: new",
    ]
