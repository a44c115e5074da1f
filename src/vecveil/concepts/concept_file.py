"""The concept file: YAML that names a concept and says what belongs to it.

::

    name: drug                       # required
    terms: [ibuprofen, "vitamin D"]  # words and phrases
    terms_file: drugs.txt            # more of them, one a line; path relative to this file
    case_sensitive: false            # for terms
    patterns: ['\\b\\d+ ?mg\\b']        # regular expressions
    entities: [EMAIL_ADDRESS]        # Presidio's types, or {engine, model, language, types}
    spans_column: spans              # table column with [{start, end, label}, ...]
    labels_column: topic             # table column with one label a text; stands alone

At least one key beside ``name``; several combine. The file is read with YAML's safe loader,
without anchors, aliases and merge keys: nested, they grow exponentially.
"""

from __future__ import annotations

import difflib
import os
import stat
from pathlib import Path
from typing import Any

from vecveil.concepts.concept import Concept
from vecveil.concepts.patterns import PatternDetector
from vecveil.concepts.plain_yaml import shared_line
from vecveil.concepts.spans import Detector
from vecveil.concepts.terms import TermDetector
from vecveil.errors import DataFileError, InvalidInputError, MissingDependencyError

__all__ = ["read_concept"]

_OWNER = "Concept.from_file"
_KEYS = (
    "name", "terms", "terms_file", "case_sensitive", "patterns", "entities",
    "spans_column", "labels_column",
)  # fmt: skip
LARGEST_FILE = 1 << 24
LARGEST_TERMS_FILE = 1 << 26
_ENTITY_KEYS = ("engine", "model", "language", "types")


def read_concept(path: str | os.PathLike[str]) -> Concept:
    """Return the concept that the YAML file at ``path`` describes.

    Raises:
        DataFileError: a file is missing, not UTF-8, or not YAML; the message gives the line.
        InvalidInputError: an unknown key, a value of the wrong type, or nothing to find.
    """
    path = Path(path)
    content = _content(path)
    _refuse_unknown(content, _KEYS, "path")
    name = _typed(content, "name", str, "a string")
    if name is None:
        raise InvalidInputError.of(_OWNER, "name", "given", "no such key")
    detectors: list[Detector] = []
    terms = _typed(content, "terms", list, "a list of strings") or []
    terms_file = _typed(content, "terms_file", str, "a path")
    if terms_file is not None:
        terms = [*terms, *_lines(path.parent / terms_file)]
    if "terms" in content or terms_file is not None:
        sensitive = _typed(content, "case_sensitive", bool, "true or false") or False
        detectors.append(TermDetector(terms, case_sensitive=sensitive, owner=_OWNER))
    elif "case_sensitive" in content:
        raise InvalidInputError.of(_OWNER, "case_sensitive", "beside terms or terms_file", "neither",
                                   fix="In a pattern, write (?i) at its beginning to ignore case.")  # fmt: skip
    patterns = _typed(content, "patterns", list, "a list of strings")
    if patterns is not None:
        detectors.append(PatternDetector(patterns, owner=_OWNER))
    if content.get("entities") is not None:
        detectors += _entities(content["entities"])
    spans_column = _typed(content, "spans_column", str, "the name of a column")
    labels_column = _typed(content, "labels_column", str, "the name of a column")
    if not (detectors or spans_column or labels_column):
        known = ", ".join(key for key in _KEYS if key not in ("name", "case_sensitive"))
        raise InvalidInputError.of(
            _OWNER, "path", f"a concept file with at least one of {known}", "none"
        )
    return Concept(name, tuple(detectors), spans_column, labels_column)


def _entities(value: Any) -> tuple[Detector, ...]:
    if isinstance(value, list):
        return Concept.from_entities("entities", value).detectors
    if not isinstance(value, dict):
        constraint = "a list of types or {engine, model, language, types}"
        raise InvalidInputError.of(_OWNER, "entities", constraint, type(value).__name__)
    _refuse_unknown(value, _ENTITY_KEYS, "entities")
    types = _typed(value, "types", list, "a list of entity types")
    if types is None:
        raise InvalidInputError.of(_OWNER, "types", "given under entities", "no such key")
    options = {
        key: text
        for key in ("engine", "model", "language")
        if (text := _typed(value, key, str, "a string")) is not None
    }
    return Concept.from_entities("entities", types, **options).detectors


