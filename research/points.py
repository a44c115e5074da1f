"""Measure one point: a defence at a scale, the remaining utility, and the leakage to attackers.

A point's ``found`` has ``utility`` (value, clean, relative, interval), ``attacks`` (name -> metric -> value, low,
high, chance), ``worst`` (the attack with the highest R-precision), ``categories`` and ``protector`` (ε, noise,
parameters, guarantee, distance of the pairs).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from research.bench import Bench, Material
from research.scales import Scale
from vecveil.auditing.attacks import LabelledVectors
from vecveil.auditing.attacks.attack import Attack, AttackResult
from vecveil.auditing.attacks.ladder import ladder_attacks, own_attacks
from vecveil.auditing.attacks.perceptrons import MLPAttack
from vecveil.auditing.attacks.token_inference import FurtherKernelAttack
from vecveil.auditing.metrics import Estimate, UtilityTask
from vecveil.errors import unknown_name
from vecveil.privacy.protector import Protector, fit_pairs
from vecveil.types import Embeddings

UTILITY_DRAWS = 3


def attacks_named(names: Sequence[str], *, further: bool) -> list[Attack[LabelledVectors, Any]]:
    """Return token-inference attacks by name; ``quick`` and ``full`` are tiers.

    Without ``further`` texts to learn from, the attack that needs them is left out.
    """
    known: dict[str, Attack[LabelledVectors, Any]] = {
        attack.name: attack for attack in ladder_attacks("full", device="cpu")
    }
    quick = [attack.name for attack in ladder_attacks("quick", device="cpu")]
    tiers = {"quick": quick, "full": list(known)}
    # Specifications of published tables name it.
    known |= {"mlp-2048": MLPAttack((2048,), epochs=40, device="cpu"), **own_attacks()}
    chosen = [one for name in names for one in tiers.get(name, [name])]
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise unknown_name("experiment", "attacks", ["quick", "full", *known], unknown[0])
    found = [known[name] for name in dict.fromkeys(chosen)]
    return [attack for attack in found if further or not isinstance(attack, FurtherKernelAttack)]


def defend(bench: Bench, material: Material, method: str, scale: Scale, **options: Any) -> Protector | None:
    """Return a protector fitted on the learning texts, or None for clean vectors.

    SPARSE's mask depends on the texts alone and is learnt once for all scales.
    """
    if scale.kind == "clean" or method == "none":
        return None
    rows = material.fit_rows
    arguments: dict[str, Any] = {**scale.arguments(method), **options}
    name = method
    if method in ("sparse", "sparse-whitebox"):
        key = (
            "mask",
            material.problem.name,
            hash(material.positive[:1].tobytes()),  # of one encoder: two may agree in dimension
            material.seed,
            method,
            repr(options),
        )
        fitted = bench.once(key, lambda: _fit(material, rows, method, {"noise_to_signal": 1.0, **options}))
        shape = getattr(fitted.mechanism, "shape", None)  # a Mahalanobis mechanism has one
        arguments = {**scale.arguments(method), "shape": shape, "postprocess": "none"}
        name = "covariance"
    protector = _fit(material, rows, name, arguments)
    if name != method:
        mask = fitted.report.get("mask")
        known = {"parameters": fitted.report["parameters"], **({"mask": mask} if mask else {})}
        protector = dataclasses.replace(protector, report={**protector.report, **known})
    return protector


def _fit(material: Material, rows: Any, method: str, arguments: dict[str, Any]) -> Protector:
    return fit_pairs(
        material.positive[rows],
        material.negative[rows],
        material.fit_labels if material.fit_labels.shape[1] else None,
        material.background if len(material.background) >= 20 else None,
        method=method,
        utility=material.task,
        groups=material.fit_groups,
        seed=material.seed,
        show_progress=False,
        **arguments,
    )


def utility(task: UtilityTask, protector: Protector | None, seed: int) -> dict[str, Any]:
    """Return a task's figure with both sides protected, the mean of three draws of noise, without text stages."""
    clean = task.clean()
    if protector is None:
        return utility_record(clean, clean)

    def release(X: Embeddings, rng: np.random.Generator | None) -> Embeddings:
        return protector.protect(X, rng, noise=rng is not None, rewritten=True)

    rng = np.random.default_rng([seed, 11])
    draws = [task.protected(release, rng) for _ in range(UTILITY_DRAWS)]
    value, low, high = np.mean([(d.value, d.low, d.high) for d in draws], axis=0).tolist()
    return utility_record(dataclasses.replace(clean, value=value, low=low, high=high), clean)


