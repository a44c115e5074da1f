"""The newest commit of an index that this machine has seen.

A storage can show an older state of an index, no index, or a different one. Only a machine that remembers the newest
commit can detect this.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
from pathlib import Path
from uuid import UUID

import msgspec
from msgspec import Struct

from vecveil.errors import SealingError, StoreError
from vecveil.index.chain import Chain
from vecveil.index.members import Place
from vecveil.io import LockedError, create_private, expanded, locked


class HeadMemoryWarning(RuntimeWarning):
    """The newest commit cannot be remembered, so that a storage that is rolled back goes unnoticed."""


class Head(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The number and digest of a commit, and the index that it belongs to.

    Attributes:
        founder: of a shared index, the owner who signed the first list of members.
        members: commit with the list that was in force.
    """

    uuid: UUID
    number: int
    digest: str
    founder: str | None = None
    members: Place | None = None


class HeadMemory:
    """A small file outside of the storage with the newest commit seen.

    Args:
        path: ``trusted_state`` of the index, or None for a file beside ``key_file``.
        key_file: None remembers nothing without ``path``.
        location: of the index, in one form.
    """

    def __init__(self, path: str | os.PathLike[str] | None, key_file: Path | None, location: str) -> None:
        self._required, self._key_file = path is not None, key_file
        self.path = None if path is None else expanded(path).absolute()
        if self.path is None and key_file is not None:
            name = hashlib.sha256(os.fsencode(location)).hexdigest()[:24]
            self.path = key_file.with_name(f"{key_file.name}.heads") / name

    def at(self, location: str) -> HeadMemory:
        """Return the memory of an index at another location."""
        return HeadMemory(None, self._key_file, location)

    def read(self) -> Head | None:
        """Return the newest commit seen, or None.

        Raises:
            SealingError: the file is damaged.
        """
        if self.path is None:
            return None
        try:
            content = self.path.read_bytes()  # empty after a loss of power
            return msgspec.json.decode(content, type=Head) if content else None
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise SealingError(
                f"The file {self.path.name}, which remembers the newest commit of the index, cannot be read. Restore "
                "it from a backup; without one, check what the storage contains and delete it.",
                code="E-SEAL-OPEN",
                param="trusted_state",
            ) from error

    def check(self, known: Head | None, chain: Chain, *, at_head: bool = False) -> None:
        """Compare a state with the commit that was known before the storage was read.

        Raises:
            StoreError: the storage shows a different index, a different commit of this number, or, ``at_head``, an
                older state.
        """
        if known is None:
            return
        if known.uuid != chain.mark.uuid:
            problem = "contains a different index than before"
        elif known.number == chain.number and known.digest != chain.digest:
            problem = f"shows a different commit {known.number:,} than before"
        elif at_head and known.number > chain.number:
            problem = f"was rolled back: it shows {chain.number:,} commits, and {known.number:,} were there"
        else:
            return
        raise self.lost(problem)

    def lost(self, problem: str) -> StoreError:
        """Return the error for a storage that no longer shows what it showed before."""
        said = f"The storage of the index {problem}. Restore the storage: `vecveil index copy` restores from a copy."
        if self.path is not None:
            said += (
                f" If you restored a backup or deleted the index yourself, or an owner repaired it, delete {self.path} "
                "first, unless that file is of another index."
            )
        return StoreError(said, code="E-INDEX-ROLLED-BACK")

    def note(self, chain: Chain, *, instead: bool = False) -> None:
        """Remember the state, unless another process has seen a newer one; with ``instead`` replace that as well."""
        if self.path is None:
            return
        try:
            with locked(self.path):
                known = self.read()
                if instead or known is None or known.uuid != chain.mark.uuid or known.number < chain.number:
                    # No flush: after a loss of power an older commit is remembered.
                    new = self.path.with_name(f".{self.path.name}.new")
                    with contextlib.suppress(FileNotFoundError):
                        new.unlink()
                    create_private(new)
                    members = chain.members
                    shared = (members.founder, members.place) if members else ()
                    new.write_bytes(msgspec.json.encode(Head(chain.mark.uuid, chain.number, chain.digest, *shared)))
                    os.replace(new, self.path)
        except (OSError, LockedError) as error:
            reason = getattr(error, "strerror", None) or "another process keeps it locked"
            said = f"The newest commit of the index cannot be noted in {self.path}: {reason}."
            if self._required:
                raise StoreError(
                    f"{said} The index is unharmed.", code="E-INDEX-STORAGE", param="trusted_state"
                ) from error
            warnings.warn(f"{said} A storage that is rolled back goes unnoticed.", HeadMemoryWarning, stacklevel=2)
