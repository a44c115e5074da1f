"""The learning curves of a policy as one self-contained HTML page, drawn from its record alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vecveil.io import write_text
from vecveil.report import figures as f
from vecveil.report.document import document
from vecveil.report.markup import Safe, prose, tag
from vecveil.report.parts import cell, facts_list, section, table
from vecveil.report.training_charts import SIDES, curve_chart, shown
from vecveil.report.training_record import PANELS, Figure, Panel, Training, read_training
from vecveil.version import __version__

__all__ = ["PROMISE", "SAME_CLASSIFIER", "training_page", "write_training_html"]

SAME_CLASSIFIER = (
    "p(PII) is measured with the very classifier that the policy was trained against, which was fitted on these "
    "vectors too: that it falls says that the policy satisfies this classifier, and nothing of what another attacker "
    "finds."
)
AUDIT = "`vecveil audit` measures attackers that learn from protected vectors."
MEANT = (
    "Means over vectors that the policy does not learn from, after each epoch; epoch 0 is before the first step. "
    "The classifier and the centroids were fitted on them too. "
    "What is measured while training is a mean over the epoch’s steps."
)
PROMISE = "empirical, no formal privacy guarantee"


def training_page(record: Mapping[str, Any]) -> str:
    """Return the learning curves of a training as one HTML page that loads nothing and runs nothing.

    Args:
        record: ``report["training"]`` of a protector, schema ``vecveil.training/1``. Keys that are not known are left
            out, and so are measures that the record does not hold.

    Raises:
        InvalidInputError: the schema is another one, there are no epochs, or a key has a wrong value, such as NaN;
            the message names the key.
    """
    return _page(read_training(record, owner="training_page"))


def write_training_html(record: Mapping[str, Any], target: str | os.PathLike[str]) -> Path:
    """Write the page of `training_page` to ``target``, whole or not at all, and return its path."""
    write_text(target, training_page(record))
    return Path(target)


def _page(training: Training) -> str:
    parts = (_outcome(training), _curves(training), _settings(training), _classifier(training))
    footer = tag("p", f"Drawn from the training record alone, by vecveil {__version__}.")
    return document(
        "vecveil training: learning curves",
        f"vecveil {__version__}",
        _header(training),
        tag("main", *parts),
        tag("footer", footer),
    )


def _header(training: Training) -> Safe:
    first, last = training.epochs[0], training.epochs[-1]
    trained = last if first == 0 else len(training.epochs)
    about = [
        PROMISE,
        f"{f.count(trained)} {'epoch' if trained == 1 else 'epochs'}",
        None if training.rows is None else f"{f.count(training.rows)} vectors",
        None if training.seed is None else f"seed {training.seed}",
        f.duration(training.seconds[-1]) if training.seconds else None,
    ]
    return tag(
        "header",
        tag("p", "vecveil training", class_="brand"),
        tag("h1", "Learning curves of a TextCrafter policy"),
        tag("p", " · ".join(words for words in about if words is not None), class_="meta"),
    )


def _present(training: Training) -> list[Panel]:
    """Return the panels of which the record holds a measure."""
    return [panel for panel in PANELS if any(training.of(m) is not None for m in panel.measures)]


def _outcome(training: Training) -> Safe:
    first, last = training.epochs[0], training.epochs[-1]
    ends = [(0, first), (-1, last)] if last > first else [(0, first)]
    heads = ("Measure", "Clean", *(f"Epoch {epoch:,}" for _, epoch in ends))
    rows = []
    for panel in _present(training):
        sides = {m.side: values for m in panel.measures if (values := training.of(m)) is not None}
        clean, protected = sides.get("clean"), sides.get("protected")
        rows.append(
            tag(
                "tr",
                tag("th", panel.title, scope="row"),
                cell(shown(None if clean is None else clean[-1])),
                *(cell(shown(None if protected is None else protected[i])) for i, _ in ends),
            )
        )
    caption = "What protected vectors reach, and clean ones beside."
    if training.best is not None and last > first:
        caption += f" The reward is highest after epoch {training.best:,}."
    return section(
        "outcome",
        "From the first epoch to the last",
        tag("p", prose(f"{SAME_CLASSIFIER} {AUDIT}"), class_="warning"),
        table(caption, heads, "outcome", rows),
    )


def _curves(training: Training) -> Safe:
    panels = [_panel(panel, training) for panel in _present(training)]
    if not panels:
        return section("curves", "Curves", tag("p", "The record holds no measures."))
    return section("curves", "Curves", tag("p", MEANT), tag("div", *panels, class_="curves"))


def _panel(panel: Panel, training: Training) -> Safe:
    held = [(m, values) for m in panel.measures if (values := training.of(m)) is not None]
    keys = None
    if len(held) > 1 or held[0][0].side != "protected":
        keys = tag("p", *(_key(measure.side) for measure, _ in held), class_="legend")
    rows = [
        tag(
            "tr",
            tag("th", f"{epoch:,}", scope="row"),
            *(cell(shown(values[i])) for _, values in held),
        )
        for i, epoch in enumerate(training.epochs)
    ]
    heads = ("Epoch", *(SIDES[measure.side].capitalize() for measure, _ in held))
    numbers = table(f"{panel.title} after each epoch.", heads, "epochs", rows)
    return tag(
        "div",
        tag("h3", panel.title),
        tag("p", panel.about, class_="meta"),
        keys,
        curve_chart(panel, training),
        tag("details", tag("summary", "Numbers"), numbers),
        class_="panel",
    )


def _key(side: str) -> Safe:
    return tag("span", tag("i", class_=f"curve {side}"), SIDES[side], class_="key")


def _settings(training: Training) -> Safe:
    facts = [(name.replace("_", " "), f.parameter(value)) for name, value in training.settings.items()]  # fmt: skip
    about = [
        ("Vectors", None if training.rows is None else f.count(training.rows)),
        ("Seed", None if training.seed is None else str(training.seed)),
        ("Time taken", f.duration(training.seconds[-1]) if training.seconds else None),
    ]
    held = [pair for pair in (*about, *facts) if pair[1] is not None]
    words = facts_list(held) if held else tag("p", "The record holds no settings.")
    return section("settings", "Settings", words)


def _classifier(training: Training) -> Safe | None:
    """Return the held-out figures of the classifier; None where the record holds none."""
    if not (training.figures or training.rows_of or training.warnings):
        return None
    warnings = [tag("p", warning, class_="warning") for warning in training.warnings]
    held = None
    if training.figures:
        rows = [_figure(figure) for figure in training.figures]
        heads = ("Figure", "Held out", "Chance")
        held = table("The classifier on clean vectors it was not fitted on.", heads, "figures", rows)  # fmt: skip
    counts = [
        (f"Vectors: {name.replace('_', ' ')}", f.count(number))
        for name, number in training.rows_of.items()
    ]
    return section("classifier", "The classifier of PII", *warnings, held, facts_list(counts))


def _figure(figure: Figure) -> Safe:
    return tag(
        "tr",
        tag("th", figure.metric, scope="row"),
        cell(f.decimal(figure.value), f.plain_interval(figure.low, figure.high)),
        cell(f.decimal(figure.chance)),
    )
