"""The commands, their options and the exit codes are those of ``command_line.json``; help texts are no part of it.

``write_contracts.py --cli`` writes the file anew after a deliberate change.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from harness.command_line import run, write_csv
from harness.contracts import GOLDEN, differences, read_contract

PROTECTOR = str(GOLDEN / "laplace.vecveil")
INVOCATIONS: tuple[str, ...] = (
    "",
    "--help",
    "-h",
    "--version",
    "--no-such-option",
    "no-such-command",
    "fit",
    "fit --no-such-option",
    "fit missing.csv",
    "fit missing.csv --concept drug.yaml -o out.vecveil --epsilon 1",
    "fit notes.csv --concept missing.yaml -o out.vecveil --epsilon 1",
    "fit --epsilon 1 --sigma 1",
    "fit --epsilon 0",
    "fit notes.csv --concept drug.yaml -o out.vecveil --epsilon 1 --method no-such-method",
    "protect",
    "protect missing.npy -p PROTECTOR -o out.npy",
    "protect notes.csv -p missing.vecveil -o out.npy",
    "protect notes.csv -p notes.csv -o out.npy",
    "protect notes.npy -p PROTECTOR -o out.npy",
    "verify",
    "verify missing.npy",
    "audit",
    "audit missing.csv -p PROTECTOR",
    "audit notes.csv -p PROTECTOR --tier huge",
    "audit missing.csv -p PROTECTOR --concept drug.yaml",
    "audit notes.csv -p PROTECTOR --concept missing.yaml",
    "scan",
    "scan missing.db",
    "migrate",
    "migrate missing.db",
    "key",
    "key new",
    "key no-such-command",
    "ledger",
    "ledger show missing.ledger",
    "experiment",
    "experiment list",
    "experiment run no-such-experiment",
    "experiment run no-such-experiment --data missing",
    "methods",
    "methods --json",
    "demo --seed minus",
    "serve",
    "serve -p missing.vecveil",
    "serve -p PROTECTOR --port 99999",
)
"""Words of one run each, in a folder with a few small files; PROTECTOR is a saved protector."""


def root() -> click.Group:
    """Return the group of all commands: the one place here that knows where the package keeps it."""
    from vecveil.cli.commands import vecveil

    return vecveil


def tree(command: click.Command, context: click.Context) -> dict[str, Any]:
    """Return the contract of one command and of those below it."""
    parameters = [_parameter(one, context) for one in command.get_params(context)]
    found: dict[str, Any] = {"parameters": {one.pop("key"): one for one in parameters}}
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    found["arguments"] = [str(one.name) for one in arguments]
    if isinstance(command, click.Group):
        found["commands"] = {}
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found["commands"][name] = tree(below, click.Context(below, context, name))
    return found


def whole_tree() -> dict[str, Any]:
    """Return the contract of the command ``vecveil`` and of all commands below it."""
    group = root()
    return tree(group, click.Context(group, info_name="vecveil", **group.context_settings))


def _parameter(one: click.Parameter, context: click.Context) -> dict[str, Any]:
    """Return the contract of one option or argument; what is unset or false is left out."""
    default = one.get_default(context, call=False)
    unset = default is None or type(default).__name__ == "Sentinel"
    is_flag = getattr(one, "is_flag", False)
    kind = one.type
    said = {
        "key": " ".join([*one.opts, *one.secondary_opts]),
        "type": kind.name,
        "choices": list(map(str, getattr(kind, "choices", ()))),
        "min": getattr(kind, "min", None),
        "max": getattr(kind, "max", None),
        "open": [each for each in ("min", "max") if getattr(kind, f"{each}_open", False)],
        "exists": getattr(kind, "exists", False),
        "default": None if unset else "computed" if callable(default) else _plain(default),
        "required": one.required,
        "multiple": one.multiple,
        "nargs": None if one.nargs == 1 else one.nargs,
        "is_argument": isinstance(one, click.Argument),
        "is_flag": is_flag,
        "hidden": getattr(one, "hidden", False),
        "envvar": one.envvar,
    }
    unsaid = (None, False, "", [])
    return {key: value for key, value in said.items() if not any(_same(value, one) for one in unsaid)}


def _same(a: object, b: object) -> bool:
    return type(a) is type(b) and a == b


def _plain(default: Any) -> str:
    """Return how a default is written, paths as on every system; False is left out like None."""
    return "" if default is False else default.as_posix() if isinstance(default, Path) else repr(default)


def exit_codes(folder: Path) -> dict[str, int]:
    """Return the exit code of each of `INVOCATIONS`, run in ``folder``."""
    write_csv(folder / "notes.csv", ["id", "text"], [(i, f"note {i}") for i in range(5)])
    (folder / "drug.yaml").write_text("name: drug\nterms: [aspirin]\n", encoding="utf-8")
    np.save(folder / "notes.npy", np.eye(3, 8, dtype=np.float32))
    before = Path.cwd()
    os.chdir(folder)
    try:
        return {
            words: run(*(PROTECTOR if word == "PROTECTOR" else word for word in words.split())).code
            for words in (*INVOCATIONS, *(f"{name} --help" for name in root().list_commands(click.Context(root()))))
        }
    finally:
        os.chdir(before)


def observe() -> dict[str, Any]:
    """Return the contract as it is now."""
    with tempfile.TemporaryDirectory() as folder:
        return {"tree": whole_tree(), "exit codes": exit_codes(Path(folder))}


def test_commands_and_options_are_what_they_were() -> None:
    lines = differences(read_contract("command_line")["tree"], whole_tree(), at="vecveil")
    assert not lines, "\n".join(lines)


def test_exit_codes_are_what_they_were(tmp_path: Path) -> None:
    lines = differences(read_contract("command_line")["exit codes"], exit_codes(tmp_path))
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize(("words", "code"), [("--help", 0), ("--version", 0), ("--no-such-option", 2), ("fit", 2)])
def test_the_contract_itself_keeps_to_conventions(words: str, code: int) -> None:
    """A file that was written anew by mistake does not pass."""
    assert read_contract("command_line")["exit codes"][words] == code


def test_an_option_that_changes_is_noticed() -> None:
    """Negative control: a spelling that goes and a default that changes."""
    old = click.Command("x", params=[click.Option(["-a", "--all"], default=1)])
    new = click.Command("x", params=[click.Option(["--all"], default=2)])
    contracts = [tree(one, click.Context(one)) for one in (old, new)]
    lines = differences(*contracts)
    assert [line.split(" (")[0] for line in lines] == [
        "appeared: parameters / --all",
        "vanished: parameters / -a --all",
    ]
