"""What every integration must hold, whichever framework it is in."""

from __future__ import annotations

import contextlib
import io
import json
import re
import runpy
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import vecveil
from harness.documents import ROOT
from vecveil.index import SealedIndex
from vecveil.index.sealer import Ranking
from vecveil.keys import KeyFile

__all__ = ["assert_no_secret", "index_of_many_segments", "minilm", "rows_of_hits", "run_example", "same_direction"]


@cache
def _encoder() -> Any:
    return vecveil.load_encoder("minilm", precision="fp32")


def minilm(texts: list[str]) -> np.ndarray:
    """Return the vectors of MiniLM, which is loaded once."""
    return _encoder().encode(texts, show_progress=False)


def run_example(name: str, collection: Path, protector: Path) -> tuple[float, float]:
    """Run ``examples/integrations/search_with_NAME.py`` as a program; return its nDCG@10 before and after.

    The example prints one line: ``nDCG@10 clean 0.712, protected 0.644``.
    """
    path = ROOT / "examples" / "integrations" / f"search_with_{name}.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 40
    printed = io.StringIO()
    # In this process, where the libraries are loaded already: that takes most of a program's time.
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("default")
        patch.setattr(sys, "argv", [str(path), str(collection), str(protector)])
        patch.syspath_prepend(str(path.parent))
        runpy.run_path(str(path), run_name="__main__")
    found = re.search(r"nDCG@10 clean (0\.\d+|1\.0+), protected (0\.\d+|1\.0+)", printed.getvalue())
    assert found is not None, printed.getvalue()
    return float(found[1]), float(found[2])


def assert_no_secret(folder: Path, key_file: Path, *more: bytes) -> None:
    """Assert that no file under ``folder`` holds the key of ``key_file`` in any usual writing, or one of ``more``."""
    import base64

    secret = KeyFile.from_file(key_file).key().secret_for_noise()
    forms = [secret, base64.b64encode(secret), secret.hex().encode(), *more]
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(form in content for form in forms), path.name


def same_direction(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return the cosines of rows."""
    A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
    return np.sum(A * B, axis=1) / (np.linalg.norm(A, axis=1) * np.linalg.norm(B, axis=1))


def index_of_many_segments(folder: Path, key_file: Path) -> tuple[SealedIndex, npt.NDArray[np.float32]]:
    """Return a sealed index of six segments, in which rows are replaced and deleted across segments, and 12 vectors."""
    index = SealedIndex(folder, key_file, max_staleness=0)
    draw = np.random.default_rng(3)
    for step in range(5):
        names = [f"r{i}" for i in range(20 * step, 20 * step + 40)]
        index.add(
            [f"{name} of {step}" for name in names],
            ids=names,
            vectors=draw.standard_normal((40, 16)),
            metadata=[{"year": 2000 + i} for i in range(40)],
        )
    index.delete([f"r{i}" for i in range(0, 120, 7)])
    return index, draw.standard_normal((12, 16)).astype(np.float32)


def rows_of_hits(hits: Ranking) -> list[tuple[str, float, str | None, str]]:
    return [
        (name, score, text, json.dumps(about))
        for name, score, text, about in zip(hits.ids, hits.scores.tolist(), hits.texts, hits.metadata, strict=True)
    ]
