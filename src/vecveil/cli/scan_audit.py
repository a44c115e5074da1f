"""The audit of a sample of a store, and what it adds to the findings of a scan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vecveil.errors import InvalidInputError

if TYPE_CHECKING:
    from vecveil.auditing import AuditResult
    from vecveil.cli.scan_texts import SampleTexts
    from vecveil.concepts import Concept
    from vecveil.databases.scanning import Scan, ScanFinding

__all__ = ["audited_sample", "clean_sample", "found_by_audit", "not_tested"]

_AUDITED = (
    "tier",
    "min_token_count",
    "show_terms",
    "show_reconstructions",
    "skip",
    "device",
    "seed",
)


def audited_sample(
    scan: Scan, known: SampleTexts, concept: Concept, given: dict[str, Any], *, command: str
) -> AuditResult:
    """Return the audit of the sampled rows whose text is known."""
    from vecveil.auditing import audit_store
    from vecveil.auditing.lint import plaintext_beside
    from vecveil.cli.audit import corpus_texts
    from vecveil.cli.inputs import load_encoder_named
    from vecveil.cli.scan_texts import values_of
    from vecveil.encoders.cache import default_cache_folder

    group = given["group_field"]
    groups = None
    if group is not None:
        values = values_of(scan, group)
        groups = [values[i] for i in known.rows]
        if any(value is None for value in groups):
            missing = sum(value is None for value in groups)
            raise InvalidInputError.of("scan", "group_field", "a field of every row",
                                       f"{missing:,} sampled rows without it")  # fmt: skip
    columns = dict(known.columns)
    for name in concept.columns:
        if name not in columns:
            values = values_of(scan, name)
            columns[name] = [values[i] for i in known.rows]
    beside = {one.name: values_of(scan, one.name) for one in scan.survey.fields}
    encoder = None
    if given["encoder"] is not None:
        encoder = load_encoder_named(given["encoder"], given["precision"], given["cache"])
    work = given["work"]
    if work is None and given["cache"]:
        work = default_cache_folder() / "audits"
    return audit_store(
        known.vectors,
        known.texts,
        concept.with_columns(columns),
        encoder=encoder,
        groups=groups,
        corpus=corpus_texts(given["corpus"]),
        work=work,
        lint=plaintext_beside(beside),
        command=command,
        **{name: given[name] for name in _AUDITED},
    )


def clean_sample(known: SampleTexts, given: dict[str, Any]) -> bool:
    """Return whether the vectors are those that the encoder gives for the texts: nothing protects them."""
    from vecveil.auditing.lint import clean_vectors
    from vecveil.cli.inputs import load_encoder_named

    encoder = load_encoder_named(given["encoder"], given["precision"], given["cache"])
    return bool(clean_vectors(known.vectors, encoder.encode(known.texts)))


def found_by_audit(result: AuditResult | None, *, clean: bool) -> list[ScanFinding]:
    """Return what the attacks and the comparison with an encoder add."""
    from vecveil.databases.scanning import ScanFinding

    found = []
    if clean:
        found.append(ScanFinding(
            "vectors-not-protected", "high", "These are the encoder's own vectors: nothing protects them.",
            "Fit a protector (vecveil fit) and copy the store to a protected one (vecveil migrate).",
        ))  # fmt: skip
    if result is None:
        return found
    worst = result.worst
    reads = f"{worst['value']:.0%} of the concept's words (guessing: {worst['chance']:.0%})"
    if worst["low"] > worst["chance"]:
        found.append(ScanFinding(
            "concept-leaks", "high",
            f"Somebody who knows the texts of some rows reads {reads} from the vectors of the others.",
            "Copy the store to a protected one (vecveil migrate), or use a stronger protector, and audit again.",
        ))  # fmt: skip
    else:
        found.append(ScanFinding(
            "concept-not-read", "info", f"The attacks on words read {reads}, no more than guessing within the error.",
            "Look at the other attacks in the report, and give more rows (--sample) for narrower intervals.",
        ))  # fmt: skip
    return found


def not_tested(
    scan: Scan,
    known: SampleTexts | None,
    *,
    concept: Path | None,
    encoder: str | None,
    failed: str | None,
) -> list[str]:
    """Return what this scan says nothing about."""
    found = []
    if not scan.complete:
        found.append(f"Rows behind the first {scan.survey.rows:,} (--limit).")
    if known is None:
        found.append(
            "What attackers read from the vectors: no texts are beside them and none were given "
            "(--texts FILE --id-column NAME, or --text-field NAME)."
        )
    elif concept is None:
        found.append("What attackers read from the vectors: no concept was given (--concept FILE).")
    elif failed is not None:
        found.append(f"What attackers read from the vectors: {failed}")
    elif len(known.texts) < scan.survey.rows:
        found.append(f"Rows beyond the {len(known.texts):,} that were attacked, a random sample.")
    if known is None or encoder is None:
        found.append("Whether the vectors are an encoder's own: that needs texts and --encoder.")
    return found
