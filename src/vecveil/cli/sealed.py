"""Commands on sealed rows: search, unseal, reseal and reprotect; for a sealed index also compact and reencode."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from vecveil.cli import options as shared
from vecveil.cli.output import counted, data, data_json, doing, note, warn
from vecveil.cli.releases import Release
from vecveil.errors import DataFileError, IncompatibleError, SealingError, StoreError
from vecveil.io import make_folders
from vecveil.stores.locations import index_place, public_name, short_name
from vecveil.texts.encoders import load_encoder
from vecveil.texts.encoders.text_encoder import TextEncoder
from vecveil.texts.tables.files import InputFile
from vecveil.texts.tables.writing import check_output

if TYPE_CHECKING:
    from vecveil.index import Ranking, SealedIndex
    from vecveil.index.members import Role
    from vecveil.stores.collection import ProtectedCollection

# Imported where used: --help is shown without pyarrow, and the search of a sealed index needs no protector.
_LISTED = {"=": "in", "!=": "nin"}
_ORDERS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}


def refuse_other_options(*allowed: str) -> None:
    """Raise for an option of this command that a sealed index does not take; ``allowed`` are its parameters."""
    context = click.get_current_context()
    for option in context.command.params:
        given = option.name is not None and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
        if given and isinstance(option, click.Option) and option.name not in allowed:
            raise click.UsageError(f"{option.opts[-1]} does not apply to a sealed index (sealed:).")


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


def arrow_without_pandas() -> None:
    """Keep pyarrow from importing pandas where it is installed: these commands need none, and it takes .3 seconds."""
    if "pandas" in sys.modules:
        return
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    # pyarrow tries once, and again only for a caller that asks for pandas. Without pyarrow the index raises.
    with contextlib.suppress(ImportError):
        import pyarrow as pa

        pa.array([])
    sys.meta_path.remove(finder)


def opened(
    location: str,
    seal_key: str | None,
    encoder: TextEncoder | None = None,
    *,
    new: bool = False,
    owner: str | None = None,
) -> SealedIndex:
    """Return the index at ``location``; without ``new`` it must exist."""
    if seal_key is None:
        raise click.UsageError("A sealed index (sealed:) needs --seal-key.")
    place = index_place(location)
    if place is None:
        if ":" not in location:  # otherwise it may contain a password
            raise click.UsageError(f"{location!r} is not a sealed index: write sealed:{location}.")
        raise click.UsageError(f"{short_name(location)} is not a sealed index: name sealed:FOLDER or sealed:URL.")
    arrow_without_pandas()
    from vecveil.index import SealedIndex

    index = SealedIndex(place, seal_key, encoder=encoder, create=False, name=public_name(location), owner=owner)
    if not new and not index.exists():
        index.close()
        raise StoreError(
            f"There is no sealed index at {short_name(location)}. Check the path, or make one with "
            "`vecveil migrate SOURCE sealed:FOLDER --seal-key FILE`.",
            code="E-INDEX-MISSING",
            param="database",
        )
    return index


def index_encoder(name: str | None, options: Sequence[tuple[str, Any]]) -> TextEncoder | None:
    if name is None:
        return None
    doing(f"Loading the encoder {name}")
    return load_encoder(name, cache=None, **dict(options))  # the cache would keep clean vectors on disk


def scan_command(location: str, json_file: Path | None) -> dict[str, Any]:
    """Print and return what the storage of the index at ``location`` shows."""
    place = index_place(location)
    assert place is not None
    from vecveil.index.exposure import look

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


SEARCH_EXAMPLE = """\b
Example:
  vecveil migrate chroma:db#notes chroma:db#notes-sealed -p drug.vecveil --seal-key search.keys
  vecveil search chroma:db#notes-sealed "nausea after dinner" -p drug.vecveil --seal-key search.keys
  vecveil search chroma:db#notes-sealed "nausea" -p drug.vecveil --seal-key search.keys --where year=2024
  vecveil search sealed:notes/ "nausea" --seal-key search.keys --encoder minilm --where 'year>=2024' --hybrid
