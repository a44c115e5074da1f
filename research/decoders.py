"""Reconstruction attacks: their settings, base decoders, and reconstructions from protected vectors.

A base is trained once on clean vectors of a corpus and kept in the work folder. Its training texts exclude judged
texts and near copies of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from research.bench import Bench, Material
from research.datasets import open_dataset
from research.points import released
from research.problems import related_texts
from research.records import only_one
from research.specification import Settings, Whole, check_names, digest
from vecveil.auditing.attacks.attack import Knowledge, TextVectors, normalise_text
from vecveil.auditing.attacks.reconstruction.base import EncodeTexts, ReconstructionAttack, WordsOf
from vecveil.auditing.attacks.reconstruction.decoder import PRESETS as GEIA_PRESETS
from vecveil.auditing.attacks.reconstruction.decoder import GEIAAttack, bridge
from vecveil.auditing.attacks.reconstruction.t5 import PublishedCheckpoint
from vecveil.auditing.attacks.reconstruction.vec2text import PRESETS as VEC2TEXT_PRESETS
from vecveil.auditing.attacks.reconstruction.vec2text import Vec2TextAttack
from vecveil.auditing.attacks.release_model import InputMap
from vecveil.errors import DataFileError, InvalidInputError
from vecveil.privacy.concepts.matching import WordSplitter
from vecveil.privacy.protector import Protector
from vecveil.privacy.utility.estimates import Estimate
from vecveil.privacy.utility.tasks import unit_rows
from vecveil.texts.folding import canonical
from vecveil.types import Embeddings, Release

WRITERS = ("geia", "vec2text")
"""Attacks that write texts."""


class DecoderSpec(Settings, frozen=True, kw_only=True):
    """Training of a reconstruction attack: a base on clean vectors, then fine-tuning for each defence.

    Attributes:
        preset: ``small``, ``medium`` (GEIA only) or ``paper``.
        model: pretrained network of ``paper``: hub name or folder; None takes the preset's.
        options: further numbers of the preset, such as layers, width, vocabulary, batch, learning_rate.
        corpus: data set whose first ``sentences`` texts train the base.
        epochs: of the base.
        start_from: folder of a trained base, relative to the current folder. It must have learnt from no more than the
            first ``sentences`` texts of ``corpus``: judged texts that copy one are left out. For Vec2Text also a folder
            of published weights, ``hypothesiser`` and optionally ``corrector`` and ``t5``
            (`vecveil.attacks.PublishedCheckpoint`), whose training texts are unknown.
        texts: maximum number of the problem's texts for fine-tuning.
        fine_tuning_epochs: epochs for each defence, each on freshly protected texts.
        fine_tuning_rate: its highest learning rate; None takes the base's. A lower one forgets less of the corpus.
        rounds: correction rounds of Vec2Text; None is the hypothesiser alone.
        beams: beam width of decoding.
    """

    preset: str = "small"
    model: str | None = None
    options: dict[str, float] = {}
    corpus: str = "sentences"
    sentences: Whole = 100_000
    epochs: Whole = 1
    start_from: str | None = None
    texts: Whole = 4000
    fine_tuning_epochs: Whole = 6
    fine_tuning_rate: float | None = None
    rounds: Whole | None = None
    beams: Whole = 1

    @property
    def base(self) -> dict[str, Any]:
        """The settings that determine a base, besides its texts."""
        own = ("preset", "model", "options", "epochs", "rounds")
        return {name: getattr(self, name) for name in own}


class _KeepsWritten(ReconstructionAttack):
    """Keep the last reconstructions; settings name the base's folder without its path."""

    validation_share = 0.04
    written: list[str]

    def _settings(self) -> Mapping[str, Any]:
        return _portable(super()._settings())

    def _reconstruct(self, state: Any, X: Embeddings, knowledge: Knowledge) -> list[str]:
        self.written = super()._reconstruct(state, X, knowledge)  # type: ignore[safe-super]
        return self.written


class Geia(_KeepsWritten, GEIAAttack):
    """GEIA as experiments run it."""


class Vec2Text(_KeepsWritten, Vec2TextAttack):
    """Vec2Text as experiments run it."""