def _content(path: Path) -> dict[Any, Any]:
    try:
        import yaml
    except ImportError:
        raise MissingDependencyError("Reading a concept file", "yaml", "concepts") from None
    _check_size(path, "path", LARGEST_FILE)
    text = _text(path)
    try:
        shared = shared_line(yaml, text)
        if shared is not None:
            raise DataFileError.of(_OWNER, "path",
                                   "a YAML file without anchors (&), aliases (*) and merge keys (<<)",
                                   f"{path.name}, one in line {shared}",
                                   fix="Write the values out; quote texts that begin with & or *.")  # fmt: skip
        loader: Any = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            repeated = _repeated(node) if isinstance(node, yaml.MappingNode) else None
            content = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f", wrong at line {mark.line + 1}"
        fix = "Check quotes and indentation."
        raise DataFileError.of(
            _OWNER, "path", "a YAML file", f"{path.name}{where}", fix=fix
        ) from None
    except DataFileError:
        raise
    except (ValueError, TypeError, RecursionError, OverflowError):
        raise DataFileError.of(
            _OWNER, "path", "a YAML file of strings and lists", f"{path.name}, not one"
        ) from None
    if content is None:
        raise DataFileError.of(_OWNER, "path", "a concept file", f"{path.name}, an empty one")
    if not isinstance(content, dict):
        raise InvalidInputError.of(
            _OWNER, "path", "a mapping with keys such as name", type(content).__name__
        )
    if repeated is not None:
        raise InvalidInputError.of(
            _OWNER, "path", "a file with each key once", f"a second one in line {repeated}"
        )
    return content


def _repeated(node: Any) -> int | None:
    """Return the line of the first key that was there before; YAML would drop the earlier value."""
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key.value, str):
            if key.value in seen:
                return int(key.start_mark.line) + 1
            seen.add(key.value)
    return None


def _refuse_unknown(content: dict[Any, Any], known: tuple[str, ...], param: str) -> None:
    for i, key in enumerate(content):
        if key in known:
            continue
        close = difflib.get_close_matches(key, known, n=1) if isinstance(key, str) else []
        # A key close to a known one is a slip of the pen; any other might be a term: unnamed.
        got = f"{key!r}" if close else f"an unknown key at position {i}"
        hint = f"Did you mean {close[0]!r}?" if close else "Terms belong in a list under terms."
        constraint = f"with keys among {', '.join(known)}"
        raise InvalidInputError.of(_OWNER, param, constraint, got, fix=hint)


def _typed(content: dict[Any, Any], key: str, kind: type, constraint: str) -> Any:
    """Return the value of ``key``, None if it is missing; refuses another type and emptiness."""
    if key not in content:
        return None
    value = content[key]
    if not isinstance(value, kind) or value == "":
        empty = value is None or value == ""
        got = "nothing" if empty else type(value).__name__
        raise InvalidInputError.of(_OWNER, key, constraint, got)
    return value


def _lines(path: Path) -> list[str]:
    _check_size(path, "terms_file", LARGEST_TERMS_FILE)
    lines = [line.strip() for line in _text(path, "terms_file").splitlines()]
    terms = [line for line in lines if line]
    if not terms:
        raise DataFileError.of(_OWNER, "terms_file", "a file of terms", "an empty one")
    return terms


def _check_size(path: Path, param: str, most: int) -> None:
    """Refuse devices and pipes, which may never end, and a file that is too large."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return  # Opening it says what is wrong.
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        got = f"{path.name!r}, not a regular file"
        raise DataFileError.of(_OWNER, param, "a readable file", got)
    if found.st_size > most:
        constraint = f"a file of at most {most >> 20} MiB"
        got = f"{path.name!r} of {found.st_size >> 20} MiB"
        raise DataFileError.of(_OWNER, param, constraint, got)


def _text(path: Path, param: str = "path") -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataFileError.of(_OWNER, param, "a file that exists", repr(path.name)) from None
    except UnicodeDecodeError as error:
        raise DataFileError.of(
            _OWNER, param, "a UTF-8 file", f"{path.name!r}, wrong at byte {error.start}"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "a damaged name"
        got = f"{path.name!r} ({reason})"
        raise DataFileError.of(_OWNER, param, "a readable file", got) from None
