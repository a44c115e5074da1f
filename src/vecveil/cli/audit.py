"""``vecveil audit``: attack clean and protected vectors, or a store, and report what leaks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from vecveil.auditing import AuditResult, audit, audit_store
from vecveil.auditing.auditor import OWN_WORDS, SealedStorage, frequent_words, plaintext_beside
from vecveil.auditing.case import MIN_TEST_TEXTS
from vecveil.auditing.families import NAMED, SKIPPABLE
from vecveil.auditing.metrics import UtilityTask
from vecveil.auditing.records.audit_record import AuditRecord
from vecveil.auditing.records.verdict import check_baseline, check_gate
from vecveil.cli import options as shared
from vecveil.cli.output import as_typed, block, data_json, doing, note, report_files, write_reports, writing
from vecveil.cli.tables import (
    classification_task,
    format_name,
    load_encoder_named,
    read_array,
    read_rows,
    require_matches,
    retrieval_task,
    sts_task,
    table_format,
)
from vecveil.errors import ConceptError, DataFileError, InvalidInputError, VecveilError
from vecveil.privacy.concepts import Concept
from vecveil.privacy.concepts.concept_file import read_concept_file
from vecveil.privacy.protector import load
from vecveil.privacy.protector.policy import ReleasePolicy
from vecveil.stores import open_store
from vecveil.stores.locations import index_place
from vecveil.stores.visible_rows import read_query_log, visible_accesses, visible_queries, visible_rows
from vecveil.texts.encoders.cache import default_cache_folder
from vecveil.texts.tables import TextRows
from vecveil.texts.tables.columns import is_text
from vecveil.texts.tables.reading import TableFormat, read_corpus
from vecveil.types import Embeddings

EXAMPLE = """\b
Examples:
  vecveil audit notes.csv -p drug.vecveil --concept concept.yaml --json audit.json --html audit.html
  vecveil audit notes.csv -p drug.vecveil --concept concept.yaml --baseline audit.json --fail-if-worse-by 2
  vecveil audit sample.csv --vectors store.npy --row-column row --concept concept.yaml --html leaks.html
  vecveil audit sample.csv --store chroma:db#sealed --id-column id --concept concept.yaml --html leaks.html
  vecveil audit --store sealed:notes/ --seal-key search.keys --html storage.html
  vecveil audit queries.csv --store chroma:db#sealed -p drug.vecveil --concept concept.yaml --html queries.html
