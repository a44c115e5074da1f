"""``vecveil demo``: the whole pipeline, from texts to protected vectors and an audit."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from vecveil.cli import options as shared
from vecveil.cli.demo.demonstration import DEMO_TARGET_UTILITY, OwnTexts, run_demo
from vecveil.cli.output import as_typed, block, data_json, note, writing
from vecveil.cli.tables import load_encoder_named, table_format
from vecveil.errors import MissingDependencyError
from vecveil.texts.encoders import TextEncoder

EXAMPLE = """\b
Examples:
  vecveil demo
  vecveil demo --input notes.csv --text-column text --concept concept.yaml
"""
SECTIONS = {
    "Your own texts": "--input --text-column --concept --group-column --encoder",
    "Run": "--target-utility --seed",
    "Output": "--out --force --json",
}


@shared.command("demo", EXAMPLE, SECTIONS)
@shared.file_option("--input", help="Your own texts [default: the bundled synthetic notes].")
@shared.table_options
@shared.file_option("--concept", help="Concept file (YAML) for your own texts.")
@click.option("--group-column", metavar="NAME", help="Column of ids of texts that belong together.")
@shared.encoder_options
@click.option("--target-utility", type=shared.SHARE, help="Share of the similarity to keep.")
@shared.file_option("--out", default=Path("vecveil-demo"), show_default=True, help="Folder to write.")
@shared.seed_option
@click.option("--force", is_flag=True, help="Replace files of these names that the demo did not write.")
@shared.json_option
def command(
    input: Path | None, concept: Path | None, target_utility: float | None, out: Path, as_json: bool, **options: Any
) -> None:
    """Read texts, learn the concept, protect the embeddings, attack them, and report what leaks.

    The protector is fitted on half of the texts and audited on the other half. Without --input the notes are
    bundled and synthetic, and take a minute or two. Files in the folder: protected.parquet, protector.vecveil,
    audit.json and audit.html.
    """
    for package in ("torch", "sklearn"):  # which the attacks need, after a minute
        if find_spec(package) is None:
            raise MissingDependencyError("The demo", package, "demo")
    form = table_format(options)
    if (input is None) != (concept is None):
        raise click.UsageError("Give --input and --concept together, or neither.")
    if input is None and (form.text_column or form.format or form.delimiter or options["group_column"]):
        raise click.UsageError("Options that describe a table need --input.")
    own = None
    if input is not None and concept is not None:
        own = OwnTexts(input, concept, options["group_column"], vars(form))

    def encoder() -> TextEncoder:
        loaded = load_encoder_named(options, default="minilm")
        assert loaded is not None
        return loaded

    if own is None:
        note("The demo takes a minute or two.")
    with writing(out):
        result = run_demo(
            out,
            own=own,
            encoder=encoder,
            target_utility=target_utility or DEMO_TARGET_UTILITY,
            seed=options["seed"],
            force=options["force"],
            command=as_typed(),
            say=note,
        )
    if as_json:
        data_json(result.to_record())
    else:
        block(result.summary())