def _portable(settings: Mapping[str, Any]) -> dict[str, Any]:
    start = settings["start_from"]
    if isinstance(start, PublishedCheckpoint):
        start = Path(start.hypothesiser).parent
    return {**settings, "start_from": None if start is None else Path(start).name}


def published_in(folder: Path) -> PublishedCheckpoint | None:
    """Return the published weights of Vec2Text in a folder, or None."""
    first, second = folder / "hypothesiser", folder / "corrector"
    if not (first / "config.json").is_file():
        return None
    t5 = folder / "t5"  # its configuration and tokeniser; else the hub's of the name in config.json
    return PublishedCheckpoint(first, second if second.is_dir() else None, t5 if t5.is_dir() else None)


def make_attack(
    kind: str,
    spec: DecoderSpec,
    *,
    epochs: int,
    start: Path | None,
    encode: EncodeTexts | None,
    rate: float | None = None,
    **judging: Any,
) -> Geia | Vec2Text:
    """Return a reconstruction attack.

    Args:
        start: folder of the decoder to start from.
        encode: encoder of the vectors; only correction needs it.
        rate: highest learning rate; None takes the one of ``spec``.
        judging: ``judge_encoder``, ``words_of`` and ``judged`` of the attack.

    Raises:
        InvalidInputError: unknown attack, preset or option, or a value out of range.
    """
    check_names("attack", [kind], WRITERS, owner="decoders")
    options: dict[str, Any] = {k: int(v) if float(v).is_integer() else v for k, v in spec.options.items()}
    if rate is not None:
        options["learning_rate"] = rate
    if kind == "geia":
        check_names("preset", [spec.preset], GEIA_PRESETS, owner="decoders")
        if spec.rounds is not None:
            raise InvalidInputError("decoders.geia: leave out `rounds`: GEIA does not correct.", param="rounds")
        return Geia(
            spec.preset, model=spec.model, epochs=epochs, start_from=start, beams=spec.beams, **options, **judging
        )
    check_names("preset", [spec.preset], VEC2TEXT_PRESETS, owner="decoders")
    preset = VEC2TEXT_PRESETS[spec.preset]
    of_recipe = {f.name for f in dataclasses.fields(preset.recipe)}
    of_preset = {f.name for f in dataclasses.fields(preset)} - {"recipe", "model", "rounds", "beam"}
    check_names("options", options, sorted(of_recipe | of_preset), owner="decoders")
    own = {k: v for k, v in options.items() if k in of_preset}
    if spec.model is not None:
        own["model"] = spec.model
    recipe = {k: v for k, v in options.items() if k in of_recipe} | {"epochs": epochs}
    made = dataclasses.replace(
        preset, recipe=dataclasses.replace(preset.recipe, **recipe), rounds=spec.rounds or 0, beam=spec.beams, **own
    )
    given = start if start is None else published_in(start) or start
    return Vec2Text(encode if spec.rounds else None, made, start_from=given, **judging)


def check_decoders(decoders: Mapping[str, DecoderSpec]) -> None:
    """Raise `InvalidInputError` for settings that define no attack."""
    for kind, spec in decoders.items():
        make_attack(kind, spec, epochs=spec.epochs, start=None, encode=_nothing, rate=spec.fine_tuning_rate)


def _nothing(texts: Sequence[str]) -> Any:
    raise NotImplementedError  # placeholder for an encoder that is not called


NEAR = 0.85  # cosine from which a text counts as a copy of another
HELD_OUT = 200  # texts of the corpus that a base is judged on
_FILES = {"geia": "decoder.json", "vec2text": "vec2text.json"}


def corpus_texts(bench: Bench, spec: DecoderSpec) -> list[str]:
    """Return the distinct training texts of a base."""

    def read() -> list[str]:
        texts = related_texts(open_dataset(spec.corpus, bench.data))[0]
        return list(dict.fromkeys(text for text in texts if text.strip()))[: spec.sentences]

    return bench.once(("corpus", spec.corpus, spec.sentences), read)


def corpus_digest(bench: Bench, spec: DecoderSpec) -> str:
    key = ("corpus digest", spec.corpus, spec.sentences)
    return bench.once(key, lambda: digest(corpus_texts(bench, spec)))


