"""What the tables and figures share: names of sets and defences, and figures picked from records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from research.experiment import Records
from research.summary import Number, number
from research.textcrafter.defences import DEFENCES
from research.textcrafter.specification import PII, TextCrafterSpec

__all__ = [
    "LABEL",
    "PAPER_ROWS",
    "SENTENCE",
    "defences_in",
    "main_in",
    "mean",
    "sentence",
    "set_title",
    "sets_in",
    "strongest",
    "title",
]

LABEL = "empirical, no formal privacy guarantee"
TITLES = {
    "phrasebank": "Financial PhraseBank",
    "ade": "ADE",
    "sst2": "SST-2",
    "agnews": "AG News",
}
# The paper's TextCrafter is the literal one, whose direction v is as drawn.
PAPER_ROWS = {
    "none": "none",
    "shuffle": "shuffle",
    "gaussian": "gaussian",
    "ldp-gaussian": "ldp-gaussian",
    "textcrafter-untrained": "textcrafter",
}
# Title, and whether it is a share, of each figure of the sentence-level attack.
SENTENCE = {
    "bleu": ("BLEU", True),
    "token_f1": ("T-F1", True),
    "exact_match": ("EM", True),
    "rouge_l": ("R-L", True),
    "cosine": ("cosine", False),
}


def set_title(name: str) -> str:
    """Return a set as tables call it."""
    return TITLES.get(name, name)


def title(spec: TextCrafterSpec, name: str) -> str:
    """Return a defence as tables call it; TextCrafter never without its label."""
    one = spec.defence(name)
    words = one.title if name in DEFENCES else f"{name}: {one.title}"
    return f"{words}; {LABEL}" if one.method.startswith("textcrafter") else words


def sets_in(records: Records) -> list[str]:
    """Return the labelled sets with a record."""
    return [name for name in records.values("set") if name != PII]


def defences_in(spec: TextCrafterSpec, records: Records) -> list[str]:
    """Return the defences with a record, in the order of the specification."""
    held = set(records.values("defence"))
    return [name for name in spec.defences if name in held]


def main_in(spec: TextCrafterSpec, records: Records) -> list[str]:
    """Return the defences of the paper's table, ours and variants, with a record."""
    controls = {name for name, one in DEFENCES.items() if not one.main}
    return [name for name in defences_in(spec, records) if name not in controls]


def mean(records: Records, *path: str, digits: int = 1, **more: Any) -> Number | None:
    """Return a figure's mean and deviation over seeds."""
    return number(records.figures(*path), digits=digits, **more)


def strongest(records: Records, *path: str) -> list[float]:
    """Return the highest of several figures for each record that has them."""
    found = []
    for row in records:
        held: Any = row["found"]
        for key in path:
            held = held.get(key) if isinstance(held, Mapping) else None
        if held:
            found.append(max(held.values()))
    return found


def sentence(
    records: Records, name: str, *, interval: bool = False, published: float | None = None
) -> Number | None:
    """Return a figure of the sentence-level attack, with its interval if asked."""
    low, high = (records.figures("figures", name, end) for end in ("low", "high"))
    _, share = SENTENCE[name]
    return number(
        records.figures("figures", name, "value"), low=low if interval else (),
        high=high if interval else (), digits=1 if share else 3, percent=share, published=published,
    )  # fmt: skip
