"""``vecveil key`` and ``vecveil ledger``, and the options of keyed noise and ledgers in other commands."""

from __future__ import annotations

import shutil
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vecveil.cli import options as shared
from vecveil.cli.output import block, counted, data, data_json, note, number, writing
from vecveil.index import KeyStore, Sealer
from vecveil.keys import KeyFile, NoiseKey, split_source
from vecveil.texts.tables.writing import check_new_file

if TYPE_CHECKING:
    from vecveil.privacy.accounting.ledger import Ledger, LedgerSummary

# The ledger is imported where it is used: `vecveil key` and a search need no privacy accounting.


@dataclass(frozen=True)
class Release:
    """The options of keyed noise and ledgers, checked."""

    noise: bool
    id_column: str | None
    key_file: Path | None
    key_env: str | None
    key_id: str | None
    ledger_file: Path | None
    cap: int | None
    raise_cap: bool

    @classmethod
    def of(cls, options: dict[str, Any], *, noise: bool) -> Release:
        names = ("key_file", "key_env", "key_id", "ledger_file", "cap", "raise_cap")
        release = cls(noise, options.pop("id_column", None), **{name: options.pop(name) for name in names})
        keyed, ledger = release.source is not None, release.ledger_file is not None
        refusals = {
            "Give --key-file or --key-env, not both.": release.key_file is not None and release.key_env is not None,
            "--key-id needs --key-file or --key-env.": release.key_id is not None and not keyed,
            "--cap and --raise-cap need --ledger.": (release.cap is not None or release.raise_cap) and not ledger,
            "--id-column names items for --key-file, --key-env or --ledger.": (
                release.id_column is not None and not release.named
            ),
            "--no-noise releases no noise: leave out keys and ledger.": not noise and release.named,
        }
        for sentence, applies in refusals.items():
            if applies:
                raise click.UsageError(sentence)
        return release

    def check_ids(self, format: str = "") -> None:
        """Reject keys and ledger for a table without an id column: sorting changes row numbers and repeats releases."""
        if self.named and self.id_column is None and format not in ("npy", "txt"):
            raise click.UsageError("Keys and ledgers need --id-column: the column with the item of each row.")

    @property
    def named(self) -> bool:
        return self.source is not None or self.ledger_file is not None

    @property
    def source(self) -> str | None:
        if self.key_env is not None:
            return f"env:{self.key_env}"
        return None if self.key_file is None else str(self.key_file)

    def key(self) -> NoiseKey | None:
        return None if self.source is None else KeyFile.of(self.source).key(self.key_id)

    def ledger(self) -> AbstractContextManager[Ledger | None]:
        if self.ledger_file is None:
            return nullcontext()
        from vecveil.privacy.accounting.ledger import Ledger

        return Ledger(self.ledger_file, cap=self.cap, raise_cap=self.raise_cap)

    def files(self) -> list[tuple[Path, str]]:
        """Return the files that the output must not replace, with their names for messages."""
        named = ((self.key_file, "the key file"), (self.ledger_file, "the ledger"))
        return [(path, name) for path, name in named if path is not None]


KEY_EXAMPLE = """\b
Example:
  vecveil key new noise.key
  vecveil key list noise.key
"""


@click.group("key", epilog=KEY_EXAMPLE)
def key() -> None:
    """Make and list the secret keys of keyed noise and sealed search; erase the keys of a collection.

    Each key file also has an identity, by which sealed indexes are shared: `vecveil index share` takes its public
    string.

    Anyone with a key can remove the noise from every release made with it, and open every row sealed under it. All
    commands take --json.
    """


@key.command("new", epilog="\b\nExample:\n  vecveil key new noise.key --id 2026-11\n")
@click.argument("file", type=shared.KEY_FILE)
@click.option("--id", "key_id", help="Name of the key [default: the time].")
@shared.json_option
def new_key(file: Path, key_id: str | None, as_json: bool) -> None:
    """Add a new key to FILE, which is created if missing, and make it the current one; print its public string.

    Older keys stay in the file, for releases that must be repeatable with them, and so does its identity as a member of
    sealed indexes. The public string is not secret: an owner passes it to `vecveil index share`.
    """
    named = key_id or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    before = KeyFile.from_file(file).current if file.exists() else None
    keys = KeyFile.create(file, named)
    if before is None:
        note(f"Wrote {file}: the key {keys.current!r} is current. Keep the file secret, and a copy of it safe.")
    else:
        note(
            f"Added a key to {file}: {keys.current!r} is current in place of {before!r}, which stays in the file. New "
            "data keys are wrapped by it, and keyed noise differs; `vecveil reseal` moves a store to it."
        )
    public = _public(keys)
    if as_json:
        data_json({"key_file": str(file), "current": keys.current, "ids": sorted(keys.keys), "public": public})
    else:
        note("The public string, for `vecveil index share`:")
        data(str(public))


