"""The demo's bundled corpus: synthetic notes of a clinic, a support desk and a finance office.

There are 3,000 of them and they are nobody's data: every note was put together by
`vecveil.demo.generator` from slot grammars, with names by Faker, e-mail addresses in example
domains and telephone numbers from ranges kept for fiction. The file says so in every record
(``"synthetic": true``). About two notes in three name a condition or a drug, the demo's concept,
whose terms are in `CONCEPT_FILE`.

Make it anew (needs Faker and PyYAML)::

    python -m vecveil.demo.corpus notes.jsonl.gz
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vecveil.errors import DataFileError
from vecveil.io import write_bytes

__all__ = ["CONCEPT_FILE", "NOTES_FILE", "Note", "NoteSpan", "load_notes", "save_notes"]

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
        """Whether the note names a condition or a drug."""
        return any(span.label in ("CONDITION", "DRUG") for span in self.spans)

    def to_record(self) -> dict[str, Any]:
        """Return the note as one line of the file."""
        spans = [
            {"start": s.start, "end": s.end, "label": s.label, "value": s.value} for s in self.spans
        ]
        return {
            "id": self.id,
            "domain": self.domain,
            "synthetic": True,
            "text": self.text,
            "spans": spans,
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Note:
        """Return the note of one line of the file."""
        spans = tuple(
            NoteSpan(s["start"], s["end"], s["label"], s["value"]) for s in record["spans"]
        )
        return cls(record["id"], record["domain"], record["text"], spans)


def load_notes(path: str | os.PathLike[str] | None = None) -> list[Note]:
    """Return the notes of ``path``; None reads the bundled ones.

    Raises:
        DataFileError: the file is missing, damaged or not a file of notes.
    """
    source = NOTES_FILE if path is None else Path(path)
    try:
        lines = gzip.decompress(source.read_bytes()).decode("utf-8").splitlines()
        notes = [Note.from_record(json.loads(line)) for line in lines]
        if not notes:
            raise EOFError
        return notes
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise DataFileError(
            f"load_notes: `path` must be a gzip file of notes; got {source.name}, which could not "
            f"be read ({type(error).__name__})."
        ) from error


def save_notes(notes: Iterable[Note], path: str | os.PathLike[str]) -> None:
    """Write ``notes`` to ``path`` as gzipped JSON lines; the same notes give the same bytes."""
    lines = "".join(json.dumps(n.to_record(), ensure_ascii=False) + "\n" for n in notes)
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0, compresslevel=9) as file:
        file.write(lines.encode("utf-8"))
    write_bytes(path, buffer.getvalue())


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the corpus to a file; the entry point of ``python -m vecveil.demo.corpus``."""
    from vecveil.demo.generator import generate_notes

    parser = argparse.ArgumentParser(prog="python -m vecveil.demo.corpus", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("out", type=Path, help="file to write, such as notes.jsonl.gz")
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    notes = generate_notes(options.count, options.seed)
    save_notes(notes, options.out)
    shown = f"{len(notes)} synthetic notes, {options.out.stat().st_size:,} bytes\n"
    sys.stderr.write(shown)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
