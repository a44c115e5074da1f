"""``vecveil methods``: the methods that `vecveil fit --method` takes."""

from __future__ import annotations

from typing import Any

import click

from vecveil.cli import options as shared
from vecveil.cli.output import data, data_json
from vecveil.privacy.protector import METHODS, TEXT_METHODS


@click.command("methods", epilog="\b\nExample:\n  vecveil methods\n")
@shared.json_option
def command(as_json: bool) -> None:
    """List the methods: what each guarantees and does, its scales, and the options of --option."""
    every: list[tuple[str, Any]] = [*METHODS.items(), *TEXT_METHODS.items()]
    if as_json:
        fields = ("name", "kind", "metric", "scales", "delta", "postprocess", "options", "summary")
        listed = [{field: getattr(method, field) for field in fields} for _, method in every]
        data_json({"methods": listed})
        return
    rows = [("method", "guarantee", "distance", "scale", "what it does")]
    for name, method in every:
        target = "any" if "target_utility" in method.scales else " ".join(method.scales) or "none"
        scale = "any, sigma for epsilon" if "sigma" in method.scales else target
        scale += " and delta" if method.delta else ""
        rows.append((name, method.kind, method.metric, scale, method.summary))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    for row in rows:
        data("  ".join([*map(str.ljust, row[:4], widths), row[4]]))
    data("")
    data(
        "guarantee: formal is proved, in that distance; empirical is measured, with no formal privacy guarantee; "
        "obfuscation has no guarantee."
    )
    data(
        "scale any: --epsilon, --noise-to-signal, --target-utility, --target-cosine or --target-advantage. "
        "Other scales are options of that name, such as --radius."
    )
    data(f"{', '.join(TEXT_METHODS)} take texts only, not vectors.")
    for name, method in every:
        if method.options:
            data(f"options of {name}: {', '.join(method.options)}")
