"""No key, no id and no text is said or written where keyed noise and a ledger are used."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from e2e.test_cli_release import ROWS, secrets_of, write_table
from harness.command_line import CANARY, SECRET, run, spawn

pytest.importorskip("pyarrow")


def test_no_secret_and_no_id_is_said_or_written(
    tmp_path: Path, vectors_protector: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted id, a planted text and the key are in no output, message or file but their own."""
    keys = tmp_path / "noise.key"
    assert run("key", "new", keys, "--id", "first").code == 0
    ids = [f"{CANARY} {SECRET} {i}" for i in range(ROWS)]
    source = write_table(tmp_path / "clean.parquet", ids)
    common = ("protect", "clean.parquet", "-p", vectors_protector, "--key-file", "noise.key")
    named = (*common, "--id-column", "name")
    runs = [
        (*named, "--carry", "name", "-o", "kept.parquet"),
        (*named, "-o", "out.npy", "--ledger", "l.ledger", "--cap", "1", "--json"),
        (*common, "-o", "no.npy", "--ledger", "l.ledger", "--id-column", "name", "--cap", "1", "--key-id", "x"),
        (
            "protect",
            "clean.parquet",
            "-p",
            vectors_protector,
            "-o",
            "no.npy",
            "--ledger",
            "l.ledger",
            "--id-column",
            "name",
            "--cap",
            "1",
        ),
        (*common, "-o", "no.npy", "--id-column", "none"),
        ("key", "list", "noise.key"),
        ("key", "list", "noise.key", "--json"),
        ("ledger", "show", "l.ledger"),
        ("ledger", "export", "l.ledger", "-o", "rows.jsonl"),
    ]
    monkeypatch.chdir(tmp_path)
    codes = []
    for number, arguments in enumerate(runs):
        # One process of its own: what a process says at its end is examined too.
        done = spawn(*arguments, cwd=tmp_path) if number == 2 else run(*arguments)
        codes.append(done.code)
        said = done.out + done.err
        assert "Traceback" not in said
        assert CANARY not in said.lower()
        assert not any(word in said for word in SECRET.split() if len(word) > 4)
        assert not any(secret in said for secret in secrets_of(keys))
    assert codes == [0, 0, 1, 1, 1, 0, 0, 0, 0]
    secret = [base64.b64decode(v) for v in json.loads(keys.read_text())["keys"].values()]
    for path in tmp_path.rglob("*"):
        if path.is_file() and path != keys:
            content = path.read_bytes()
            assert not any(s in content or base64.b64encode(s) in content for s in secret), path
            if path not in (source, tmp_path / "kept.parquet"):
                assert CANARY.encode() not in content, path
    assert CANARY.encode() in (tmp_path / "kept.parquet").read_bytes()  # control
