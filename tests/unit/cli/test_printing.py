"""The command line in the record of a result."""

from __future__ import annotations

import click
import pytest

from vecveil.cli.output import as_typed


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        (["audit", "/home/ann/trial 7/notes.csv"], "audit notes.csv"),
        (["audit", "../trial/notes.csv", "-p", "out/p"], "audit notes.csv -p p"),
        (["audit", "--json=/home/ann/a.json"], "audit --json=a.json"),
        (["audit", "-p/home/ann/p.vecveil"], "audit -pp.vecveil"),
        (["demo", "-o", "trial/out/"], "demo -o out"),
        (["audit", r"C:\\Users\\ann\\notes.csv"], "audit notes.csv"),
        (["audit", "-", "--seed", "-1", "--target-utility", "0.95"], "audit - --seed -1 --target-utility 0.95"),
    ],
)
def test_of_paths_only_the_last_name_is_recorded(typed: list[str], kept: str) -> None:
    with click.Context(click.Command("vecveil"), obj=tuple(typed)):
        assert as_typed() == f"vecveil {kept}"


def test_without_a_command_line() -> None:
    with click.Context(click.Command("vecveil")):
        assert as_typed() == "vecveil"
