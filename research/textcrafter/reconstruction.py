"""The sentence-level attack of a cell: GEIA, fine-tuned on freshly protected vectors of the set.

Test texts that the base decoder learnt from are not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research.datasets import TextSet, open_dataset
from research.textcrafter.defences import Applied
from research.textcrafter.vectors import Task
from vecveil.attacks import GEIAAttack, TextVectors
from vecveil.attacks.evidence import normalise_text, text_groups
from vecveil.errors import InvalidInputError

__all__ = ["base_sentences", "corpus_keys", "sentence_cell", "train_base"]

_FIGURES = ("bleu", "token_f1", "exact_match", "rouge_l", "cosine")
_NEVER = (1 << 20) + 3
BASE_HELD = 500  # sentences of its corpus that the base decoder does not learn from
BASE_VALIDATION = 0.02
BASE_JUDGED = 20  # a reconstruction ends the training; what it says is not used


class LongGEIA(GEIAAttack):
    """GEIA with few texts for validation: its time goes into training."""

    validation_share = 0.04


def train_base(
    texts: Sequence[str],
    folder: Path,
    encode: Callable[[Sequence[str]], Any],
    *,
    show_progress: bool | None = None,
) -> None:
    """Train the decoder that cells go on from on clean vectors of sentences; goes on where it was stopped."""
    held = min(BASE_HELD, len(texts) // 10)
    groups = text_groups(texts)
    judge = np.arange(len(texts) - held, len(texts))
    learn = np.flatnonzero(~np.isin(groups, groups[judge]))
    X = encode(texts)
    train, test = (TextVectors(X[rows], [texts[int(i)] for i in rows]) for rows in (learn, judge))
    attack = LongGEIA("small", epochs=1, judged=min(BASE_JUDGED, held))
    attack.validation_share = BASE_VALIDATION
    attack.run(train, test, rng=0, checkpoint=folder, show_progress=show_progress)


def base_sentences(name: str, data: Path, texts: int) -> list[str]:
    """Return the first texts of a data set: the corpus of the base decoder."""
    found = open_dataset(name, data)
    if not isinstance(found, TextSet):
        raise InvalidInputError.of(
            "textcrafter", "base_data", "a data set of single texts", repr(name)[:60]
        )
    return list(found.texts[:texts])


def _key(text: str) -> str:
    """Return what two texts share that are one text, as in `text_groups`."""
    return normalise_text(text) or text


def corpus_keys(texts: Sequence[str]) -> frozenset[str]:
    """Return the keys of the texts of the base decoder's corpus."""
    return frozenset(_key(text) for text in texts)


def sentence_cell(
    task: Task,
    defence: Applied,
    folder: Path,
    *,
    start_from: Path | None,
    seen: int,
    judged: int,
    encode: Callable[[Sequence[str]], Any],
    seed: int = 0,
    corpus: frozenset[str] = frozenset(),
    **options: Any,
) -> dict[str, Any]:
    """Return what the attack writes back from protected test vectors.

    Args:
        folder: where an interrupted training is kept.
        start_from: folder of the decoder to go on from; None learns from nothing.
        seen: about so many texts are gone through in training, in whole epochs: 16,000 take 3 minutes of one core.
        judged: test texts that are reconstructed.
        corpus: keys of texts that the decoder to go on from has seen: no test text among them is judged.
        options: of the attack.
    """
    rows = task.rows
    new = np.array([_key(rows.texts[i]) not in corpus for i in rows.test], dtype=bool)
    unseen = rows.test[new]
    rng = np.random.default_rng([_NEVER, seed])
    train, test = (
        TextVectors(X, [rows.texts[i] for i in part], rows.groups[part])
        for part, X in (
            (rows.train, task.X[rows.train]),
            (unseen, defence.protect(task.X[unseen], rng)),
        )
    )
    attack = LongGEIA(
        "small",
        start_from=start_from,
        epochs=max(1, round(seen / len(train))),
        judged=judged,
        judge_encoder=lambda texts: encode(list(texts)),
        device="cpu",
        **options,
    )
    result = attack.run(
        train, test, release=defence.oracle()["release"], rng=seed,
        show_progress=False, checkpoint=folder,
    )  # fmt: skip
    figures = {}
    for name in _FIGURES:
        one = result.estimates[name]
        figures[name] = {"value": one.value, "low": one.low, "high": one.high, "chance": one.chance}
    kept = ("texts", "epochs", "epoch", "steps", "loss", "training_seconds", "processor_seconds")
    return {
        "figures": figures,
        "judged": result.main.n,
        "adaptive": result.adaptive,
        "seconds": round(result.seconds, 1),
        "details": {
            **{name: result.details[name] for name in kept if name in result.details},
            "test_texts_in_base_corpus": int((~new).sum()),
        },
    }
