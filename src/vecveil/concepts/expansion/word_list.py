"""Members from a file: text lines, or JSON or YAML with groups."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vecveil.concepts.expansion.sources import ExpansionContext
from vecveil.errors import DataFileError, InvalidInputError, MissingDependencyError, message

__all__ = ["WordListSource"]

LARGEST_FILE = 1 << 28


class WordListSource:
    """Proposes the members of a word list or gazetteer.

    Args:
        members: a sequence of members; or a mapping of group names to such sequences.
        name: how reports call it.
    """

    def __init__(
        self, members: Iterable[str] | Mapping[str, Iterable[str]], *, name: str = "word list"
    ) -> None:
        self.name = name
        self._groups = _groups(members, "WordListSource", "members")

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> WordListSource:
        """Return the source of a UTF-8 file.

        ``.json``, ``.yaml`` and ``.yml`` hold a list of members, or group names mapped to lists. Any other file
        has one member a line; empty lines and lines that begin with ``#`` are left out.

        Raises:
            DataFileError: missing, not UTF-8, damaged, larger than 256 MiB, or without a member.
        """
        path = Path(path)
        owner = "WordListSource.from_file"
        text = _read(path, owner)
        kind = path.suffix.lower()
        content: Any
        if kind == ".json":
            try:
                content = json.loads(text)
            except (ValueError, RecursionError):
                raise _wrong(owner, "a JSON file", path, "not one") from None
        elif kind in (".yaml", ".yml"):
            content = _yaml(text, path, owner)
        else:
            lines = (line.strip() for line in text.splitlines())
            content = [line for line in lines if line and not line.startswith("#")]
        try:
            source = cls(content, name="word list")
        except InvalidInputError:
            constraint = "a list of strings, or group names mapped to lists of strings"
            raise _wrong(owner, constraint, path, "something else") from None
        if not any(source._groups.values()):
            raise _wrong(owner, "a file with at least one member", path, "without any")
        return source

    def __repr__(self) -> str:
        count = sum(map(len, self._groups.values()))
        return f"WordListSource({count} members, {len(self._groups)} groups)"

    def members(self, context: ExpansionContext) -> Mapping[str, list[str]]:
        """Return the members by group; those of a plain list in the group ``""``."""
        return self._groups


def _groups(content: Any, owner: str, param: str) -> dict[str, list[str]]:
    named = content if isinstance(content, Mapping) else {"": content}
    groups: dict[str, list[str]] = {}
    for i, (group, members) in enumerate(named.items()):
        plain = isinstance(members, Iterable) and not isinstance(members, str | bytes | Mapping)
        rows: list[Any] = list(members) if plain else [None]
        if not isinstance(group, str) or not all(isinstance(member, str) for member in rows):
            got = f"another type at position {i}"
            constraint = "a sequence of strings, or names mapped to sequences of strings"
            raise InvalidInputError.of(owner, param, constraint, got)
        groups[group] = rows
    return groups


def _read(path: Path, owner: str) -> str:
    try:
        if not path.exists():
            raise _wrong(owner, "a file that exists", path, "one that is not there")
        if not path.is_file():
            raise _wrong(owner, "a readable file", path, "not a regular file")
        if path.stat().st_size > LARGEST_FILE:
            limit = f"a file of at most {LARGEST_FILE >> 20} MiB"
            raise _wrong(owner, limit, path, f"of {path.stat().st_size >> 20} MiB")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise _wrong(owner, "a UTF-8 file", path, f"wrong at byte {error.start}") from None
    except (OSError, ValueError) as error:
        if isinstance(error, DataFileError):
            raise
        reason = getattr(error, "strerror", None) or "a damaged name"
        raise _wrong(owner, "a readable file", path, reason) from None


def _yaml(text: str, path: Path, owner: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingDependencyError("Reading a YAML file", "yaml", "concepts") from None
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            # Nested, aliases grow exponentially.
            if isinstance(event, yaml.AliasEvent):
                raise _wrong(owner, "a YAML file without aliases (*)", path, "one")
        return yaml.safe_load(text)
    except DataFileError:
        raise
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        raise _wrong(owner, "a YAML file", path, "not one") from None


def _wrong(owner: str, constraint: str, path: Path, got: str) -> DataFileError:
    return DataFileError(message(owner, "path", constraint, f"{path.name!r}, {got}"))
