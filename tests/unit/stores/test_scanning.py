"""A scan says what lies in a store, from counts alone, and quotes nothing of it."""

from __future__ import annotations

import base64
import email.utils
import json
import random
import string
import time
import unicodedata
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.command_line import CANARY, SECRET
from harness.errors import raises
from harness.folder_store import FolderStore, filled
from vecveil.errors import StoreError
from vecveil.index.blob import SEALED_FIELD
from vecveil.stores import Batch
from vecveil.stores.scanning import (
    OTHERS,
    EqualRows,
    FieldTally,
    Reservoir,
    Scan,
    Survey,
    carried,
    kind_of,
    leaves,
    matches,
    scan,
)
from vecveil.stores.store import PROTECTOR_FIELD, with_blob

N = 24


def unit(rows: int, seed: int = 0) -> np.ndarray:
    X = np.random.default_rng(seed).standard_normal((rows, N)) * np.geomspace(1, 0.1, N)
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)


def codes(seen: Scan) -> dict[str, str]:
    return {one.code: one.severity for one in seen.findings}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("She was seen by Dr Weiss on Monday.", "text"),
        ("one two three four", "other"),
        ("患者は月曜日に診察を受けました。", "text"),
        ('{"a": "the quick brown fox", "b": "jumps over"}', "text"),
        ("https://example.org/a/b/c/d/e/f", "other"),
        ("2024-01-02T03:04:05Z", "other"),
        ("2024-01-02", "other"),
        ("192.168.100.101", "other"),
        ("12345678901", "other"),
        ("3.14159265", "other"),
        ("c0ffee00-0000-4000-8000-000000000000", "other"),
        ("ann.weiss@example.org", "email"),
        ("mail to ann@example.org", "email"),
        ("a@b", "other"),
        ("+44 20 7946 0958", "phone"),
        ("(030) 1234-567", "phone"),
        ("555-123-4567", "phone"),
        ("Ann Weiss", "name"),
        ("Weiss, Ann", "name"),
        ("Ludwig van", "other"),
        ("Ann", "other"),
        ("[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]", "numbers"),
        ("01" * 16, "numbers"),
        ("01" * 15, "other"),
        ([0.5] * 8, "numbers"),
        ([1] * 7, "other"),
        (np.zeros(3), "vector"),
        ([True] * 9, "other"),
        (b"anything", "binary"),
        (3, "other"),
        (None, "other"),
        (True, "other"),
        ("", "other"),
    ],
)
def test_what_a_value_is(value: object, kind: str) -> None:
    assert kind_of(value) == kind


_RANDOM = random.Random(0)
_LETTERS = string.ascii_letters + string.digits


def _drawn(alphabet: str, count: int) -> str:
    return "".join(_RANDOM.choices(alphabet, k=count))


