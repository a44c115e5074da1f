"""Decoders trained once on clean vectors of a corpus, and kept in the work folder for attacks to go on from.

What they have learnt from is known, so that no judged text is among it: not itself, and no near copy.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from research.bench import Bench
from research.datasets import open_dataset
from research.datasets.kinds import PairSet, RetrievalSet
from research.decoders import DecoderSpec, make_attack, published_in
from research.specification import digest
from vecveil.attacks.evidence import TextVectors, normalise_text
from vecveil.errors import DataFileError
from vecveil.types import Embeddings

__all__ = [
    "NEAR",
    "alone",
    "base_decoder",
    "copied",
    "corpus_digest",
    "corpus_texts",
    "prepare_decoder",
    "shelved",
    "trained_as",
]

NEAR = 0.85  # cosine from which a text counts as a copy of another
HELD_OUT = 200  # texts of the corpus that a base is judged on
_FILES = {"geia": "decoder.json", "vec2text": "vec2text.json"}


def corpus_texts(bench: Bench, spec: DecoderSpec) -> list[str]:
    """Return the texts that a base learns from: the first of its corpus, each once."""

    def read() -> list[str]:
        found = open_dataset(spec.corpus, bench.data)
        if isinstance(found, PairSet):
            parts: Sequence[str] = [*found.left, *found.right]
        elif isinstance(found, RetrievalSet):
            parts = [*found.documents, *found.queries]
        else:
            parts = found.texts
        return list(dict.fromkeys(text for text in parts if text.strip()))[: spec.sentences]

    return bench.once(("corpus", spec.corpus, spec.sentences), read)


def corpus_digest(bench: Bench, spec: DecoderSpec) -> str:
    """Return a hash of the texts that a base learns from."""
    key = ("corpus digest", spec.corpus, spec.sentences)
    return bench.once(key, lambda: digest(corpus_texts(bench, spec)))


def copied(
    texts: Sequence[str], X: Embeddings, others: Sequence[str], Z: Embeddings
) -> npt.NDArray[np.bool_]:
    """Return which of the N texts are in ``others`` or near one: the same letters and digits, or a cosine >= .85.

    Args:
        X, Z: (N, n) and (M, n) their vectors by one encoder.
    """
    known = {normalise_text(text) or text for text in others}
    found = np.array([(normalise_text(text) or text) in known for text in texts], dtype=np.bool_)
    own, beside = _unit(X), _unit(Z)
    for i in range(0, len(own), 4096):
        part = slice(i, i + 4096)
        for j in range(0, len(beside), 4096):
            found[part] |= (own[part] @ beside[j : j + 4096].T).max(axis=1) >= NEAR
    return found


def _unit(X: Embeddings) -> npt.NDArray[np.float32]:
    rows = X.astype(np.float32)
    found: npt.NDArray[np.float32] = rows / np.maximum(
        np.linalg.norm(rows, axis=1, keepdims=True), 1e-12
    )
    return found


def prepare_decoder(bench: Bench, problem: str, kind: str, spec: DecoderSpec) -> None:
    """Encode the corpus and train the base, with progress bars, if that has not been done."""
    texts = corpus_texts(bench, spec)
    bench.encoder().encode(texts, show_progress=bench.show_progress)
    base_decoder(bench, problem, kind, spec)


def base_decoder(bench: Bench, problem: str, kind: str, spec: DecoderSpec) -> Path:
    """Return the folder of the base of an attack, training it if nobody has.

    Texts of the problem and their near copies are taken out of the corpus, so one base serves every seed. An
    interrupted training goes on; of two processes one trains and the other waits.

    Raises:
        DataFileError: ``start_from`` holds no decoder of this kind, or the corpus has nothing but the problem's texts.
    """
    if spec.start_from is not None:
        given = Path(spec.start_from)
        known = kind == "vec2text" and published_in(given) is not None
        if not known and not (given / _FILES[kind]).is_file():
            wanted = f"a folder with {_FILES[kind]}, as seen from where the command runs"
            raise DataFileError.of(f"decoders.{kind}", "start_from", wanted, repr(given.name)[:60])
        return given
    key = ("base", problem, kind, digest(spec.base), spec.corpus, spec.sentences)
    return bench.once(key, lambda: _trained(bench, problem, kind, spec))


def _trained(bench: Bench, problem: str, kind: str, spec: DecoderSpec) -> Path:
    encoder = bench.encoder()
    texts, own = corpus_texts(bench, spec), bench.problem(problem).texts
    by = str(getattr(encoder, "fingerprint", bench.spec.encoder))
    decides = [kind, spec.base, corpus_digest(bench, spec), digest(own), by, NEAR]
    folder = shelved(bench, f"{kind}-base-{digest(decides)}")
    if _finished(folder):
        return folder
    X = encoder.encode(texts)
    kept = np.flatnonzero(~copied(texts, X, own, encoder.encode(own)))
    held = max(1, min(HELD_OUT, len(kept) // 20))
    if len(kept) < held + 2:
        raise DataFileError.of(f"decoders.{kind}", "corpus",
                               "a data set with texts that are not near the problem's",
                               f"{len(kept)} such texts")  # fmt: skip
    train, test = (
        TextVectors(X[rows], [texts[i] for i in rows]) for rows in (kept[:-held], kept[-held:])
    )
    attack = make_attack(
        kind, spec, epochs=spec.epochs, start=None, encode=encoder.encode, judged=held
    )
    with alone(folder):
        if not _finished(folder):
            attack.run(train, test, rng=0, checkpoint=folder, show_progress=bench.show_progress)
    return folder


def _finished(folder: Path) -> bool:
    return (folder / "attack.json").is_file()  # written last


def trained_as(folder: Path) -> dict[str, float]:
    """Return the numbers that a decoder keeps about its training."""
    for name in _FILES.values():
        with contextlib.suppress(OSError):
            held: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
            return {k: v for k, v in held["details"].items() if isinstance(v, int | float)}
    return {}


def shelved(bench: Bench, name: str) -> Path:
    """Return the folder of a decoder: a finished one of any experiment beside this one, else this one's own."""
    own = bench.work / "decoders" / name
    if not _finished(own):
        for found in sorted(bench.work.parent.parent.glob(f"*/work/decoders/{name}/attack.json")):
            return found.parent
    return own


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a folder for one process; others wait. The lock goes when the process does, however it ends."""
    import fcntl

    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
