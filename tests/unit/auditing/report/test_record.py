"""A record that does not follow the schema is refused, and the error names the key."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from harness.errors import raises
from harness.sample_attacks import clean_of, figure, settle
from harness.sample_audit import sample_audit
from vecveil.auditing.records import AuditRecord
from vecveil.auditing.report import (
    render_audit,
    render_audit_csv,
    render_audit_markdown,
    summary_table,
    write_audit_csv,
    write_audit_html,
    write_audit_markdown,
)
from vecveil.auditing.report.pack import write_pack
from vecveil.errors import DataFileError, InvalidInputError


def paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the path of every key of the record, those below ``parameters`` left out."""
    found: list[tuple[str | int, ...]] = []
    items: Any = ()
    if isinstance(value, dict) and path != ("parameters",):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, child in items:
        here = (*path, key)
        if isinstance(key, str) and here[:-1] != ("utility",):
            found.append(here)
        found += paths(child, here)
    return found


def places() -> list[tuple[str | int, ...]]:
    """Return the first and the last path to each key of the schema: the others are read by the same code."""
    every = paths(sample_audit())
    schema = [tuple("*" if isinstance(part, int) else part for part in path) for path in every]
    first = dict(zip(reversed(schema), reversed(every), strict=True))
    last = dict(zip(schema, every, strict=True))
    return list(dict.fromkeys([*first.values(), *last.values()]))


def written(path: tuple[str | int, ...]) -> str:
    """Return the name of a key in errors; keys of objects with free keys are not named."""
    parts = ["[...]" if path[i - 1 : i] in (("utility",), ("parameters",)) else part for i, part in enumerate(path)]
    text = "".join(part if part == "[...]" else f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return text.lstrip(".")


def parent(record: Any, path: tuple[str | int, ...]) -> Any:
    for part in path[:-1]:
        record = record[part]
    return record


def test_a_missing_key_is_named() -> None:
    for path in places():
        record = sample_audit()
        del parent(record, path)[path[-1]]
        if path != ("anonymity", "schema"):
            with raises("E-INPUT", written(path)):
                render_audit(record)


@pytest.mark.parametrize(
    "wrong", [["canary"], {"canary": 1}, object(), math.nan], ids=["list", "object", "other", "nan"]
)
def test_a_key_of_another_type_is_named(wrong: object) -> None:
    refused = 0
    for path in places():
        record = sample_audit()
        holder, key = parent(record, path), path[-1]
        sentences = key in ("promised", "not_promised", "conditional_on", "limits")
        if isinstance(wrong, list) and sentences:
            continue  # that is the right type
        if isinstance(wrong, dict) and key in ("parameters", "utility", "concept_distance", "options"):
            continue  # their keys are free
        holder[key] = wrong
        with pytest.raises(InvalidInputError) as caught:
            render_audit(record)
        assert caught.value.param.startswith(written(path))
        assert "canary" not in str(caught.value)
        refused += 1
    assert refused > 150


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        (("attacks", 1, "value"), 22.9, "attacks[1].value"),
        (("attacks", 1, "low"), 0.9, "attacks[1].low"),
        (("attacks", 1, "clean_low"), 0.9, "attacks[1].clean_low"),
        (("attacks", 0, "value"), -0.1, "attacks[0].value"),
        (("attacks", 0, "name"), "mlp-adaptive", "attacks[1].name"),
        (("attacks", 1, "low"), None, "attacks[1].low"),
        (("attacks", 1, "family"), "other", "attacks[1].family"),
        (("attacks", 1, "chance"), None, "attacks[1].over_chance"),
        (("kind",), "vault", "kind"),
        (("families", 0, "family"), "other", "families[0].family"),
        (("skipped", 0, "family"), "other", "skipped[0].family"),
        (("attacks", 1, "n"), 2.5, "attacks[1].n"),
        (("attacks", 1, "adaptive"), 1, "attacks[1].adaptive"),
        (("attacks", 1, "seconds"), -1, "attacks[1].seconds"),
        (("worst",), "no such attack", "worst"),
        (("worst",), "logistic-probe", "worst"),
        (("worst",), "linear", "worst"),
        (("guarantee", "kind"), "strong", "guarantee.kind"),
        (("guarantee", "epsilon"), math.inf, "guarantee.epsilon"),
        (("utility", "similarity", "sides"), "queries", "utility[...].sides"),
        (("terms", 3, "value"), 1.5, "terms[3].value"),
        (("texts", "total"), True, "texts.total"),
        (("texts", "total"), 10**400, "texts.total"),
        (("learning_curve",), [], "forecast"),
    ],
)
def test_a_value_that_cannot_be_is_named(path: tuple[str | int, ...], value: object, key: str) -> None:
    record = sample_audit()
    parent(record, path)[path[-1]] = value
    with raises("E-INPUT", key):
        summary_table(record)


