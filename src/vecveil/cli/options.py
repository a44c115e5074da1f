"""Options that several commands share, and their types."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vecveil.data.memory import memory_limit
from vecveil.randomness.keyed import split_source

if TYPE_CHECKING:
    _Pair = click.ParamType[tuple[str, Any]]
    _Integer = click.ParamType[int]
    _Name = click.ParamType[str]
else:
    _Pair = _Integer = _Name = click.ParamType  # no generic type in older versions of click

__all__ = [
    "FILE", "POSITIVE", "SEAL_KEY", "SHARE", "Assignment", "MemorySize", "database_seal_options", "encoder_options",
    "file_options", "file_seal_options", "json_option", "named_options", "page_options", "release_options",
    "report_options", "seed_option", "stacked", "table_options", "task_options",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(path_type=Path)
SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)
POSITIVE = click.FloatRange(min=0, min_open=True)


class Assignment(_Pair):
    """``key=value``; the value is JSON of a number, true, false, null or a string, or else the text as it is."""

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
        return key, typed if isinstance(typed, str | bool | int | float | None) else text


class SealKey(_Name):
    """Path of a key store, or ``env:NAME:FILE`` for a master key in a variable and the file of the data keys."""

    name = "FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return it as it was given, for `Sealer`."""
        if not self.file(value).name:
            self.fail("it has the form FILE or env:NAME:FILE.", param, ctx)
        return str(value)

    @staticmethod
    def file(value: str) -> Path:
        """Return the path of the file."""
        return Path(split_source(value)[1])


class MemorySize(_Integer):
    """A number of bytes such as 500M or 2G (powers of 1,024)."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+)([KMGT]?)(?:i?B)?", value.strip(), re.IGNORECASE)
        size = int(match[1]) << 10 * " KMGT".index(match[2].upper() or " ") if match else 0
        if not size:
            self.fail("it is a size such as 500M or 2G.", param, ctx)
        return size


def stacked(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator that adds all of ``options``, in this order."""

    def decorate(function: F) -> F:
        return functools.reduce(lambda inner, option: option(inner), reversed(options), function)

    return decorate


def _limit_memory(context: click.Context, parameter: click.Parameter, value: int | None) -> None:
    """Apply the limit to every file that the command reads, such as --corpus and --vectors."""
    token = memory_limit.set(value)
    context.call_on_close(lambda: memory_limit.reset(token))


def _file(*names: str, help: str) -> Callable[[F], F]:
    return click.option(*names, type=FILE, help=help)


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")
seed_option = click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Makes the run repeatable."
)
file_options = stacked(
    click.option(
        "--format", "format", type=click.Choice(["csv", "tsv", "jsonl", "txt", "parquet", "npy"]),
        help="Format of INPUT [default: by its suffix].",
    ),
    click.option("--encoding", default="utf-8", show_default=True, help="Encoding of a text file."),
    click.option("--delimiter", metavar="CHARACTER", help="CSV delimiter [default: from the header]."),
    click.option(
        "--max-memory", type=MemorySize(), metavar="SIZE", callback=_limit_memory, expose_value=False,
        help="Most memory for the decoded table, such as 500M or 4G; a small file may expand far "
        "[default: 1G, or a quarter of the memory if that is less].",
    ),
)  # fmt: skip
table_options = stacked(
    click.option("--text-column", metavar="NAME", help="Column of the texts [default: text, or the only one]."),
    file_options,
)
encoder_options = stacked(
    click.option(
        "--encoder", metavar="NAME|FOLDER|URL#MODEL",
        help="minilm, a sentence-transformers folder, a model of the Hugging Face hub, or of an OpenAI-compatible "
        "server (https://HOST/v1#MODEL, key in OPENAI_API_KEY).",
    ),
    click.option(
        "--precision", type=click.Choice(["auto", "fp32", "bf16"]),
        help="Precision of the encoder [default: auto, or the protector's].",
    ),
    click.option(
        "--cache/--no-cache", default=True, show_default=True,
        help="Keep embeddings on disk for the next run; they are as sensitive as the texts.",
    ),
)  # fmt: skip
task_options = stacked(
    click.option(
        "--sts", type=FILE, metavar="FILE",
        help="Scored sentence pairs: a table with the columns sentence1, sentence2, score.",
    ),
    click.option(
        "--retrieval", type=FILE, metavar="FOLDER",
        help="Retrieval in BEIR layout: corpus.jsonl[.gz], queries.jsonl[.gz], qrels.tsv.",
    ),
    click.option(
        "--label-column", metavar="NAME", help="Column of INPUT with the class of each text (classification)."
    ),
)  # fmt: skip
page_options = stacked(
    _file("--html", "html_file", help="Write the report page to this file."),
    _file("--md", "md_file", help="Write the report as Markdown to this file."),
    _file("--csv", "csv_file", help="Write every figure to this CSV file."),
    click.option("--show-terms", is_flag=True, help="Write the concept's words into the record and the reports."),
    click.option(
        "--show-reconstructions", is_flag=True,
        help="Write texts and what attacks wrote of them into the record and the reports (tier full).",
    ),
)  # fmt: skip
report_options = stacked(
    _file("--json", "json_file", help="Write the record to this file; - is stdout."), page_options
)
named_options = stacked(
    _file("--key-file", help="Keyed noise: the same item always gets the same release. See `vecveil key new`."),
    click.option("--key-env", metavar="VARIABLE", help="Keyed noise with the keys in this environment variable."),
    click.option("--key-id", metavar="ID", help="Which of the keys [default: the current one]."),
    _file("--ledger", "ledger_file", help="Count the release of each item in this ledger before it is made."),
    click.option("--raise-cap", is_flag=True, help="Let --cap raise the cap that the ledger has."),
    click.option("--cap", type=click.IntRange(min=1), help="Of the ledger: refuse to release an item more often."),
)
"""For commands whose rows have ids of their own."""
SEAL_KEY = SealKey()
seal_key_option = click.option(
    "--seal-key", type=SEAL_KEY, required=True,
    help="Key file of the sealed rows (`vecveil key new`), or env:NAME:FILE for a master key in a variable.",
)
filter_field_option = click.option(
    "--filter-field", "filter_fields", multiple=True, metavar="FIELD",
    help="With --seal-key: let `vecveil search --where` select by this field; may be repeated.",
)  # fmt: skip
database_seal_options = stacked(
    seal_key_option,
    click.option("--seal-name", metavar="NAME", help="Name in the key file [default: the location of DATABASE]."),
)
file_seal_options = stacked(
    seal_key_option,
    click.option("--seal-name", metavar="NAME", required=True, help="Name of the collection in the key file."),
    click.option(
        "--id-column", metavar="NAME", default="id", show_default=True,
        help="Column of ids; a blob opens under its id alone.",
    ),
)  # fmt: skip
release_options = stacked(
    click.option(
        "--id-column", metavar="NAME",
        help="Column that names each row's item, for keys and ledger [of .npy: the row's number].",
    ),
    named_options,
)  # fmt: skip
