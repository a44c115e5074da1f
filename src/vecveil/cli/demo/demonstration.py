"""The main job: texts in; protected vectors, a protector and an audit out."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vecveil.auditing import AuditResult, audit
from vecveil.auditing.attacks.attack import split_groups, text_groups
from vecveil.auditing.case import MIN_TEST_TEXTS, Options, make_case
from vecveil.auditing.metrics import SealedSearchTask, UtilityTask
from vecveil.cli.demo.corpus import CONCEPT_FILE, NOTES_FILE
from vecveil.errors import ConceptError, DataFileError
from vecveil.gateway.bulk.job import metadata_of
from vecveil.io import PUBLIC, make_folders, write_text
from vecveil.privacy.concepts import Concept
from vecveil.privacy.protector import Protector, fit
from vecveil.runtime import progress
from vecveil.texts.encoders import TextEncoder, load_encoder
from vecveil.texts.tables import TableReader, open_writer, read_table, read_texts
from vecveil.texts.tables.columns import is_plain
from vecveil.texts.tables.reading import EMBEDDING
from vecveil.types import Embeddings
from vecveil.version import __version__

DEMO_TARGET_UTILITY = 0.8
FILES = ("protected.parquet", "protector.vecveil", "audit.json", "audit.html")
MANIFEST = ".written-by-vecveil-demo.json"
BUNDLED = 2_400
"""Bundled notes that the demo uses, so that it takes less than a minute on two cores."""
STEPS = 5
MIN_GROUPS = 40
CANDIDATES = 200
LEFT_OUT = ("ensemble", "kernel-further", "network", "substitution")
"""Attacks of an audit that the demo leaves out: the longest, of which none decides its verdict."""


@dataclass(frozen=True)
class OwnTexts:
    """The user's table, what to hide in it, and how to read it.

    ``group_column`` groups texts that belong together; ``table`` are arguments of `vecveil.texts.tables.read_table`.
    """

    input: Path
    concept_file: Path
    group_column: str | None = None
    table: Mapping[str, Any] = field(default_factory=dict)


BUNDLED_NOTES = OwnTexts(NOTES_FILE, CONCEPT_FILE, table={"text_column": "text"})


@dataclass(frozen=True, eq=False)
class DemoResult:
    """Result of a run of the demo.

    Attributes:
        audit: what attackers recover in the half of the texts that the protector was not fitted on.
        folder: where the files are.
        rows: number of texts, all of them protected.
        synthetic: the texts were the bundled ones.
        seconds: wall-clock time.
    """

    audit: AuditResult
    folder: Path
    rows: int
    synthetic: bool
    seconds: float

    def to_record(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "files": {name: str(self.folder / name) for name in FILES},
            "rows": self.rows,
            "synthetic": self.synthetic,
            "seconds": self.seconds,
            "audit": self.audit.to_record(),
        }

    def summary(self) -> str:
        left_out = f"To save time the demo leaves out the attacks {', '.join(LEFT_OUT)}; `vecveil audit` runs them."
        lines = [*self._modes(), self.audit.summary(), left_out, ""]
        if self.synthetic:
            lines += [
                "The texts are bundled notes: synthetic, and more regular than real ones.",
                "Your own: vecveil demo --input notes.csv --text-column text --concept FILE.yaml",
                "",
            ]
        about = (
            f"{self.rows:,} protected vectors, without the texts",
            "the protector: vecveil protect -p ...",
            "every figure",
            "the report: open it in a browser",
        )
        lines.append(f"Files ({self.seconds:.0f} s)")
        lines += [f"  {self.folder / name!s:<32} {what}" for name, what in zip(FILES, about, strict=True)]
        return "\n".join(lines) + "\n"

    def _modes(self) -> list[str]:
        """Return for each mode what the storage reveals and what search keeps."""
        utility, worst = self.audit.record["utility"], self.audit.worst

        def recall(task: str) -> str:
            return f"{utility[task]['value']:.0%}" if task in utility else "-"

        read = f"{worst['value']:.0%}"
        rows = [
            ("no protection", f"{worst['clean']:.0%}", "100%", ""),
            ("sealed index", "ciphertext", "100%", "you hold a key where you search"),
            ("sealed search", read, recall("sealed_search"), f"the same, and a database finds {CANDIDATES} candidates"),
            ("protected vectors", read, recall("neighbours"), "others use the vectors without a key"),
            ("guessing", f"{worst['chance']:.0%}", "", ""),
        ]
        head = f"{'Mode':<19}{'listed words recovered':>22}  {'ten nearest found':>17}  if"
        return [head, *(f"{mode:<19}{words:>22}  {kept:>17}  {use}".rstrip() for mode, words, kept, use in rows), ""]


def run_demo(
    folder: Path,
    *,
    own: OwnTexts | None = None,
    encoder: Callable[[], TextEncoder] | None = None,
    target_utility: float = DEMO_TARGET_UTILITY,
    seed: int = 0,
    force: bool = False,
    command: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> DemoResult:
    """Run the demo and write its files into ``folder``: all of them at the end, or none.

    The texts are split in two halves by group: one fits the protector, the other is audited.

    Args:
        own: None takes the bundled synthetic notes.
        encoder: loads the encoder, after the texts are checked; None takes minilm.
        force: replace files of these names that an earlier demo did not write.
        say: gets one line for each step.

    Raises:
        DataFileError: the input cannot be used, or ``folder`` contains files that are not the demo's.
        ConceptError, CalibrationError: as `vecveil.fit` and `vecveil.audit`.
    """
    started = time.perf_counter()
    check_folder(folder, force=force)
    used = own or BUNDLED_NOTES
    source, group_column = used.input, used.group_column
    say(f"1/{STEPS} Reading {'the bundled synthetic notes' if own is None else source.name}")
    concept = Concept.from_file(used.concept_file)
    concept.require_spans("demo")
    reader = read_table(source, columns=[], **used.table)
    extra = [*concept.columns, *([] if group_column is None else [group_column])]
    limit = BUNDLED if own is None else None
    rows = read_texts(source, columns=list(dict.fromkeys(extra)), limit=limit, **used.table)
    texts = rows.texts
    groups = None if group_column is None else rows.columns[group_column]
    ids = text_groups(texts, groups)
    if (different := int(ids.max()) + 1) < MIN_GROUPS:
        raise DataFileError(
            f"{source.name}: the demo needs {MIN_GROUPS} different texts, one half for the protector and one for the "
            f"audit; there are {different} in {len(texts)} rows.",
            param="texts",
        )
    half, other = split_groups(ids, (0.5, 0.5), seed=seed)

    def part(indices: Sequence[int]) -> tuple[list[str], Concept]:
        columns = {name: [rows.columns[name][i] for i in indices] for name in concept.columns}
        return [texts[i] for i in indices], concept.with_columns(columns)

    audit_texts, audit_concept = part(other.tolist())
    audit_groups = None if groups is None else [groups[i] for i in other]
    try:  # before the work: check what the audit would refuse at the end
        make_case(
            audit_concept.find(audit_texts, show_progress=False),
            Options(seed=seed, groups=audit_groups),
            embeddings=None,
            encode=None,
            owner="demo",
        )
    except ConceptError:
        raise ConceptError(
            f"`input` has {len(texts):,} texts, not enough texts to attack one half of them: it must contain the "
            f"concept's words several times each, and {MIN_TEST_TEXTS} texts with such a word to judge on. Give more "
            "texts, or a concept of more frequent words.",
            param="input",
        ) from None

    counted = f"{len(half):,} of {len(texts):,} texts"
    say(f"2/{STEPS} Learning the concept {concept.name!r} from {counted}")
    model = load_encoder("minilm") if encoder is None else encoder()
    fit_texts, fit_concept = part(half.tolist())
    protector = fit(fit_texts, fit_concept, model, target_utility=target_utility, seed=seed)
    say(f"3/{STEPS} Encoding the other {len(other):,} with {model.name}")
    X = model.encode(texts)
    with staging(folder) as draft:
        say(f"4/{STEPS} Protecting all {len(texts):,} vectors")
        private = {*concept.columns, reader.text_column}
        _write_protected(draft / FILES[0], protector, reader, X, private)
        protector.save(draft / FILES[1])
        say(f"5/{STEPS} Attacking clean and protected vectors of the other {len(other):,} texts")
        X_other = np.ascontiguousarray(X[other])
        result = audit(
            protector,
            audit_texts,
            audit_concept,
            embeddings=X_other,
            tasks=_search_tasks(X_other),
            skip=LEFT_OUT,
            groups=audit_groups,
            seed=seed,
            command=command,
        )
        result.save(draft / FILES[2])
        result.to_html(draft / FILES[3])
    return DemoResult(result, folder, len(texts), own is None, time.perf_counter() - started)


def _search_tasks(X: Embeddings) -> list[UtilityTask]:
    """Return the task of sealed search if there are many more texts than candidates."""
    rows = len(X)
    return [SealedSearchTask(X, candidates=CANDIDATES, collection_size=rows)] if rows >= 2 * CANDIDATES else []


def _write_protected(
    path: Path, protector: Protector, reader: TableReader, X: Embeddings, private: set[str | None]
) -> None:
    """Write the vectors with the plain columns: no text, no spans, nothing nested, no vectors."""
    types = {name: kind for name, kind in reader.types.items() if name not in {*private, EMBEDDING} and is_plain(kind)}
    metadata = metadata_of(protector, None, noise=True)
    chunks = progress(reader.select(tuple(types), vectors=False), "Protecting", unit="chunk")
    with open_writer(path, types=types, metadata=metadata) as writer:
        for chunk in chunks:
            clean = X[chunk.first_row : chunk.first_row + chunk.rows]
            if len(clean):  # the demo does not use all bundled notes
                columns = {name: values[: len(clean)] for name, values in chunk.columns.items()}
                writer.write(protector.protect(clean), columns)


def check_folder(folder: Path, *, force: bool) -> None:
    """Reject a folder with files of the demo's names that the demo did not write."""
    if folder.exists() and not folder.is_dir():
        raise DataFileError(f"`out` is a folder: {folder.name} is a file.", param="out")
    try:
        written = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        written = {}
    there = [name for name in FILES if (folder / name).exists()]
    foreign = [n for n in there if (folder / n).is_dir() or written.get(n) != _digest(folder / n)]
    if foreign and not force:
        raise DataFileError(
            f"The folder {folder.name} of `out` contains files that the demo did not write: {', '.join(foreign)}. Name "
            "another folder, or replace them with --force.",
            param="out",
        )


@contextlib.contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """Yield a hidden folder next to ``folder``; move its files there on a clean exit, else delete it."""
    parent = folder.absolute().parent
    make_folders(parent, mode=PUBLIC)
    draft = Path(tempfile.mkdtemp(dir=parent, prefix=f".{folder.name}.", suffix=".tmp"))
    try:
        yield draft
        digests = {name: _digest(draft / name) for name in FILES}
        make_folders(folder)  # it contains the texts
        for name in FILES:
            (draft / name).replace(folder / name)
        write_text(folder / MANIFEST, json.dumps({"vecveil": __version__, "files": digests}, indent=1))
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