def test_the_worst_attack_is_the_worst_by_other_metrics_entries_too() -> None:
    record = sample_audit()
    other = record["attacks"][0]
    other["also"].append(figure("R-precision", 0.5, 0.6, 0.122))
    other["metric"] = "Leakage"
    with raises("E-INPUT", "worst"):
        render_audit(record)


@pytest.mark.parametrize(
    "record", [{"schema": "vecveil.audit/1"}, sample_audit() | {"schema": "<secret>"}, {"attacks": []}], ids=range(3)
)
def test_another_schema_is_refused(record: dict[str, Any]) -> None:
    with raises("E-INPUT", "schema") as caught:
        render_audit(record)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("record", [None, 3, [1]], ids=repr)
def test_what_is_no_object_is_refused(record: Any) -> None:
    with raises("E-INPUT", "record"):
        render_audit(record)


@pytest.mark.parametrize(("emptied", "shown"), [(0, False), (1234, True)])
def test_texts_of_the_concept_alone_are_shown_if_there_are_any(emptied: int, shown: bool) -> None:
    record = sample_audit()
    record["texts"]["emptied"] = emptied
    page = render_audit(record)
    assert ("consist of it alone" in page) is shown
    assert ("1,234 consist" in page.replace("\u202f", ",").replace("\xa0", ",")) is shown


def test_unknown_keys_are_ignored() -> None:
    record = sample_audit()
    plain = render_audit(record)
    record["later"] = record["guarantee"]["later"] = "canary"
    assert render_audit(record) == plain


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[1]", b"{}", b"[" * 200_000, b"NaN", b'"text"', b'{"a": 1, "a": 2}'],
    ids=range(9),
)
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, content: bytes) -> None:
    source, target = tmp_path / "audit.json", tmp_path / "audit.html"
    source.write_bytes(content)
    with pytest.raises(DataFileError, match=r"^audit\.json: "):
        write_audit_html(source, target)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["audit.json"]


@pytest.mark.parametrize(
    ("write", "draw"),
    [
        (write_audit_html, render_audit),
        (write_audit_markdown, render_audit_markdown),
        (write_audit_csv, render_audit_csv),
    ],
)
def test_a_record_in_a_file_and_in_memory_give_the_same_report(tmp_path: Path, write: Any, draw: Any) -> None:
    record, source = sample_audit("hostile"), tmp_path / "audit.json"
    source.write_text(json.dumps(record), encoding="utf-8")
    one, two = write(source, tmp_path / "one"), write(record, tmp_path / "folder" / "two")
    assert one.read_bytes() == two.read_bytes() == draw(AuditRecord.load(source)).encode()
    with raises("E-INPUT", "schema"):
        draw({})
    for absent in (tmp_path / "none.json", tmp_path):
        with raises("E-DATA-FILE", "record"):
            write(str(absent), tmp_path / "none")


def test_lone_surrogates_are_replaced_and_named_as_any_wrong_value(tmp_path: Path) -> None:
    hostile = {"concept": "drug \ud800", "command": "\ud800", "parameters": {"\ud800": "\ud800"}, "later \ud800": 1}
    for draw in (render_audit, render_audit_markdown, render_audit_csv, summary_table):
        assert draw(sample_audit() | hostile).encode()
        with raises("E-INPUT", "seed"):
            draw(sample_audit() | {"seed": "\ud800"})
    write_pack(sample_audit() | hostile, tmp_path, fingerprint="\ud800")
    assert AuditRecord.load(tmp_path / "audit.json").parameters == {"?": "?"}
    audit = AuditRecord.read(sample_audit() | {"concept": "drug \ud800"})
    audit.save(tmp_path / "audit.json")
    assert AuditRecord.load(tmp_path / "audit.json").concept == "drug ?"
    assert audit.to_record() == sample_audit() | {"concept": "drug ?"}


