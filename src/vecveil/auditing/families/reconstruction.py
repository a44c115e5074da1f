"""Reconstruction in an audit, tier full: attacks that write the text anew.

All are trained from scratch on the training texts, and on the corpus that the user gives; how often each text is
seen is bounded, so that an audit takes minutes to an hour on a CPU. The decoder that few-shot alignment needs is
the one that was trained on clean vectors: it is trained once.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vecveil.attacks import AttackResult, TextVectors
from vecveil.attacks.evidence import normalise_text
from vecveil.auditing.case import Case, Side, Skipped
from vecveil.auditing.jobs import Job, attack_job

__all__ = ["jobs"]

FAMILY = "reconstruction"
NAMES = ("geia", "vec2text", "algen")
JUDGED = 200
JUDGED_CORRECTED = 100  # correction encodes every guess anew
QUICK = "Attacks that write the text anew take minutes to an hour: tier full runs them."
NO_ENCODER = "It encodes texts of its own, and there is no encoder."
_GEIA_PASSES = {"cpu": 150_000, "cuda": 3_000_000}  # texts seen in all, about
_VEC2TEXT_PASSES = {"cpu": 20_000, "cuda": 2_000_000}
_SMALLER: dict[str, dict[str, Any]] = {
    "cpu": {"width": 128, "layers": 2, "vocabulary": 4000},
    "cuda": {},
}
_EPOCHS = (2, 40)


def jobs(case: Case, sides: Sequence[Side]) -> tuple[list[Job], list[Skipped]]:
    """Return the attacks that write texts."""
    if case.options.tier == "quick":
        return [], [Skipped(name, FAMILY, QUICK) for name in NAMES]
    from vecveil.attacks import ALGENAttack, GEIAAttack, Vec2TextAttack
    from vecveil.attacks.reconstruction.vec2text.attack import PRESETS
    from vecveil.runtime import resolve_device

    o, encode = case.options, case.encode
    device = "cpu" if resolve_device(o.device, owner="audit") == "cpu" else "cuda"
    common: dict[str, Any] = {
        "judge_encoder": encode,
        "words_of": _words_of(case),
        "judged": JUDGED,
        "device": o.device,
    }
    found: list[Job] = []
    skipped: list[Skipped] = []
    clean = _CleanDecoder()
    for side in sides:
        train, test = _evidence(case, side)
        epochs = _epochs(_GEIA_PASSES[device], len(train))
        geia = GEIAAttack("small", epochs=epochs, **common)
        job = attack_job(geia, side, train, test, o, weight=300.0, long=True)
        if side.name == "clean":
            clean.job = job
            job = replace(job, run=clean.result)
        found.append(job)
        if encode is None:
            skipped += [Skipped(name, FAMILY, NO_ENCODER) for name in NAMES[1:]]
            continue
        preset = PRESETS["small"]
        recipe = replace(preset.recipe, epochs=_epochs(_VEC2TEXT_PASSES[device], len(train)))
        writer = Vec2TextAttack(
            encode,
            replace(preset, recipe=recipe, rounds=3, **_SMALLER[device]),
            **{**common, "judged": JUDGED_CORRECTED},
        )
        found.append(attack_job(writer, side, train, test, o, weight=250.0, long=True))

        def few_shot(folder: Path | None, side: Side = side) -> AttackResult:
            attack = ALGENAttack(clean.folder(folder), encode=encode, **common)
            train, test = _evidence(case, side, corpus=False)
            return attack.run(train, test, rng=o.seed, show_progress=False, **side.knowledge)

        found.append(Job("algen", side.name, few_shot, 20.0))
    return found, skipped


class _CleanDecoder:
    """The attack on clean vectors, run once, and the folder of what it has learnt."""

    job: Job

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: AttackResult | None = None
        self._folder: Path | None = None

    def result(self, folder: Path | None) -> AttackResult:
        """Return what the attack found, running it if nobody has."""
        with self._lock:
            if self._found is None:
                if folder is None:
                    made = tempfile.mkdtemp(prefix="vecveil-")
                    weakref.finalize(self, shutil.rmtree, made, ignore_errors=True)
                    folder = Path(made) / "decoder"
                else:  # beside the results: the checkpoint of a finished job is removed
                    folder = folder.parent / "clean-decoder"
                self._found, self._folder = self.job.run(folder), folder
            return self._found

    def folder(self, own: Path | None) -> Path:
        """Return the folder, training the decoder if nobody has."""
        self.result(own)
        assert self._folder is not None
        return self._folder


def _epochs(passes: int, rows: int) -> int:
    low, high = _EPOCHS
    return min(high, max(low, passes // rows))


def _evidence(case: Case, side: Side, *, corpus: bool = True) -> tuple[TextVectors, TextVectors]:
    """Return texts with vectors; the corpus joins the training texts where it can be protected as they are."""
    rows = np.sort(np.concatenate([case.train, case.ordinary_train]))
    X, texts, groups = side.learn[rows], [case.texts[i] for i in rows], case.groups[rows]
    if corpus and case.options.corpus and case.encode is not None and side.learns_from_clean:
        tested = {normalise_text(case.texts[i]) for i in case.test}
        further = [text for text in case.options.corpus if normalise_text(text) not in tested]
        further = list(dict.fromkeys(further))
        if further:
            X = np.concatenate([X, case.encode(further).astype(X.dtype)])
            texts += further
            own = int(case.groups.max()) + 1
            groups = np.concatenate([groups, np.arange(own, own + len(further))])
    test = case.test
    judged = TextVectors(side.judged[test], [case.texts[i] for i in test], case.groups[test])
    return TextVectors(X, texts, groups), judged


def _words_of(case: Case) -> Any:
    """Return the function from texts to the attacked words in each."""
    from vecveil.concepts.folding import canonical, words

    known = set(case.vocabulary.tokens)
    return lambda texts: [known & set(words(canonical(text))) for text in texts]
