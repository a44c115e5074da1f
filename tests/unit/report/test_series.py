"""Leakage against the number of releases or pairs, read from the names in a record."""

from __future__ import annotations

from typing import Any

from harness.sample_attacks import attack, figure, settle
from harness.sample_audit import sample_audit
from vecveil.records import AuditRecord
from vecveil.report.audit import LeakageSeries, family_group, leakage_series


def of(family: str, *attacks: dict[str, Any]) -> list[LeakageSeries]:
    record = sample_audit("one-attack")
    record["attacks"] += attacks
    return leakage_series(AuditRecord.read(settle(record), owner="test").members(family))


def shape(found: list[LeakageSeries]) -> dict[str, list[tuple[int | None, float | None]]]:
    return {line.label: [(number, figure.value) for number, figure in line.points.items()] for line in found}


def averaging(name: str, share: float, metric: str = "R-precision") -> dict[str, Any]:
    return attack(name, "averaging", figure(metric, share, 0.7, 0.1))


def test_releases_are_counted_by_the_names_of_the_attacks() -> None:
    found = of(
        "averaging",
        averaging("averaging-16", 0.4),
        averaging("averaging-4-mlp-512", 0.3),
        averaging("averaging-16-keyed", 0.2),
        averaging("averaging-16-kernel", 0.35),
        averaging("averaging-64-spheres", 0.6),
    )
    assert shape(found) == {
        "fresh noise": [(4, 0.3), (16, 0.4)], "keyed noise": [(16, 0.2)], "distances": [(64, 0.6)],
    }  # fmt: skip
    assert {line.unit for line in found} == {"releases"}


def test_a_main_figure_without_a_number_is_that_of_the_most_pairs() -> None:
    also = [figure("top-1 with 50 pairs", 0.1, 0.9, 0.01), figure("MRR", 0.3, 0.9, 0.05)]
    main = attack("procrustes", "alignment", figure("top-1", 0.4, 0.9, 0.01), also=also)
    found = of("alignment", main)
    assert shape(found) == {"procrustes": [(50, 0.1), (None, 0.4)]}
    assert found[0].unit == "known pairs"


def test_a_main_figure_with_a_number_is_a_point_like_the_others() -> None:
    also = [figure("top-1 with 50 pairs", 0.1, 0.9, 0.01)]
    main = attack("ridge", "alignment", figure("top-1 with 1000 pairs", 0.4, 0.9, 0.01), also=also)
    assert shape(of("alignment", main)) == {"ridge": [(50, 0.1), (1000, 0.4)]}


def test_one_figure_is_no_series_and_other_families_have_none() -> None:
    assert of("averaging", averaging("averaging-4", 0.3)) == []
    assert of("alignment", attack("a", "alignment", figure("top-1", 0.4, 0.9, 0.01))) == []
    probe = attack("p", "probe", figure("AUC", 0.7, 0.9, 0.5), also=[figure("k = 3", 0.1, 0.2, 0)])
    assert of("probe", probe) == []


def test_the_rows_of_the_families() -> None:
    audit = AuditRecord.read(sample_audit(), owner="test")
    shown = {
        family: [f"{a.name} {f.metric}" for a, f in family_group(audit, family).rows]
        for family in audit.strongest
    }
    assert shown["token-inference"] == []
    assert shown["averaging"] == []
    assert shown["alignment"] == ["alignment-procrustes MRR"]
    assert shown["held-out-terms"] == [
        "unlisted-kernel R-precision",
        "unlisted-kernel R-precision of listed words",
        "unlisted-linear R-precision",
        "unlisted-linear R-precision of listed words",
    ]
    assert shown["candidates"][0] == "substitution-mahalanobis top-1 of 10"
    assert shown["reconstruction"][:2] == ["geia-small token F1", "geia-small BLEU"]
    assert shown["probe"][-1] == "logistic-probe TPR at 0.1 % FPR"


def test_absurd_numbers_are_no_counts() -> None:
    assert of("averaging", averaging(f"averaging-{'9' * 20}", 0.5), averaging("averaging-4", 0.2)) == []
