"""What a fit has learnt: for a person on stderr, for a program as a record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vecveil.cli.printing import note, number, share

if TYPE_CHECKING:
    from vecveil.protector import Protector

__all__ = ["describe", "record"]


def describe(protector: Protector) -> None:
    """Tell on stderr what was learnt."""
    report = protector.report
    if counts := report.get("texts"):
        alone = f", {counts['emptied']:,} consist of it alone" if counts["emptied"] else ""
        labelled = "labelled" in report
        holds = "have a label" if labelled else "hold it"
        note(
            f"Concept {protector.concept!r}: {counts['with_concept']:,} of {counts['texts']:,} "
            f"texts {holds}, {counts['without_concept']:,} do not{alone}."
        )
        if counts["without_concept"] < 20 and not labelled:
            note(
                "  So few texts without it that those with it removed stood in for ordinary texts."
            )
    if moved := report.get("relabelled"):
        note(
            f"Relabelled by {moved['by']}: {moved['moved']:,} of {moved['texts']:,} texts without the concept hold PII."
        )
    if made := report.get("expansion"):
        cost = made["encodings"]
        note(
            f"Expanded by {made['members']:,} members in {made['texts']:,} texts, {made['found']:,} of them as they "
            f"are; cost: {cost['members'] + cost['texts']:,} encodings."
        )
    parameters = ", ".join(
        f"{k} {number(v)}" for k, v in report["parameters"].items() if v is not None
    )
    note(f"Method {protector.method}{f': {parameters}' if parameters else ''}")
    scales = [
        f"{name} {number(report[name])}"
        for name in ("epsilon", "delta", "sigma", "radius")
        if report.get(name) is not None
    ]
    if report["noise_to_signal"] is not None:
        scales.append(f"noise-to-signal {number(report['noise_to_signal'])}")
    note(f"Noise: {', '.join(scales) or 'none'}")
    for key, entry in report["utility"].items():
        asked = report["asked"].get("target_utility") if key == report["utility_task"] else None
        target = "" if asked is None else f" (target {share(asked)})"
        note(f"Keeps {share(entry['relative'])}{target} of: {entry['label']}")
    if report["concept_distance"] is not None:
        note(report["concept_distance"]["statement"])
    for warning in report["warnings"]:
        note(f"Note: {warning}")
    guarantee = protector.guarantee
    note(f"Guarantee ({guarantee.kind}): {guarantee.statement}")


def record(protector: Protector, out: Path) -> dict[str, Any]:
    """Return what ``fit --json`` prints."""
    return {
        "protector": str(out),
        "method": protector.method,
        "concept": protector.concept,
        "encoder": protector.encoder_info.to_record(),
        "dimension": protector.dimension,
        "released_dimension": protector.released_dimension,
        "fingerprint": protector.fingerprint,
        "report": protector.report,
        "guarantee": protector.guarantee.to_record(),
    }