def test_a_key_error_in_a_file_is_a_file_error(tmp_path: Path) -> None:
    record = sample_audit()
    del record["worst"]
    source = tmp_path / "audit.json"
    source.write_text(json.dumps(record), encoding="utf-8")
    with raises("E-DATA-FILE", "worst"):
        write_audit_html(source, tmp_path / "audit.html")
    assert not (tmp_path / "audit.html").exists()


@pytest.mark.parametrize("key", ["method", "guarantee", "concept_distance"])
def test_a_store_has_no_method_and_no_guarantee(key: str) -> None:
    record = sample_audit("store") | {key: sample_audit()[key] or {"pairs": 3}}
    with raises("E-INPUT", key):
        render_audit(record)


@pytest.mark.parametrize("key", ["method", "guarantee", "randomness"])
def test_a_protector_has_a_method_and_a_guarantee(key: str) -> None:
    with raises("E-INPUT", key):
        render_audit(sample_audit() | {key: None})


def test_the_worst_attack_has_its_whole_clean_side_or_none() -> None:
    record = sample_audit()
    record["attacks"][1] = clean_of(record["attacks"][1])
    render_audit(settle(record))
    record["attacks"][1]["clean"] = 0.7
    with raises("E-INPUT", "attacks[1].clean_low"):
        render_audit(settle(record))


def test_every_family_names_its_strongest_attack() -> None:
    record = sample_audit()
    entry = next(e for e in record["families"] if e["family"] == "candidates")
    entry["worst"] = "nearest-candidate"
    with raises("E-INPUT", "families[2].worst"):
        render_audit(record)
    entry["worst"] = "logistic-probe"
    with raises("E-INPUT", "families[2].worst"):
        render_audit(record)


def test_no_family_is_left_out_or_listed_twice() -> None:
    record = sample_audit()
    left_out = record | {"families": record["families"][:-1]}
    with raises("E-INPUT", "families"):
        render_audit(left_out)
    twice = record | {"families": [*record["families"], record["families"][1]]}
    with raises("E-INPUT", "families[7].family"):
        render_audit(twice)


def test_token_inference_need_not_be_among_the_families_but_must_agree() -> None:
    record = sample_audit()
    plain = render_audit(record)
    assert record["families"][0]["family"] == "token-inference"
    assert render_audit(record | {"families": record["families"][1:]}) == plain
    record["attacks"][0] |= {k: record["attacks"][1][k] for k in ("value", "high", "over_chance")}
    record["families"][0]["worst"] = "linear"
    with raises("E-INPUT", "families[0].worst"):
        render_audit(record)


@pytest.mark.parametrize(("key", "value"), [("over_chance", 0.5), ("over_chance", None), ("clean_over_chance", 0.1)])
def test_leakage_over_chance_follows_from_the_figures(key: str, value: float | None) -> None:
    record = sample_audit()
    record["attacks"][3][key] = value
    with raises("E-INPUT", f"attacks[3].{key}"):
        render_audit(record)


def test_over_chance_may_be_rounded() -> None:
    record = sample_audit()
    for each in record["attacks"]:
        each["over_chance"] = round(each["over_chance"], 3)
    render_audit(record)


@pytest.mark.parametrize(
    ("key", "part"), [("frameworks", {"attacks": ["canary"]}), ("reconstructions", {"attack": "canary"})]
)
def test_attacks_that_are_named_are_in_the_record(key: str, part: dict[str, Any]) -> None:
    record = sample_audit("reconstructions")
    record[key][0] |= part
    with raises("E-INPUT", f"{key}[0].{next(iter(part))}") as caught:
        render_audit(record)
    assert "canary" not in str(caught.value)