"""
SEALED_ROWS, FEWEST_ROWS = 3000, 100
"""Rows of a sealed index that are attacked by default; also their minimum."""
EXAMINED_ROWS = 1000
"""Rows that are examined for plain text."""

attack_options = shared.stacked(
    click.option(
        "--tier",
        type=click.Choice(["quick", "full"]),
        default="quick",
        show_default=True,
        help="full: larger attackers and text reconstruction; minutes to an hour.",
    ),
    click.option(
        "--skip", type=click.Choice(SKIPPABLE), multiple=True, help="Leave out a family or an attack; may be repeated."
    ),
    click.option(
        "--attacks",
        type=click.Choice(NAMED),
        multiple=True,
        help="Run this attack or family in addition to token inference; may be repeated.",
    ),
    click.option(
        "--language-model",
        type=shared.FilePath(exists=True, file_okay=False),
        metavar="FOLDER",
        help="Language model of the zero-shot attack [default: trigrams of the texts].",
    ),
    shared.file_option("--attacker-texts", help="Additional training texts of the attacker: one a line, or a table."),
    click.option("--device", default="auto", show_default=True, help="Device of trained attacks: auto, cpu, cuda."),
    shared.count_option(
        "--min-token-count",
        help="Attack words that at least this many training texts contain [default: 15; 10 or 5 if words are few].",
    ),
    shared.file_option(
        "--work",
        metavar="FOLDER",
        help="Folder of finished attacks, from which the same command resumes [default: in the cache folder].",
    ),
)

GATE_FAILED = 3
gate_options = shared.stacked(
    click.option(
        "--fail-above",
        type=shared.PERCENT,
        metavar="PERCENT",
        help="Exit with code 3 if the worst attack on one release recovers more of the concept's words.",
    ),
    shared.file_option(
        "--baseline", help="Record of an earlier audit of the same concept, kind and tier, for --fail-if-worse-by."
    ),
    click.option(
        "--fail-if-worse-by",
        type=shared.PERCENT,
        metavar="POINTS",
        help="Exit with code 3 if a family of attacks exceeds --baseline by this many percentage points, or was "
        "left out.",
    ),
)
SECTIONS = {
    "What is audited": "--protector --concept --vectors --store --id-column --seal-key",
    "Texts": "--text-column --group-column --encoder",
    "Attacks": "--tier --limit",
    "Output": "--json --html",
}


@shared.command("audit", EXAMPLE, SECTIONS)
@click.argument("input", type=shared.FILE, required=False)
@click.option(
    "-p",
    "--protector",
    "protector_file",
    type=shared.PROTECTOR,
    help="Protector file; without it the vectors given are audited as a store.",
)
@shared.file_option("--concept", help="Concept file (YAML) [default with a sealed index: frequent words of its texts].")
@shared.file_option(
    "--vectors",
    "vectors_file",
    help="The store: .npy, or Parquet with a vector column [default: the vectors in INPUT].",
)
@click.option("--row-column", metavar="NAME", help="Column of INPUT with the row (from 0) of each text in --vectors.")
@click.option(
    "--store",
    metavar="DATABASE",
    help="Audit rows of this database: vectors, lengths of blobs, filter tokens; or the storage of a sealed index "
    "(sealed:PLACE), without INPUT.",
)
@click.option(
    "--seal-key", type=shared.SEAL_KEY, help="Key file of the sealed index, to compare its contents with the storage."
)
@click.option(
    "--id-column",
    metavar="NAME",
    help="Column of INPUT with the id of each text in --store. Without it, -p takes the texts as queries: audit"
    " what --store sees of them.",
)
@shared.count_option("--candidates", help="Rows that a query fetches from --store [default: the protector's, or 200].")
@shared.file_option(
    "--query-log",
    help="With --id-column: JSON lines of the ids that each query fetched, to attack rows that are fetched together.",
)
@shared.query_noise_option("Noise of queries in units of a row's; 0 for none.")
@shared.report_options
@shared.file_option(
    "--pack", metavar="FOLDER", help="Write a review pack: summary, report, record, hashes, versions, control mapping."
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
@gate_options
@shared.table_options
@click.option(
    "--embedding-column", metavar="NAME", help="Column of vectors, in --vectors or in INPUT [default: embedding]."
)
@click.option("--group-column", metavar="NAME", help="Column of ids of texts that belong together.")
@click.option(
    "--subject-column",
    metavar="NAME",
    help="Column of the person in each text; groups as --group-column, and reports leakage per person.",
)
@shared.count_option("--limit", least=2, help="Read at most this many rows.")
@shared.task_options
@shared.encoder_options
@attack_options
@shared.seed_option
def command(
    input: Path | None,
    protector_file: Path | None,
    concept: Path | None,
    vectors_file: Path | None,
    pack: Path | None,
    force: bool,
    **options: Any,
) -> None:
    """Attack the vectors of the texts in INPUT, or the storage of a sealed index, and print what attackers recover.

    With a protector, attack clean and protected vectors of the texts. Give texts that it was not fitted on: its own
    bias the figures. Without one, the attacker of a store knows the texts of some of its rows.

    Exit codes: 0 done; 1 failed; 2 misused, also for a baseline that is not comparable; 3 leaks more than
    --fail-above or --fail-if-worse-by allows. The reports are always written.
    """
    sealed = options["store"] is not None and index_place(options["store"]) is not None
    if not sealed and (input is None or concept is None):
        raise click.UsageError("Missing argument 'INPUT'." if input is None else "Missing option '--concept'.")
    if not sealed and options["seal_key"] is not None:
        raise click.UsageError("--seal-key requires --store sealed:PLACE.")
    if sealed and input is not None:
        raise click.UsageError("INPUT does not apply to a sealed index (sealed:): the audit uses its own texts.")
    baseline = _read_baseline(concept, is_store=protector_file is None or options["store"] is not None, options=options)
    to_stdout = str(options["json_file"]) == "-"
    files = report_files(
        {f"--{kind}": options[f"{kind}_file"] for kind in ("json", "html", "md", "csv")},
        inputs=(input, protector_file, concept, vectors_file, options["attacker_texts"], options["baseline"]),
        overwrite=force,
    )
    form = table_format(options)
    options["vectors"] = vectors_file
    if pack is not None and options["show_reconstructions"]:
        raise click.UsageError("--pack contains no text: leave out --show-reconstructions.")
    if pack is not None and pack.exists() and not pack.is_dir():  # before the attacks, which take minutes
        raise click.UsageError(f"--pack needs a folder: {pack.name} is a file.")
    if pack is not None and (pack / "pack.json").exists() and not force:
        raise click.UsageError(f"--pack {pack.name} has an earlier pack. Name another folder, or replace it: --force.")
    attacks = {**attack_arguments(options), "command": as_typed()}
    if input is None or concept is None:
        result = _audit_sealed(concept, options, attacks)
    elif options["store"] is not None or options["id_column"] is not None:
        result = _audit_database(input, protector_file, concept, form, options, attacks)
    elif protector_file is None:
        result = _audit_store(input, concept, vectors_file, form, options, attacks)
    elif vectors_file is not None or options["row_column"] is not None:
        name = "vectors" if vectors_file is not None else "row_column"
        raise InvalidInputError(
            f"--{name.replace('_', '-')} does not go with -p: the audit of a protector protects clean vectors itself. "
            "Leave out -p to audit the vectors of a store.",
            param=name,
        )
    else:
        result = _audit_protector(input, protector_file, concept, form, options, attacks)
    write_reports(result, files)
    if pack is not None:
        from vecveil.auditing.report.pack import write_pack

        fingerprint = None if protector_file is None else load(protector_file).fingerprint
        named = (options[name] for name in ("attacker_texts", "query_log", "sts"))
        inputs = [input, protector_file, concept, vectors_file, *named]
        if options["retrieval"] is not None:
            inputs += sorted(path for path in options["retrieval"].rglob("*") if path.is_file())
        with writing(pack):
            written = write_pack(
                result.audit, pack, fingerprint=fingerprint, files=[path for path in inputs if path is not None]
            )
        files |= {path.name: path for path in written}
    if to_stdout:
        data_json(result.to_record())
    block(result.summary(), err=to_stdout)
    for path in files.values():
        note(f"Wrote {path}")
    if (above := options["fail_above"]) is None and baseline is None:
        return
    gate = check_gate(
        result.audit,
        above=None if above is None else above / 100,
        baseline=baseline,
        worse_by=(options["fail_if_worse_by"] or 0.0) / 100,
    )
    for sentence in gate.notes:
        note(f"Gate: {sentence}")
    for sentence in gate.failures:
        note(f"Gate failed: {sentence}")
    if gate.failures:
        raise click.exceptions.Exit(GATE_FAILED)
    note("Gate passed.")


def _read_baseline(concept: Path | None, *, is_store: bool, options: dict[str, Any]) -> AuditRecord | None:
    """Return the record of --baseline; reject one that is not comparable before the attacks, which take minutes."""
    if (options["baseline"] is None) != (options["fail_if_worse_by"] is None):
        raise click.UsageError("Give --baseline and --fail-if-worse-by together.")
    if options["baseline"] is None:
        return None
    name = OWN_WORDS if concept is None else read_concept_file(concept)["name"]
    try:
        baseline = AuditRecord.load(options["baseline"])
        check_baseline(baseline, concept=name, kind="store" if is_store else "protector", tier=options["tier"])
    except VecveilError as error:
        raise click.UsageError(str(error)) from None
    return baseline


def attack_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of an audit from the attack and report options."""
    work = options["work"]
    if work is None and options["cache"]:
        work = default_cache_folder() / "audits"
    names = (
        "tier",
        "min_token_count",
        "show_terms",
        "show_reconstructions",
        "skip",
        "attacks",
        "language_model",
        "device",
        "seed",
    )
    texts = read_corpus(options["attacker_texts"], param="attacker_texts")
    return {**{name: options[name] for name in names}, "attacker_texts": texts, "work": work}


