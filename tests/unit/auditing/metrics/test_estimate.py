import json

from vecveil.auditing.metrics import Estimate


def test_record_of_a_figure_that_is_not_finite_is_valid_json():
    record = Estimate("AUC", float("nan"), float("-inf"), float("inf"), 0).to_record()
    assert json.loads(json.dumps(record, allow_nan=False))["value"] is None
    assert record["chance"] is None
