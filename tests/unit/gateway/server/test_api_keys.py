"""Keys that clients show, and the key that an upstream is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import raises
from vecveil.errors import KeyFileError
from vecveil.gateway.server.requests import ApiKeys, read_secret
from vecveil.gateway.server.service import upstream_key

ONE, OTHER = "one-key-of-a-client", "another-key-of-a-client"


@pytest.fixture
def keys(tmp_path: Path) -> ApiKeys:
    path = tmp_path / "keys"
    path.write_text(f"# team a\n{ONE}\n\n{OTHER}\n")
    path.chmod(0o600)
    return ApiKeys(str(path))


@pytest.mark.parametrize("header", [f"Bearer {ONE}", f"bearer {OTHER}", f"Bearer  {ONE} "])
def test_a_key_opens(keys: ApiKeys, header: str) -> None:
    assert keys.client(header.encode())


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"Bearer",
        b"Bearer ",
        ONE.encode(),
        f"Basic {ONE}".encode(),
        f"Bearer {ONE[:-1]}".encode(),
        f"Bearer {ONE}x".encode(),
        b"Bearer # team a",
        "Bearer ä".encode(),
    ],
)
def test_nothing_else_does(keys: ApiKeys, header: bytes | None) -> None:
    assert not keys.client(header)


def test_they_are_not_shown(keys: ApiKeys) -> None:
    assert ONE not in repr(keys) + str(vars(keys))


def test_a_variable_holds_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLIENT_KEYS", f"{ONE},{OTHER}")
    assert ApiKeys("env:CLIENT_KEYS").client(f"Bearer {OTHER}".encode())


def test_a_file_that_others_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(ONE)
    path.chmod(0o644)
    with raises("E-KEY-FILE", "api_keys"):
        ApiKeys(str(path))


@pytest.mark.parametrize("text", ["", "# none\n", "short\n", f"{ONE}\nshort\n"])
def test_short_keys_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(KeyFileError) as caught:
        ApiKeys(str(path))
    assert ONE not in str(caught.value)


@pytest.mark.parametrize("source", [ONE, f"env:{ONE}", "env:NOT_SET_ANYWHERE"])
def test_a_key_in_the_place_of_its_name_is_not_shown(source: str) -> None:
    with pytest.raises(KeyFileError) as caught:
        read_secret(source, "upstream.key")
    assert ONE not in str(caught.value)


def test_which_key_the_upstream_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"OPENAI_API_KEY": "own"}
    monkeypatch.setenv("UP_KEY", "named")
    assert upstream_key(None, authenticated=False, environment=known) == (None, True)
    assert upstream_key("forward", authenticated=False, environment=known) == (None, True)
    assert upstream_key("none", authenticated=False, environment=known) == (None, False)
    assert upstream_key("env:UP_KEY", authenticated=True, environment=known) == ("named", False)
    # A key of this server is for nobody else.
    assert upstream_key(None, authenticated=True, environment=known) == ("own", False)
    assert upstream_key(None, authenticated=True, environment={}) == (None, False)
    with raises("E-INPUT", "upstream.key"):
        upstream_key("forward", authenticated=True, environment=known)