@key.command("list", epilog="\b\nExample:\n  vecveil key list noise.key\n")
@click.argument("file", type=shared.SEAL_KEY)
@shared.json_option
def list_keys(file: str, as_json: bool) -> None:
    """Print the ids of the keys in FILE, never the keys, its collections of sealed rows, and its public string.

    FILE may be env:NAME:FILE or SERVICE:NAME:FILE.
    """
    collections = _key_store(file).collections()
    origin, path = split_source(file)
    in_service = origin is not None and not origin.startswith("env:")
    keys = None if in_service else KeyFile.of(origin or path)
    current, ids = (origin, [origin]) if keys is None else (keys.current, sorted(keys.keys))
    public = None if keys is None else _public(keys)
    if as_json:
        data_json({"current": current, "ids": ids, "collections": collections, "public": public})
        return
    for name in ids:
        data(f"{name}{'  (current)' if name == current else ''}")
    for name, about in sorted(collections.items()):
        counted = (
            f"data keys: {about['data_keys']}; rows, or files of an index, sealed: at most {about['sealed_at_most']:,}"
        )
        protector = f"; protector: {about['protector'][:12]}" if about["protector"] else ""
        data(f"collection {name}: {counted}{protector}")
    if public:
        data(f"public string: {public}")


def _public(keys: KeyFile) -> str | None:
    """Return the public string of the keys' identity, for `vecveil index share`."""
    from vecveil.index.members import Identity

    return Identity(keys.identity).public if keys.identity else None


def _key_store(file: str) -> KeyStore:
    store = Sealer(file).keys
    assert isinstance(store, KeyStore)
    return store