"""


@click.command("search", epilog=SEARCH_EXAMPLE)
@click.argument("database")
@click.argument("query")
@click.option(
    "-p",
    "--protector",
    "protector_file",
    type=shared.PROTECTOR,
    help="Protector file; a sealed index (sealed:) has none.",
)
@shared.database_seal_options
@shared.encoder_name_options
@shared.count_option("--top", default=10, show_default=True, help="Rows to print.")
@shared.count_option("--candidates", help="Rows to open and rank [default: what the protector was fitted for, or 200].")
@shared.query_noise_option(
    "Noise of the query in units of a row's. 0 for none: search finds more, and the database learns more."
)
@click.option(
    "--where",
    type=shared.Condition(),
    multiple=True,
    metavar="FIELD=VALUE",
    help="Rows with this value in a filter field. A number, true or false also finds the text of these characters; "
    "'\"2024\"' finds the text alone. For sealed: any field, also with != > >= < <= (quote the condition).",
)
@click.option("--hybrid", is_flag=True, help="For sealed: also rank by the query's words.")
@shared.json_option
def search_command(database: str, query: str, protector_file: Path | None, as_json: bool, **options: Any) -> None:
    """Print the rows of DATABASE whose exact vectors are nearest to QUERY.

    The database finds candidates by protected vectors; their sealed rows are opened and ranked here.
    Only encrypted segments of a sealed index, sealed:FOLDER or sealed:URL, leave its storage; all its rows are ranked
    here.
    """
    if index_place(database) is not None:
        refuse_other_options(
            "seal_key", "encoder", "encoder_options", "top", "candidates", "where", "hybrid", "as_json"
        )
        return _show(_search_index(database, query, options), as_json)
    if protector_file is None:
        raise click.UsageError("Missing option '-p' / '--protector'. A sealed index needs none: name it sealed:FOLDER.")
    if options["hybrid"]:
        raise click.UsageError("--hybrid needs a sealed index (sealed:).")
    from vecveil.privacy.protector import load
    from vecveil.stores.collection import ProtectedCollection

    values: dict[str, list[Any]] = {}
    for field, operator, value in options["where"]:
        if operator != "=":
            raise click.UsageError(
                f"--where: {operator} needs a sealed index (sealed:). A database filters by equal "
                "values only: FIELD=VALUE."
            )
        values.setdefault(field, []).extend(value)
    protector = load(protector_file)
    collection = ProtectedCollection(
        database,
        protector,
        options["seal_key"],
        name=options["seal_name"],
        candidates=options["candidates"],
        query_noise=options["query_noise"],
    )
    with collection.database:
        # Before loading an encoder, which may take long.
        collection.sealer.keys.check_protector(collection.name, protector.fingerprint, adding=False)
        if options["encoder"] is not None or options["encoder_options"]:
            own = dict(options["encoder_options"])
            collection.encoder = protector.encoder_for(options["encoder"], options=own)
        ranking = collection.search(query, top=options["top"], where=values, on_invalid="skip")
    if ranking.skipped and not ranking.ids:
        said = "No candidate has a sealed row that this key opens. Fill the store with `vecveil migrate --seal-key`."
        raise SealingError(said, code="E-SEAL-OPEN", param="database")
    if ranking.skipped:
        note(f"{len(ranking.skipped)} candidates have no sealed row that opens with this key; they are left out.")
    _show(ranking, as_json)


def _search_index(location: str, query: str, options: dict[str, Any]) -> Ranking:
    selected = conditions(options["where"])
    # Nothing that only the index names is loaded: without --encoder it is the built-in one, or none.
    name, seal_key = options["encoder"], options["seal_key"]
    with opened(location, seal_key) as index:
        if name is None and index.noted_encoder is None:
            index.count()  # A key that opens no row cannot see the encoder: that error comes first.
            raise click.UsageError("The index does not record its encoder: name it with --encoder.")
        if selected and not index.ids(selected):  # before an encoder is loaded, which may take long
            note("No row matches. Each condition takes its own --where; 2024 is a number, '\"2024\"' is a text.")
            return index.read([])
    with opened(location, seal_key, index_encoder(name or "minilm", options["encoder_options"])) as index:
        try:
            index.refresh()
        except IncompatibleError as error:
            if name is None and error.code == "E-INCOMPATIBLE-ENCODER":
                raise click.UsageError("Name the encoder of the index with --encoder: it is not minilm.") from None
            raise
        return index.search(
            query,
            top=options["top"],
            where=selected or None,
            candidates=options["candidates"],
            mode="hybrid" if options["hybrid"] else "vectors",
        )


def conditions(where: Sequence[tuple[str, str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the values of `--where` as `SealedIndex` takes them."""
    selected: dict[str, dict[str, Any]] = {}
    for field, operator, value in where:
        of_field = selected.setdefault(field, {})
        if operator in _LISTED:
            of_field.setdefault(_LISTED[operator], []).extend(value)
        elif isinstance(value, bool) or value is None:
            raise click.UsageError(f"--where: {operator} takes a number or a text.")
        elif _ORDERS[operator] in of_field:
            raise click.UsageError(f"--where: {operator} is given twice for {field!r}.")
        else:
            of_field[_ORDERS[operator]] = value
    return selected