def _group_columns(options: dict[str, Any]) -> tuple[str | None, str | None]:
    return options["group_column"], options["subject_column"]


def _groups(rows: TextRows, options: dict[str, Any]) -> dict[str, Any]:
    groups, subjects = _group_columns(options)
    return {
        "groups": None if groups is None else rows.columns[groups],
        "subjects": None if subjects is None else rows.columns[subjects],
    }


def _audit_protector(
    input: Path,
    protector_file: Path,
    concept: Path,
    form: TableFormat,
    options: dict[str, Any],
    attacks: dict[str, Any],
) -> AuditResult:
    protector = load(protector_file)
    if format_name(input, form) == "parquet" and "protected" in form.source(input).metadata:
        raise DataFileError(
            f"{input.name}: the vectors are protected already. Leave out -p to audit what is in the file.", param="path"
        )
    hidden, rows = read_rows(
        input,
        concept,
        form,
        columns=(*_group_columns(options), options["label_column"]),
        limit=options["limit"],
        embeddings=True,
    )
    require_matches(hidden, rows.texts, MIN_TEST_TEXTS)
    vectors = rows.embeddings
    beside = [] if vectors is None else plaintext_beside({rows.text_column: rows.texts})
    encoder = None
    if vectors is None or any(options[name] is not None for name in ("encoder", "sts", "retrieval")):
        doing("Loading the encoder")
        encoder = protector.encoder_for(
            options["encoder"], options["precision"], options["cache"], options=dict(options["encoder_options"])
        )
    if vectors is None:
        assert encoder is not None
        vectors = encoder.encode(rows.texts)
    doing("Attacking the vectors")
    return audit(
        protector,
        rows.texts,
        hidden,
        encoder=encoder,
        embeddings=vectors,
        lint=beside,
        tasks=_tasks(options, encoder, rows, vectors, input),
        **_groups(rows, options),
        **attacks,
    )


