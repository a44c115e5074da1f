"""Measure one cell: utility and token inference of a set, PII probes, and reconstruction behind a defence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research.datasets import TextSet, open_dataset
from research.textcrafter.data import Array, Pii, Task
from research.textcrafter.defences import Applied, noise_norm
from vecveil.auditing.attacks import (
    BayesPosteriorAttack,
    GEIAAttack,
    KernelAttack,
    LabelledVectors,
    LinearAttack,
    LinearProbe,
    MLPAttack,
    MLPProbe,
    NearestNeighboursAttack,
    TextVectors,
    TransplantAttack,
)
from vecveil.auditing.attacks.attack import Attack, AttackResult, normalise_text, text_groups
from vecveil.errors import InvalidInputError
from vecveil.privacy.utility.ranking import auc
from vecveil.privacy.utility.tasks import classification

LEARN_ROWS = 3000  # training texts with a token; only AG News has more
LEARN_SEED = 7  # of this sample, equal for all seeds of a run
KERNEL_ROWS = 4096  # of the kernel attack: time grows with their cube
TOKEN_ATTACKS: dict[str, Callable[[], Attack[LabelledVectors, LabelledVectors]]] = {
    "linear": LinearAttack,
    "kernel": lambda: KernelAttack(rows=KERNEL_ROWS),
    "transplant": lambda: TransplantAttack(rows=KERNEL_ROWS),
    "nearest-neighbours": NearestNeighboursAttack,
    "bayes-posterior": BayesPosteriorAttack,
    "mlp-2048": lambda: MLPAttack((2048,), device="cpu"),
}
"""The attacks that were strongest on some defence, by name."""
_LEAST = 20  # minimum number of texts for training, and for judging, token inference
_NEVER = 1 << 20  # larger than any seed of a run, so that the streams of a seed differ


def task_cell(task: Task, defence: Applied, seed: int, attacks: Sequence[str] = tuple(TOKEN_ATTACKS)) -> dict[str, Any]:
    """Return utility in both scenarios and R-precision of each token-inference attack."""
    rows = task.rows
    train, test = task.X[rows.train], task.X[rows.test]
    rng = np.random.default_rng([_NEVER, seed])
    protected_train, protected_test = (defence.protect(X, rng) for X in (train, test))
    found: dict[str, Any] = {"noise_norm": noise_norm(defence, test, rng)}
    for scenario in ("deployment", "development"):
        result = classification(
            train,
            rows.classes[rows.train],
            protected_test,
            rows.classes[rows.test],
            scenario=scenario,
            protected_train=protected_train,
            groups=rows.groups[rows.test],
            seed=seed,
        )
        found[scenario] = {
            "accuracy": result.accuracy.value,
            "macro_f1": result.macro_f1.value,
            "chance": result.accuracy.chance,
            "macro_f1_chance": result.macro_f1.chance,
        }
    return {**found, "token_inference": _token_inference(task, defence, seed, attacks)}


def _token_inference(task: Task, defence: Applied, seed: int, attacks: Sequence[str]) -> dict[str, Any]:
    """Return the R-precision of each attack on test texts that hold a token."""
    rows = task.rows
    learn, learn_labels = task.tokens(rows.train)
    if len(learn) > LEARN_ROWS:
        some = np.sort(np.random.default_rng(LEARN_SEED).choice(len(learn), LEARN_ROWS, False))
        learn, learn_labels = learn[some], learn_labels[some]
    judge, judge_labels = task.tokens(rows.test)
    if min(len(learn), len(judge)) < _LEAST:
        return {"chance": None, "attacks": {}, "seconds": {}}  # only where few rows were asked for
    rng = np.random.default_rng([_NEVER + 1, seed])
    without = task.negative_of(learn)
    known = LabelledVectors(task.X[learn], learn_labels, rows.groups[learn], without)
    released = defence.protect(task.X[judge], rng)
    met = LabelledVectors(released, judge_labels, rows.groups[judge])
    results: list[AttackResult] = [
        TOKEN_ATTACKS[name]().run(known, met, rng=seed, show_progress=False, **defence.oracle()) for name in attacks
    ]
    return {
        "chance": results[0].main.chance,
        "attacks": {result.name: result.value for result in results},
        "seconds": {result.name: round(result.seconds, 2) for result in results},
    }


def pii_cell(pii: Pii, defence: Applied, seed: int) -> dict[str, Any]:
    """Return the PII scores of frozen classifiers, and of probes trained on protected vectors.

    Frozen classifiers learn from clean vectors: ``benchmark`` is the same for every defence, ``policy`` is the one in a
    policy's reward. PII is hidden only if the probes fail to find it too.
    """
    (X, labels, groups), (Y, truth, test_groups) = pii.train, pii.test
    rng = np.random.default_rng([_NEVER + 2, seed])
    released = defence.protect(Y, rng)
    holds = truth[:, 0].astype(bool)
    known = LabelledVectors(X, labels, groups)
    met = LabelledVectors(released, truth, test_groups)
    models = {"benchmark": _learnt(X, labels[:, 0])}
    if defence.classifier is not None:
        models["policy"] = defence.classifier

    def reading(model: Array) -> dict[str, float]:
        scores = released.astype(np.float64) @ model[:-1] + model[-1]
        probability = 1 / (1 + np.exp(-scores))
        return {
            "p_with": float(probability[holds].mean()),
            "p_without": float(probability[~holds].mean()),
            "auc": auc(scores, holds, test_groups).value,
        }

    probes = {}
    for probe in (LinearProbe(), MLPProbe(device="cpu")):
        result = probe.run(known, met, rng=seed, show_progress=False, **defence.oracle())
        probes[result.name] = result.estimates["auc"].value
    return {
        "noise_norm": noise_norm(defence, Y, rng),
        "frozen": {name: reading(model) for name, model in models.items()},
        "probes": probes,
    }


def _learnt(X: Array, labels: Array) -> Array:
    """Return weights and intercept of a balanced logistic regression trained on clean vectors, (n + 1,)."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(class_weight="balanced", max_iter=2000).fit(X, labels)
    return np.concatenate([model.coef_[0], model.intercept_])