def _show(hits: Ranking, as_json: bool) -> None:
    names = ("id", "score", "text", "metadata")
    rows = zip(hits.ids, hits.scores.tolist(), hits.texts, hits.metadata, strict=True)
    found = [dict(zip(names, row, strict=True)) for row in rows]
    if as_json:
        data_json({"hits": found, "skipped": hits.skipped})
        return
    for hit in found:
        data(f"{hit['score']:.4f}  {hit['id']}  {hit['metadata'] if hit['text'] is None else hit['text']}")


_SHOWN = 10

UNSEAL_EXAMPLE = """\b
Examples:
  vecveil unseal sealed.parquet --seal-key search.keys --seal-name notes -o notes.parquet
  vecveil unseal sealed/ --seal-key search.keys --seal-name notes -o notes/ --on-invalid skip
"""


@click.command("unseal", epilog=UNSEAL_EXAMPLE)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@shared.file_option("-o", "--out", required=True, help="*.parquet, *.npy for vectors alone, or a folder.")
@shared.file_seal_options
@click.option(
    "--on-invalid",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    show_default=True,
    help="Fail at a blob that does not open, or skip its row.",
)
@shared.file_options
@click.option("--force", is_flag=True, help="Replace an existing file.")
@shared.json_option
def unseal_command(
    inputs: tuple[str, ...], out: Path, seal_key: str, force: bool, as_json: bool, **options: Any
) -> None:
    """Write the exact vectors, texts and metadata of the sealed rows of INPUT: clean data.

    INPUT is what `vecveil seal` wrote, or any table with ids and the column vecveil_sealed, in base64 in text formats.
    The output has the columns id, text, metadata (JSON) and embedding. Several files, or a folder, become files of
    the same names in a folder; existing files are kept, so that the same command continues.
    """
    from vecveil.gateway.bulk.job import Unsealing

    unsealing = Unsealing(seal_key, *(options.pop(name) for name in ("seal_name", "id_column", "on_invalid")))
    if os.path.realpath(out) == os.path.realpath(shared.SEAL_KEY.file(seal_key)):
        raise DataFileError(f"{out.name} is the key file. Choose another output.", param="output")
    rows, kept = 0, 0
    skipped: list[str] = []
    for source, target in _targets(inputs, out, options["format"]):
        if target != out and target.exists() and not force:
            kept += 1
            continue
        check_output(target, overwrite=force, source=source if isinstance(source, str) else None)
        written, left_out = unsealing.file(source, target, overwrite=force, **options)
        rows, skipped = rows + written, skipped + left_out
    note(f"{counted(rows, 'row')} opened. Wrote {out}, which contains clean vectors and texts.")
    if kept:
        note(f"{kept:,} files existed already.")
    if skipped:
        more = " ..." if len(skipped) > _SHOWN else ""
        warn(f"{len(skipped):,} rows did not open and are left out: {', '.join(skipped[:_SHOWN])}{more}")
    if as_json:
        data_json({"output": str(out), "rows": rows, "skipped": skipped})