def _tasks(
    options: dict[str, Any], encoder: Any, rows: TextRows, vectors: Embeddings, input: Path
) -> list[UtilityTask]:
    tasks: list[UtilityTask] = []
    if options["sts"] is not None:
        tasks.append(sts_task(options["sts"], encoder))
    if options["retrieval"] is not None:
        tasks.append(retrieval_task(options["retrieval"], encoder))
    if (column := options["label_column"]) is not None:
        labels = rows.columns[column]
        tasks.append(classification_task(vectors, labels, column, input, seed=options["seed"]))
    return tasks


# Without a protector -----------------------------------------------------------------------------


def _audit_store(
    input: Path,
    concept: Path,
    vectors_file: Path | None,
    form: TableFormat,
    options: dict[str, Any],
    attacks: dict[str, Any],
) -> AuditResult:
    for name in ("sts", "retrieval", "label_column"):
        if options[name] is not None:
            raise InvalidInputError(
                f"--{name.replace('_', '-')} needs a protector (-p): utility is measured on vectors that the audit "
                "protects itself.",
                param=name,
            )
    row_column, column = options["row_column"], form.embedding_column
    if row_column is not None and vectors_file is None:
        raise InvalidInputError("--row-column needs --vectors, whose rows it names.", param="row_column")
    in_table = vectors_file is None
    hidden, rows = read_rows(
        input,
        concept,
        form if in_table else replace(form, embedding_column=None),
        columns=(*_group_columns(options), row_column),
        limit=options["limit"],
        embeddings=in_table,
    )
    if vectors_file is not None:
        vectors = _rows_of_texts(read_array(vectors_file, column), rows, row_column, vectors_file)
        lint = plaintext_beside(_text_columns(vectors_file))
    elif rows.embeddings is not None:
        vectors = rows.embeddings
        lint = plaintext_beside({rows.text_column: rows.texts[:EXAMINED_ROWS]})
    else:
        raise DataFileError(
            f"{input.name} has no column of vectors. Name it with --embedding-column, or give --vectors FILE or a "
            "protector with -p.",
            param="path",
        )
    doing("Attacking the vectors")
    return audit_store(
        vectors, rows.texts, hidden, encoder=load_encoder_named(options), lint=lint, **_groups(rows, options), **attacks
    )


def _audit_database(
    input: Path,
    protector_file: Path | None,
    concept: Path,
    form: TableFormat,
    options: dict[str, Any],
    attacks: dict[str, Any],
) -> AuditResult:
    id_column = options["id_column"]
    if (protector_file is None) == (id_column is None) or options["store"] is None:
        raise InvalidInputError(
            "Pass --store with --id-column, the column with each text's row in the database, or with -p, "
            "whose texts are queries.",
            param="id_column",
        )
    for name in ("sts", "retrieval", "label_column", "row_column", "vectors"):
        if options[name] is not None:
            raise InvalidInputError(f"--{name.replace('_', '-')} does not go with --store.", param=name)
    if options["query_log"] is not None and id_column is None:
        raise InvalidInputError("--query-log needs --id-column.", param="query_log")
    hidden, rows = read_rows(
        input, concept, form, columns=(*_group_columns(options), id_column), limit=options["limit"]
    )
    accesses = None
    encoder = load_encoder_named(options) if protector_file is None else None
    with open_store(options["store"]) as database:
        if protector_file is None:
            ids = [str(cell) for cell in rows.columns[id_column]]
            vectors, beside = visible_rows(database, ids)
            if options["query_log"] is not None:
                accesses = visible_accesses(read_query_log(options["query_log"]), ids)
        else:
            policy = ReleasePolicy(load(protector_file), options["query_noise"])
            encoder = policy.protector.encoder_for(
                options["encoder"], options["precision"], options["cache"], options=dict(options["encoder_options"])
            )
            vectors, beside = visible_queries(
                database, policy, rows.texts, encoder.encode_query, candidates=options["candidates"]
            )
    doing("Attacking the vectors")
    return audit_store(
        vectors,
        rows.texts,
        hidden,
        beside=beside,
        accesses=accesses,
        encoder=encoder,
        **_groups(rows, options),
        **attacks,
    )


