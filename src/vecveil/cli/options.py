"""Options that several commands share, and their types."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

__all__ = [
    "FILE",
    "SHARE",
    "Assignment",
    "encoder_options",
    "json_option",
    "seed_option",
    "stacked",
    "table_options",
    "task_options",
]

F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(path_type=Path)
SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON on stdout."
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Makes the run repeatable.",
)


if TYPE_CHECKING:
    _Pair = click.ParamType[tuple[str, Any]]
else:
    _Pair = click.ParamType  # no generic type in older versions of click


class Assignment(_Pair):
    """``key=value``; the value is a number, true, false, null or else a string."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return (key, typed value)."""
        if isinstance(value, tuple):
            return value
        key, sign, text = value.partition("=")
        key = key.strip().replace("-", "_")
        if not sign or not key:
            self.fail("it has the form key=value.", param, ctx)
        try:
            typed = json.loads(text)
        except ValueError:
            typed = text
        return key, typed if isinstance(typed, bool | int | float | None) else text


def stacked(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator that adds all of ``options``, in this order."""

    def decorate(function: F) -> F:
        return functools.reduce(lambda inner, option: option(inner), reversed(options), function)

    return decorate


table_options = stacked(
    click.option(
        "--text-column",
        metavar="NAME",
        help="Column of the texts [default: text, or the only one].",
    ),
    click.option(
        "--format",
        "format",
        type=click.Choice(["csv", "tsv", "jsonl", "txt", "parquet", "npy"]),
        help="Format of INPUT [default: by its suffix].",
    ),
    click.option("--encoding", default="utf-8", show_default=True, help="Encoding of a text file."),
    click.option("--delimiter", metavar="CHARACTER", help="Of CSV [default: found in the header]."),
)

encoder_options = stacked(
    click.option(
        "--encoder",
        metavar="NAME|FOLDER|URL#MODEL",
        help="minilm, a sentence-transformers folder, a model of the Hugging Face hub, or of an OpenAI-compatible "
        "server (https://HOST/v1#MODEL, key in OPENAI_API_KEY).",
    ),
    click.option(
        "--precision",
        type=click.Choice(["auto", "fp32", "bf16"]),
        help="Of encoding [default: auto, or the protector's].",
    ),
    click.option(
        "--cache/--no-cache",
        default=True,
        show_default=True,
        help="Keep embeddings on disk for the next run; they are as sensitive as the texts.",
    ),
)

task_options = stacked(
    click.option(
        "--sts",
        type=FILE,
        metavar="FILE",
        help="Scored sentence pairs: a table with the columns sentence1, sentence2, score.",
    ),
    click.option(
        "--retrieval",
        type=FILE,
        metavar="FOLDER",
        help="Retrieval in BEIR layout: corpus.jsonl[.gz], queries.jsonl[.gz], qrels.tsv.",
    ),
    click.option(
        "--label-column",
        metavar="NAME",
        help="Column of INPUT with the class of each text (classification).",
    ),
)