def _targets(inputs: tuple[str, ...], out: Path, format: str | None) -> list[tuple[str | InputFile, Path]]:
    from vecveil.gateway.bulk.places import Folder, list_files, open_input

    if out.suffix and not out.is_dir():
        if len(inputs) > 1 or os.path.isdir(inputs[0]):
            raise click.UsageError("Several files are opened into a folder: give --out a name without a suffix.")
        return [(inputs[0], out)]
    files = list_files(inputs, {}, format=format)
    if any(Folder(str(out)).holds(file.url) for file in files):
        raise click.UsageError("--out must not be the folder of the inputs.")
    targets = [out / f"{file.name.split('.')[0]}.parquet" for file in files]
    if len(set(targets)) < len(targets):
        raise click.UsageError("Two inputs have one name: open them into different folders.")
    make_folders(out)
    return [(open_input(file, {}, format=format), target) for file, target in zip(files, targets, strict=True)]


RESEAL_EXAMPLE = """\b
Example:
  vecveil reseal chroma:db#notes-sealed --seal-key search.keys
  vecveil reseal sealed:notes/ --seal-key search.keys
"""


REPROTECT_EXAMPLE = """\b
Example:
  vecveil reprotect chroma:db#notes-sealed -p stronger.vecveil --seal-key search.keys
"""


@click.command("reseal", epilog=RESEAL_EXAMPLE)
@click.argument("database")
@shared.database_seal_options
@shared.count_option("--batch", default=1000, show_default=True, help="Rows per write.")
@shared.json_option
def reseal_command(database: str, seal_key: str, seal_name: str | None, batch: int, as_json: bool) -> None:
    """Seal every row of DATABASE under a new data key, and delete the older keys.

    Searches keep working. Stop programs that write to a database first; writing to a sealed index is safe. Protected
    vectors are unchanged. After an interruption the same command continues. Older backups of DATABASE open only with an
    equally old backup of the key file.
    """
    if index_place(database) is not None:
        refuse_other_options("seal_key", "as_json")
        with opened(database, seal_key) as index:
            rows = index.reseal()
            shared_with = index.members().members
        older = (
            "whoever could read before opens older copies of the storage"
            if shared_with
            else "the older keys are deleted"
        )
        note(f"{rows:,} rows of {short_name(database)} are renewed, under a new data key; {older}.")
        if as_json:
            data_json({"database": short_name(database), "rows": rows})
        return
    _renew(database, seal_key, seal_name, lambda collection: collection.reseal(batch=batch), as_json)


@click.command("reprotect", epilog=REPROTECT_EXAMPLE)
@click.argument("database")
@click.option(
    "-p", "--protector", "protector_file", type=shared.PROTECTOR, required=True, help="The new protector file."
)
@shared.database_seal_options
@shared.named_options
@shared.count_option("--batch", default=1000, show_default=True, help="Rows per write.")
@shared.json_option
def reprotect_command(
    database: str, protector_file: Path, seal_key: str, seal_name: str | None, batch: int, as_json: bool, **options: Any
) -> None:
    """Draw new protected vectors for DATABASE with a different protector, from its sealed rows.

    For a different concept or strength. The rows get a new data key, and searches fail until all are done; after an
    interruption the same command continues. Anyone who kept the former vectors has two draws of each row.
    """
    if index_place(database) is not None:
        raise click.UsageError("A sealed index has no protected vectors to redraw; `vecveil reseal` renews its key.")
    from vecveil.privacy.protector import load
    from vecveil.privacy.protector.policy import ReleasePolicy

    release = Release.of(options, noise=True)
    protector = load(protector_file)
    with release.ledger() as ledger:
        policy = ReleasePolicy(protector, key=release.key(), ledger=ledger)
        _renew(database, seal_key, seal_name, lambda collection: collection.reprotect(policy, batch=batch), as_json)


def _renew(
    database: str, seal_key: str, seal_name: str | None, work: Callable[[ProtectedCollection], int], as_json: bool
) -> None:
    from vecveil.stores.collection import ProtectedCollection

    collection = ProtectedCollection(database, None, seal_key, name=seal_name)
    with collection.database:
        rows = work(collection)
    renewed = (
        f"{rows:,} rows of {short_name(database)} are renewed, under a new data key"
        if rows
        else f"Every row of {short_name(database)} was renewed already"
    )
    note(f"{renewed}; the older keys are deleted.")
    if as_json:
        data_json({"database": short_name(database), "collection": collection.name, "rows": rows})


