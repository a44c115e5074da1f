"""What is wrong with a store, and what to do, from the counts of a scan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from vecveil.databases.fields import Field

if TYPE_CHECKING:
    from vecveil.databases.scanning import Scan

__all__ = ["SEVERITIES", "SIGN_CODES", "Finding", "Severity", "findings_of", "in_order"]

Severity = Literal["high", "medium", "low", "info"]
SIGN_CODES = ("looks-protected", "mixed", "no-sign-of-protection", "protection-unknown")
"""Of the finding that signs of protection give; one of them is always there."""
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low", "info")
_LOOKS = {
    "email": "e-mail addresses",
    "phone": "telephone numbers",
    "name": "names",
    "text": "texts",
}
_MIGRATE = "`vecveil migrate` copies the store to one that is protected"


@dataclass(frozen=True)
class Finding:
    """One thing that was found; it quotes nothing of what is in the store but names of fields."""

    code: str
    severity: Severity
    message: str
    fix: str

    def to_record(self) -> dict[str, str]:
        """Return the finding as JSON values."""
        return asdict(self)


def in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the worst first."""
    return tuple(sorted(findings, key=lambda one: SEVERITIES.index(one.severity)))


def findings_of(scan: Scan) -> tuple[Finding, ...]:
    """Return what the counts of ``scan`` show, the worst first."""
    survey = scan.survey
    if not survey.rows:
        return (Finding("empty", "info", "The store has no rows.", "Nothing is to be done."),)
    found = [*_fields(survey.fields, survey.rows), *_ids(survey.ids), *_vectors(scan), *_rows(scan)]
    return in_order(found)


def _fields(fields: Sequence[Field], rows: int) -> list[Finding]:
    found = []
    for one in fields:
        if one.withheld == "text":
            found.append(Finding(
                "plaintext-beside-vectors", "high",
                f"Field {one.name!r} holds texts beside the vectors, in {one.text_rows / rows:.0%} of the rows: "
                "whoever reads the store needs no attack.",
                f"Keep texts in another place, by id; {_MIGRATE} and leaves them out.",
            ))  # fmt: skip
        elif one.withheld is not None:
            what = (
                "lists of numbers, which may be clean vectors"
                if one.withheld == "numbers"
                else "binary values"
            )
            found.append(Finding(
                f"{one.withheld}-beside-vectors", "medium",
                f"Field {one.name!r} holds {what}, in {one.rows / rows:.0%} of the rows: nothing protects them.",
                f"Look at the field, and leave it out; {_MIGRATE} and does so unless told to keep it.",
            ))  # fmt: skip
        elif one.personal is not None:
            found.append(Finding(
                "personal-data-beside-vectors", "medium",
                f"Field {one.name!r} looks like {_LOOKS[one.personal]}, in "
                f"{one.kinds[one.personal] / rows:.0%} of the rows.",
                f"Leave it out, or put a pseudonym in its place: vecveil migrate --drop {one.name}.",
            ))  # fmt: skip
    return found


def _ids(ids: Field | None) -> list[Finding]:
    looks = None if ids is None else ids.withheld or ids.personal
    if looks not in _LOOKS:
        return []
    return [Finding(
        "telling-ids", "medium", f"Ids look like {_LOOKS[looks]}.",
        "Ids are copied as they are: write rows under ids that say nothing.",
    )]  # fmt: skip


def _vectors(scan: Scan) -> list[Finding]:
    signs = scan.signs
    if signs.verdict == "seen":
        seen = []
        if signs.grid_step is not None:
            seen.append(f"all values are multiples of {signs.grid_step:.3g}")
        if signs.rank is not None:
            seen.append(f"the vectors span {signs.rank} of {scan.info.dimension} dimensions")
        return [Finding(
            "looks-protected", "info",
            f"The vectors look as vecveil leaves them: {' and '.join(seen)}. Other programs round and project too, so "
            "this is no proof.",
            "Audit them with their texts to know what is left: --concept, and --texts or a field of texts.",
        )]  # fmt: skip
    if signs.verdict == "mixed":
        others = (
            "the others look protected"
            if signs.beside
            else "the others are of another source, such as a protector"
        )
        return [Finding(
            "mixed", "high",
            f"{signs.clean / signs.rows:.0%} of the vectors look like an encoder's own, and {others}.",
            f"Find what writes the clean ones; put them into a store of their own and protect that ({_MIGRATE}). "
            "Migrating the whole store would put noise on noise.",
        )]  # fmt: skip
    if signs.verdict == "none" and not scan.normalises:
        return [Finding(
            "no-sign-of-protection", "high",
            "All vectors have norm 1 and nothing else that protection leaves: they look like an encoder's own.",
            f"Fit a protector (vecveil fit); {_MIGRATE}.",
        )]  # fmt: skip
    return [Finding(
        "protection-unknown", "medium", "No sign says whether the vectors are protected; some methods leave none.",
        f"Audit them with their texts: --concept, and --texts or a field of texts. If they are not, {_MIGRATE}.",
    )]  # fmt: skip


def _rows(scan: Scan) -> list[Finding]:
    survey, found = scan.survey, []
    if survey.bad.total:
        found.append(Finding(
            "bad-rows", "low", f"Rows whose vector cannot be used: {survey.bad}.",
            "Write them anew, or leave them out of a migration with --skip-bad.",
        ))  # fmt: skip
    if survey.norms.zeros:
        found.append(Finding(
            "zero-vectors", "low", f"{survey.norms.zeros:,} vectors are zero: they have no direction.",
            "Look at what was encoded there.",
        ))  # fmt: skip
    if equal := survey.equal_vectors.count():
        about = "" if survey.equal_vectors.is_exact else "about "
        found.append(Finding(
            "equal-vectors", "low",
            f"The vectors of {about}{equal:,} rows are equal to another row's: who knows the text of one knows the "
            "other's.",
            "Store each text once; noise makes equal vectors different.",
        ))  # fmt: skip
    if equal := survey.equal_ids.count():
        about = "" if survey.equal_ids.is_exact else "about "
        found.append(Finding(
            "equal-ids", "medium", f"{about}{equal:,} rows share their id with another one.",
            "Give each row an id of its own: a store that is written by id keeps one of them only.",
        ))  # fmt: skip
    if scan.complete and survey.rows != scan.info.count:
        found.append(Finding(
            "count", "low", f"{survey.rows:,} rows were read where the store counts {scan.info.count:,}.",
            "Somebody may have written meanwhile: scan again.",
        ))  # fmt: skip
    return found
