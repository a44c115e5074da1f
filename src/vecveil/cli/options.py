"""Options that several commands share, their types, the sections of a command's help, and options in messages."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from vecveil.cli import VALUES
from vecveil.errors import VecveilError
from vecveil.keys import split_source
from vecveil.texts.tables.binary_formats import memory_limit
from vecveil.texts.tables.columns import printed_number
from vecveil.texts.tables.files import INPUT_SUFFIXES

if TYPE_CHECKING:
    _Pair = click.ParamType[tuple[str, Any]]
    _Integer = click.ParamType[int]
    _Name = click.ParamType[str]
else:
    _Pair = _Integer = _Name = click.ParamType  # no generic type in older versions of click

F = TypeVar("F", bound=Callable[..., Any])


def _remember(value: Any, expected: str, param: click.Parameter | None, ctx: click.Context | None) -> None:
    if ctx is not None and param is not None:
        ctx.meta.setdefault(VALUES, {})[str(value)] = (_name(param), expected)


class FilePath(click.Path):
    """A path that messages call by its option.

    Args:
        expected: for the name of a file with secrets, or next to one: what the file is. Somebody may give the secret
            itself, so messages show nothing that does not end like the name of a file.
        settings: passed to `click.Path`.
    """

    def __init__(self, expected: str = "", **settings: Any) -> None:
        super().__init__(path_type=Path, **settings)
        self.expected = expected

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; the shell does not expand the ``~`` of ``--out=~/folder``."""
        value = os.path.expanduser(value)
        _remember(value, self.expected or ("a file" if _TOKEN.match(str(value)) else ""), param, ctx)
        # A ledger or a key file is made where there is none: of that name, the secret would stay on disk.
        if self.expected and _like_secret(Path(value).name) and not Path(value).exists():
            self.fail(f"it must name {self.expected}; this looks like a secret. Give the file a suffix.", param, ctx)
        return super().convert(value, param, ctx)


class Source(_Name):
    """Path of a file, or a source such as ``env:NAME``."""

    name = "text"

    def __init__(self, expected: str) -> None:
        self.expected = expected

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return it as it was given."""
        _remember(value, self.expected, param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Let the shell complete the names of files."""
        return [CompletionItem(incomplete, type="file")]


class EncoderName(_Name):
    """Name of an encoder, a folder, or the URL of a server and a model."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return it as it was given."""
        if _TOKEN.match(str(value)):  # The hub would be asked for a model of that name.
            self.fail("it must name an encoder; this looks like a secret.", param, ctx)
        return str(value)


class Range(click.FloatRange):
    """A range of numbers; unlike click's it excludes NaN, which compares with nothing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number: float = super().convert(value, param, ctx)
        if number != number:
            self.fail("it must be a number, not nan.", param, ctx)
        return number


FILE = FilePath()
ENCODER = EncoderName()
PROTECTOR = FilePath("a protector file, which `vecveil fit` wrote")
KEY_FILE = FilePath("a key file, which `vecveil key new` wrote")
KEY_SOURCE = Source("a key file, which `vecveil key new` wrote, or env:NAME")
LEDGER = FilePath("the file of a ledger")
SHARE = Range(0, 1, min_open=True, max_open=True)
POSITIVE = Range(min=0, min_open=True)
PERCENT = Range(0, 100)


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
        return key, _typed(text)


class Condition(Assignment):
    """``FIELD=VALUE``, or with one of the operators ``!= > >= < <=``; the value as in `Assignment`."""

    name = "FIELD=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return (field, operator, typed value), of ``=`` and ``!=`` the list of values that the text may mean."""
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"([^=!<>]+)(!=|>=|<=|=|>|<)(?![=<>])(.*)", value, re.DOTALL)
        if match is None or not match[1].strip():
            self.fail("it has the form FIELD=VALUE; the operators are = != > >= < <=.", param, ctx)
        field, operator, text = match[1].strip(), match[2], match[3].strip()
        typed = _typed(text)
        if operator not in ("=", "!="):
            return field, operator, typed
        # A column of a CSV file is text if one of its values is: flag=true, zip=007. Nothing prints as 250.00.
        as_text = isinstance(typed, float) and printed_number(text) is None
        return field, operator, [typed] if isinstance(typed, str) else [text] if as_text else [typed, text]


def _typed(text: str) -> Any:
    try:
        typed = json.loads(text)
    except ValueError:
        return text
    return typed if isinstance(typed, str | bool | int | float | None) else text