@click.group(
    "index",
    epilog="""\b
Examples:
  vecveil index get sealed:notes/ a b --seal-key search.keys
  vecveil index verify sealed:notes/ --seal-key search.keys --json
  vecveil index copy sealed:notes/ sealed:s3://backups/notes --seal-key search.keys
  vecveil index members sealed:notes/ --seal-key search.keys
""",
)
def index_group() -> None:
    """Read, delete, compact, reencode, verify, back up and share a sealed index.

    `vecveil migrate` fills an index or adds rows to it, `vecveil search` searches it, and `vecveil forget` deletes rows
    at once, with a receipt.
    """


@index_group.command(
    "get",
    epilog="""\b
Example:
  vecveil index get sealed:notes/ a b --seal-key search.keys
""",
)
@click.argument("index", metavar="sealed:PLACE")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@shared.seal_key_option
@shared.json_option
def get_command(index: str, ids: tuple[str, ...], seal_key: str, as_json: bool) -> None:
    """Print the id and text of rows of a sealed index; with --json their metadata, too."""
    with opened(index, seal_key) as one:
        rows = one.get(ids, missing="skip")
    if absent := len(set(ids)) - len(rows.ids):
        note(f"{absent:,} of {len(set(ids)):,} ids not found.")
    found = list(zip(rows.ids, rows.texts, rows.metadata, strict=True))
    if as_json:
        keys = ("id", "text", "metadata")
        data_json({"database": short_name(index), "rows": [dict(zip(keys, row, strict=True)) for row in found]})
    else:
        for name, text, _ in found:
            data(f"{name}  {'' if text is None else text}")


@index_group.command(
    "delete",
    epilog="""\b
Example:
  vecveil index delete sealed:notes/ a b --seal-key search.keys
""",
)
@click.argument("index", metavar="sealed:PLACE")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@shared.seal_key_option
@shared.json_option
def delete_command(index: str, ids: tuple[str, ...], seal_key: str, as_json: bool) -> None:
    """Delete rows of a sealed index; ids without a row are ignored.

    The storage keeps the rows, encrypted, until a day after `vecveil index compact`. `vecveil forget` removes them at
    once.
    """
    with opened(index, seal_key) as one:
        rows = len(one.get(ids, missing="skip").ids) if one.reads else None
        one.delete(ids)
    said = "the rows, if there were any," if rows is None else counted(rows, "row")  # of a writer who does not read
    note(f"Deleted {said} from {short_name(index)}.")
    if as_json:
        data_json({"database": short_name(index), "rows": rows})


@index_group.command(
    "compact",
    epilog="""\b
Example:
  vecveil index compact sealed:notes/ --seal-key search.keys
""",
)
@click.argument("index", metavar="sealed:PLACE")
@shared.seal_key_option
@shared.json_option
def compact_command(index: str, seal_key: str, as_json: bool) -> None:
    """Merge the small segments of a sealed index, and drop replaced and deleted rows.

    Replaced segments stay in the storage for a day, for earlier readers and backups. Other programs can keep reading
    and writing. After an interruption the same command starts again.
    """
    with opened(index, seal_key) as one:
        one.compact()
        rows = one.count()
    note(f"{short_name(index)} is compact; it has {counted(rows, 'row')}.")
    if as_json:
        data_json({"database": short_name(index), "rows": rows})


@index_group.command(
    "reencode",
    epilog="""\b
Example:
  vecveil index reencode sealed:notes/ --encoder BAAI/bge-small-en-v1.5 --seal-key search.keys
""",
)
@click.argument("index", metavar="sealed:PLACE")
@shared.encoder_name_options
@shared.seal_key_option
@shared.json_option
def reencode_command(
    index: str, encoder: str | None, encoder_options: tuple[tuple[str, Any], ...], seal_key: str, as_json: bool
) -> None:
    """Encode the texts of a sealed index again with a different encoder, and replace all vectors at once.

    Other programs search and add with the former encoder until all texts are encoded. Then they get an error that names
    the new one. After an interruption the same command continues.
    """
    if encoder is None:
        raise click.UsageError("Name the new encoder with --encoder.")
    with opened(index, seal_key) as one:
        new = index_encoder(encoder, encoder_options)
        assert new is not None
        rows = one.reencode(new)
    note(f"{rows:,} rows of {short_name(index)} have vectors of {new.name}. Name it with --encoder in searches.")
    if as_json:
        data_json({"database": short_name(index), "encoder": new.name, "rows": rows})


