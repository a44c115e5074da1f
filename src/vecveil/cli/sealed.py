"""Run ``migrate``, ``search`` and the other commands on a location ``sealed:FOLDER`` or ``sealed:URL``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from vecveil.cli import options as shared
from vecveil.cli.output import data, data_json, note, warn
from vecveil.data import read_table
from vecveil.encoders import load_encoder
from vecveil.encoders.text_encoder import TextEncoder
from vecveil.errors import IncompatibleError, InvalidInputError, StoreError
from vecveil.stores import open_store
from vecveil.stores.forgetting import Erasure, Reconciliation
from vecveil.stores.locations import index_place, public_name, short_name
from vecveil.stores.migrating import SourceCheck

if TYPE_CHECKING:
    from vecveil.sealing import Ranking
    from vecveil.search import SealedIndex
    from vecveil.search.filling import Filling

# The parts of `search` are imported where they are used: --help is shown without pyarrow.
BATCH, ENCODED_BATCH = 20_000, 2_000
_LISTED = {"=": "in", "!=": "nin"}
_ORDERS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}


def refuse_other_options(*allowed: str) -> None:
    """Raise for an option of this command line that a sealed index does not take; ``allowed`` are its parameters."""
    context = click.get_current_context()
    for option in context.command.params:
        given = option.name is not None and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
        if given and isinstance(option, click.Option) and option.name not in allowed:
            raise click.UsageError(f"{option.opts[-1]} does not apply to a sealed index (sealed:).")


def opened(
    location: str, seal_key: str | None, encoder: TextEncoder | None = None, *, new: bool = False
) -> SealedIndex:
    """Return the index at ``location``; without ``new`` it must exist."""
    if seal_key is None:
        raise click.UsageError("A sealed index (sealed:) needs --seal-key.")
    place = index_place(location)
    assert place is not None
    from vecveil.search import SealedIndex

    index = SealedIndex(place, seal_key, encoder=encoder, create=False, name=public_name(location))
    if not new and not index.exists():
        index.close()
        raise StoreError(
            f"There is no sealed index at {short_name(location)}. Make it with `vecveil migrate SOURCE "
            "sealed:FOLDER --seal-key FILE`.",
            code="E-INDEX-MISSING",
            param="database",
        )
    return index


def _encoder(name: str | None, options: Sequence[tuple[str, Any]]) -> TextEncoder | None:
    # The cache of embeddings would hold clean vectors on disk.
    return None if name is None else load_encoder(name, cache=None, **dict(options))


def migrate_command(
    source: str,
    dest: str,
    seal_key: str | None,
    *,
    encoder: tuple[str | None, tuple[tuple[str, Any], ...]],
    drop: tuple[str, ...],
    skip_bad: bool,
    batch: int | None,
    as_json: bool,
) -> None:
    """Copy the rows of ``source`` to the index at ``dest``."""
    with open_store(source) as store, opened(dest, seal_key, _encoder(*encoder), new=True) as index:
        from vecveil.search.filling import fill

        done = fill(store, index, drop=drop, skip_bad=skip_bad, batch=batch or BATCH, on_checked=_plan)
    _copied(done, short_name(source), dest, as_json)


def migrate_table_command(
    source: str,
    dest: str,
    seal_key: str | None,
    *,
    encoder: tuple[str | None, tuple[tuple[str, Any], ...]],
    drop: tuple[str, ...],
    batch: int | None,
    as_json: bool,
    id_column: str | None,
    **table: Any,
) -> None:
    """Copy the rows of the table ``source`` to the index at ``dest``."""
    reader = read_table(source, **table)
    with opened(dest, seal_key, _encoder(*encoder), new=True) as index:
        from vecveil.search.filling import fill_from_table

        encoded = reader.embedding_column is None
        note(f"{reader.rows:,} rows of {reader.name}; {'their texts are encoded' if encoded else 'with vectors'}.")
        done = fill_from_table(
            reader, index, id_column=id_column, drop=drop, batch=batch or (ENCODED_BATCH if encoded else BATCH)
        )
    _copied(done, reader.name, dest, as_json)


def _copied(done: Filling, source: str, dest: str, as_json: bool) -> None:
    if done.skipped:
        note(f"{done.skipped:,} bad rows are left out.")
    note(f"{done.written:,} rows written to {short_name(dest)}; {done.rows - done.written:,} were there already.")
    note(
        f"Verified: count and ids of all {done.rows:,} rows; vectors, texts and metadata of {done.compared:,} rows. "
        "Keep the key file: without it nothing opens."
    )
    if as_json:
        data_json({"source": source, "dest": short_name(dest), **done.to_record()})


def _plan(checked: SourceCheck) -> None:
    note(f"{checked.rows:,} rows of {checked.info.dimension} dimensions. Bad rows: {checked.bad}.")
    dropped = [name for name, why in checked.withheld.items() if why == "dropped" or why.endswith("in another table")]
    note(f"All fields are copied, encrypted. Left out: {', '.join(dropped) or 'none'}.")
    if checked.info.metric is not None and not checked.ranks_as_cosine:
        warn(f"the source ranks by {checked.info.metric}; a sealed index ranks by cosine.")


def search_command(
    location: str,
    query: str,
    seal_key: str,
    *,
    encoder: tuple[str | None, tuple[tuple[str, Any], ...]],
    top: int,
    candidates: int | None,
    where: Sequence[tuple[str, str, Any]],
    hybrid: bool,
    as_json: bool,
) -> None:
    """Print the rows of the index at ``location`` that are nearest to ``query``."""
    conditions = _conditions(where)
    # Nothing that only the index names is loaded: without --encoder it is the built-in one, or none.
    with opened(location, seal_key) as index:
        if encoder[0] is None and index.noted_encoder is None:
            raise click.UsageError("The index does not note its encoder: name it with --encoder.")
    with opened(location, seal_key, _encoder(encoder[0] or "minilm", encoder[1])) as index:
        try:
            index.refresh()
        except IncompatibleError as error:
            if encoder[0] is None and error.code == "E-INCOMPATIBLE-ENCODER":
                raise click.UsageError("Name the encoder of the index with --encoder: it is not minilm.") from None
            raise
        hits = index.read(
            index.find(
                query, top=top, where=conditions or None, candidates=candidates, mode="hybrid" if hybrid else "vectors"
            )
        )
        if conditions and not hits.ids:
            try:
                index.ids(conditions)
                note("No row matches. Each condition takes its own --where; 2024 is a number, '\"2024\"' is a text.")
            except InvalidInputError as error:  # it names the fields
                note(str(error))
    show_hits(hits, as_json)


def show_hits(hits: Ranking, as_json: bool) -> None:
    """Print the hits of an index or of a collection, best first."""
    names = ("id", "score", "text", "metadata")
    rows = zip(hits.ids, hits.scores.tolist(), hits.texts, hits.metadata, strict=True)
    found = [dict(zip(names, row, strict=True)) for row in rows]
    if as_json:
        data_json({"hits": found, "skipped": hits.skipped})
        return
    for hit in found:
        data(f"{hit['score']:.4f}  {hit['id']}  {hit['metadata'] if hit['text'] is None else hit['text']}")


def _conditions(where: Sequence[tuple[str, str, Any]]) -> dict[str, dict[str, Any]]:
    conditions: dict[str, dict[str, Any]] = {}
    for field, operator, value in where:
        of_field = conditions.setdefault(field, {})
        if operator in _LISTED:
            of_field.setdefault(_LISTED[operator], []).append(value)
        elif isinstance(value, bool) or value is None:
            raise click.UsageError(f"--where: {operator} takes a number or a text.")
        elif _ORDERS[operator] in of_field:
            raise click.UsageError(f"--where: {operator} is given twice for {field!r}.")
        else:
            of_field[_ORDERS[operator]] = value
    return conditions


def reseal_command(location: str, seal_key: str, as_json: bool) -> None:
    """Renew the key of the index at ``location``."""
    with opened(location, seal_key) as index:
        rows = index.reseal()
    note(f"{rows:,} rows of {short_name(location)} are renewed, under a new data key; the older keys are deleted.")
    if as_json:
        data_json({"database": short_name(location), "rows": rows})


def reconcile_sources(location: str, seal_key: str | None, ids: Sequence[str]) -> Reconciliation:
    """Compare the index at ``location`` with the ids of its sources."""
    with opened(location, seal_key) as index:
        from vecveil.search.filling import reconcile

        return reconcile(index, ids)


def forget_ids(location: str, seal_key: str | None, ids: Sequence[str], receipt: Path) -> Erasure:
    """Delete the rows of ``ids`` from the index at ``location``."""
    with opened(location, seal_key) as index:
        from vecveil.search.filling import forget

        return forget(index, ids, receipt, name=short_name(location))


def scan_command(location: str, json_file: Path | None) -> dict[str, Any]:
    """Print what the storage of the index at ``location`` shows; return it."""
    place = index_place(location)
    assert place is not None
    from vecveil.search.exposure import look

    seen = {"store": short_name(location), **look(place)}
    if str(json_file) != "-":
        written = " to ".join(seen[name] or "unknown" for name in ("first_written", "last_written"))
        data(
            f"{seen['store']}: protected: {seen['protected']}. Segments: {seen['segments']:,}. Commits: "
            f"{seen['commits']:,}. Bytes: {seen['bytes']:,}, of the largest object {seen['largest']:,}. "
            f"Written: {written}."
        )
        data("It shows no text, id, metadata or vector; the sizes show about how many rows there are.")
        for name in seen["others"]:
            if name != "index.json":
                data(f"Not of the index: {name}")
    return seen


@click.command(
    "compact",
    epilog="""\b
Example:
  vecveil compact sealed:notes/ --seal-key search.keys
""",
)
@click.argument("index", metavar="sealed:PLACE")
@shared.seal_key_option
@shared.json_option
def compact_command(index: str, seal_key: str, as_json: bool) -> None:
    """Merge the small segments of a sealed index, and drop replaced and deleted rows.

    Other programs go on reading and writing. After an interruption the same command starts again.
    """
    if index_place(index) is None:
        raise click.UsageError("compact takes a sealed index: sealed:FOLDER or sealed:URL.")
    with opened(index, seal_key) as one:
        one.compact()
        rows = one.count()
    note(f"{short_name(index)} is compact; it has {rows:,} rows.")
    if as_json:
        data_json({"database": short_name(index), "rows": rows})


@click.command(
    "reencode",
    epilog="""\b
Example:
  vecveil reencode sealed:notes/ --encoder BAAI/bge-small-en-v1.5 --seal-key search.keys
""",
)
@click.argument("index", metavar="sealed:PLACE")
@shared.encoder_name_options
@shared.seal_key_option
@shared.json_option
def reencode_command(
    index: str, encoder: str | None, encoder_options: tuple[tuple[str, Any], ...], seal_key: str, as_json: bool
) -> None:
    """Encode the texts of a sealed index again with another encoder, and replace all vectors at once.

    Other programs search and add with the former encoder until all texts are encoded. Then they get an error that names
    the new one. After an interruption the same command goes on.
    """
    if index_place(index) is None:
        raise click.UsageError("reencode takes a sealed index: sealed:FOLDER or sealed:URL.")
    if encoder is None:
        raise click.UsageError("Name the new encoder with --encoder.")
    with opened(index, seal_key) as one:
        new = _encoder(encoder, encoder_options)
        assert new is not None
        rows = one.reencode(new)
    note(f"{rows:,} rows of {short_name(index)} have vectors of {new.name}. Name it with --encoder in searches.")
    if as_json:
        data_json({"database": short_name(index), "encoder": new.name, "rows": rows})
