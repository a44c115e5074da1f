"""Writes golden protector files that are not there yet; those that are there are never written again.

python tests/golden/write_golden.py
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import vecveil
from vecveil.keys import NoiseKey
from vecveil.privacy.mechanisms import Step

HERE = Path(__file__).parent
KEY = NoiseKey("golden", bytes(range(64, 96)))
IDS = [f"item {i}" for i in range(40)]
WORDS = [f"word{a}{b}" for a in "abcde" for b in "abcde"]
TEXTS = [
    " ".join([("nothing", "aspirin", "codeine")[i % 3], *(WORDS[(i * k) % 25] for k in (1, 2, 3, 7))])
    for i in range(150)
]


def vectors() -> np.ndarray:
    """Return the 40 rows that every golden file protects: the same on every machine."""
    X = np.sin(np.arange(40 * 8, dtype=np.float64)).round(6).reshape(40, 8)
    return np.ascontiguousarray((X / 2).astype(np.float32))


def pairs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows with and without a concept, and labels of three words."""
    rng = np.random.default_rng(3)
    negative = rng.standard_normal((200, 8)) / 3
    moved = rng.standard_normal((200, 3))
    positive = negative + moved @ np.eye(3, 8) / 4
    return positive, negative, (moved > 0.3).astype(np.uint8)


def of_pairs(method: str, **options: Any) -> vecveil.Protector:
    """Return a protector fitted on `pairs`."""
    positive, negative, labels = pairs()
    return vecveil.fit_pairs(positive, negative, labels, method=method, **options)


def of_texts(method: str, **options: Any) -> vecveil.Protector:
    """Return one that rewrites texts."""
    from vecveil.texts.encoders import LsaEncoder, load_encoder

    encoder = load_encoder(LsaEncoder.fit(TEXTS, 4), cache=None)
    concept = vecveil.Concept.from_terms("drug", ["aspirin", "codeine"])
    return vecveil.fit(TEXTS, concept, encoder, method=method, **options)


FILES: dict[str, Callable[[], vecveil.Protector]] = {
    "sparse-whitebox": lambda: of_pairs("sparse-whitebox", epsilon=30.0, epochs=1, steps=2),
    "textcrafter-subspace": lambda: of_pairs("textcrafter-subspace", radius=0.9, epochs=1, before="normalise"),
    "gaussian-clip-project-float16": lambda: of_pairs(
        "gaussian",
        sigma=0.2,
        before="clip:1.0",
        postprocess=[Step("project", matrix=np.eye(6, 8)[::-1].copy()), Step("float16")],
    ),
    "laplace-truncate-normalise-binary": lambda: of_pairs(
        "laplace", epsilon=40.0, postprocess=[Step("truncate", 5), Step("normalise"), Step("binary")]
    ),
    "subspace-projected": lambda: of_pairs("subspace", epsilon=30.0, rank=2, kept=4, flattening=0.3, pairs=True),
    "sparse-truncated": lambda: of_pairs(
        "sparse", epsilon=30.0, epochs=1, stability_seeds=1, release="truncated", kept=5
    ),
    "redact": lambda: of_texts("redact"),
    "replace-random": lambda: of_texts("replace-random"),
    "replace-semantic": lambda: of_texts("replace-semantic"),
}
"""What this version writes and no earlier golden file shows. A new schema gets new entries under new names."""


def expected(protector: vecveil.Protector) -> dict[str, Any]:
    """Return what a golden file promises."""
    if protector.rewriter is not None:
        return {"fingerprint": protector.fingerprint, "texts": protector.rewrite(TEXTS[:6])}
    released = protector.protect(vectors(), ids=IDS, key=KEY)
    return {
        "fingerprint": protector.fingerprint,
        "first": released[0].tolist(),
        "sha256": hashlib.sha256(released.tobytes()).hexdigest(),
    }


def main() -> int:
    """Write what is missing."""
    path = HERE / "releases.json"
    known = json.loads(path.read_text(encoding="utf-8"))
    for name, make in FILES.items():
        if name in known:
            continue
        file = HERE / f"{name}.vecveil"
        make().save(file)
        file.chmod(0o644)
        known[name] = expected(vecveil.load(file))
        sys.stdout.write(f"{file.name}\n")
    path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
