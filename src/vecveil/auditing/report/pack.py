"""Write the review pack of an audit: files for a reviewer, without texts, vectors or keys."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vecveil.auditing.records.audit_record import AuditRecord
from vecveil.auditing.records.verdict import GRADES, Verdict, controls, decide
from vecveil.auditing.report.audit_page import (
    FAMILY_WORDS,
    Source,
    caveat_words,
    guarantee_words,
    next_steps,
    search_words,
    worst_words,
    write_audit_html,
)
from vecveil.auditing.report.rendering import render
from vecveil.auditing.report.text import duration, moment
from vecveil.errors import InvalidInputError
from vecveil.io import write_text
from vecveil.schema import write_json

TOOLS = ("vecveil", "numpy", "scipy", "torch", "scikit-learn", "sentence-transformers", "transformers", "cryptography")


def write_pack(
    record: Source, folder: Path, *, fingerprint: str | None = None, files: Sequence[Path] = ()
) -> list[Path]:
    """Write ``summary.html``, ``audit.html``, ``audit.json`` and ``pack.json``, and return their paths.

    Args:
        record: an audit record without reconstructed texts.
        fingerprint: of the audited protector.
        files: inputs of the audit; the pack states name, size and SHA-256 of each, never the content.
    """
    audit = AuditRecord.load(record)
    if audit.reconstructions:
        raise InvalidInputError("A review pack contains no text: audit without --show-reconstructions.", param="record")
    verdict = decide(audit)
    mapped = control_mapping(audit, verdict)
    content = {
        "schema": "vecveil.pack/1",
        "verdict": {"grade": verdict.grade, "words": verdict.words, "sentence": verdict.sentence},
        "protector": {"fingerprint": fingerprint, "method": audit.method, "parameters": dict(audit.parameters)},
        "encoder": None
        if audit.encoder is None
        else {
            "name": audit.encoder.name,
            "fingerprint": audit.encoder.fingerprint,
            "precision": audit.encoder.precision,
        },
        "data": {
            "texts": audit.texts.to_record(),
            "split": audit.split.to_record(),
            "files": [describe_file(path) for path in files],
        },
        "tools": {"python": platform.python_version(), "platform": platform.platform()} | versions(),
        "command": audit.command,
        "seed": audit.seed,
        "tier": audit.tier,
        "controls": mapped,
    }
    paths = {name: folder / name for name in ("summary.html", "audit.html", "audit.json", "pack.json")}
    audit.save(paths["audit.json"])
    content["record"] = describe_file(paths["audit.json"])  # binds the signed summary to the figures
    write_json(paths["pack.json"], content)
    write_audit_html(audit, paths["audit.html"])
    attacked = {attack.family for attack in audit.attacks}
    # One reason for a family: its first attack's.
    reasons = {each.family: each.reason for each in reversed(audit.skipped) if each.family not in attacked}
    page = render(
        "pack.html",
        what="review pack",
        generator=audit.vecveil,
        audit=audit,
        verdict=verdict,
        content=content,
        made=moment(audit.created),
        worst_words=worst_words(audit, verdict),
        search=search_words(audit),
        steps=next_steps(audit, verdict),
        guarantee=guarantee_words(audit.guarantee),
        caveats=caveat_words(audit, verdict),
        families=[(FAMILY_WORDS[v.family][0], v.attack, GRADES[v.grade]) for v in verdict.others],
        took=duration(audit.seconds),
        untested=[(FAMILY_WORDS[name][0], why) for name, why in reasons.items()],
    )
    write_text(paths["summary.html"], page)
    return list(paths.values())


def control_mapping(audit: AuditRecord, verdict: Verdict) -> list[dict[str, Any]]:
    """Return for each control what vecveil does, the evidence in this audit and what remains with the operator."""
    grades = {"token-inference": verdict.grade} | {each.family: each.grade for each in verdict.others}
    mapped = []
    for item in controls():
        evidence = [
            f"{FAMILY_WORDS[family][0].lower()}: {GRADES[grades[family]].lower() if family in grades else 'not tested'}"
            for family in item["families"]
        ]
        names = ("framework", "item", "title", "does", "remains")
        mapped.append({name: item[name] for name in names} | {"evidence": "; ".join(evidence)})
    return mapped


def describe_file(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": digest}


def versions() -> dict[str, str]:
    installed = {}
    for name in TOOLS:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed
