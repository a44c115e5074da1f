"""The first screen of a command's help, and the words of its errors: options, never Python's parameters or secrets."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import vecveil
from harness.command_line import run, write_csv
from harness.contracts import GOLDEN
from vecveil.cli.commands import COMMANDS, _command
from vecveil.cli.commands import vecveil as root
from vecveil.cli.options import Sections, in_options, without_secrets

MOST = 15
SOURCE = Path(vecveil.__file__).parent
SECRET = "sk-proj-0123456789abcdefABCDEF"


def commands(command: click.Command = root, names: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(names), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from commands(below, (*names, name))


@pytest.mark.parametrize(("name", "command"), [pytest.param(*each, id=each[0]) for each in commands()])
def test_help_shows_few_options_and_help_all_every_one(name: str, command: click.Command) -> None:
    names = [max(each.opts, key=len) for each in command.params if isinstance(each, click.Option)]
    shown = run(*name.split(), "--help").out
    first = [line for line in shown.splitlines() if re.match(r"  (-\w, )?--[a-z]", line)]
    assert len(first) <= MOST
    if not isinstance(command, Sections):
        return
    listed = [option for options in command.sections.values() for option in options]
    assert set(listed) <= set(names)
    required = {max(each.opts, key=len) for each in command.params if isinstance(each, click.Option) and each.required}
    assert required <= set(listed)
    everything = run(*name.split(), "--help-all").out
    assert all(re.search(rf"(?m)^  (-\w, )?{option}\b", everything) for option in names)


def test_the_help_of_fit_fits_on_a_screen_and_names_the_use() -> None:
    text = run("fit", "--help").out
    before = text.split("What to hide:")[0].splitlines()
    assert len(before) < 16
    assert "search" in text.split(".")[0]


def raised() -> Iterator[tuple[str, str]]:
    """Yield command and parameter of each error of the package whose owner is a command."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or len(node.args) < 3:
                continue
            owner, param = (each.value if isinstance(each, ast.Constant) else None for each in node.args[:2])
            if isinstance(owner, str) and isinstance(param, str) and owner in COMMANDS and param.isidentifier():
                yield owner, param


ONLY_IN_PYTHON = {("fit", name) for name in ("relabel", "shape", "splits", "detector", "members", "labels")}


def test_errors_name_options_that_the_command_has() -> None:
    found = set(raised())
    assert len(found) > 20  # the walk sees them
    unnamed = []
    for name, param in sorted(found - ONLY_IN_PYTHON):
        command = _command([name])
        if isinstance(command, click.Group):
            continue
        said = in_options(f"{name}: `{param}` must be given; got none.", command, {})
        if not re.search(r"`(--[a-z-]+|--option \w+|[A-Z]+)`", said):
            unnamed.append((name, param))
    # Raised by calls from Python alone, or of what no option gives.
    assert set(unnamed) <= {
        ("protect", name) for name in ("ledger", "part", "path", "rows", "key")
    } | {("verify", "out"), ("fit", "groups"),
         ("fit", "surrogates"), ("unseal", "rows"), ("serve", "routers"), ("protect", "protector"),
         ("serve", "upstream_key"), ("search", "database"), ("scan", "texts")}, unnamed  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "text", "said"),
    [
        ("fit", "fit: `min_texts` must be at least 20; got 5. Lower min_texts.",
         "fit: `--min-texts` must be at least 20; got 5. Lower --min-texts."),
        ("protect", "Choose another name, or replace it with overwrite=True (--force).",
         "Choose another name, or replace it with --force."),
        ("protect", "Keep the text with keep_text=True (--keep-text).", "Keep the text with --keep-text."),
        ("protect", "raise the limit with --max-memory (max_memory=) if you trust the file.",
         "raise the limit with --max-memory if you trust the file."),
        ("fit", "fit: `rank` must be lower.", "fit: `--option rank` must be lower."),
        ("fit", "Give a.csv (--force) `other` 'min_texts'.", "Give a.csv (--force) `other` 'min_texts'."),
    ],
)  # fmt: skip
def test_sentences_in_options(arguments: str, text: str, said: str) -> None:
    assert in_options(text, _command(arguments.split()), {}) == said


@pytest.mark.parametrize(
    "words",
    [
        "protect a.csv -p {} -o b.parquet",
        "protect a.csv -p {protector} -o b.npy --key-file {} --id-column text",
        "seal a.csv -p {protector} -o b.parquet --seal-key {} --seal-name n --id-column text",
        "seal a.csv -p {protector} -o b.parquet --seal-key env:{}:{} --seal-name n --id-column text",
        "audit a.csv -p {} --concept a.csv",
        "serve -p {protector} --api-keys {}",
        "serve -p x={}",
        "key list {}",
        "ledger show {}",
    ],
)
def test_a_secret_in_place_of_a_file_is_not_repeated(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "a.csv", ["text"], [("a",)])
    given = [part.replace("{protector}", str(GOLDEN / "laplace.vecveil")) for part in words.split()]
    done = run(*[part.replace("{}", SECRET) for part in given])
    assert done.code in (1, 2)
    assert SECRET[:5] not in done.out + done.err
    assert "must name a" in done.err or "must name the" in done.err or "key file" in done.err or "api-keys" in done.err


def test_the_name_of_a_file_is_repeated() -> None:
    """Control: a mistyped file name is of use to whoever reads the error."""
    values = {"folder/drg.vecveil": ("--protector", "a protector file")}
    assert without_secrets("drg.vecveil does not exist.", values) == "drg.vecveil does not exist."
    values = {SECRET: ("--protector", "a protector file")}
    said = without_secrets(f"{SECRET} does not exist.", values)
    assert said == "sk-p... does not exist. `--protector` must name a protector file."
