"""A leading ``~`` is the home folder wherever a path is taken: files and Python have no shell that expands it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

import vecveil
from harness.errors import raises
from vecveil.cli.commands import run
from vecveil.gateway.server.settings import read_config
from vecveil.index import KeyStore, SqliteBlobs
from vecveil.io import expanded, locked, write_text
from vecveil.keys import KeyFile, placed_source
from vecveil.privacy.accounting import Ledger
from vecveil.privacy.protector.policy import saved_source
from vecveil.stores import Batch, open_store
from vecveil.stores.forgetting import begun
from vecveil.stores.locations import default_state_file, public_name
from vecveil.texts.encoders.lsa import LsaEncoder
from vecveil.texts.tables.files import find_input
from vecveil.texts.tables.writing import open_writer

KEY = bytes(range(32))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home folder; the current one is empty, and stays so."""
    for name in ("home", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "home"


def index(home: Path) -> None:
    with vecveil.SealedIndex("sealed:~/notes", KEY) as made:
        made.add(["a text"], ids=["a"], vectors=np.eye(1, 4))
    with vecveil.SealedIndex(home / "notes", KEY, create=False) as opened:
        assert opened.ids() == ["a"]
    with vecveil.SealedIndex(Path("~/notes"), KEY, create=False) as opened:
        assert opened.location == str(home / "notes")


def keys(home: Path) -> None:
    KeyFile.create("~/a.keys", "one")
    assert (home / "a.keys").is_file()
    for source in ("~/a.keys", Path("~/a.keys")):
        assert KeyFile.of(source).current == KeyFile.from_file(source).current == "one"
        assert KeyStore(source).path == home / "a.keys"
        vecveil.Sealer(source).seal(np.eye(1, 4), ids=["a"], collection="notes")
    assert placed_source("env:NAME:~/a.keys") == f"env:NAME:{home}/a.keys"
    assert placed_source("~/a.keys") == saved_source("test", "key", "~/a.keys") == str(home / "a.keys")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["sqlite-vec:~/rows.db#notes", "lancedb:~/lance#notes", "faiss:~/rows.faiss"])
def test_a_store_is_in_the_home_folder(home: Path, place: str) -> None:
    pytest.importorskip({"sqlite-vec": "sqlite_vec"}.get(place.partition(":")[0], place.partition(":")[0]))
    absolute = place.replace("~", str(home))
    assert public_name(place) == public_name(absolute)
    assert default_state_file(place) == default_state_file(absolute)
    with open_store(place) as store:
        if store.kind == "faiss":
            assert store._path == home / "rows.faiss"  # type: ignore[attr-defined]
        else:
            store.create(4, metric="cosine")
            store.write(Batch(("a",), np.eye(1, 4, dtype=np.float32), ({},)))
            with open_store(absolute) as opened:
                assert opened.count() == 1
    assert os.listdir() == []


def ledger(home: Path) -> None:
    with Ledger("~/a.ledger") as made:
        made.export("~/a.csv")
        with raises("E-INPUT", "path"):
            made.export("~/a.ledger")
    Ledger(home / "a.ledger", create=False).close()
    Ledger.repair("~/a.ledger", "~/b.ledger")
    assert (home / "b.ledger").is_file()
    assert (home / "a.csv").is_file()


def blobs(home: Path) -> None:
    SqliteBlobs("~/blobs.db")["a"] = b"x"
    assert SqliteBlobs(home / "blobs.db")["a"] == b"x"


def protector(home: Path) -> None:
    X = np.random.default_rng(0).standard_normal((40, 4))
    made = vecveil.fit_pairs(X[:20], X[20:], method="laplace", noise_to_signal=0.5)
    made.save("~/p.vecveil")
    assert vecveil.load("~/p.vecveil").fingerprint == vecveil.load(home / "p.vecveil").fingerprint


def concept(home: Path) -> None:
    write_text("~/a.yaml", "name: a\nterms: [cat]\n")
    assert vecveil.Concept.from_file("~/a.yaml").name == "a"
    write_text("~/terms.txt", "dog\n")
    write_text("~/b.yaml", "name: b\nterms_file: ~/terms.txt\n")
    assert vecveil.Concept.from_file("~/b.yaml").name == "b"


def tables(home: Path) -> None:
    with open_writer("~/a.npy") as writer:
        writer.write(np.eye(2, 4, dtype=np.float32), {})
    with find_input("~/a.npy").open() as file:
        assert np.load(file).shape == (2, 4)


def encoder(home: Path) -> None:
    LsaEncoder.fit(["a cat sat", "a dog sat", "the cat ran"] * 5, dimension=2).save("~/lsa")
    assert LsaEncoder.load("~/lsa").fingerprint == LsaEncoder.load(home / "lsa").fingerprint
    loaded = vecveil.load_encoder("~/lsa", cache="~/cache")
    loaded.encode(["a cat"])
    assert (home / "cache").is_dir()
    with raises("E-INPUT"):
        vecveil.load_encoder("~nobody-of-this-name/lsa")  # Path.expanduser raises RuntimeError


def receipt(home: Path) -> None:
    begun(Path("~/r.json"), "notes", {b"a": "a"}).save("~/r.json")
    with raises("E-STORE-STATE", "receipt"):
        begun(Path("~/r.json"), "others", {b"a": "a"})


def settings(home: Path) -> None:
    content = {
        "policies": {"drug": {"protector": "~/p.vecveil", "key": "env:NAME:~/a.keys", "ledger": "~draft"}},
        "indexes": {"notes": "~/notes", "other": "sealed:~/other"},
        "seal_key": "~/a.keys",
    }
    write_text("~/serve.yaml", yaml.safe_dump(content))
    read = read_config("~/serve.yaml")
    assert read.indexes == {"notes": str(home / "notes"), "other": str(home / "other")}
    policy = read.policies["drug"]
    assert (policy.protector, policy.key) == (str(home / "p.vecveil"), f"env:NAME:{home}/a.keys")
    assert read.seal_key == str(home / "a.keys")
    assert policy.ledger == str(home / "~draft")


def commands(home: Path) -> None:
    assert run(["key", "new", "~/c.keys"]) == 0
    assert (home / "c.keys").is_file()
    vecveil.SealedIndex("~/notes", "~/c.keys").add(["a text"], ids=["a"], vectors=np.eye(1, 4))
    write_text("~/ids.txt", "a\n")
    # A shell leaves the tilde behind the equals sign.
    given = ["forget", "sealed:~/notes", "--ids=~/ids.txt", "--receipt=~/r.json", "--seal-key=~/c.keys"]
    assert run(given) == 0
    assert (home / "r.json").is_file()
    assert vecveil.SealedIndex(home / "notes", home / "c.keys").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "take", [index, keys, ledger, blobs, protector, concept, tables, encoder, receipt, settings, commands]
)
def test_a_path_is_in_the_home_folder(home: Path, take: Callable[[Path], None]) -> None:
    take(home)
    assert os.listdir() == []


def test_a_name_that_is_no_users_stays(home: Path) -> None:
    assert expanded("~draft.csv") == Path("~draft.csv")
    assert expanded("a/~") == Path("a/~")
    write_text("~draft.csv", "x")
    with locked("~draft.csv"):
        assert Path("~draft.csv").read_text() == "x"