def _audit_sealed(concept: Path | None, options: dict[str, Any], attacks: dict[str, Any]) -> AuditResult:
    """Attack the storage of a sealed index without its key."""
    from vecveil.cli import sealed

    sealed.refuse_other_options(
        "store",
        "seal_key",
        "concept",
        "limit",
        "json_file",
        "force",
        "html_file",
        "md_file",
        "csv_file",
        "pack",
        "work",
        "cache",
        "baseline",
        "fail_above",
        "fail_if_worse_by",
        "tier",
        "min_token_count",
        "show_terms",
        "skip",
        "attacks",
        "device",
        "seed",
    )
    place = index_place(options["store"])
    assert place is not None
    with sealed.opened(options["store"], options["seal_key"]) as index:
        from vecveil.index import exposure
        from vecveil.index.exposure import look

        rows = exposure.sampled_rows(index, options["limit"] or SEALED_ROWS, options["seed"])
        texts = [text for text in rows.texts if text is not None]
        if len(texts) < FEWEST_ROWS:
            raise ConceptError(
                f"The index has {len(texts)} rows with a text; attackers need {FEWEST_ROWS} to learn from. `vecveil "
                "scan` lists what its storage shows.",
                code="E-CONCEPT",
                param="store",
            )
        hidden = frequent_words(texts) if concept is None else Concept.from_file(concept)
        holds = np.isin(np.arange(len(texts)), hidden.find(texts, min_texts=MIN_TEST_TEXTS).with_concept)
        built = None if holds.all() else exposure.built_indexes(rows.vectors, texts, holds, seed=options["seed"])
        seen = look(place)
        facts = {name: seen[name] for name in ("segments", "commits", "bytes", "first_written", "last_written")}
        doing("Attacking the vectors")
        return audit_store(
            exposure.stored_vectors(index, rows.ids).astype(np.float32),
            texts,
            hidden,
            sealed=SealedStorage(rows.vectors, facts, exposure.values_found(place, rows), built),
            **attacks,
        )


def _rows_of_texts(store: Embeddings, rows: TextRows, row_column: str | None, path: Path) -> Embeddings:
    texts = len(rows.texts)
    if row_column is None:
        if len(store) != texts:
            raise DataFileError(
                f"The vectors of {path.name} are not one for each text: it has {len(store)}, and there are {texts} "
                "texts. For a sample, name the column of INPUT that says which row each text is: --row-column NAME.",
                param="vectors",
            )
        return store
    try:
        numbers = np.array([int(str(value)) for value in rows.columns[row_column]], dtype=np.int64)
    except ValueError:
        numbers = np.array([-1])
    if numbers.min() < 0 or numbers.max() >= len(store):
        raise DataFileError(
            f"The column {row_column} contains rows of {path.name}, whole numbers from 0 to {len(store) - 1}; some "
            "cells do not.",
            param="row_column",
        )
    if len(np.unique(numbers)) < len(numbers):
        raise DataFileError(f"The column {row_column} names one row twice.", param="row_column")
    return store[numbers]


def _text_columns(path: Path) -> dict[str, list[Any]]:
    """Return some values of the string columns of a Parquet file; other files have none."""
    if path.suffix.lower() not in (".parquet", ".pq"):
        return {}
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        names = [field.name for field in file.schema_arrow if is_text(field.type)]
        batch = next(file.iter_batches(batch_size=EXAMINED_ROWS, columns=names), None) if names else None
    return {} if batch is None else {name: batch.column(name).to_pylist() for name in names}