def copied(texts: Sequence[str], X: Embeddings, others: Sequence[str], Z: Embeddings) -> npt.NDArray[np.bool_]:
    """Return which of N texts are in ``others`` or near one: equal letters and digits, or a cosine >= .85.

    Args:
        X, Z: (N, n) and (M, n) their vectors by one encoder.
    """
    known = {normalise_text(text) or text for text in others}
    found = np.array([(normalise_text(text) or text) in known for text in texts], dtype=np.bool_)
    own, beside = (unit_rows(rows.astype(np.float32)) for rows in (X, Z))
    for i in range(0, len(own), 4096):
        part = slice(i, i + 4096)
        for j in range(0, len(beside), 4096):
            found[part] |= (own[part] @ beside[j : j + 4096].T).max(axis=1) >= NEAR
    return found


def prepare_decoder(bench: Bench, problem: str, kind: str, spec: DecoderSpec) -> None:
    """Encode the corpus and train the base if needed, with progress bars."""
    texts = corpus_texts(bench, spec)
    bench.encoder().encode(texts, show_progress=bench.show_progress)
    base_decoder(bench, problem, kind, spec)


def base_decoder(bench: Bench, problem: str, kind: str, spec: DecoderSpec) -> Path:
    """Return the folder of an attack's base, training it if needed.

    The problem's texts and their near copies are removed from the corpus, so one base serves every seed. An interrupted
    training resumes; only one process trains, others wait.

    Raises:
        DataFileError: ``start_from`` has no decoder of this kind, or the corpus has no texts besides the problem's.
    """
    if spec.start_from is not None:
        given = Path(spec.start_from)
        known = kind == "vec2text" and published_in(given) is not None
        if not known and not (given / _FILES[kind]).is_file():
            text = f"`start_from` {repr(given.name)[:60]} is no folder with {_FILES[kind]}."
            raise DataFileError(f"decoders.{kind}: {text} The path starts where the command runs.", param="start_from")
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
        text = f"`corpus` has only {len(kept)} texts that are not near the problem's. Name a larger data set."
        raise DataFileError(f"decoders.{kind}: {text}", param="corpus")
    train, test = (TextVectors(X[rows], [texts[i] for i in rows]) for rows in (kept[:-held], kept[-held:]))
    attack = make_attack(kind, spec, epochs=spec.epochs, start=None, encode=encoder.encode, judged=held)
    with only_one(folder):
        if not _finished(folder):
            attack.run(train, test, rng=0, checkpoint=folder, show_progress=bench.show_progress)
    return folder


def _finished(folder: Path) -> bool:
    return (folder / "attack.json").is_file()  # written last


def trained_as(folder: Path) -> dict[str, float]:
    """Return the numbers about its training in a decoder's file."""
    for name in _FILES.values():
        with contextlib.suppress(OSError):
            held: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
            return {k: v for k, v in held["details"].items() if isinstance(v, int | float)}
    return {}


def shelved(bench: Bench, name: str) -> Path:
    """Return the folder of a decoder: a finished one of a neighbouring experiment, else this experiment's own."""
    own = bench.work / "decoders" / name
    if not _finished(own):
        for found in sorted(bench.work.parent.parent.glob(f"*/work/decoders/{name}/attack.json")):
            return found.parent
    return own


Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False, repr=False)
class Rewritten:
    """Reconstructions by an attack.

    Attributes:
        texts, written: judged texts and their reconstructions.
        further: reconstructions of the further texts.
        figures: estimates on the judged texts by name; empty if there are further texts.
        adaptive: whether the attack learnt from fresh releases.
        base, tuned: numbers about the training of the base, and of the fine-tuning.
    """

    texts: tuple[str, ...]
    written: tuple[str, ...]
    further: tuple[str, ...]
    figures: Mapping[str, Estimate]
    adaptive: bool
    base: Mapping[str, float]
    tuned: Mapping[str, float]


def target_words(material: Material) -> WordsOf:
    """Return the function from texts to the words in each that token inference targets."""
    return _words_among(set(material.case.vocabulary.tokens))


def every_word(material: Material) -> WordsOf:
    """Return the function from texts to all words of the concept in each, including rare ones."""
    return _words_among(set(material.problem.categories))


def _words_among(known: set[str]) -> WordsOf:
    split = WordSplitter(known)
    return lambda texts: [known & set(split(canonical(text))) for text in texts]