@key.command("erase", epilog="\b\nExample:\n  vecveil key erase search.keys --collection notes\n")
@click.argument("file", type=shared.SEAL_KEY)
@click.option("--collection", metavar="NAME", help="Collection of sealed rows; see `vecveil key list`.")
@click.option("--id", "key_id", metavar="ID", help="Older key of FILE that wraps no data key; see `vecveil key list`.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@shared.json_option
def erase_keys(file: str, collection: str | None, key_id: str | None, yes: bool, as_json: bool) -> None:
    """Delete the data keys of a collection: its sealed rows no longer open, not even in backups of the database.

    Protected vectors and plain-text fields stay readable. Backups of FILE still open the sealed rows: destroy them
    too. FILE may be env:NAME:FILE or SERVICE:NAME:FILE.

    With --id delete an older key of FILE, once every collection is resealed. Keyed noise made with it cannot be
    repeated.
    """
    store = _key_store(file)
    if (collection is None) == (key_id is None):
        raise click.UsageError("Give --collection or --id.")
    if collection is not None:
        store.read(collection)  # report a mistyped name before asking
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("Without a terminal to ask at, confirm with --yes.")
    erased = f"the key {key_id!r}" if collection is None else f"all data keys of {collection!r}"
    if not yes and not click.confirm(f"Delete {erased}? This cannot be undone.", err=True):
        raise click.Abort
    backups = f"backups of {shared.SEAL_KEY.file(file).name}"
    if collection is None:
        store.erase_master(str(key_id))
        note(f"Deleted {erased}. It is still in {backups}: destroy them too.")
    else:
        store.erase(collection)
        note(
            f"The sealed rows of {collection!r} no longer open. Their protected vectors stay readable, and {backups} "
            "still open the rows: destroy them too."
        )
    if as_json:
        data_json({"key_file": str(file), "erased": collection or key_id})


REWRAP_EXAMPLE = """\b
Example:
  vecveil key rewrap search.keys awskms:alias/vecveil:kms.keys
"""


@key.command("rewrap", epilog=REWRAP_EXAMPLE)
@click.argument("source", type=shared.SEAL_KEY)
@click.argument("dest", type=shared.SEAL_KEY)
@shared.json_option
def rewrap_keys(source: str, dest: str, as_json: bool) -> None:
    """Copy the collections of SOURCE to DEST, whose key then wraps their data keys: from a file to a KMS, or back.

    Both are FILE, env:NAME:FILE or SERVICE:NAME:FILE; a plain DEST is a file of `vecveil key new`. Stop writers first,
    and use DEST from then on. SOURCE still opens the rows until `vecveil reseal` renews their data keys.
    """
    copied = _key_store(source).rewrap(_key_store(dest))
    heads = (shared.SEAL_KEY.file(each) for each in (source, dest))
    before, after = (file.with_name(f"{file.name}.heads") for file in heads)
    if before.is_dir() and not after.exists():
        shutil.copytree(before, after)  # a storage that was rolled back is still noticed
    note(
        f"{shared.SEAL_KEY.file(dest).name} has the data keys of {len(copied)} collections. Delete "
        f"{shared.SEAL_KEY.file(source).name}, which still opens them, or reseal them under the new key."
    )
    if as_json:
        data_json({"key_file": str(shared.SEAL_KEY.file(dest)), "collections": copied})


LEDGER_EXAMPLE = """\b
Example:
  vecveil ledger show releases.ledger
  vecveil ledger export releases.ledger -o releases.csv
"""


@click.group("ledger", epilog=LEDGER_EXAMPLE)
def ledger() -> None:
    """Show, export or repair a ledger: how often each item was released, and its total epsilon.

    A ledger contains salted hashes instead of ids. Opening one verifies the checksum of every row. All commands take
    --json.
    """


@ledger.command("show", epilog="\b\nExample:\n  vecveil ledger show releases.ledger --json\n")
@click.argument("ledger", type=shared.LEDGER)
@shared.json_option
def show(ledger: Path, as_json: bool) -> None:
    """Check LEDGER and print its totals."""
    from vecveil.privacy.accounting.ledger import Ledger

    with Ledger(ledger, create=False) as opened:
        summary = opened.summary()
    if as_json:
        data_json(summary.to_record())
    else:
        block("\n".join(_ledger_lines(summary)))


@ledger.command("export", epilog="\b\nExample:\n  vecveil ledger export releases.ledger -o releases.csv\n")
@click.argument("ledger", type=shared.LEDGER)
@shared.file_option("-o", "--output", required=True, help="A file that ends in .csv or .jsonl.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@shared.json_option
def export(ledger: Path, output: Path, force: bool, as_json: bool) -> None:
    """Check LEDGER and write one line per release, with hashed ids."""
    from vecveil.privacy.accounting.ledger import Ledger

    check_new_file(output, overwrite=force, inputs=(ledger,))
    with Ledger(ledger, create=False) as opened:
        with writing(output):
            opened.export(output)
        total = opened.total
    if as_json:
        data_json({"output": output.name, "releases": total})
    else:
        note(f"Wrote {counted(total, 'release')} to {output.name}.")


@ledger.command("repair", epilog="\b\nExample:\n  vecveil ledger repair releases.ledger -o repaired.ledger\n")
@click.argument("ledger", type=shared.FILE)
@shared.file_option("-o", "--output", required=True, help="The new ledger, a file that does not exist.")
@shared.json_option
def repair(ledger: Path, output: Path, as_json: bool) -> None:
    """Write a new ledger from the rows of LEDGER that match their checksums, and report what is lost.

    Releases in lost rows no longer count against the cap. LEDGER stays as it is.
    """
    from vecveil.privacy.accounting.ledger import Ledger

    result = Ledger.repair(ledger, output)
    if as_json:
        data_json({"output": output.name, **asdict(result)})
    cap = "" if not result.cap_lost else f" A stored cap is lost: the new ledger has {number(result.cap)}."
    note(
        f"Wrote {counted(result.releases, 'release')} to {output.name}."
        + (f" Lost: {counted(result.lost, 'row')}, whose releases no longer count." if result.lost else "")
        + cap
    )


def _ledger_lines(summary: LedgerSummary) -> list[str]:
    rows: list[tuple[object, object]] = [
        ("items", summary.items),
        ("releases", summary.releases),
        ("most of one item", summary.most_releases),
        ("cap", number(summary.cap)),
        ("checksums", "right"),
    ]
    if summary.histogram:
        rows += [("", ""), ("releases of an item", "items"), *summary.histogram.items()]
    for row in summary.protectors:
        spent = "none" if row.most_epsilon is None else f"{row.most_epsilon:.6g}"
        rows += [
            ("", ""),
            (f"protector {row.protector}", ""),
            ("  items", row.items),
            ("  releases", row.releases),
            ("  most of one item", row.most_releases),
            ("  most ε of one item", f"{spent} (per unit of its own metric)"),
        ]
    return [f"{name:<24}{value}".rstrip() for name, value in rows]
