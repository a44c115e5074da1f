"""One cell: how much of the set's own task is left behind a defence, and what token inference reads.

Utility is accuracy and macro-F1 of a logistic regression: in deployment it is trained on clean vectors and run on
protected ones, in development trained on protected ones too. The attackers learn from the training rows, protected
as often as they like; the texts are those that a protector of the set's own concept was fitted on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from research.textcrafter.defences import Applied, noise_norm
from research.textcrafter.vectors import Array, Pii, Task
from vecveil.attacks import (
    BayesPosteriorAttack,
    KernelAttack,
    LabelledVectors,
    LinearAttack,
    LinearProbe,
    MLPAttack,
    MLPProbe,
    NearestNeighboursAttack,
    TransplantAttack,
)
from vecveil.attacks.attack import Attack, AttackResult
from vecveil.metrics.classification import classification
from vecveil.metrics.detection import auc

__all__ = ["TOKEN_ATTACKS", "pii_cell", "task_cell"]

LEARN_ROWS = 3000  # texts with a token that attackers learn from; AG News alone has more
LEARN_SEED = 7  # of which: the same whatever the run's seed
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
_LEAST = 20  # texts that token inference learns from, or is judged on
_NEVER = 1 << 20  # no seed of a run is as large: streams of one seed stay apart


def task_cell(
    task: Task, defence: Applied, seed: int, attacks: Sequence[str] = tuple(TOKEN_ATTACKS)
) -> dict[str, Any]:
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


def _token_inference(
    task: Task, defence: Applied, seed: int, attacks: Sequence[str]
) -> dict[str, Any]:
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
        TOKEN_ATTACKS[name]().run(known, met, rng=seed, show_progress=False, **defence.oracle())
        for name in attacks
    ]
    return {
        "chance": results[0].main.chance,
        "attacks": {result.name: result.value for result in results},
        "seconds": {result.name: round(result.seconds, 2) for result in results},
    }


def pii_cell(pii: Pii, defence: Applied, seed: int) -> dict[str, Any]:
    """Return what a frozen classifier and probes trained on protected vectors say of PII in a text.

    Frozen classifiers learnt from clean vectors: ``benchmark`` is the same for every defence, ``policy`` the one in
    the reward of a policy. The probes learn from protected vectors. What the first no longer see is hidden only if
    the second do not see it either.
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
    """Return weights and intercept of a balanced logistic regression learnt from clean vectors, (n + 1,)."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(class_weight="balanced", max_iter=2000).fit(X, labels)
    return np.concatenate([model.coef_[0], model.intercept_])
