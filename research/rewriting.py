"""What an attacker who writes texts makes of a defence: it learns from freshly protected vectors of other texts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from research.bench import Bench, Material
from research.decoder_bases import (
    alone,
    base_decoder,
    copied,
    corpus_texts,
    shelved,
    trained_as,
)
from research.decoders import DecoderSpec, make_attack
from vecveil.attacks.evidence import Knowledge, TextVectors
from vecveil.attacks.reconstruction.base import WordsOf
from vecveil.attacks.reconstruction.decoder import bridge
from vecveil.attacks.release_model import InputMap
from vecveil.concepts.folding import canonical, words
from vecveil.errors import DataFileError
from vecveil.metrics.estimates import Estimate
from vecveil.protector import Protector
from vecveil.types import Embeddings, Release

__all__ = ["Rewritten", "every_word", "judged_rows", "released", "rewrite", "short", "target_words"]

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False, repr=False)
class Rewritten:
    """What an attack wrote.

    Attributes:
        texts, written: the judged texts, and what was written from their vectors.
        further: the same of texts that were given beside.
        figures: estimates on the judged texts by name; empty if there are further ones.
        adaptive: whether the attack learnt from fresh releases.
        base, tuned: numbers about the training of the base, and for this defence.
    """

    texts: tuple[str, ...]
    written: tuple[str, ...]
    further: tuple[str, ...]
    figures: Mapping[str, Estimate]
    adaptive: bool
    base: Mapping[str, float]
    tuned: Mapping[str, float]


def target_words(material: Material) -> WordsOf:
    """Return the function from texts to the words in each that token inference is after too."""
    return _words_among(set(material.case.vocabulary.tokens))


def every_word(material: Material) -> WordsOf:
    """Return the function from texts to all words of the concept in each, rare ones too."""
    return _words_among(set(material.problem.categories))


def _words_among(known: set[str]) -> WordsOf:
    return lambda texts: [known & set(words(canonical(text))) for text in texts]


def judged_rows(
    bench: Bench, material: Material, decoders: Mapping[str, DecoderSpec], most: int
) -> tuple[Rows, int]:
    """Return the texts that are judged, at most ``most``, and how many a base that was given may have learnt.

    The same for every attack and defence of a seed: those are left out for all.
    """
    given = {
        (spec.corpus, spec.sentences): spec
        for spec in decoders.values()
        if spec.start_from is not None
    }
    key = ("judged", material.problem.name, material.seed, most, tuple(sorted(given)))
    return bench.once(key, lambda: _judged(bench, material, list(given.values()), most))


def _judged(
    bench: Bench, material: Material, given: Sequence[DecoderSpec], most: int
) -> tuple[Rows, int]:
    case, X = material.case, material.case.embeddings
    assert X is not None
    rows = case.test
    for spec in given:
        corpus = corpus_texts(bench, spec)
        near = copied(
            [case.texts[i] for i in rows], X[rows], corpus, bench.encoder().encode(corpus)
        )
        rows = rows[~near]
    left_out = len(case.test) - len(rows)
    if len(rows) < 2:
        raise DataFileError.of("decoders", "start_from", "a decoder that has not learnt the judged texts",
                               f"one whose corpus is near {left_out} of {len(case.test)}")  # fmt: skip
    if len(rows) > most:
        some = np.random.default_rng([material.seed, 21]).choice(len(rows), most, replace=False)
        rows = rows[np.sort(some)]
    return rows, left_out


def released(material: Material, protector: Protector | None, rows: Rows) -> Embeddings:
    """Return one release of the judged texts, the same for every attack on a defence."""
    X = material.case.embeddings
    assert X is not None
    if protector is None:
        return X[rows]
    return protector.protect(X[rows], np.random.default_rng([material.seed, 12]))


def rewrite(
    bench: Bench,
    material: Material,
    kind: str,
    spec: DecoderSpec,
    protector: Protector | None,
    label: str,
    rows: Rows,
    further: Sequence[str] = (),
) -> Rewritten:
    """Return what an attack writes that goes on from its base with protected vectors of the learning texts.

    The attack is kept in the work folder: asked again, it learns nothing.

    Args:
        kind: one of `research.decoders.WRITERS`.
        protector: the defence; None for clean vectors, on which the base is trained on just so.
        label: of the defence, for the name of the folder.
        rows: the judged texts.
        further: texts beside; they are protected and rewritten too.
    """
    encoder, case, seed = bench.encoder(), material.case, material.seed
    X = case.embeddings
    assert X is not None
    learn = np.sort(np.concatenate([case.train, case.ordinary_train]))
    if len(learn) > spec.texts:
        some = np.random.default_rng([seed, 22]).choice(len(learn), spec.texts, replace=False)
        learn = learn[np.sort(some)]
    train = TextVectors(X[learn], [case.texts[i] for i in learn], case.groups[learn])
    texts, Y, groups = (
        [case.texts[i] for i in rows],
        released(material, protector, rows),
        case.groups[rows],
    )
    if further:
        own = encoder.encode(list(further)).astype(X.dtype)
        if protector is not None:
            own = protector.protect(own, np.random.default_rng([seed, 13]))
        texts, Y = [*texts, *further], np.concatenate([Y, own])
        groups = np.concatenate([groups, case.groups.max() + 1 + np.arange(len(further))])
    release: Release | None = None if protector is None else protector.release()
    if kind == "vec2text" and release is not None:
        release, Y = _denoised(release, train.X, Y, seed)
    base = base_decoder(bench, material.problem.name, kind, spec)
    attack = make_attack(
        kind, spec, epochs=spec.fine_tuning_epochs, start=base, encode=encoder.encode,
        rate=spec.fine_tuning_rate,
        judge_encoder=encoder.encode, words_of=target_words(material), judged=len(texts),
    )  # fmt: skip
    decides = _decides(attack, base, train, release, Y.shape[1])
    folder = shelved(bench, f"{kind}-{label}-{seed}-{decides}")
    with alone(folder):
        result = attack.run(
            train, TextVectors(Y, texts, groups), release=release, rng=seed, show_progress=False,
            checkpoint=folder,
        )  # fmt: skip
    own_count = len(rows)
    return Rewritten(
        tuple(texts[:own_count]),
        tuple(attack.written[:own_count]),
        tuple(attack.written[own_count:]),
        {} if further else result.estimates,
        result.adaptive,
        trained_as(base),
        trained_as(folder),
    )


def _denoised(
    release: Release, X: Embeddings, Y: Embeddings, seed: int
) -> tuple[Release, Embeddings]:
    """Return an oracle and vectors behind a linear map to where the clean vectors are.

    Vec2Text's networks read one space; GEIA learns such a map by itself when it goes on from a base.
    """
    size = X.shape[1]
    own = InputMap(np.zeros(size), np.eye(size))
    back = bridge(own, X, release(X, np.random.default_rng([seed, 23])))

    def mapped(Z: Embeddings, rng: np.random.Generator) -> Embeddings:
        return back(release(Z, rng))

    return mapped, back(Y)


def _decides(
    attack: Any, base: Path, train: TextVectors, release: Release | None, dimension: int
) -> str:
    """Return a hash of the base and of what a checkpoint must agree with, so that none is ever refused."""
    found = hashlib.sha256(repr(sorted(attack._settings().items())).encode())
    for file in sorted([*base.rglob("*.safetensors"), *base.rglob("*.bin")]):
        with open(file, "rb") as weights:
            found.update(hashlib.file_digest(weights, "sha256").digest())
    found.update(train.digest().encode())
    found.update(Knowledge(dimension, release).digest(train.X).encode())
    return found.hexdigest()[:16]


def short(estimate: Estimate) -> dict[str, float | None]:
    """Return value, interval and chance for a record."""
    record = estimate.to_record()
    return {
        key: None if record[key] is None else round(record[key], 5)
        for key in ("value", "low", "high", "chance")
    }
