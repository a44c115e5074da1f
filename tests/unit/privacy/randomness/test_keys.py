"""Secret keys: read strictly, never shown."""

from __future__ import annotations

import base64
import copy
import json
import os
import pickle
from pathlib import Path

import pytest

from harness.errors import raises
from vecveil.errors import KeyFileError
from vecveil.keys import KeyFile, NoiseKey

SECRET = bytes(range(50, 82))
TEXT = base64.b64encode(SECRET).decode()


def record(**changes: object) -> str:
    return json.dumps({"schema": "vecveil.keys/1", "current": "a", "keys": {"a": TEXT}} | changes)


def test_create_rotate_and_read(tmp_path: Path) -> None:
    path = tmp_path / "noise.key"
    first = KeyFile.create(path, "2026-10")
    assert path.stat().st_mode & 0o777 == 0o600
    second = KeyFile.create(path, "2026-11")
    assert path.stat().st_mode & 0o777 == 0o600
    again = KeyFile.from_file(path)
    assert again.current == second.current == "2026-11"
    assert sorted(again.keys) == ["2026-10", "2026-11"]
    assert again.key().secret_for_noise() == second.key().secret_for_noise()
    assert again.key("2026-10").secret_for_noise() == first.key().secret_for_noise()
    assert len({k.secret_for_noise() for k in again.keys.values()}) == 2
    with raises("E-KEY-FILE", "key_id"):
        KeyFile.create(path, "2026-10")
    with raises("E-KEY-FILE", "key_id"):
        again.key("2025")


def test_the_environment_holds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VECVEIL_KEYS", record())
    assert KeyFile.from_environment().key().secret_for_noise() == SECRET
    assert KeyFile.of("env:VECVEIL_KEYS").key().secret_for_noise() == SECRET
    monkeypatch.delenv("VECVEIL_KEYS")
    with raises("E-KEY-FILE", "variable"):
        KeyFile.from_environment()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        record(schema="other"),
        record(current="b"),
        record(keys={}),
        record(keys=[1]),
        record(keys={"a": TEXT[:20]}),
        record(keys={"a": "!" + TEXT}),
        record(keys={"a": 7}),
        record(keys={"": TEXT}, current=""),
        record(keys={"a\nb": TEXT}, current="a\nb"),
        record(keys={"a": base64.b64encode(bytes(32)).decode()}),
        "[" * 100_000,
    ],
)
def test_other_files_are_refused_without_showing_them(text: str, tmp_path: Path) -> None:
    path = tmp_path / "noise.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(KeyFileError) as caught:
        KeyFile.from_file(path)
    shown = str(caught.value) + repr(caught.value.__cause__) + repr(caught.value.__context__)
    assert TEXT not in shown
    assert TEXT[:12] not in shown
    assert "noise.key (`path`) is not a key file" in shown or "NoiseKey" in shown


def test_missing_binary_and_public_files(tmp_path: Path) -> None:
    for make in (lambda p: None, lambda p: p.mkdir(), lambda p: p.write_bytes(b"\xff\xfe\x00" * 9)):
        path = tmp_path / f"key-{make.__code__.co_firstlineno}-{id(make)}"
        make(path)
        if path.exists():
            path.chmod(0o700)
        with raises("E-KEY-FILE", "path"):
            KeyFile.from_file(path)
    for source in (None, b"env:VECVEIL_KEYS", 7):
        with raises("E-INPUT-TYPE", "source"):
            KeyFile.of(source)  # type: ignore[arg-type]
    os.mkfifo(tmp_path / "pipe", 0o600)  # reading it would wait for a writer
    (tmp_path / "folder").mkdir(0o755)  # chmod 600 would not help
    for name in ("pipe", "folder"):
        with pytest.raises(KeyFileError, match="is a folder, pipe or device"):
            KeyFile.from_file(tmp_path / name)
    path = tmp_path / "public.key"
    path.write_text(record())
    path.chmod(0o640)
    with raises("E-KEY-FILE", "path"):
        KeyFile.from_file(path)


@pytest.mark.parametrize("secret", [b"", b"short", bytes(32), b"ab" * 20, "x" * 40, bytearray(40)])
def test_weak_secrets_are_refused(secret: object) -> None:
    with raises("E-KEY-FILE", "secret") as caught:
        NoiseKey("a", secret)  # type: ignore[arg-type]
    assert "ab" * 20 not in str(caught.value)


def test_a_key_is_not_shown_pickled_or_copied() -> None:
    key = NoiseKey("2026", SECRET)
    keys = KeyFile("2026", {"2026": key})
    for shown in (repr(key), str(key), repr(keys), str(keys), f"{[key]}"):
        assert "2026" in shown
        assert str(SECRET)[2:20] not in shown
        assert SECRET.hex()[:16] not in shown
    for act in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled"):
            act(key)
    assert not hasattr(key, "__dict__")


def test_an_interrupted_rotation_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "noise.key"
    KeyFile.create(path, "a")
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with raises("E-KEY-FILE", "path"):
        KeyFile.create(path, "b")
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["noise.key"]
