"""What the figures of an audit bear on, in the words of published security frameworks.

Names and numbers are those of OWASP Top 10 for LLM Applications 2025, MITRE ATLAS (AML.T0024 and its
techniques .000 and .001) and OWASP AISVS 1.0. No item is called met or failed: a finding says what the
attacks found, and where none was run that an item needs, it says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vecveil.auditing.strongest import strongest

__all__ = ["framework_findings"]

NAMES = {
    "token-inference": "token inference",
    "probe": "concept probe",
    "candidates": "candidate matching",
    "averaging": "averaging of releases",
    "alignment": "alignment",
    "reconstruction": "reconstruction",
    "held-out-terms": "terms held out of the fit",
}
EVERY = tuple(NAMES)
NBSP = "\u00a0"
LLM_TOP_10 = "OWASP Top 10 for LLM Applications 2025"
ATLAS = "MITRE ATLAS"
AISVS = "OWASP AISVS 1.0"


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a framework, and the families whose attacks bear on it.

    Attributes:
        bearing: What a figure says about the item, for the sentence: "of the {vectors}" follows.
        linted: Whether a warning about how the store is kept bears on it too.
    """

    framework: str
    item: str
    title: str
    families: tuple[str, ...]
    bearing: str
    linted: bool = False


ITEMS = (
    Item(
        LLM_TOP_10,
        "LLM08:2025",
        "Vector and Embedding Weaknesses",
        EVERY,
        "Embedding inversion and leakage",
        linted=True,
    ),
    Item(
        ATLAS,
        "AML.T0024",
        "Exfiltration via AI Inference API",
        ("token-inference", "probe", "averaging", "reconstruction"),
        "What vectors that are handed out give away",
    ),
    Item(
        ATLAS,
        "AML.T0024.000",
        "Infer Training Data Membership",
        ("candidates",),
        "Whether a known text is behind a vector (of a store, not of a model's training data)",
    ),
    Item(
        ATLAS,
        "AML.T0024.001",
        "Invert AI Model",
        ("token-inference", "alignment", "reconstruction"),
        "What inversion recovers",
    ),
    Item(
        AISVS,
        "C8.2",
        "Embedding Sanitization & Validation",
        ("token-inference", "probe", "held-out-terms"),
        "What is left of the sensitive concept after embedding (8.2.1)",
        linted=True,
    ),
    Item(
        AISVS,
        "C11.2",
        "Membership-Inference and Model-Inversion Mitigation",
        ("probe", "candidates", "token-inference", "reconstruction"),
        "Attacks run against the mitigation (11.2.1, 11.2.5)",
    ),
)


def framework_findings(
    attacks: Sequence[Mapping[str, Any]], *, kind: str, lint: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the ``frameworks`` of an audit record: one entry for each item, with its finding.

    Args:
        attacks: The ``attacks`` of the record.
        kind: ``protector`` or ``store``.
        lint: The ``lint`` of the record.
    """
    measured = [attack for attack in attacks if attack["value"] is not None]
    found = strongest(measured)
    return [_finding(item, found, kind, lint) for item in ITEMS]


def _finding(
    item: Item,
    found: Mapping[str, Mapping[str, Any]],
    kind: str,
    lint: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    tested = [family for family in item.families if family in found]
    missing = [NAMES[family] for family in item.families if family not in found]
    vectors = "stored vectors" if kind == "store" else "protected vectors"
    sentences = []
    if tested:
        listed = "; ".join(f"{NAMES[family]} {_said(found[family])}" for family in tested)
        sentences.append(f"{item.bearing}, from {vectors} (95{NBSP}% intervals): {listed}.")
        if missing:
            sentences.append(f"Not tested: {', '.join(missing)}.")
    else:
        sentences.append(f"Not tested: no attack of the kind was run ({', '.join(missing)}).")
    if item.linted and lint:
        codes = ", ".join(str(each["code"]) for each in lint)
        sentences.append(f"Warnings about how the store is kept: {codes}.")
    return {
        "framework": item.framework,
        "item": item.item,
        "title": item.title,
        "finding": " ".join(sentences),
        "attacks": [str(found[family]["name"]) for family in tested],
    }


def _said(attack: Mapping[str, Any]) -> str:
    """Return the main figure of an attack with interval, chance and clean value, and how they compare."""
    chance, clean, low, high = (attack[key] for key in ("chance", "clean", "low", "high"))
    shown = [f"{_percent(low)} to {_percent(high)}"] if _known(low, high) else ["no interval"]
    shown.append("chance not stated" if chance is None else f"chance {_percent(chance)}")
    if clean is not None:
        shown.append(f"clean {_percent(clean)}")
    placed = [_place(attack), *_beside(attack)]
    found = f"{_percent(attack['value'])} {attack['metric']} ({', '.join(shown)})"
    return f"{found}: {', '.join(placed)}"


def _place(attack: Mapping[str, Any]) -> str:
    low, high, chance = attack["low"], attack["high"], attack["chance"]
    if not _known(low, high, chance):
        return "not comparable with chance"
    if low > chance:
        return "above chance"
    return "at chance within its interval" if high >= chance else "below chance"


def _beside(attack: Mapping[str, Any]) -> list[str]:
    low, high = attack["low"], attack["high"]
    clean_low, clean_high = attack["clean_low"], attack["clean_high"]
    if not _known(low, high, clean_low, clean_high):
        return []
    if high < clean_low:
        return ["below clean"]
    return ["above clean" if low > clean_high else "not clearly below clean"]


def _known(*figures: Any) -> bool:
    return all(figure is not None for figure in figures)


def _percent(share: float) -> str:
    if 0 < share < 0.0005:
        return f"<0.1{NBSP}%"
    return f"{100 * share:.1f}{NBSP}%"
