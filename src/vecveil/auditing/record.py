"""Assembles the record of an audit from what the attacks found (docs/formats.md)."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

from vecveil.attacks import FAMILIES, AttackResult
from vecveil.auditing.case import VALIDATION_SHARE, Case, Skipped
from vecveil.auditing.frameworks import framework_findings
from vecveil.auditing.result import SCHEMA
from vecveil.version import __version__

__all__ = ["about_texts", "findings", "head", "limits"]

Results = Mapping[tuple[str, str], AttackResult]

QUICK = (
    "The quick tier runs small attackers; larger networks find up to 8 points more behind erasure, and "
    "attacks that write the text anew are left out (tier full runs them)."
)
FITTED = (
    "An audit on the texts that the protector was fitted on understates what leaks from other texts: "
    "audit texts that the fit has not seen."
)
SINGLE = (
    "Every attack but averaging sees one release of each text; repeated releases let the noise average out "
    "unless they are keyed."
)
RARE = (
    "The probes' share of true positives at 0.1 % false positives is not measured: that needs 1,000 validation "
    "texts without the concept."
)
SAMPLE = (
    "The attackers learnt from this sample alone: somebody with more texts of the store, or with the means "
    "to protect texts of their own, may find more."
)
WRITTEN = (
    "Attacks that write the text anew were trained from scratch on the texts at hand: published ones start from "
    "large pretrained models and write better."
)


def head(*, kind: str, command: str | None, concept: str) -> dict[str, Any]:
    """Return the first keys of a record."""
    return {
        "schema": SCHEMA,
        "vecveil": __version__,
        "kind": kind,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command,
        "concept": concept,
    }


def about_texts(case: Case, *, ids_given: bool) -> dict[str, Any]:
    """Return ``texts`` and ``split``."""
    report = case.matches.report()
    held_out = round(VALIDATION_SHARE * len(case.train))
    rows = [*case.train, *case.test]
    return {
        "texts": {
            "total": len(case.texts),
            "with_concept": report["with_concept"],
            "without_concept": report["without_concept"],
            "emptied": report["emptied"],
            "vocabulary": len(case.vocabulary),
            "token_instances": int(case.labels.sum()),
        },
        "split": {
            "unit": "group of texts with one id" if ids_given else "group of equal texts",
            "groups": len(set(case.groups[rows].tolist())),
            "train": len(case.train) - held_out,
            "validation": held_out,
            "test": len(case.test),
        },
    }


def findings(
    results: Results,
    skipped: Sequence[Skipped],
    case: Case,
    *,
    kind: str,
    lint: Sequence[Mapping[str, str]],
    show_terms: bool,
) -> dict[str, Any]:
    """Return ``attacks``, ``worst``, ``families``, ``terms``, ``reconstructions``, ``skipped`` and what follows."""
    protected = [result for (side, _), result in results.items() if side == "protected"]
    protected.sort(key=lambda result: FAMILIES.index(result.family))
    attacks = [_entry(result, _clean(result, results)) for result in protected]
    worst = {
        family: max(members, key=lambda result: -1.0 if isnan(result.value) else result.value)
        for family in FAMILIES
        if (members := [result for result in protected if result.family == family])
    }
    strongest = worst["token-inference"]
    return {
        "attacks": attacks,
        "worst": strongest.name,
        "families": [{"family": f, "worst": result.name} for f, result in worst.items()],
        "terms": _terms(
            strongest, results.get(("clean", strongest.name)), case, show_terms=show_terms
        ),
        "skipped": [vars_of(each) for each in skipped],
        "lint": [dict(each) for each in lint],
        "frameworks": framework_findings(attacks, kind=kind, lint=lint),
        "reconstructions": _reconstructions(protected, results)
        if case.options.show_reconstructions
        else [],
    }


def vars_of(skipped: Skipped) -> dict[str, str]:
    """Return the record of an attack that was not run."""
    return {"attack": skipped.attack, "family": skipped.family, "reason": skipped.reason}


def _clean(result: AttackResult, results: Results) -> AttackResult | None:
    """Return the same attack on clean vectors; one stands for all numbers of releases that are averaged."""
    return results.get(("clean", result.name)) or (
        results.get(("clean", "averaging")) if result.family == "averaging" else None
    )


def _entry(result: AttackResult, clean: AttackResult | None) -> dict[str, Any]:
    record = result.to_record(clean)
    return {
        **record,
        "over_chance": _over_chance(record["value"], record["chance"]),
        "clean_over_chance": _over_chance(record["clean"], record["chance"]),
    }


def _over_chance(value: float | None, chance: float | None) -> float | None:
    """Return how far a figure lies on the way from chance (0) to certainty (1)."""
    if value is None or chance is None or chance >= 1:
        return None
    return (value - chance) / (1 - chance)


def _terms(
    worst: AttackResult, clean: AttackResult | None, case: Case, *, show_terms: bool
) -> list[dict[str, Any]]:
    if worst.terms is None:
        return []
    before: dict[int, float] = {}
    if clean is not None and clean.terms is not None:
        before = {term["token"]: term["value"] for term in clean.terms.to_records()}
    return [
        {
            "term": case.vocabulary.tokens[term["token"]] if show_terms else None,
            "count": term["count"],
            "clean": before.get(term["token"]),
            "value": term["value"],
            "chance": term["chance"],
        }
        for term in worst.terms.to_records()
    ]


def _reconstructions(
    protected: Sequence[AttackResult], results: Results
) -> list[dict[str, str | None]]:
    found = []
    for result in protected:
        other = results.get(("clean", result.name))
        clean = dict(other.examples) if other is not None else {}
        found += [
            {"attack": result.name, "original": text, "clean": clean.get(text), "protected": guess}
            for text, guess in result.examples
        ]
    return found


def limits(case: Case, results: Results, *, kind: str) -> list[str]:
    """Return what the audit did not test."""
    families = {result.family for result in results.values()}
    metrics = {each.metric for result in results.values() for each in result.estimates.values()}
    return [
        *([QUICK] if case.options.tier == "quick" else []),
        *([WRITTEN] if "reconstruction" in families else []),
        *([RARE] if "probe" in families and "TPR at 0.1 % FPR" not in metrics else []),
        *([FITTED, SINGLE] if kind == "protector" else [SAMPLE]),
        "Words that too few texts hold are not attacked; the share of the concept's words that is attacked "
        "stands under the texts.",
    ]
