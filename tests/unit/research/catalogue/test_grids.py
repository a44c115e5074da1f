"""Experiments that are grids of points, run whole on a small data set with a planted leak."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.errors import raises
from harness.experiment_data import measured
from research import run, tables

COMMON = """
experiment: {name}
encoder: {encoder}
attacks: [{attacks}]
methods: [{methods}]
scales: [{scales}]
options: {{sparse: {{epochs: 2, stability_seeds: 1}}, sparse-whitebox: {{epochs: 2, steps: 4}}}}
problems:
  sts12: {{data: sts12, concept: {{terms_file: concepts/sts_terms.json}}}}
"""


def summary(name: str, data: Path, encoder: Path, folder: Path, **more: str) -> dict[str, Any]:
    more = {"attacks": "linear", "methods": "laplace, sparse", "scales": "clean, effective 10"} | more
    return measured(COMMON.format(name=name, encoder=encoder, **more), data, folder)


def column(table: dict[str, Any], name: str) -> list[Any]:
    place = [one["name"] for one in table["columns"]].index(name)
    return [row[place] for row in table["rows"]]


def test_the_trade_off_stands_beside_the_published_one(data: Path, encoder: Path, tmp_path: Path) -> None:
    record = summary("tradeoff", data, encoder, tmp_path, attacks="mlc-published, linear")
    (table,) = record["tables"]
    methods = column(table, "Method")
    leaks = dict(zip(methods, column(table, "Leakage, strongest attack"), strict=True))
    assert methods == ["no protection", "Laplace", "SPARSE"]
    assert leaks["no protection"]["value"] > leaks["Laplace"]["value"]
    # Of so few texts no figure stands beside a published one.
    assert leaks["Laplace"]["published"] is None
    confidence = dict(zip(methods, column(table, "MLC confidence (Eq. 14)"), strict=True))
    assert confidence["SPARSE"]["published"] is None
    assert "too few to count in a verdict" in table["title"]
    assert [one["verdict"] for one in record["findings"]] == ["not measured"] * 3
    (figure,) = record["figures"]
    assert {one["name"] for one in figure["series"]} == {"no protection", "Laplace", "SPARSE"}


def test_the_white_box_variant_is_measured(
    data: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "FEW_TEXTS", 1)
    record = summary("whitebox", data, encoder, tmp_path, methods="laplace, sparse, sparse-whitebox")
    assert "SPARSE-WB" in column(record["tables"][0], "Method")
    best = [one["ours"] for one in record["findings"] if one["claim"].startswith("Noise shaped")]
    assert ["of 2 comparisons" in ours for ours in best] == [True, True]


def test_categories_are_shown_apart(data: Path, encoder: Path, tmp_path: Path) -> None:
    record = summary("categories", data, encoder, tmp_path)
    ours, published = record["tables"]
    assert set(column(ours, "Category")) == {"city", "number"}
    assert all(cell["value"] > 0 for cell in column(ours, "Instances judged"))
    assert "Table 3" in published["title"]


def test_a_guarantee_needs_no_attack(data: Path, encoder: Path, tmp_path: Path) -> None:
    record = summary(
        "guarantee", data, encoder, tmp_path, attacks="", methods="laplace, subspace", scales="utility 0.9, utility 0.8"
    )
    (table,) = record["tables"]
    rows = zip(
        column(table, "Scale"), column(table, "Method"), column(table, "Advantage, mean over pairs"), strict=True
    )
    means = {(scale, method): cell["value"] for scale, method, cell in rows}
    assert all(0 <= value <= 1 for value in means.values())
    assert means["utility 0.8", "Laplace"] < means["utility 0.9", "Laplace"]


def test_the_frontier_compares_with_sparse(
    data: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "FEW_TEXTS", 1)
    record = summary(
        "frontier",
        data,
        encoder,
        tmp_path,
        methods="laplace, sparse, subspace, shuffle",
        scales="clean, utility 0.9, utility 0.95, fixed",
    )
    table = record["tables"][0]
    ratio = dict(
        zip(
            zip(column(table, "Utility kept"), column(table, "Method"), strict=True),
            column(table, "Excess over chance, share of SPARSE's"),
            strict=True,
        )
    )
    assert ratio["0.95", "SPARSE"]["value"] == 1
    (finding,) = record["findings"]
    share = round(100 * ratio["0.95", "subspace (ours)"]["value"])
    assert finding["ours"].startswith(f"{share} %")
    assert finding["verdict"] == ("agrees" if share <= 33 else "disagrees")
    assert "shuffle" in str(record["tables"][1]["rows"])


ATTRIBUTES = """
experiment: attributes
encoder: {encoder}
attacks: [linear, kernel]
methods: [laplace, subspace]
scales: [clean, utility 0.8]
attributes:
  place: {{data: sst2, keep: [sts12]}}
