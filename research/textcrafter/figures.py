"""The figures of the experiment: accuracy against BLEU (Fig. 3 of the paper), and how policies learn."""

from __future__ import annotations

import statistics

from research.experiment import Records
from research.summary import Figure, Series
from research.textcrafter.specification import TextCrafterSpec
from research.textcrafter.words import LABEL, main_in, set_title, sets_in, title

__all__ = ["figures"]

CURVES = {"reward": "reward", "p_pii": "p(PII)", "cluster_distance": "distance to c"}


def figures(spec: TextCrafterSpec, records: Records) -> list[Figure]:
    """Return those figures whose records are there."""
    return [*_accuracy_against_bleu(spec, records), *_learning(spec, records)]


def _accuracy_against_bleu(spec: TextCrafterSpec, records: Records) -> list[Figure]:
    utility, sentences = (records.where(part=part) for part in ("utility", "sentences"))
    found = []
    for where in sets_in(sentences):
        series = []
        for defence in main_in(spec, sentences):
            bleu = sentences.where(set=where, defence=defence).figures("figures", "bleu", "value")
            own = utility.where(set=where, defence=defence)
            accuracy = own.figures("deployment", "accuracy")
            if bleu and accuracy:
                x, y = (100 * statistics.fmean(values) for values in (bleu, accuracy))
                series.append(Series(title(spec, defence), [(x, y, None, None)]))
        if series:
            found.append(
                Figure(
                    title=f"Accuracy against BLEU: {set_title(where)}",
                    caption="Deployment. Further left is harder to reconstruct, further up is more useful.",
                    x="BLEU of the reconstruction (%)",
                    y="accuracy (%)",
                    series=series,
                )
            )
    return found


def _learning(spec: TextCrafterSpec, records: Records) -> list[Figure]:
    rows = [row for row in records.where(part="curves") if row["cell"]["seed"] == 0]
    return [
        Figure(
            title=f"Learning curves: {what}",
            caption=f"Of released vectors held out from training, by epoch; {LABEL}.",
            x="epoch",
            y=what,
            series=[
                Series(
                    title(spec, row["cell"]["defence"]),
                    [(e["epoch"], e[name], None, None) for e in row["found"]["training"]["epochs"]],
                )
                for row in rows
            ],
        )
        for name, what in CURVES.items()
        if rows
    ]
