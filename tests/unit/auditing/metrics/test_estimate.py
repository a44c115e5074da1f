import dataclasses
import json

import pytest

from vecveil.auditing.metrics import Estimate


def test_record_holds_every_field():
    estimate = Estimate("R-precision", 0.5, 0.4, 0.6, 20, 0.1)
    assert estimate.to_record() == {
        "metric": "R-precision",
        "value": 0.5,
        "low": 0.4,
        "high": 0.6,
        "n": 20,
        "chance": 0.1,
    }


def test_record_of_a_figure_that_is_not_finite_is_valid_json():
    record = Estimate("AUC", float("nan"), float("-inf"), float("inf"), 0).to_record()
    assert json.loads(json.dumps(record, allow_nan=False))["value"] is None
    assert record["chance"] is None


def test_estimate_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Estimate("AUC", 0.5, 0.4, 0.6, 3).value = 1.0  # type: ignore[misc]