_FIGURES = ("bleu", "token_f1", "exact_match", "rouge_l", "cosine")
_NEVER_TOO = (1 << 20) + 3
BASE_HELD = 500  # sentences of the corpus held out from the base decoder
BASE_VALIDATION = 0.02
BASE_JUDGED = 20  # training ends with a reconstruction, which is not used


class LongGEIA(GEIAAttack):
    """GEIA with a small validation set, which leaves more training texts."""

    validation_share = 0.04


def train_base(
    texts: Sequence[str], folder: Path, encode: Callable[[Sequence[str]], Any], *, show_progress: bool | None = None
) -> None:
    """Train the base decoder on clean vectors of sentences; an interrupted training resumes."""
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
        raise InvalidInputError(
            f"textcrafter: `base_data` {repr(name)[:60]} is no data set of single texts.", param="base_data"
        )
    return list(found.texts[:texts])


def _key(text: str) -> str:
    """Return the key that equal texts share, as in `text_groups`."""
    return normalise_text(text) or text


def corpus_keys(texts: Sequence[str]) -> frozenset[str]:
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
    """Return the figures of the reconstruction of protected test vectors.

    Args:
        folder: of the checkpoint of an interrupted training.
        start_from: folder of the base decoder; None trains from scratch.
        seen: approximate number of training texts over all epochs: 16,000 take 3 minutes of one core.
        judged: number of test texts to reconstruct.
        corpus: keys of the base decoder's training texts; test texts among them are not judged.
        options: of the attack.
    """
    rows = task.rows
    new = np.array([_key(rows.texts[i]) not in corpus for i in rows.test], dtype=bool)
    unseen = rows.test[new]
    rng = np.random.default_rng([_NEVER_TOO, seed])
    train, test = (
        TextVectors(X, [rows.texts[i] for i in part], rows.groups[part])
        for part, X in ((rows.train, task.X[rows.train]), (unseen, defence.protect(task.X[unseen], rng)))
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
        train, test, release=defence.oracle()["release"], rng=seed, show_progress=False, checkpoint=folder
    )
    keys = ("value", "low", "high", "chance")
    figures = {name: {key: getattr(result.estimates[name], key) for key in keys} for name in _FIGURES}
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
