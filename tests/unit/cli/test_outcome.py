"""What is said of a command that was stopped."""

from __future__ import annotations

import pytest

from vecveil.cli.commands import _failure, _Terminated

KEPT = "Attacks that had finished, and what long ones had learnt, are kept in"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["protect", "a.npy", "--work", "w"], "Nothing unfinished was left behind."),
        ([], "Nothing unfinished was left behind."),
        (["audit", "a.csv", "--work", "w"], f"{KEPT} w: the same command goes on from there."),
        (["audit", "--work=w", "--no-cache"], f"{KEPT} w: the same command goes on from there."),
        (["audit", "a.csv", "--no-cache"], "Finished attacks were not kept: --work FOLDER keeps"),
        (["audit", "a.csv"], f"{KEPT} "),
    ],
)
def test_what_a_stopped_command_leaves(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _failure(KeyboardInterrupt(), arguments) == 130
    assert _failure(_Terminated(), arguments) == 143
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"vecveil: stopped by Ctrl-C. {said}")
    assert second.startswith(f"vecveil: stopped. {said}")


def test_the_default_folder_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VECVEIL_CACHE", "/somewhere")
    _failure(KeyboardInterrupt(), ["audit", "a.csv"])
    assert "/somewhere/audits: the same" in capsys.readouterr().err
