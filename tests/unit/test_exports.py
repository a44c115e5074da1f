"""The public names of the package, and what importing it loads."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import vecveil
from harness.token_data import token_data

ROOT = Path(__file__).parents[2]
HEAVY = {
    "torch",
    "pyarrow",
    "sklearn",
    "transformers",
    "sentence_transformers",
    "click",
    "tqdm",
    "yaml",
    "jaxtyping",
    "msgspec",
    "beartype",
    "matplotlib",
    "pandas",
    "regex",
    "spacy",
    "ahocorasick_rs",
}


def loaded_by(code: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has after ``code``."""
    show = "import sys, json; print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_all_is_sorted_complete_and_importable() -> None:
    assert vecveil.__all__ == sorted(vecveil.__all__)
    assert set(dir(vecveil)) >= set(vecveil.__all__)
    for name in vecveil.__all__:
        assert getattr(vecveil, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_like_it"):
        vecveil.nothing_like_it  # noqa: B018


@pytest.mark.parametrize(
    "part",
    [
        "privacy.accounting",
        "auditing.attacks",
        "auditing",
        "privacy.concepts",
        "texts.encoders",
        "privacy.mechanisms",
        "auditing.metrics",
        "privacy.protector",
        "auditing.report",
        "privacy.sensitivity",
        "texts.tables",
        "privacy.textcrafter",
        "index",
    ],
)
def test_every_part_exports_what_it_lists(part: str) -> None:
    module = importlib.import_module(f"vecveil.{part}")
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError):
        module.nothing_like_it  # noqa: B018


def test_the_version_is_that_of_the_project_file() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert vecveil.__version__ == project["project"]["version"]


def test_import_loads_numpy_and_scipy_at_most() -> None:
    third_party = loaded_by("import vecveil") - loaded_by("import numpy, scipy.linalg")
    assert {m for m in third_party if m not in sys.stdlib_module_names} == {"vecveil"}


@pytest.mark.slow
def test_parts_load_what_is_heavy_where_it_is_used() -> None:
    parts = "import vecveil.texts.encoders, vecveil.texts.tables, vecveil.privacy.concepts, vecveil.auditing.metrics"
    others = {"presidio_analyzer", "rouge_score", "sacrebleu", "nltk"}
    assert not loaded_by(f"{parts}; vecveil.privacy.concepts.Concept") & (HEAVY - {"msgspec"} | others)


@pytest.mark.slow
def test_the_protect_path_loads_nothing_heavy(tmp_path: Path) -> None:
    one = vecveil.fit_pairs(*token_data(60, 8).arguments(), epsilon=20.0, rank=1, kept=4, flattening=0.0, pairs=True)
    one.save(tmp_path / "one.vecveil")
    np.save(tmp_path / "X.npy", np.zeros((4, 8), dtype=np.float32))
    code = (
        "import vecveil, numpy\n"
        f"protector = vecveil.load({str(tmp_path / 'one.vecveil')!r})\n"
        f"protector.protect(numpy.load({str(tmp_path / 'X.npy')!r}))\n"
        "str(protector.guarantee); repr(protector)\n"
    )
    assert not loaded_by(code) & HEAVY
    assert loaded_by(code + "import click, tqdm\n") & HEAVY == {"click", "tqdm"}  # control


@pytest.mark.slow
def test_vectors_are_fitted_without_any_extra() -> None:
    blocked = {*HEAVY, "httpx", "fsspec", "jinja2"}
    code = f"""
import sys
sys.modules.update(dict.fromkeys({sorted(blocked)}))
import numpy, vecveil
X = numpy.random.default_rng(0).standard_normal((200, 8))
vecveil.fit_pairs(X + 1.0, X, method="laplace", target_utility=0.9).protect(X)
vecveil.fit_pairs(X + 1.0, X, noise_to_signal=0.3, rank=1, kept=6, flattening=0.0, pairs=True).protect(X)
"""
    assert "vecveil" in loaded_by(code)