def judged_rows(bench: Bench, material: Material, decoders: Mapping[str, DecoderSpec], most: int) -> tuple[Rows, int]:
    """Return the judged texts, at most ``most``, and how many were left out because a given base may have learnt them.

    They are the same for every attack and defence of a seed.
    """
    given = {(spec.corpus, spec.sentences): spec for spec in decoders.values() if spec.start_from is not None}
    key = ("judged", material.problem.name, material.seed, most, tuple(sorted(given)))
    return bench.once(key, lambda: _judged(bench, material, list(given.values()), most))


def _judged(bench: Bench, material: Material, given: Sequence[DecoderSpec], most: int) -> tuple[Rows, int]:
    case, X = material.case, material.case.embeddings
    assert X is not None
    rows = case.test
    for spec in given:
        corpus = corpus_texts(bench, spec)
        near = copied([case.texts[i] for i in rows], X[rows], corpus, bench.encoder().encode(corpus))
        rows = rows[~near]
    left_out = len(case.test) - len(rows)
    if len(rows) < 2:
        raise DataFileError(
            f"decoders: the decoder of `start_from` has learnt {left_out} of the {len(case.test)} judged texts, or "
            "texts near them. Name another.",
            param="start_from",
        )
    if len(rows) > most:
        some = np.random.default_rng([material.seed, 21]).choice(len(rows), most, replace=False)
        rows = rows[np.sort(some)]
    return rows, left_out


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
    """Return the reconstructions of an attack that is fine-tuned from its base on protected learning texts.

    The attack is kept in the work folder; a second call does not train.

    Args:
        protector: the defence; None for clean vectors, on which the base is fine-tuned likewise.
        label: of the defence, for the folder name.
        rows: the judged texts.
        further: further texts to protect and reconstruct.
    """
    encoder, case, seed = bench.encoder(), material.case, material.seed
    X = case.embeddings
    assert X is not None
    learn = np.sort(np.concatenate([case.train, case.ordinary_train]))
    if len(learn) > spec.texts:
        some = np.random.default_rng([seed, 22]).choice(len(learn), spec.texts, replace=False)
        learn = learn[np.sort(some)]
    train = TextVectors(X[learn], [case.texts[i] for i in learn], case.groups[learn])
    texts, Y, groups = ([case.texts[i] for i in rows], released(protector, X[rows], seed)[0], case.groups[rows])
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
        kind,
        spec,
        epochs=spec.fine_tuning_epochs,
        start=base,
        encode=encoder.encode,
        rate=spec.fine_tuning_rate,
        judge_encoder=encoder.encode,
        words_of=target_words(material),
        judged=len(texts),
    )
    decides = _decides(attack, base, train, release, Y.shape[1])
    folder = shelved(bench, f"{kind}-{label}-{seed}-{decides}")
    with only_one(folder):
        result = attack.run(
            train, TextVectors(Y, texts, groups), release=release, rng=seed, show_progress=False, checkpoint=folder
        )
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


def _denoised(release: Release, X: Embeddings, Y: Embeddings, seed: int) -> tuple[Release, Embeddings]:
    """Return oracle and vectors, mapped linearly to the space of clean vectors.

    Vec2Text's networks read one space; GEIA learns such a map itself when it starts from a base.
    """
    size = X.shape[1]
    own = InputMap(np.zeros(size), np.eye(size))
    back = bridge(own, X, release(X, np.random.default_rng([seed, 23])))

    def mapped(Z: Embeddings, rng: np.random.Generator) -> Embeddings:
        return back(release(Z, rng))

    return mapped, back(Y)


def _decides(attack: Any, base: Path, train: TextVectors, release: Release | None, dimension: int) -> str:
    """Return a hash of the base and of everything that a checkpoint must match, so that none is refused."""
    found = hashlib.sha256(repr(sorted(attack._settings().items())).encode())
    for file in sorted([*base.rglob("*.safetensors"), *base.rglob("*.bin")]):
        with open(file, "rb") as weights:
            found.update(hashlib.file_digest(weights, "sha256").digest())
    found.update(train.digest().encode())
    found.update(Knowledge(dimension, release).digest(train.X).encode())
    return found.hexdigest()[:16]