class SealKey(Source):
    """Path of a key store, or ``ORIGIN:FILE``: the variable or service of the master key, and the data keys' file."""

    name = "FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return it as it was given, for `Sealer`."""
        super().convert(value, param, ctx)
        if not self.file(value).name:
            self.fail("it has the form FILE, env:NAME:FILE or SERVICE:NAME:FILE.", param, ctx)
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


class Sections(click.Command):
    """A command whose ``--help`` shows a selection of its options in sections; ``--help-all`` shows every option.

    Args:
        sections: title of a section -> its options, separated by spaces.
    """

    def __init__(self, *args: Any, sections: Mapping[str, str], **others: Any) -> None:
        super().__init__(*args, **others)
        self.sections = {title: names.split() for title, names in sections.items()}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with ``--help-all`` before ``--help``."""
        everything = click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=self._show_all,
            help="Show every option and exit.",
        )
        *given, shown = super().get_params(ctx)
        return [*given, everything, shown]

    def _show_all(self, ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            ctx.meta[param.opts[0]] = True
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of each section, then with ``--help-all`` the further ones, and the help options."""
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        section_of = {name: title for title, names in self.sections.items() for name in names}
        rows: dict[str, list[tuple[str, str]]] = {title: [] for title in [*self.sections, "Further options", "Help"]}
        for option in options:
            title = "Help" if option in options[-2:] else section_of.get(_name(option), "Further options")
            if (record := option.get_help_record(ctx)) is not None:
                rows[title].append(record)
        further = rows["Further options"]
        if "--help-all" not in ctx.meta and further:
            rows["Further options"] = []
            rows["Help"][0] = ("--help-all", f"Show {len(further)} further options and exit.")
        for title, records in rows.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def command(name: str, example: str, sections: Mapping[str, str]) -> Callable[[Any], Sections]:
    """Return the decorator of a command whose help has ``sections``; see `Sections`."""
    return click.command(name, epilog=example, cls=Sections, sections=sections)


# Options in messages -----------------------------------------------------------------------------

_ALIASES = {
    "texts": "input",
    "input": "inputs",
    "output": "out",
    "key": "key_file",
    "variable": "key_env",
    "embeddings": "vectors",
    "database": "source",
    "store": "database",
    "location": "store",
    "words": "concept",
    "source": "input",
    "encoder": "upstream",
    "out": "folder",
}
_OF_OWNER = {("load_encoder", "name"): "encoder", ("serve", "name"): "encoder"}
_SUFFIXES = {suffix for some in INPUT_SUFFIXES.values() for suffix in some} | {".json", ".yaml", ".yml"}
_FILES = ("path", "embeddings", "output", "key")
"""Parameters of errors that the name of a file begins."""
_FILE_NAME = re.compile(r"[^\s\\/]{1,60}\.[A-Za-z]{1,7}[A-Za-z0-9]")
"""A name that ends like a file's, which no token or base64 does."""
_PLAIN_NAME = re.compile(r"(?=.{1,40}$)[a-z]{1,16}([-_.][a-z]{1,16})*")
"""Short words in small letters, as a mistyped name has them and no random key."""
_FIRST_WORD = re.compile(r"[a-z]+(?=[ ,])")
"""A word in small letters, which begins a sentence once the name before it is cut off."""
_WITH_OPTION = re.compile(r"\b\w+=[^\s()]* \((--[^()]+)\)")
"""An argument of Python that a message names beside the option."""
_TOKEN = re.compile(r"(?:sk|pk|hf|gh[a-z]|xox[a-z])[-_]\S*[A-Za-z0-9]{16}")
"""A name that starts like an API token, some of which have no digit; names such as ``hf-embeddings`` do not match."""


def _name(param: click.Parameter) -> str:
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    return (param.metavar or str(param.name).upper()).rstrip(".")


