"""The demo's bundled corpus: synthetic notes of a clinic, a support desk and a finance office.

``benchmarks/demo_notes.py`` generates the 3,000 notes from slot grammars; none is a person's data, and every record
says so (``"synthetic": true``). About two notes in three name a condition or a drug, the demo's concept, whose terms
are in `CONCEPT_FILE`.
"""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vecveil.errors import DataFileError
from vecveil.io import expanded

NOTES_FILE = Path(__file__).with_name("notes.jsonl.gz")
"""The bundled notes: JSON lines, gzip, with id, domain, synthetic, text and spans."""
CONCEPT_FILE = Path(__file__).with_name("concept.yaml")
"""The demo's default concept: conditions and the drugs given for them."""


@dataclass(frozen=True, slots=True)
class NoteSpan:
    """A gold annotation: ``text[start:end] == value``."""

    start: int
    end: int
    label: str
    value: str


@dataclass(frozen=True, slots=True)
class Note:
    """One synthetic note.

    Args:
        id: domain and running number, such as "clinic-0001".
        domain: "clinic", "support" or "finance".
        spans: gold spans in order of their start; labels are CONDITION, DRUG, PERSON, LOCATION,
            ORGANISATION, DATE, AMOUNT, ACCOUNT, PHONE and EMAIL.
    """

    id: str
    domain: str
    text: str
    spans: tuple[NoteSpan, ...]

    @property
    def has_concept(self) -> bool:
        """Return True if the note names a condition or a drug."""
        return any(span.label in ("CONDITION", "DRUG") for span in self.spans)

    def to_record(self) -> dict[str, Any]:
        spans = [asdict(span) for span in self.spans]
        return {"id": self.id, "domain": self.domain, "synthetic": True, "text": self.text, "spans": spans}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Note:
        spans = tuple(NoteSpan(s["start"], s["end"], s["label"], s["value"]) for s in record["spans"])
        return cls(record["id"], record["domain"], record["text"], spans)


def load_notes(path: str | os.PathLike[str] | None = None) -> list[Note]:
    """Return the notes of ``path``, or the bundled ones; raise `DataFileError` for a missing or damaged file."""
    source = NOTES_FILE if path is None else expanded(path)
    try:
        lines = gzip.decompress(source.read_bytes()).decode("utf-8").splitlines()
        notes = [Note.from_record(json.loads(line)) for line in lines]
        if not notes:
            raise EOFError
        return notes
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise DataFileError(
            f"{source.name} is not a gzip file of notes ({type(error).__name__}).", param="path"
        ) from error
