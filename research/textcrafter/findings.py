"""The paper's claims, counted in our records."""

from __future__ import annotations

import statistics
from typing import Any

from research.experiment import Records
from research.published import claims, published
from research.published.comparison import Tally
from research.summary import Finding, Verdict
from research.textcrafter.specification import TextCrafterSpec
from research.textcrafter.words import PAPER_ROWS, set_title, sets_in

__all__ = ["findings"]

READINGS = {"textcrafter-untrained": "the literal reading", "textcrafter": "v learnt"}
SCENARIOS = ("deployment", "development")
DIFFERENCE = (
    "Encoder {encoder}, where the paper names none; GEIA trained here in minutes, where the paper's Vec2Text starts "
    "from pretrained models; logistic regression on samples of the sets; r = {radius:g}, where its r, σ and ε are "
    "not legible."
)


def findings(spec: TextCrafterSpec, records: Records) -> list[Finding]:
    """Return each claim with how many comparisons it holds in, for both readings of TextCrafter and both scenarios."""
    found = []
    table = published("textcrafter-table-1")
    for claim in claims("textcrafter"):
        told, first = [], None
        for reading, words in READINGS.items():
            for scenario in SCENARIOS if claim.compare.figure == "accuracy" else SCENARIOS[:1]:
                rows = _rows(records, reading, scenario)
                tally = claim.compare.tally(rows, table.keys)
                first = tally if first is None else first
                if tally.cells:
                    of = f", {scenario}" if claim.compare.figure == "accuracy" else ""
                    told.append(f"{words}{of}: {tally.held} of {tally.cells}")
        theirs = claim.published_tally()
        assert first is not None
        found.append(
            Finding(
                claim=claim.claim,
                source=claim.source,
                verdict=_verdict(first),
                ours="Holds in " + "; ".join(told) + " comparisons." if told else "",
                published=f"Holds in {theirs.held} of {theirs.cells} comparisons of its own table.",
                difference=DIFFERENCE.format(encoder=spec.encoder, radius=spec.radius),
            )
        )
    return [*found, *_at_equal_accuracy(records)]


def _rows(records: Records, reading: str, scenario: str) -> list[dict[str, Any]]:
    """Return rows as the paper's table has them, in per cent; ``reading`` is its TextCrafter."""
    names = {ours: theirs for ours, theirs in PAPER_ROWS.items() if theirs != "textcrafter"}
    names[reading] = "textcrafter"
    utility, sentences = (records.where(part=part) for part in ("utility", "sentences"))
    rows = []
    for where in sets_in(records):
        for ours, theirs in names.items():
            own = utility.where(set=where, defence=ours).figures(scenario, "accuracy")
            read = sentences.where(set=where, defence=ours).figures("figures", "bleu", "value")
            row: dict[str, Any] = {"dataset": where, "method": theirs}
            row["accuracy"] = 100 * statistics.fmean(own) if own else None
            row["bleu"] = 100 * statistics.fmean(read) if read else None
            rows.append(row)
    return rows


def _verdict(tally: Tally) -> Verdict:
    if tally.cells == 0:
        return "not measured"
    if tally.held == tally.cells:
        return "agrees"
    return "disagrees" if 2 * tally.held < tally.cells else "unclear"


def _at_equal_accuracy(records: Records) -> list[Finding]:
    """Return whether learning gains anything over Gaussian noise of twice the norm, of about the same accuracy."""
    parts, wins = [], 0
    utility = records.where(part="utility", seed=0)
    for where in sets_in(utility):
        figures = []
        for defence in ("textcrafter", "gaussian-2"):
            own = utility.where(set=where, defence=defence)
            for row in own:
                attacks = row["found"]["token_inference"]["attacks"]
                accuracy = row["found"]["deployment"]["accuracy"]
                if attacks:
                    figures.append((accuracy, max(attacks.values())))
        if len(figures) == 2:
            (ours, reads), (theirs, beside) = figures
            wins += reads < beside and ours >= theirs
            parts.append(
                f"{set_title(where)}: accuracy {100 * ours:.1f} % and R-precision {reads:.3f} against "
                f"{100 * theirs:.1f} % and {beside:.3f}"
            )
    if not parts:
        return []
    verdict: Verdict = "agrees" if wins == len(parts) else "disagrees" if wins == 0 else "unclear"
    return [
        Finding(
            claim=(
                "A learnt perturbation of norm r leaks less, at no less accuracy, than Gaussian noise of norm 2r that "
                "costs about as much accuracy."
            ),
            source="what learning is for; first seed, deployment",
            verdict=verdict,
            ours="; ".join(parts) + ".",
        )
    ]