def _like_secret(name: str) -> bool:
    if _FILE_NAME.fullmatch(name):
        return False
    # Random letters and digits change kind every two or three characters, words and dates less often.
    runs = [run for run in re.findall(r"[A-Za-z0-9+=]{16,}", name) if not run.isalpha()]
    mixed = any(len(re.findall(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+", run)) > len(run) / 4 for run in runs)
    return mixed or bool(_TOKEN.match(name))


def in_options(error: VecveilError, context: click.Context, values: Mapping[str, tuple[str, str]]) -> str:
    """Return the sentence of an error with the options of a command in place of the Python parameters in backticks.

    For ``values`` see `VALUES`; what ``context`` holds tells which option names a missing column.
    """
    command = context.command
    text, param = str(error), error.param
    owner = text.partition(": ")[0]
    files = {Path(value).name: option for value, (option, _) in values.items()}
    if owner.startswith("serve --config"):  # the file has the names of Python
        return text.replace("`path`", "`--config`")
    names = {_name(each).lstrip("-").replace("-", "_"): _name(each) for each in command.params}
    names |= {str(each.name): _name(each) for each in command.params}
    for python, other in _ALIASES.items():
        if other in names:
            names.setdefault(python, names[other])
    if (other := _OF_OWNER.get((owner, param), "")) in names:
        names[param] = names[other]
    # As a file of settings names it.
    names |= {option.removeprefix("--").replace("-", ".", 1): option for option, _ in values.values()}
    if param == "embeddings" and "embedding_column" in names and "--vectors" not in files.values():
        # Of a table's column, unless the error begins with the name of a file: reading a column names it.
        names[param] = names["embedding_column"] if owner == command.name or _is_python(owner) else "INPUT"
    if param == "dest":  # of two locations
        names["location"] = names[param]
    if param in _FILES and (option := files.get(owner) or next((files[name] for name in files if name in text), "")):
        names[param] = option
    if param == "columns":
        given = [(_name(each), context.params.get(str(each.name))) for each in command.params]
        names[param] = next((option for option, name in given if name and f"column {name!r}" in text), param)
    if "method_options" in names:
        from vecveil.privacy.protector import METHODS

        names = {name: f"--option {name}" for method in METHODS.values() for name in method.options} | names
        given_value = dict(context.params.get("method_options") or ()).get(param)
        if isinstance(given_value, str) and error.code == "E-INPUT-TYPE":
            text = text.replace(", not str.", f", not {given_value[:40]!r}.")
    if owner not in files and _is_python(owner):
        text = text.removeprefix(f"{owner}: ")
        if (first := _FIRST_WORD.match(text)) and first[0] not in files:
            text = text[0].upper() + text[1:]
    for name, option in names.items():
        text = text.replace(f"`{name}`", f"`{option}`")
    return _WITH_OPTION.sub(r"\1", text)


def _is_python(owner: str) -> bool:
    """Return whether an error begins with the name of a class, method or function, not of a command or a file."""
    first, *others = owner.split(".")
    named = first[:1].isupper() or first == "vecveil" or (not others and "_" in first)
    return named and all(map(str.isidentifier, (first, *others))) and Path(owner).suffix not in _SUFFIXES


def without_secrets(text: str, values: Mapping[str, tuple[str, str]]) -> str:
    """Return the sentence without what may be a secret, given in place of a file's name."""
    for value, (option, expected) in values.items():
        parts = {value, Path(value).name, *re.split(r"[=:/\\]", value)} - {"", "env"}
        parts = {part for part in parts if not _PLAIN_NAME.fullmatch(part)}
        if not expected or _FILE_NAME.fullmatch(Path(value).name) or not any(part in text for part in parts):
            continue
        for part in sorted(parts, key=len, reverse=True):
            text = text.replace(part, "[...]") if len(part) > 4 else text
        text += f" `{option}` must name {expected}."
    return text


def _limit_memory(context: click.Context, parameter: click.Parameter, value: int | None) -> None:
    """Apply the limit to every file that the command reads, such as --attacker-texts and --vectors."""
    if not context.resilient_parsing:
        token = memory_limit.set(value)
        context.call_on_close(lambda: memory_limit.reset(token))


def file_option(*names: str, **settings: Any) -> Callable[[F], F]:
    """Return an option for the path of a file or folder."""
    return click.option(*names, type=FILE, **settings)


def count_option(*names: str, least: int = 1, **settings: Any) -> Callable[[F], F]:
    """Return an option for a whole number of at least ``least``."""
    return click.option(*names, type=click.IntRange(min=least), **settings)


def query_noise_option(help: str) -> Callable[[F], F]:
    """Return the option for the noise of queries."""
    return click.option("--query-noise", type=float, default=1.0, show_default=True, metavar="X", help=help)


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")
seed_option = count_option("--seed", least=0, default=0, show_default=True, help="Makes the run repeatable.")
file_options = stacked(
    click.option(
        "--format",
        "format",
        type=click.Choice(["csv", "tsv", "jsonl", "txt", "parquet", "npy"]),
        help="Format of INPUT [default: by its suffix].",
    ),
    click.option("--encoding", default="utf-8", show_default=True, help="Encoding of a text file."),
    click.option("--delimiter", metavar="CHARACTER", help="CSV delimiter [default: from the header]."),
    click.option(
        "--max-memory",
        type=MemorySize(),
        metavar="SIZE",
        callback=_limit_memory,
        expose_value=False,
        help="Largest decoded table, such as 500M or 4G [default: 1G, at most a quarter of the memory].",
    ),
)
text_column_option = click.option(
    "--text-column", metavar="NAME", help="Column of the texts [default: text, or the only one]."
)
table_options = stacked(text_column_option, file_options)
encoder_option = click.option(
    "--encoder",
    type=ENCODER,
    metavar="NAME|FOLDER|URL#MODEL",
    help="minilm, a sentence-transformers folder, a Hugging Face model, or https://HOST/v1#MODEL of an OpenAI-"
    "compatible server (key in OPENAI_API_KEY).",
)
_option_of_encoder = click.option(
    "--encoder-option",
    "encoder_options",
    type=Assignment(),
    multiple=True,
    help="Option of the encoder, such as truncate_dim=64, or batch_size=10 for a service that takes ten texts a "
    "request; may be repeated [default: the protector's].",
)
encoder_name_options = stacked(encoder_option, _option_of_encoder)
encoder_settings = stacked(
    _option_of_encoder,
    click.option(
        "--precision",
        type=click.Choice(["auto", "fp32", "bf16"]),
        help="Precision of the encoder [default: auto, or the protector's].",
    ),
    click.option(
        "--cache/--no-cache",
        default=True,
        show_default=True,
        help="Keep embeddings on disk for the next run; they are as sensitive as the texts.",
    ),
)
encoder_options = stacked(encoder_option, encoder_settings)
retrieval_option = file_option(
    "--retrieval", metavar="FOLDER", help="Retrieval in BEIR layout: corpus.jsonl[.gz], queries.jsonl[.gz], qrels.tsv."
)
other_task_options = stacked(
    file_option(
        "--sts", metavar="FILE", help="Scored sentence pairs: a table with the columns sentence1, sentence2, score."
    ),
    click.option(
        "--label-column", metavar="NAME", help="Column of INPUT with the class of each text (classification)."
    ),
)
task_options = stacked(retrieval_option, other_task_options)
page_options = stacked(
    file_option("--html", "html_file", help="Write the report page to this file."),
    file_option("--md", "md_file", help="Write the report as Markdown to this file."),
    file_option("--csv", "csv_file", help="Write every figure to this CSV file."),
    click.option("--show-terms", is_flag=True, help="Write the concept's words into record and reports."),
    click.option(
        "--show-reconstructions",
        is_flag=True,
        help="Write originals and reconstructed texts into record and reports (tier full).",
    ),
)
report_options = stacked(
    file_option("--json", "json_file", help="Write the record to this file; - is stdout."), page_options
)
long_texts_option = click.option(
    "--long-texts",
    type=click.Choice(["cut", "split"]),
    default="cut",
    show_default=True,
    help="Cut texts that are longer than the encoder reads, or split them into windows.",
)
named_options = stacked(
    click.option("--key-file", type=KEY_FILE, help="Keyed noise: the same item always gets the same release."),
    click.option("--key-env", metavar="VARIABLE", help="Keyed noise with the keys in this environment variable."),
    click.option("--key-id", metavar="ID", help="Which of the keys [default: the current one]."),
    click.option(
        "--ledger", "ledger_file", type=LEDGER, help="Count the release of each item in this ledger before it is made."
    ),
    click.option("--raise-cap", is_flag=True, help="Let --cap raise the cap that the ledger has."),
    count_option("--cap", help="Of the ledger: refuse to release an item more often."),
)
"""For commands whose rows have ids of their own."""
SEAL_KEY = SealKey("a key file, which `vecveil key new` wrote, env:NAME:FILE or SERVICE:NAME:FILE")
seal_key_option = click.option(
    "--seal-key", type=SEAL_KEY, required=True, help="Key file of the sealed rows, env:NAME:FILE or SERVICE:NAME:FILE."
)
filter_field_option = click.option(
    "--filter-field",
    "filter_fields",
    multiple=True,
    metavar="FIELD",
    help="With --seal-key: let `vecveil search --where` select by this field; may be repeated.",
)
database_seal_options = stacked(
    seal_key_option,
    click.option("--seal-name", metavar="NAME", help="Name in the key file [default: the location of DATABASE]."),
)
file_seal_options = stacked(
    seal_key_option,
    click.option("--seal-name", metavar="NAME", required=True, help="Name of the collection in the key file."),
    click.option(
        "--id-column",
        metavar="NAME",
        default="id",
        show_default=True,
        help="Column of ids; a blob opens under its id alone.",
    ),
)
release_options = stacked(
    click.option(
        "--id-column",
        metavar="NAME",
        help="Column that names each row's item, for keys and ledger [of .npy: the row's number].",
    ),
    named_options,
)
