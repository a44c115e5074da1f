"""Assembles the record of an audit from what the attacks found (docs/formats.md)."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from vecveil.attacks import FAMILIES, AttackResult
from vecveil.auditing.case import VALIDATION_SHARE, Case, Skipped
from vecveil.auditing.frameworks import framework_findings
from vecveil.auditing.result import SCHEMA
from vecveil.auditing.strongest import over_chance, strongest
from vecveil.version import __version__

__all__ = ["about_texts", "findings", "head", "limits"]

Results = Mapping[tuple[str, str], AttackResult]

QUICK = (
    "The quick tier runs small attackers. Larger networks find up to 8 points more behind erasure; more texts to "
    "learn from and pretrained decoders find more too. Attacks that write the text anew are left out (tier full "
    "runs them)."
)
FITTED = (
    "An audit on the texts that the protector was fitted on understates what leaks from other texts: "
    "audit texts that the fit has not seen."
)
SINGLE = (
    "Every attack but averaging sees one release of each text; repeated releases let the noise average out "
    "unless they are keyed."
)
RATES = {
    "TPR at 1 % FPR": ("1 %", "100"),
    "TPR at 0.1 % FPR": ("0.1 %", "1,000"),
}
"""False-positive rates of the probes, and how many texts without the concept they need to be set."""
RARE = (
    "The probes' share of true positives at {rates} false positives is not stated: to set the threshold takes "
    "{texts} texts without the concept among the fifth of the training texts that a probe sets aside."
)
RARE_WORDS = (
    "Words that too few texts hold are not attacked, and texts that hold no attacked word are not used; how much of "
    "the concept that leaves out stands beside “Words attacked”."
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
    held = case.matches.tokens()
    return {
        "texts": {
            "total": len(case.texts),
            "with_concept": report["with_concept"],
            "without_concept": report["without_concept"],
            "emptied": report["emptied"],
            "words": len({word for words in held for word in words}),
            "word_occurrences": sum(len(words) for words in held),
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
    leading = {family: str(attack["name"]) for family, attack in strongest(attacks).items()}
    worst = results["protected", leading["token-inference"]]
    return {
        "attacks": attacks,
        "worst": worst.name,
        "families": [{"family": family, "worst": name} for family, name in leading.items()],
        "terms": _terms(worst, results.get(("clean", worst.name)), case, show_terms=show_terms),
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
        "over_chance": over_chance(record["value"], record["chance"]),
        "clean_over_chance": over_chance(record["clean"], record["chance"]),
    }


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
    return [
        *([QUICK] if case.options.tier == "quick" else []),
        *([WRITTEN] if "reconstruction" in families else []),
        *_rare(results),
        *([FITTED, SINGLE] if kind == "protector" else [SAMPLE]),
        RARE_WORDS,
    ]


def _rare(results: Results) -> list[str]:
    """Return why the probes have no figure at a low false-positive rate."""
    probes = [result for result in results.values() if result.family == "probe"]
    stated = {each.metric for result in probes for each in result.estimates.values()}
    missing = [said for metric, said in RATES.items() if metric not in stated]
    if not probes or not missing:
        return []
    rates, texts = (" and ".join(each) for each in zip(*missing, strict=True))
    return [RARE.format(rates=rates, texts=texts)]
