"""The review pack holds what a reviewer files, and no text, vector or key."""

from __future__ import annotations

import hashlib
import html
import json
import re
from pathlib import Path

from harness.errors import raises
from harness.sample_audit import sample_audit, with_caveats
from vecveil.auditing.records.audit_record import AuditRecord
from vecveil.auditing.records.verdict import controls, decide
from vecveil.auditing.report.audit_page import caveat_words
from vecveil.auditing.report.pack import write_pack


def test_the_pack_is_complete_and_states_files_by_their_hash(tmp_path: Path) -> None:
    source = tmp_path / "notes.csv"
    source.write_text("text\nThe patient took canaryword.\n")
    written = write_pack(sample_audit(), tmp_path / "pack", fingerprint="5f2c", files=[source])
    assert [path.name for path in written] == ["summary.html", "audit.html", "audit.json", "pack.json"]
    pack = json.loads(written[3].read_text(encoding="utf-8"))
    assert json.loads(written[2].read_text(encoding="utf-8")) == sample_audit()
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert pack["data"]["files"] == [{"name": "notes.csv", "bytes": source.stat().st_size, "sha256": digest}]
    assert pack["protector"]["fingerprint"] == "5f2c"
    assert pack["protector"]["parameters"] == sample_audit()["parameters"]
    assert {"python", "vecveil", "numpy"} <= pack["tools"].keys()
    assert pack["verdict"]["grade"] == "most"
    assert pack["command"] == sample_audit()["command"]
    # The summary that is signed names the record, the encoder, what was not attacked, and each criterion of anonymity.
    record = {
        "name": "audit.json",
        "bytes": written[2].stat().st_size,
        "sha256": hashlib.sha256(written[2].read_bytes()).hexdigest(),
    }
    assert pack["record"] == record
    assert pack["encoder"]["name"] == sample_audit()["encoder"]["name"]
    page = " ".join(re.sub("<[^>]+>", " ", written[0].read_text(encoding="utf-8")).split())
    for expected in (record["sha256"], f"Encoder {pack['encoder']['name']}", "Reviewed by Role Date Decision"):
        assert expected in page
    # Whoever signs has read the controls.
    assert page.index("What remains with the operator") < page.index("Reviewed by Role Date Decision")
    for criterion in sample_audit()["anonymity"]["criteria"]:
        row = page.split(criterion["criterion"].replace("-", " ").capitalize())[1]
        assert all(f"{each['attack']}: {each['metric']}, {each['n']}" in row for each in criterion["figures"])
        assert bool(criterion["figures"]) or criterion["missing"] in row
    for path in written:
        assert "canaryword" not in path.read_text(encoding="utf-8")
        assert str(tmp_path) not in path.read_text(encoding="utf-8")


def test_each_control_has_its_evidence_and_nothing_is_called_compliant(tmp_path: Path) -> None:
    record = sample_audit("at-chance")
    skipped = {"attack": "held-out-linear", "family": "held-out-terms", "reason": "Few words."}
    record["skipped"] = [skipped | {"code": "few"}]
    written = write_pack(record, tmp_path)
    assert "Held-out terms: not tested. Few words." in written[0].read_text(encoding="utf-8")
    mapped = {each["item"]: each for each in json.loads(written[3].read_text(encoding="utf-8"))["controls"]}
    assert mapped.keys() == {item["item"] for item in controls()}
    assert mapped["Art. 25"]["evidence"] == "token inference: hidden; held-out terms: not tested"
    assert all(each["does"] and each["remains"] for each in mapped.values())
    for path in written:
        assert not re.search("complian|complies", path.read_text(encoding="utf-8"), re.I)


def test_the_summary_states_every_caveat_of_the_verdict(tmp_path: Path) -> None:
    for record in (sample_audit(), with_caveats()):
        audit = AuditRecord.read(record, owner="test")
        expected = caveat_words(audit, decide(audit))
        page = html.unescape(re.sub("<[^>]+>", "", write_pack(record, tmp_path)[0].read_text(encoding="utf-8")))
        assert expected
        assert [words for words in expected if words.replace("`", "") not in page] == []
    assert any(words.startswith("Guessing finds 62.0\u00a0%, because") for words in expected)


def test_a_record_that_holds_texts_is_refused(tmp_path: Path) -> None:
    with raises("E-INPUT", "record"):
        write_pack(sample_audit("reconstructions"), tmp_path / "pack")
    assert not (tmp_path / "pack").exists()