@index_group.command(
    "verify",
    epilog="""\b
Example:
  vecveil index verify sealed:notes/ --seal-key search.keys
""",
)
@click.argument("index", metavar="sealed:PLACE")
@shared.seal_key_option
@shared.json_option
def verify_index_command(index: str, seal_key: str, as_json: bool) -> None:
    """Check every commit and every object of a sealed index against its chain of commits.

    The command stops at the first missing, altered or replaced commit or object, fails, and names it. If there is
    none, it lists objects that no commit names. It changes nothing.
    """
    from vecveil.index.backup import verify

    with opened(index, seal_key) as source:
        found = verify(source)
    if as_json:
        data_json(found.to_record())
        return
    data(f"{short_name(index)}: Commits without a gap: {found.commits:,}; head {found.head}.")
    data(f"Intact segments: {found.segments:,}, of {found.rows:,} rows and {found.bytes:,} bytes.")
    if found.unread:
        data(f"Commits before a renewal of the keys (only their digests were compared): {found.unread:,}.")
    for public, commits in found.signed.items():
        data(f"Commits signed by {public}: {commits:,}.")
    if found.replaced:
        data(f"Replaced objects that remain until `vecveil index compact`: {found.replaced:,}.")
    for name in found.others[:_SHOWN]:
        data(f"Object that no commit names: {name}")
    if len(found.others) > _SHOWN:
        data(f"More objects that no commit names: {len(found.others) - _SHOWN:,}")
    seen = "had seen no commit before" if found.remembered is None else f"had seen commit {found.remembered:,}"
    note(f"This machine {seen}. Nobody can detect newer commits that the storage withholds from everybody.")


@index_group.command(
    "copy",
    epilog="""\b
Examples:
  vecveil index copy sealed:notes/ sealed:s3://backups/notes --seal-key search.keys
  vecveil index copy sealed:s3://backups/notes sealed:restored/ --seal-key search.keys
""",
)
@click.argument("index", metavar="sealed:PLACE")
@click.argument("dest", metavar="sealed:DEST")
@shared.seal_key_option
@shared.json_option
def copy_index_command(index: str, dest: str, seal_key: str, as_json: bool) -> None:
    """Back up a sealed index, or restore one: copy its current state, verified, to another place.

    DEST is empty, or an older copy to update. Other programs can keep reading and writing. The copy is ciphertext: back
    up the key file separately. After an interruption repeat the command.
    """
    from vecveil.index.backup import copy

    place = index_place(dest)
    if place is None:
        raise click.UsageError("copy takes two sealed indexes: sealed:FOLDER or sealed:URL.")
    with opened(index, seal_key) as source:
        chain, lost = copy(source, place)
    note(f"{short_name(dest)} is a copy of {short_name(index)} as of commit {chain.number:,}.")
    if lost:
        warn(f"Lost commits, which this machine had seen there: {lost:,}.")
    if as_json:
        data_json({"database": short_name(dest), "commits": chain.number, "head": chain.digest, "later": lost})


@index_group.command(
    "share",
    epilog="""\b
Examples:
  vecveil index share sealed:notes/ veil1... --role reader --name Anna --seal-key owner.key
  vecveil index share sealed:notes/ veil1... --role reader --role writer --seal-key owner.key
""",
)
@click.argument("index", metavar="sealed:PLACE")
@click.argument("public", metavar="PUBLIC")
@click.option(
    "--role",
    "roles",
    type=click.Choice(["owner", "reader", "writer"]),
    multiple=True,
    required=True,
    help="What the member may do; a member may be reader and writer.",
)
@click.option("--name", metavar="NAME", help="Name in the list of members; the storage's operator sees it.")
@shared.seal_key_option
@shared.json_option
def share_command(
    index: str, public: str, roles: tuple[Role, ...], name: str | None, seal_key: str, as_json: bool
) -> None:
    """Make the holder of a key file a member of a sealed index, or change what a member may do.

    PUBLIC is what `vecveil key new` printed for the member. A writer who is no reader adds rows and deletes them by id,
    and opens nothing. The first call makes your own key file an owner; from then on every commit is signed.
    """
    with opened(index, seal_key) as one:
        one.share(public, roles, name=name)
        _report_members(index, one, as_json)


