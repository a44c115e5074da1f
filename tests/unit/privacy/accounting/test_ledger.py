"""A ledger counts releases, sums them up, enforces its cap for whole batches, and holds no id in clear."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import math
import pickle
import sqlite3
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from vecveil.errors import InvalidInputError, LedgerCapError
from vecveil.privacy.accounting.ledger import Ledger

CANARY = "zyxwophane"
P = "a1b2c3"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "releases.ledger"


def record(ledger: Ledger, *ids: Any, epsilon: float | None = 2.0, **more: Any) -> None:
    ledger.record(list(ids), protector=more.pop("protector", P), epsilon=epsilon, **more)


def test_counts_releases_per_item(path: Path) -> None:
    with Ledger(path) as ledger:
        record(ledger, "a", "b")
        record(ledger, "a", "c", "c")
        assert [ledger.count(item) for item in ("a", "b", "c", "d")] == [2, 1, 2, 0]
        assert ledger.total == 5
        assert ledger.summary().histogram == {1: 1, 2: 2}
        ledger.verify()


def test_what_was_recorded_is_there_when_opened_again(path: Path) -> None:
    with Ledger(path, cap=3) as ledger:
        record(ledger, "a")
    with Ledger(path) as again:
        assert (again.count("a"), again.cap) == (1, 3)
        record(again, "a", "a")
        with pytest.raises(LedgerCapError):
            record(again, "a")


def test_the_file_is_its_owners_alone_and_one_file_at_rest(path: Path) -> None:
    record(Ledger(path), "a")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("batch", [["a", "b", "new"], ["new", "new", "new"], ["a"] * 5])
def test_a_batch_that_exceeds_the_cap_is_refused_whole(path: Path, batch: list[str]) -> None:
    ledger = Ledger(path, cap=2)
    record(ledger, "a", "a", "b")
    with raises("E-LEDGER-CAP") as caught:
        record(ledger, *batch)
    assert caught.value.items == 1
    sent = pickle.loads(pickle.dumps(caught.value))
    assert (sent.items, str(sent)) == (1, str(caught.value))
    assert f"1 of {len(set(batch))} items" in str(caught.value)
    assert ledger.total == 3
    assert ledger.count("new") == 0
    record(ledger, "b", "new", "new")  # control: up to the cap is allowed
    assert [ledger.count(item) for item in ("a", "b", "new")] == [2, 2, 2]
    assert ledger.summary().histogram == {2: 3}


def test_the_stored_cap_can_be_tightened_here_and_raised_only_when_asked(path: Path) -> None:
    Ledger(path, cap=2)
    assert Ledger(path, cap=1).cap == 1
    assert Ledger(path).cap == 2
    with raises("E-LEDGER", "cap"):
        Ledger(path, cap=3)
    assert Ledger(path).cap == 2
    raised = Ledger(path, cap=3, raise_cap=True)
    record(raised, "a", "a", "a")
    assert Ledger(path).cap == 3
    assert Ledger(path, cap=2, raise_cap=True).cap == 2
    assert Ledger(path).cap == 3
    raised.verify()


def test_a_handle_keeps_to_its_own_cap_when_another_raises_the_stored_one(path: Path) -> None:
    strict = Ledger(path, cap=1)
    Ledger(path, cap=5, raise_cap=True)
    record(strict, "a")
    with pytest.raises(LedgerCapError):
        record(strict, "a")


def test_a_ledger_without_cap_counts_only(path: Path) -> None:
    ledger = Ledger(path)
    record(ledger, *["a"] * 50)
    assert (ledger.cap, ledger.count("a")) == (None, 50)
    with pytest.raises(LedgerCapError):
        record(Ledger(path, cap=50), "a")


def test_a_repeated_keyed_release_costs_nothing(path: Path) -> None:
    ledger = Ledger(path, cap=1)
    for _ in range(3):
        record(ledger, "a", "b", releases=[b"1", b"1"])
    assert (ledger.count("a"), ledger.total, ledger.spent("a")) == (1, 2, 2.0)
    for change in (
        {"releases": [b"2"]},  # another text under the same id
        {"releases": [b"1"], "protector": "other"},
        {},  # fresh noise
    ):
        with pytest.raises(LedgerCapError):
            record(ledger, "a", **change)
    record(ledger, "c", "c", releases=[b"1", b"1"])
    assert ledger.count("c") == 1
    with pytest.raises(LedgerCapError):
        record(ledger, "d", "d", releases=[b"1", b"2"])


def test_the_types_of_ids_are_apart(path: Path) -> None:
    ledger = Ledger(path)
    ids = ["7", b"7", 7, -7, 0, "", b"", "é", "e\u0301", "\ud800", 10**6000, -(10**6000), 255, -1]
    record(ledger, *ids)
    assert [ledger.count(item) for item in ids] == [1] * len(ids)
    assert ledger.summary().items == len(ids)


def test_numpy_ids_are_the_ids_that_they_stand_for(path: Path) -> None:
    ledger = Ledger(path)
    ledger.record(np.array([7, 8]), protector=P, epsilon=1.0)  # type: ignore[arg-type]
    ledger.record(np.array(["a", "b"]), protector=P, epsilon=1.0)  # type: ignore[arg-type]
    assert [ledger.count(item) for item in (7, 8, "a", "b", np.int32(7))] == [1, 1, 1, 1, 1]


def test_huge_ids_take_no_more_room(path: Path) -> None:
    ledger = Ledger(path)
    record(ledger, "x" * 10_000_000, b"y" * 10_000_000)
    assert path.stat().st_size < 100_000
    assert ledger.count("x" * 10_000_000) == 1


def test_an_empty_batch_records_nothing(path: Path) -> None:
    ledger = Ledger(path, cap=1)
    record(ledger)
    record(ledger, releases=[])
    assert (ledger.total, ledger.summary().histogram, ledger.spent("a")) == (0, {}, 0.0)
    ledger.verify()
    assert ledger.summary().most_releases == 0


@pytest.mark.parametrize(
    "change",
    [
        {"ids": "abc"},
        {"ids": 7},
        {"ids": ["a", True]},
        {"ids": ["a", 1.5]},
        {"ids": [None]},
        {"protector": ""},
        {"protector": "a text\n"},
        {"protector": b"a"},
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"epsilon": "1"},
        {"releases": [b"1", b"2"]},
        {"releases": ["1"]},
    ],
)
def test_bad_arguments_are_refused_and_nothing_is_recorded(path: Path, change: dict[str, Any]) -> None:
    ledger = Ledger(path)
    with raises("E-INPUT", next(iter(change))):
        ledger.record(**{"ids": ["a"], "protector": P, "epsilon": 1.0, **change})
    assert ledger.total == 0


@pytest.mark.parametrize("cap", [0, -1, 1.5, True, "3", 10**12])
def test_bad_caps_are_refused_and_no_file_is_made(path: Path, cap: Any) -> None:
    with raises("E-INPUT", "cap"):
        Ledger(path, cap=cap)
    assert not path.exists()


def test_a_closed_ledger_refuses_and_an_open_one_may_be_sent_to_a_process(path: Path) -> None:
    with Ledger(path) as ledger:
        record(ledger, "a")
        sent = pickle.loads(pickle.dumps(ledger))
    with raises("E-LEDGER"):
        ledger.count("a")
    assert sent.count("a") == 1


def test_relative_paths_stay_where_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = Ledger("one.ledger")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    record(ledger, "a")
    assert ledger.total == 1
    assert not list((tmp_path / "other").iterdir())


def test_two_ledgers_hash_one_id_differently(tmp_path: Path) -> None:
    hashes = {hashlib.sha256(form).digest() for form in (b"a", b"sa")}
    for name in ("1", "2"):
        record(Ledger(tmp_path / name), "a")
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as opened:
            hashes |= {item for (item,) in opened.execute("SELECT item FROM events")}
    assert len(hashes) == 4


def test_no_id_or_tag_is_in_the_file_in_errors_or_in_a_repr(path: Path) -> None:
    ledger = Ledger(path, cap=1)
    ledger.record(
        [CANARY, CANARY.encode() + b"!", f"{CANARY}-2"],
        protector=P,
        epsilon=1.0,
        releases=[f"tag {CANARY}".encode()] * 3,
    )
    said = [repr(ledger), str(ledger), repr(ledger.summary()), json.dumps(ledger.summary().to_record())]
    with pytest.raises(LedgerCapError) as caught:
        record(ledger, CANARY)
    said.append("".join(traceback.format_exception_only(caught.value)))
    for bad in ({"ids": CANARY}, {"protector": f"{CANARY} {CANARY}"}, {"epsilon": CANARY}):
        with pytest.raises(InvalidInputError) as refused:
            ledger.record(**{"ids": [CANARY], "protector": P, "epsilon": 1.0, **bad})  # type: ignore[arg-type]
        said.append(str(refused.value))
    assert not [text for text in said if CANARY in text.casefold()]
    raw = path.read_bytes()
    assert not [form for form in (CANARY.encode(), CANARY.encode("utf-16-le")) if form in raw]
    assert P.encode() in raw  # control: what is stored in clear is found
    salt = ledger._salt
    assert salt is not None
    assert not [text for text in said if salt.hex() in text or repr(salt)[2:-1] in text]


def test_spent_is_the_sum_of_epsilons(path: Path) -> None:
    ledger = Ledger(path)
    for epsilon in (0.1, 0.2, 0.3):
        record(ledger, "a", epsilon=epsilon)
    record(ledger, "a", epsilon=5.0, protector="other")
    record(ledger, "b", epsilon=None, protector="other")
    assert ledger.spent("a") == math.fsum([0.1, 0.2, 0.3, 5.0])
    assert ledger.spent("a", protector="other") == 5.0
    assert ledger.spent("a", protector="unknown") == 0.0
    assert ledger.spent("b") == math.inf


def test_the_summary_counts_what_was_recorded(path: Path) -> None:
    ledger = Ledger(path, cap=9)
    record(ledger, "a", "a", "b", epsilon=0.5)
    record(ledger, "a", "c", epsilon=None, protector="other")
    summary = ledger.summary()
    assert (summary.items, summary.releases, summary.most_releases, summary.cap) == (3, 5, 3, 9)
    assert summary.histogram == {1: 2, 3: 1}
    assert summary.to_record()["protectors"][0] == {
        "protector": P,
        "items": 2,
        "releases": 3,
        "most_releases": 2,
        "most_epsilon": 1.0,
    }
    second = summary.protectors[1]
    assert (second.protector, second.releases, second.most_epsilon) == ("other", 2, None)
    assert json.loads(json.dumps(summary.to_record()))["histogram"] == {"1": 2, "3": 1}


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".CSV"])
def test_the_export_has_one_line_per_release(path: Path, suffix: str) -> None:
    ledger = Ledger(path)
    record(ledger, "a", CANARY, releases=[b"1", b"2"])
    record(ledger, "a", epsilon=None)
    target = path.with_name("out" + suffix)
    ledger.export(target)
    text = target.read_text(encoding="utf-8")
    rows: list[dict[str, Any]]
    if suffix == ".jsonl":
        rows = [json.loads(line) for line in text.splitlines()]
        assert [row["epsilon"] for row in rows] == [2.0, 2.0, None]
    else:
        rows = list(csv.DictReader(text.splitlines()))
        assert [row["epsilon"] for row in rows] == ["2.0", "2.0", ""]
    items = [row["item"] for row in rows]
    assert items[0] == items[2] != items[1]
    assert {len(item) for item in items} == {64}
    assert all(len(row["checksum"]) == 64 for row in rows)
    assert CANARY not in text
    assert sorted(p.name for p in path.parent.iterdir()) == sorted([path.name, target.name])


def test_an_export_to_a_wrong_place_is_refused(path: Path) -> None:
    ledger = Ledger(path)
    with raises("E-INPUT", "path"):
        ledger.export(path.with_name("out.txt"))
    with raises("E-INPUT", "path"):
        ledger.export(path)
    folder = path.with_name("folder.csv")
    folder.mkdir()
    with pytest.raises(OSError, match="folder"):
        ledger.export(folder)
    ledger.verify()
