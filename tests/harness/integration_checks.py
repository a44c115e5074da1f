"""What every integration must hold, whichever framework it is in."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from harness.documents import ROOT
from vecveil.randomness import NoiseKeys

__all__ = ["assert_no_secret", "run_example", "same_direction"]


def run_example(name: str, collection: Path, protector: Path) -> tuple[float, float]:
    """Run ``examples/integrations/NAME.py`` as a user does; return the nDCG@10 before and after that it prints.

    The example prints one line: ``nDCG@10 clean 0.712, protected 0.644``.
    """
    path = ROOT / "examples" / "integrations" / f"{name}.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 40
    done = subprocess.run(
        [sys.executable, str(path), str(collection), str(protector)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"nDCG@10 clean (0\.\d+|1\.0+), protected (0\.\d+|1\.0+)", done.stdout)
    assert found is not None, done.stdout
    return float(found[1]), float(found[2])


def assert_no_secret(folder: Path, key_file: Path, *more: bytes) -> None:
    """Assert that no file under ``folder`` holds the key of ``key_file`` in any usual writing, or one of ``more``."""
    import base64

    secret = NoiseKeys.from_file(key_file).key().secret_for_noise()
    forms = [secret, base64.b64encode(secret), secret.hex().encode(), *more]
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(form in content for form in forms), path.name


def same_direction(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return the cosines of rows."""
    A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
    return np.sum(A * B, axis=1) / (np.linalg.norm(A, axis=1) * np.linalg.norm(B, axis=1))
