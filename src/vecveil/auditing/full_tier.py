"""Reconstruction attacks of tier full, trained from scratch on the training texts and the user's corpus.

The number of passes over each text is bounded, so that an audit takes minutes to an hour on a CPU.
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

from vecveil.auditing.attacks import ALGENAttack, AttackResult, GEIAAttack, Vec2TextAttack
from vecveil.auditing.attacks.reconstruction.vec2text import PRESETS
from vecveil.auditing.attacks.reconstruction.zero_shot import (
    CausalLanguageModel,
    LanguageModel,
    NgramLanguageModel,
    ZeroShotAttack,
)
from vecveil.auditing.case import Case, Encode, Side
from vecveil.auditing.jobs import Job, Plan, attack_job
from vecveil.auditing.records.audit_record import SkippedAttack
from vecveil.auditing.records.verdict import NO_ENCODER
from vecveil.privacy.concepts.matching import WordSplitter
from vecveil.runtime import resolve_device
from vecveil.texts.folding import canonical

JUDGED = 200  # texts written: decoding is sequential and slow
JUDGED_CORRECTED = 100  # Vec2Text encodes every guess of every round
JUDGED_SEARCHED = 50  # zero-shot encodes hundreds of texts for each
QUERIES = 300
NOTHING_ENCODES = ("It encodes texts that it writes, and there is no encoder.", NO_ENCODER)
OTHER_SPACE = (
    "The released vectors have a different dimension than the encoder's, and there are no means to protect others.",
    "other-dimension",
)
_GEIA_PASSES = {"cpu": 150_000, "cuda": 3_000_000}  # texts seen in all, about
_VEC2TEXT_PASSES = {"cpu": 20_000, "cuda": 2_000_000}
_SMALLER: dict[str, dict[str, Any]] = {"cpu": {"width": 128, "layers": 2, "vocabulary": 4000}, "cuda": {}}
_EPOCHS = (2, 40)  # least and most passes over each text


def jobs(case: Case, sides: Sequence[Side]) -> Plan:
    """Return GEIA, Vec2Text and ALGEN on each side."""
    o, encode = case.options, case.encode
    device = "cpu" if resolve_device(o.device, owner="audit") == "cpu" else "cuda"
    judging: dict[str, Any] = {"judge_encoder": encode, "words_of": _words_of(case), "judged": JUDGED}
    common: dict[str, Any] = {**judging, "device": o.device}
    runnable: list[Job] = []
    skipped: list[SkippedAttack] = []
    clean = _CleanDecoder()
    model: LanguageModel | None = None
    for side in sides:
        encode = (side.seen or case).encode
        train, test = (side.seen or case).written(side)
        epochs = _epochs(_GEIA_PASSES[device], len(train))
        geia = GEIAAttack("small", epochs=epochs, **common)
        job = attack_job(geia, side, train, test, o, weight=300.0)
        # ALGEN writes with the decoder of the clean side, which this job trains once.
        if side.name == "clean":
            clean.job = job
            job = replace(job, run=clean.result)
        runnable.append(job)
        if encode is None:
            names = ("vec2text", "algen", "zero-shot")
            skipped += [SkippedAttack(name, "reconstruction", *NOTHING_ENCODES) for name in names]
            continue
        preset = PRESETS["small"]
        recipe = replace(preset.recipe, epochs=_epochs(_VEC2TEXT_PASSES[device], len(train)))
        writer = Vec2TextAttack(
            encode,
            replace(preset, recipe=recipe, rounds=3, **_SMALLER[device]),
            **{**common, "judged": JUDGED_CORRECTED},
        )
        runnable.append(attack_job(writer, side, train, test, o, weight=250.0))

        # `side=side` binds now: a closure would see the last side of the loop.
        def few_shot(folder: Path | None, side: Side = side, encode: Encode = encode) -> AttackResult:
            attack = ALGENAttack(clean.folder(folder), encode=encode, **common)
            # ALGEN models an attacker with few pairs; the corpus would give it many.
            train, test = (side.seen or case).written(side, corpus=False)
            return attack.run(train, test, rng=o.seed, show_progress=False, **side.knowledge)

        runnable.append(Job("algen", side.name, few_shot, 20.0))
        if side.release is None and side.judged.shape[1] != sides[0].judged.shape[1]:
            skipped.append(SkippedAttack("zero-shot", "reconstruction", *OTHER_SPACE))
            continue
        model = model or _language_model(case)
        searcher = ZeroShotAttack(encode, model, queries=QUERIES, **{**judging, "judged": JUDGED_SEARCHED})
        runnable.append(attack_job(searcher, side, train, test, o, weight=200.0))
    return runnable, skipped


def _language_model(case: Case) -> LanguageModel:
    """Return the user's causal language model, or a trigram model of the training texts and the corpus."""
    o = case.options
    if o.language_model is not None:
        return CausalLanguageModel(o.language_model, device=o.device)
    return NgramLanguageModel([*(case.texts[i] for i in case.training_rows), *case.unseen_corpus()])


class _CleanDecoder:
    """GEIA on clean vectors, run once, and the folder of its decoder."""

    job: Job

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._result: AttackResult | None = None
        self._folder: Path | None = None

    def result(self, folder: Path | None) -> AttackResult:
        """Return the result of the attack, which runs once."""
        # GEIA's job and every ALGEN job call this: the first one trains, the others wait.
        with self._lock:
            if self._result is None:
                if folder is None:
                    made = tempfile.mkdtemp(prefix="vecveil-")
                    weakref.finalize(self, shutil.rmtree, made, ignore_errors=True)
                    folder = Path(made) / "decoder"
                else:
                    # Not in the job's own folder: that is removed once the job has finished.
                    folder = folder.parent / "clean-decoder"
                self._result, self._folder = self.job.run(folder), folder
            return self._result

    def folder(self, own: Path | None) -> Path:
        """Return the folder of the trained decoder."""
        self.result(own)
        assert self._folder is not None
        return self._folder


def _epochs(passes: int, rows: int) -> int:
    low, high = _EPOCHS
    return min(high, max(low, passes // rows))


def _words_of(case: Case) -> Any:
    """Return the function from texts to the attacked words of each."""
    known = set(case.vocabulary.tokens)
    split = WordSplitter(known)
    return lambda texts: [known & set(split(canonical(text))) for text in texts]
