"""Message and exit code of a command that was stopped."""

from __future__ import annotations

import pytest

from vecveil.cli.commands import _failure, _Terminated

KEPT = "Finished attacks and checkpoints are kept in"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["protect", "a.npy", "--work", "w"], "Nothing unfinished was left behind."),
        ([], "Nothing unfinished was left behind."),
        (["audit", "a.csv", "--work", "w"], f"{KEPT} w; run the same command again"),
        (["audit", "--work=w", "--no-cache"], f"{KEPT} w; run the same command again"),
        (["audit", "a.csv", "--no-cache"], "Finished attacks were not kept; pass --work FOLDER"),
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
    assert "/somewhere/audits; run the same" in capsys.readouterr().err
