"""A gate names what leaks more than a limit or than the baseline, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from harness.errors import raises
from harness.sample_attacks import settle
from harness.sample_audit import sample_audit
from vecveil.auditing.records import AuditRecord
from vecveil.auditing.records.verdict import GateResult, check_baseline, check_gate
from vecveil.errors import InvalidInputError


def parse(record: dict[str, Any]) -> AuditRecord:
    return AuditRecord.read(record, owner="test")


def changed(name: str, **figures: Any) -> AuditRecord:
    """Return the sample with other figures of one attack; figures of None leave the attack's family out."""
    record = sample_audit()
    attack = next(each for each in record["attacks"] if each["name"] == name)
    if not figures:
        record["attacks"] = [each for each in record["attacks"] if each["family"] != attack["family"]]
    attack |= figures
    tried = [each for each in record["attacks"] if each["family"] == "token-inference"]
    record["worst"] = max(tried, key=lambda each: each["value"])["name"]
    return parse(settle(record))


def gate(baseline: AuditRecord | None, **limits: float) -> GateResult:
    found = check_gate(parse(sample_audit()), baseline=baseline, **limits)
    return GateResult(*(tuple(s.replace("\u00a0", " ") for s in part) for part in (found.failures, found.notes)))


@pytest.mark.parametrize(("above", "fails"), [(0.229, False), (0.2289, True), (0.0, True), (float("nan"), True)])
def test_the_worst_attack_has_a_limit(above: float, fails: bool) -> None:
    found = gate(None, above=above).failures
    assert len(found) == fails
    assert all(said.startswith("mlp-adaptive reaches 22.9 % (R-precision); the limit is ") for said in found)


@pytest.mark.parametrize(
    ("baseline", "fails"),
    [
        (changed("mlp-adaptive", value=0.209, low=0.19, high=0.23), ""),
        (
            changed("mlp-adaptive", value=0.208, low=0.19, high=0.23),
            "mlp-adaptive reaches 22.9 % (R-precision), in the baseline mlp-adaptive reaches 20.8 % (R-precision); "
            "at most 2 points more are allowed.",
        ),
        (changed("mlp-adaptive", value=0.1, low=0.1, high=0.1), "in the baseline linear reaches 13.8 %"),
        (changed("logistic-probe", value=0.595), ""),  # the interval, 59.2 % to 63.2 %, holds it
        (changed("logistic-probe", value=0.58), "logistic-probe reaches 61.2 % (AUC), in the baseline"),
        (changed("logistic-probe", value=0.9, high=0.92), ""),
    ],
)
def test_a_figure_may_exceed_the_baseline_by_so_much(baseline: AuditRecord, fails: str) -> None:
    found = gate(baseline, worse_by=0.02).failures
    assert len(found) == bool(fails)
    assert fails in "".join(found)


def test_a_family_that_was_left_out_fails() -> None:
    found = check_gate(changed("logistic-probe"), baseline=parse(sample_audit()), worse_by=1.0).failures
    assert [said[:22] for said in found] == ["probe was not measured"]
    more = check_gate(parse(sample_audit()), baseline=changed("logistic-probe"))
    assert (more.failures, more.notes) == ((), ("not compared: probe, which the baseline lacks.",))


def test_what_cannot_be_compared_is_noted() -> None:
    record = sample_audit()
    record["texts"]["words"] += 1
    record["method"] = "laplace"
    decoys = next(each for each in record["attacks"] if each["name"] == "nearest-candidate")
    decoys["metric"] = "top-1 of 3,000"
    found = gate(parse(settle(record)))
    assert found.failures == ()
    assert len(found.notes) == 3
    assert found.notes[1] == f"the baseline has the method 'laplace'; this audit has {sample_audit()['method']!r}."
    assert "nearest-candidate reaches 34.0 % (top-1 of 3,000) in the baseline; this audit has" in found.notes[2]


def test_a_baseline_with_another_metric_of_token_inference_fails() -> None:
    record = sample_audit()
    for attack in record["attacks"]:
        if attack["family"] == "token-inference":
            attack["metric"] = "recall"
    (found,) = gate(parse(record), worse_by=1.0).failures
    assert found.startswith("not compared: mlp-adaptive reaches")


def test_a_file_that_never_ends_is_refused() -> None:
    with raises("E-DATA-FILE", "record"):
        AuditRecord.load("/dev/zero")


@pytest.mark.parametrize("other", ["concept", "kind", "tier"])
def test_another_kind_of_baseline_is_refused(other: str) -> None:
    baseline = parse(sample_audit())
    same = {name: getattr(baseline, name) for name in ("concept", "kind", "tier")}
    check_baseline(baseline, **same)
    with pytest.raises(InvalidInputError, match=f"has the {other} ") as error:
        check_baseline(baseline, **same | {other: "another"})
    assert error.value.param == "baseline"
