"""Options of commands that release vectors: keys of keyed noise, and the ledger."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vecveil.cli import options as shared

if TYPE_CHECKING:
    from vecveil.accounting import Ledger
    from vecveil.randomness import NoiseKey

__all__ = ["Release", "named_options", "release_options"]

named_options = shared.stacked(
    click.option(
        "--key-file",
        type=shared.FILE,
        help="Keyed noise: the same item always gets the same release. See `vecveil key new`.",
    ),
    click.option(
        "--key-env",
        metavar="VARIABLE",
        help="Keyed noise with the keys in this environment variable.",
    ),
    click.option("--key-id", metavar="ID", help="Which of the keys [default: the current one]."),
    click.option(
        "--ledger",
        "ledger_file",
        type=shared.FILE,
        help="Count the release of each item in this ledger before it is made.",
    ),
    click.option("--raise-cap", is_flag=True, help="Let --cap raise the cap that the ledger has."),
    click.option(
        "--cap",
        type=click.IntRange(min=1),
        help="Of the ledger: refuse to release an item more often.",
    ),
)
"""Of commands whose rows have ids of their own."""

release_options = shared.stacked(
    click.option(
        "--id-column",
        metavar="NAME",
        help="Column that names each row's item, for keys and ledger [of .npy: the row's number].",
    ),
    named_options,
)


@dataclass(frozen=True)
class Release:
    """The options, checked."""

    noise: bool
    id_column: str | None
    key_file: Path | None
    key_env: str | None
    key_id: str | None
    ledger_file: Path | None
    cap: int | None
    raise_cap: bool

    @classmethod
    def of(cls, given: dict[str, Any], *, noise: bool) -> Release:
        """Take the options out of ``given``; refuses combinations that cannot mean anything."""
        names = ("key_file", "key_env", "key_id", "ledger_file", "cap", "raise_cap")
        column = given.pop("id_column", None)
        one = cls(noise, column, **{name: given.pop(name) for name in names})
        if one.key_file is not None and one.key_env is not None:
            raise click.UsageError("Give --key-file or --key-env, not both.")
        keyed = one.key_file is not None or one.key_env is not None
        if one.key_id is not None and not keyed:
            raise click.UsageError("--key-id needs --key-file or --key-env.")
        if (one.cap is not None or one.raise_cap) and one.ledger_file is None:
            raise click.UsageError("--cap and --raise-cap need --ledger.")
        if one.id_column is not None and not keyed and one.ledger_file is None:
            raise click.UsageError("--id-column names items for --key-file, --key-env or --ledger.")
        if not noise and (keyed or one.ledger_file is not None):
            raise click.UsageError("--no-noise releases no noise: leave out keys and ledger.")
        return one

    def check_ids(self, format: str) -> None:
        """Refuse keys and ledger for a table of which no column names the items.

        A row's number would do until somebody sorts the table: then every row is a further release.
        """
        if self.named and self.id_column is None and format not in ("npy", "txt"):
            raise click.UsageError(
                "Keys and ledgers need --id-column: the column that names the item of each row."
            )

    @property
    def named(self) -> bool:
        """Return whether there are keys or a ledger."""
        return any(each is not None for each in (self.key_file, self.key_env, self.ledger_file))

    def key(self) -> NoiseKey | None:
        """Return the key, or None for fresh noise."""
        from vecveil.randomness import NoiseKeys

        if self.key_file is not None:
            return NoiseKeys.from_file(self.key_file).key(self.key_id)
        if self.key_env is not None:
            return NoiseKeys.from_environment(self.key_env).key(self.key_id)
        return None

    def ledger(self) -> AbstractContextManager[Ledger | None]:
        """Return the opened ledger, or nothing."""
        from vecveil.accounting import Ledger

        if self.ledger_file is None:
            return nullcontext()
        return Ledger(self.ledger_file, cap=self.cap, raise_cap=self.raise_cap)

    def files(self) -> list[tuple[Path, str]]:
        """Return the files that the output must not replace, and what they are."""
        named = ((self.key_file, "the key file"), (self.ledger_file, "the ledger"))
        return [(path, what) for path, what in named if path is not None]