IDS: dict[str, Callable[[], str]] = {
    "uuid": lambda: str(uuid.UUID(bytes=_RANDOM.randbytes(16), version=4)),
    "uuids": lambda: ",".join(str(uuid.UUID(bytes=_RANDOM.randbytes(16), version=4)) for _ in range(20)),
    "sha1": lambda: _RANDOM.randbytes(20).hex(),
    "sha256": lambda: f"sha256:{_RANDOM.randbytes(32).hex()}",
    "sha512": lambda: _RANDOM.randbytes(64).hex().upper(),
    "fingerprint": lambda: _RANDOM.randbytes(32).hex(":"),
    "hexdump": lambda: _RANDOM.randbytes(32).hex(" "),
    "base64": lambda: base64.b64encode(_RANDOM.randbytes(32)).decode(),
    "base64 of 64": lambda: base64.b64encode(_RANDOM.randbytes(64)).decode(),
    "base64url of 1024": lambda: base64.urlsafe_b64encode(_RANDOM.randbytes(1024)).decode(),
    "base32": lambda: base64.b32encode(_RANDOM.randbytes(20)).decode(),
    "token": lambda: ".".join(base64.urlsafe_b64encode(_RANDOM.randbytes(n)).decode() for n in (27, 90, 33)),
    "ulid": lambda: "01" + _drawn("0123456789ABCDEFGHJKMNPQRSTVWXYZ", 24),
    "nanoid": lambda: _drawn(_LETTERS + "_-", 21),
    "ksuid": lambda: _drawn(_LETTERS, 27),
    "cuid": lambda: _drawn(string.ascii_lowercase + string.digits, 24),
    "prefixed": lambda: f"cus_{_drawn(_LETTERS, 14)}",
    "address": lambda: f"arn:aws:s3:::bucket-{_RANDOM.randbytes(4).hex()}/{_drawn(_LETTERS, 9)}",
    "path": lambda: f"/data/notes/clinic/of/adults/visit-{_RANDOM.randrange(999)}.txt",
    "relative path": lambda: f"data/notes/clinic/of/adults/visit-{_RANDOM.randrange(999)}.txt",
    "windows path": lambda: f"C:\\Users\\anna\\notes\\of\\the\\clinic\\{_RANDOM.randrange(999)}.docx",
    "url": lambda: f"https://example.org/how/to/treat/things/{_RANDOM.randrange(99)}?one=two&three=four",
    "date": lambda: email.utils.formatdate(_RANDOM.randrange(2**31), usegmt=True),
    "time": lambda: time.ctime(_RANDOM.randrange(2**31)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", IDS)
def test_identifiers_are_no_texts(name: str) -> None:
    tally = FieldTally()
    tally.add({"doc_id": IDS[name]()} for _ in range(1000))
    (field,) = tally.fields()
    assert field.kinds == {"other": 1000}
    assert (field.withheld, field.personal) == (None, None)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(
    "text",
    [
        "She takes amoxicillin for her asthma.",
        "Der Patient nimmt seit Montag Metformin ein.",
        "Aspirin 100mg 1x daily",
        "Pt. c/o SOB & CP x3d, hx of MI, DM2, HTN",
        "BP 120/80, HR 72, T 36.8C, RR 16",
        "他有糖尿病和哮喘，每天服用二甲双胍",
        "患者は月曜日に診察を受けました。",
        "환자는 당뇨병과 천식을 앓고 있습니다",
        "रोगी को मधुमेह है और वह दवा लेता है",
        "நோயாளிக்கு நீரிழிவு நோய் உள்ளது மருந்து எடுக்கிறார்",
        "المريض يعاني من مرض السكري والربو",
        "לחולה יש סוכרת ואסתמה מאז הילדות",
        "У пациента диабет и астма с детства",
        "ผู้ป่วยเป็นโรคเบาหวานและหอบหืด",
        "Bệnh nhân bị tiểu đường và hen suyễn",
        "Patient\u00a0has\u2003diabetes\u00a0and\u00a0insulin",
        "Patient\u200bhas\u200bdiabetes\u200band\u200binsulin",
        "patient_has_diabetes_and_takes_insulin",
        "how-to-treat-diabetes-in-children",
        "patient/has/diabetes/type/two",
        "john_smith_hiv_positive_results.pdf",
        "/home/anna/My Documents/Patient Smith has diabetes and HIV.pdf",
        "2024-01-31: patient seen by Dr Weiss",
        "SGVsbG8gd29ybGQ= is what she wrote to him",
        "c0ffee00-0000-4000-8000-000000000000 was seen by Dr Weiss on Monday",
    ],
)
def test_texts_are_texts_in_any_writing(text: str, form: Any) -> None:
    tally = FieldTally()
    tally.add([{"doc_id": unicodedata.normalize(form, text)}])
    assert tally.fields()[0].withheld == "text"


def test_fields_are_judged_wherever_they_lie() -> None:
    long = "one two three four five six"
    rows: list[dict[str, Any]] = [
        {
            "page": i,
            "text": "hi",
            "rare": long if i == 70 else "x",
            "short": "a b c",
            "deep": {"in": [{"it": long}]},
            "tags": ["a", "b"],
            "at": f"u{i}@example.org",
            "who": "Ann Weiss",
            "v": [0.1] * 9,
            "none": None,
        }
        for i in range(100)
    ]
    tally = FieldTally()
    tally.add(rows)
    found = {one.name: one for one in tally.fields()}
    assert {name: one.withheld for name, one in found.items() if one.withheld} == {
        "text": "text",
        "rare": "text",
        "deep.in[].it": "text",
        "v": "numbers",
    }
    assert {name: one.personal for name, one in found.items() if one.personal} == {"at": "email", "who": "name"}
    assert (found["text"].text_rows, found["rare"].text_rows, found["page"].rows) == (100, 1, 100)
    kept = carried(rows[70], {"page", "tags[]", "deep.in[].it"})
    assert kept == {"page": 70, "tags": ["a", "b"], "deep": {"in": [{"it": long}]}}
    assert carried(rows[0], {"page"}) == {"page": 0}
    assert [name for name, _ in leaves(kept)] == ["page", "deep.in[].it", "tags[]", "tags[]"]
    assert [matches("deep.in[].it", one) for one in ("deep", "deep.in", "deep.i", "dee", "it")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_names_of_fields_do_not_fill_the_memory() -> None:
    tally = FieldTally()
    tally.add({f"user {i}": "x"} for i in range(3000))
    found = tally.fields()
    assert len(found) == 501
    assert (found[-1].name, found[-1].rows) == (OTHERS, 2500)


def test_equal_rows_are_counted_or_estimated() -> None:
    """Of 20,000 contents with 30 % that occur twice; the estimate from 1,000 of them.

    Null: each content is kept independently with probability q >= 500/17000, so the count is off by less than
    6 standard deviations, sqrt(3000 * 4 (1 - q)/q). False failure: below 1e-8.
    """
    contents = [str(i % 17_000).encode() for i in range(20_000)]
    exact, few = EqualRows(), EqualRows(capacity=1000)
    exact.add(contents)
    few.add(contents)
    assert (exact.count(), exact.is_exact) == (6000, True)
    assert (str(exact), str(few)) == ("6,000", f"about {few.count():,}")
    assert abs(few.count() - 6000) < 6 * np.sqrt(3000 * 4 * 34)
    none = EqualRows(capacity=10)
    none.add(str(i).encode() for i in range(1000))
    assert none.count() == 0


def test_a_sample_is_random_seeded_and_small() -> None:
    """Each of 200 rows is drawn 40 times in 400 draws of 20. False failure: below 200 * 2e-9 (6 deviations)."""
    vectors = np.arange(200, dtype=np.float32)[:, None]
    rows = Batch(tuple(map(str, range(200))), vectors, tuple({"i": i} for i in range(200)))

    def drawn(seed: int, size: int, among: set[str] | None = None) -> tuple[str, ...]:
        kept = Reservoir(20, seed, among)
        for start in range(0, 200, size):
            part = slice(start, start + size)
            batch = Batch(rows.ids[part], rows.vectors[part], rows.fields[part])
            kept.add(batch, np.ones(len(batch), dtype=bool))
        sample = kept.sample(1)
        assert [str(int(v)) for v in sample.vectors[:, 0]] == list(sample.ids)
        assert [str(f["i"]) for f in sample.fields] == list(sample.ids)
        assert "i" not in repr(sample).replace("Sample", "")
        return sample.ids

    assert drawn(1, 7) == drawn(1, 200) != drawn(2, 200)
    counts = Counter(one for seed in range(400) for one in drawn(seed, 50))
    assert max(abs(counts[str(i)] - 40) for i in range(200)) < 6 * np.sqrt(400 * 0.1 * 0.9) + 1
    assert set(drawn(1, 50, {"3", "5"})) == {"3", "5"}


def test_a_store_of_clean_vectors_with_texts(tmp_path: Path) -> None:
    X = unit(60)
    X[7] = X[9]
    X[20] = 0
    X[30] = np.nan
    X[31, 2] = np.inf
    fields = [
        {"note": f"{CANARY} and what {SECRET} said {i}", "page": i, "by": f"{CANARY}{i}@example.org"} for i in range(60)
    ]
    seen = scan(filled(tmp_path / "s", X, fields), sample=40, batch=11, show_progress=False)
    assert (seen.survey.rows, seen.complete, len(seen.sample)) == (60, True, 40)
    assert codes(seen) == {
        "plaintext-beside-vectors": "high",
        "personal-data-beside-vectors": "medium",
        "protection-unknown": "medium",
        "bad-rows": "low",
        "zero-vectors": "low",
        "equal-vectors": "low",
    }
    assert next(iter(codes(seen))) == "plaintext-beside-vectors"
    record = seen.to_record(name="folder:s")
    text = json.dumps(record, allow_nan=False) + repr(seen)
    assert not any(word in text.lower() for word in (CANARY, *SECRET.lower().split()[:2]))
    assert CANARY in json.dumps([dict(f) for f in seen.sample.fields])  # control: the sample has it
    assert record["bad_rows"] == {"without_vector": 1, "not_finite": 1, "other_dimension": 0}
    assert record["equal_vectors"] == {"rows": 2, "exact": True}
    assert record["fields"][0] == {
        "name": "note",
        "rows": 60,
        "holds": "text",
        "text_share": 1.0,
        "mean_words": record["fields"][0]["mean_words"],
        "mean_characters": record["fields"][0]["mean_characters"],
    }


def test_protection_is_said_where_vecveil_left_its_mark_and_unknown_elsewhere(tmp_path: Path) -> None:
    blobs = vecveil.Sealer(bytes(range(32))).seal(unit(60), ids=list(range(60)), collection="notes", texts=["a"] * 60)
    tokens = ["ab1cd2ef3ab4cd5ef6ab7cd8ef9ab0cd", "0" * 32]  # the first has eight words
    fields = [with_blob({}, blob, {"vecveil_filter_a": tokens[i % 2]}) for i, blob in enumerate(blobs)]
    for at in range(30, 60):
        fields[at] = {PROTECTOR_FIELD: "0123456789abcdef"}

    def scanned(name: str, X: np.ndarray | None = None) -> Scan:
        return scan(filled(tmp_path / name, unit(60, 1) if X is None else X, fields), show_progress=False)

    assert codes(scanned("marked")) == {"protected": "info"}
    assert {one["holds"] for one in scanned("holds").to_record()["fields"]} == {"sealed", "token"}
    fields[7], fields[31] = {}, {}
    assert codes(scanned("lacking")) == {"unmarked-rows": "high"}
    assert "2 of 60 rows" in scanned("counted").findings[0].message
    assert scanned("record").to_record()["protection"] == {"verdict": "mixed", "marked_rows": 58}
    fields[7] = {SEALED_FIELD: f"{CANARY} and what {SECRET} said"}
    assert codes(scanned("text"))["plaintext-beside-vectors"] == "high"
    # Values on a grid, of few directions or tiny say nothing: quantised indexes have them too.
    fields[:] = [{}] * 60
    for at, X in enumerate((np.round(8 * unit(60)) / 8, unit(60) @ np.diag([1] * 9 + [0] * 15), 1e-39 * unit(60))):
        assert codes(scanned(f"unknown{at}", X.astype(np.float32)))["protection-unknown"] == "medium"


def test_ids_that_tell_and_ids_that_repeat(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", unit(20))
    names = tuple(f"{CANARY}{i // 2}@example.org" for i in range(20))
    store.batches = lambda size=1000, *, after="": iter([Batch(names, unit(20), ({},) * 20, "x")])  # type: ignore[method-assign]
    seen = scan(store, show_progress=False)
    assert {"telling-ids", "equal-ids"} <= set(codes(seen))
    assert CANARY not in str(seen.findings)


def test_limits_and_empty_stores(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", unit(50))
    for limit, complete in ((20, False), (50, True), (99, True), (22, False)):
        seen = scan(store, limit=limit, batch=11, show_progress=False)
        assert (seen.survey.rows, seen.complete) == (min(limit, 50), complete)
    empty = FolderStore(tmp_path / "empty")
    with pytest.raises(StoreError):
        scan(empty)
    empty.create(N)
    seen = scan(empty)
    assert (codes(seen), seen.to_record()["sample"]["rows"]) == ({"empty": "info"}, 0)
    with raises("E-INPUT-RANGE", "sample"):
        scan(store, sample=0)


def test_rows_of_another_dimension_are_counted() -> None:
    survey = Survey(N)
    survey.add(Batch(("a",), np.ones((1, 5), np.float32), ({},)))
    survey.add(Batch(("b", "c"), np.empty((2, 0), np.float32), ({}, {})))
    assert str(survey.bad) == "2 without a vector, 1 of a different dimension"