@index_group.command(
    "members",
    epilog="""\b
Examples:
  vecveil index members sealed:notes/ --seal-key anna.key
  vecveil index members sealed:notes/ --owner veil1... --seal-key ingest.key
""",
)
@click.argument("index", metavar="sealed:PLACE")
@click.option(
    "--owner",
    metavar="PUBLIC",
    help="Public string of the owner who first shared the index: this machine accepts no other list from then on.",
)
@shared.seal_key_option
@shared.json_option
def members_command(index: str, owner: str | None, seal_key: str, as_json: bool) -> None:
    """Print who may read and write a sealed index.

    Run it once on each new machine, with --owner. Otherwise the machine believes the first list that the storage shows,
    and a writer would encrypt to whomever it names.
    """
    with opened(index, seal_key, owner=owner) as one:
        _report_members(index, one, as_json)


@index_group.command(
    "remove",
    epilog="""\b
Example:
  vecveil index remove sealed:notes/ veil1... --seal-key owner.key
""",
)
@click.argument("index", metavar="sealed:PLACE")
@click.argument("public", metavar="PUBLIC")
@shared.seal_key_option
@shared.json_option
def remove_command(index: str, public: str, seal_key: str, as_json: bool) -> None:
    """Remove a member from a sealed index; after a reader, write all segments under a new data key.

    The member's later commits are refused. What the member has read or copied stays readable to them, and so does an
    old copy of the storage. After an interruption repeat the command.
    """
    with opened(index, seal_key) as one:
        one.remove(public)
        _report_members(index, one, as_json)


def _report_members(place: str, index: SealedIndex, as_json: bool) -> None:
    found = index.members()
    if as_json:
        data_json({"database": short_name(place), **found.to_record()})
        return
    for member in found.members:
        about = [
            ", ".join(member["roles"]),
            member["name"] or "",
            "shared it first" * (member["public"] == found.founder),
        ]
        data("  ".join([member["public"], *filter(None, about)]))
    if found.founder not in (None, *(member["public"] for member in found.members)):
        data(f"{found.founder}  shared it first, no longer a member")
    if not found.members:
        note(f"{short_name(place)} was never shared: whoever has its key file may do everything.")
    if found.renewal_pending:
        warn("Somebody was removed who still has the data key: repeat `vecveil index remove`.")


@index_group.command(
    "repair",
    epilog="""\b
Examples:
  vecveil index repair sealed:notes/ --seal-key owner.key
  vecveil index repair sealed:notes/ --drop --seal-key owner.key
""",
)
@click.argument("index", metavar="sealed:PLACE")
@click.option("--drop", is_flag=True, help="Also read every segment, and remove those that are missing or do not open.")
@shared.seal_key_option
@shared.json_option
def repair_command(index: str, drop: bool, seal_key: str, as_json: bool) -> None:
    """Replace the first refused commit of a shared index and all later ones, and keep the rows of members.

    Anyone who can write to the storage, such as a former member, can stop all members with a commit that no member
    made. Run this on a machine that uses the index: it never replaces a commit that the machine has accepted. After
    an interruption repeat the command.

    A writer can stop readers with a segment that does not open. Restore damaged commits and segments with
    `vecveil index copy`; without a copy use --drop. Its rows are lost, and older versions of them current again. Rows
    whose deletion was in these segments are back: delete or forget them again.
    """
    with opened(index, seal_key) as one:
        found = one.repair(drop=drop)
    lost = sum(each["rows"] for each in found.given_up)
    note(f"Commits replaced in {short_name(index)}: {len(found.commits):,}. Rows given up: {lost:,}.")
    if found.given_up:
        warn("Rows whose deletion was in these segments are back: delete or forget them again.")
    if as_json:
        data_json({"database": short_name(index), **found.to_record()})
        return
    for name in found.commits:
        data(name)
    for each in found.given_up:
        data("{segment}: {rows:,} rows of commit {commit:,}, signed by {signer}".format(**each))