"""


def labelled(folder: Path, texts: list[str]) -> None:
    """Write an SST-2 as GLUE gives it out; a text that names a city is positive."""
    place = folder / "SST-2"
    place.mkdir()
    cities = ("Paris", "London", "Madrid", "Oslo", "Lima")
    rows = [f"{text}\t{int(any(city in text for city in cities))}" for text in texts]
    cut = len(rows) * 3 // 4
    for name, part in (("train", rows[:cut]), ("dev", rows[cut:])):
        (place / f"{name}.tsv").write_text("sentence\tlabel\n" + "\n".join(part) + "\n")


def test_an_attribute_is_hidden_while_a_task_is_kept(data: Path, encoder: Path, tmp_path: Path) -> None:
    import shutil

    from harness.experiment_data import measured, sentences

    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    labelled(copy, list(dict.fromkeys(sentences(700, 3))))
    record = measured(ATTRIBUTES.format(encoder=encoder), copy, tmp_path)
    (table,) = record["tables"]
    seen = dict(zip(column(table, "Method"), column(table, "Accuracy of the strongest attack"), strict=True))
    chance = column(table, "Chance")[0]["value"]
    assert seen["no protection"]["value"] > chance + 0.2
    assert seen["subspace (ours)"]["value"] < seen["no protection"]["value"] - 0.1
    kept = dict(zip(column(table, "Method"), column(table, "sts12, kept"), strict=True))
    assert kept["subspace (ours)"]["value"] > 0.7


def test_a_data_set_without_labels_is_refused(data: Path, encoder: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(ATTRIBUTES.format(encoder=encoder).replace("data: sst2", "data: sts12"))
    with raises("E-INPUT", "data"):
        run(spec, data, tmp_path / "out", workers=0)


TRANSFORMS = """
experiment: pii-transforms
encoder: {encoder}
attacks: [linear]
methods: [laplace]
scales: [clean, effective 20]
transforms: [redact, replace-semantic]
problems:
  sts12: {{data: sts12, concept: {{terms_file: concepts/sts_terms.json}}}}
"""


def test_a_changed_text_leaks_what_the_rest_says(
    data: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "FEW_TEXTS", 1)
    record = measured(TRANSFORMS.format(encoder=encoder), data, tmp_path)
    (table,) = record["tables"]
    leaks = dict(zip(column(table, "Method"), column(table, "Leakage, strongest attack"), strict=True))
    chance = column(table, "Chance")[0]["value"]
    # The sentences are made at random: nothing beside the word says which word it was.
    assert leaks["no protection"]["value"] > chance + 0.3
    assert leaks["redact"]["value"] < chance + 0.2
    assert leaks["replace-semantic"]["value"] < chance + 0.2
    rates = dict(zip(column(table, "Method"), column(table, "R, no leakage assumed"), strict=True))
    assert rates["redact"]["published"] == pytest.approx(4.12)
    assert rates["Laplace"] == "–"
    assert "Eq. 13 to `linear`" in table["caption"]