def utility_record(figure: Estimate, clean: Estimate) -> dict[str, Any]:
    """Return a task's figure for a record, also as a share of the figure on clean vectors."""
    return {
        "metric": figure.metric,
        "value": figure.value,
        "clean": clean.value,
        "relative": figure.value / clean.value if clean.value > 0 else None,
        "low": figure.low,
        "high": figure.high,
    }


def released(protector: Protector | None, X: Embeddings, seed: int) -> tuple[Embeddings, dict[str, Any]]:
    """Return one release of the judged vectors, and the attackers' knowledge: the oracle and the noise covariance."""
    if protector is None:
        return X, {}
    oracle = {"release": protector.release(), "noise_covariance": protector.released_noise_covariance()}
    return protector.protect(X, np.random.default_rng([seed, 12]), rewritten=True), oracle


def leakage(
    material: Material,
    protector: Protector | None,
    names: Sequence[str],
    *,
    further: bool = False,
    changed: Embeddings | None = None,
) -> dict[str, Any]:
    """Return each attack's figures on the judged texts, trained on releases of the learning texts.

    Args:
        changed: vectors of changed texts, attacked in place of the clean ones, without ``transplant``.
    """
    case, seed = material.case, material.seed
    X = case.embeddings if changed is None else changed
    assert X is not None
    judged, oracle = released(protector, X[case.test], seed)
    known = LabelledVectors(
        X[case.train],
        case.labels[case.train],
        case.groups[case.train],
        case.without_train if changed is None else None,
        case.further if further else None,
    )
    met = LabelledVectors(judged, case.labels[case.test], case.groups[case.test])
    if not names:
        return {"vocabulary": len(case.vocabulary)}
    results = [
        attack.run(known, met, rng=seed, show_progress=False, **oracle)
        for attack in attacks_named(names, further=known.further is not None)
        if changed is None or attack.name != "transplant"
    ]
    worst = max(results, key=lambda result: result.value)
    return {
        "attacks": {result.name: _figures(result) for result in results},
        "worst": worst.name,
        "leakage": short(worst.estimates["r_precision"]),
        "categories": categories(material, worst),
        "vocabulary": len(case.vocabulary),
        "texts": {"learnt": len(case.train), "judged": len(case.test)},
    }


def _figures(result: AttackResult) -> dict[str, Any]:
    found = {key: short(one) for key, one in result.estimates.items()}
    return {**found, "seconds": round(result.seconds, 2)}


def short(estimate: Estimate) -> dict[str, float | None]:
    """Return value, interval and chance of an estimate for a record, rounded."""
    record = estimate.to_record()
    return {key: None if record[key] is None else round(record[key], 5) for key in ("value", "low", "high", "chance")}


def categories(material: Material, result: AttackResult) -> dict[str, Any]:
    """Return the share of each category's word instances that an attack ranked among the text's k best."""
    table = result.terms
    if table is None:
        return {}
    of = [material.problem.categories.get(token, "other") for token in material.case.vocabulary]
    found: dict[str, Any] = {}
    for name in dict.fromkeys(of):
        own = np.array([one == name for one in of])
        count = int(table.counts[own].sum())
        if not count:
            continue
        chance = None if table.chance is None else float(table.chance[own].sum()) / count
        found[name] = {
            "value": float(table.hits[own].sum()) / count,
            "chance": chance,
            "n": count,
            "words": int(own.sum()),
        }
    return found


def protector_record(protector: Protector | None) -> dict[str, Any] | None:
    if protector is None:
        return None
    report = protector.report
    guarantee = protector.guarantee
    return {
        "epsilon": report.get("epsilon"),
        "noise_to_signal": report.get("noise_to_signal"),
        "parameters": report.get("parameters"),
        "mask": report.get("mask"),
        "guarantee": guarantee.kind,
        "epsilon_euclidean_worst": guarantee.epsilon_euclidean_worst,
        "concept_distance": report.get("concept_distance"),
    }


def measure_point(
    bench: Bench,
    material: Material,
    method: str,
    scale: Scale,
    attacks: Sequence[str],
    *,
    further: bool = False,
    **options: Any,
) -> dict[str, Any]:
    protector = defend(bench, material, method, scale, **options)
    return {
        "utility": utility(material.task, protector, material.seed),
        **leakage(material, protector, attacks, further=further),
        "protector": protector_record(protector),
    }
