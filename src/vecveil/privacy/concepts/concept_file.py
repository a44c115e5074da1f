"""Read a concept file: YAML with the name of a concept and its terms, patterns, entities or columns.

::

    name: drug                       # required
    terms: [ibuprofen, "vitamin D"]  # words and phrases
    terms_file: drugs.txt            # more terms, one per line; in the folder of this file
    case_sensitive: false            # for terms
    accent_sensitive: false          # for terms; defaults to the encoder's behaviour
    patterns: ['\\b\\d+ ?mg\\b']        # regular expressions
    entities: [EMAIL_ADDRESS]        # Presidio's types, or {engine, model, language, regions, types}
    spans_column: spans              # table column with [{start, end, label}, ...]
    labels_column: topic             # table column with one label per text; excludes the other keys

At least one key in addition to ``name`` is required. Anchors, aliases and merge keys are errors: nested, they grow
exponentially.
"""

from __future__ import annotations

import difflib
import os
import stat
from pathlib import Path
from typing import Any

from vecveil.errors import DataFileError, InvalidInputError, VecveilError, optional_import, wrong_type
from vecveil.io import decode_text, expanded

DEEPEST = 100  # far below Python's recursion limit, far above any concept file
_MERGE = "tag:yaml.org,2002:merge"


_OWNER = "Concept.from_file"
_TYPES: dict[str, tuple[type, str]] = {
    "name": (str, "a string"),
    "terms": (list, "a list of strings"),
    "terms_file": (str, "a path"),
    "case_sensitive": (bool, "true or false"),
    "accent_sensitive": (bool, "true or false"),
    "patterns": (list, "a list of strings"),
    "spans_column": (str, "the name of a column"),
    "labels_column": (str, "the name of a column"),
}
_KEYS = (*_TYPES, "entities")
LARGEST_FILE = 1 << 24  # 16 MiB
LARGEST_TERMS_FILE = 1 << 26  # 64 MiB
_ENTITY_KEYS = ("engine", "model", "language", "regions", "types")


def read_concept_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the checked keys of the YAML file at ``path``, with the lines of ``terms_file`` in ``terms``.

    ``entities`` becomes a mapping with ``types`` and the given options. An unreadable file raises `DataFileError` with
    the line, an invalid key or value `InvalidInputError`.
    """
    path = expanded(path)
    content = _content(path)
    _refuse_unknown(content, _KEYS, "path")
    settings = {
        key: value
        for key, (kind, constraint) in _TYPES.items()
        if (value := _typed(content, key, kind, constraint)) is not None
    }
    if "name" not in settings:
        raise InvalidInputError("The concept file has no `name`.", param="name")
    terms_file = settings.pop("terms_file", None)
    if terms_file is not None:
        settings["terms"] = [*settings.get("terms", []), *_lines(path.parent / expanded(terms_file), path)]
    for key in ("case_sensitive", "accent_sensitive"):
        if key in settings and "terms" not in settings:
            fix = " In a pattern, write (?i) at its beginning to ignore case." if key == "case_sensitive" else ""
            raise InvalidInputError(f"`{key}` applies to terms, and the concept file has none.{fix}", param=key)
    if content.get("entities") is not None:
        settings["entities"] = entity_options(content["entities"])
    if not settings.keys() - {"name", "case_sensitive", "accent_sensitive"}:
        known = ", ".join(key for key in _KEYS if key not in ("name", "case_sensitive", "accent_sensitive"))
        raise InvalidInputError(f"The concept file needs at least one of {known}.", param="path")
    return settings


def entity_options(value: Any) -> dict[str, Any]:
    """Return the arguments of `Concept.from_entities` for the value of ``entities``."""
    if isinstance(value, list):
        return {"types": value}
    if not isinstance(value, dict):
        constraint = "a list of types or {engine, model, language, regions, types}"
        raise wrong_type(_OWNER, "entities", constraint, value)
    _refuse_unknown(value, _ENTITY_KEYS, "entities")
    types = _typed(value, "types", list, "a list of entity types")
    if types is None:
        raise InvalidInputError("`entities` needs the key types.", param="types")
    options = {
        key: text
        for key in ("engine", "model", "language")
        if (text := _typed(value, key, str, "a string")) is not None
    }
    regions = _typed(value, "regions", list, "a list of two-letter codes")
    return {"types": types, **options} | ({} if regions is None else {"regions": regions})


def _content(path: Path) -> dict[Any, Any]:
    content = load_yaml(read_text(path, owner=_OWNER, most=LARGEST_FILE), path.name, owner=_OWNER)
    if content is None:
        raise DataFileError(f"{path.name} is empty.", param="path")
    if not isinstance(content, dict):
        raise wrong_type(_OWNER, "path", "a mapping with keys such as name", content)
    return content


def load_yaml(text: str, name: str, *, owner: str) -> Any:
    """Return the content of YAML ``text``; raise `DataFileError` if it is invalid or has anchors or repeated keys."""
    with optional_import("Reading a YAML file", "yaml", "concepts"):
        import yaml
    # libyaml reads a list of 300,000 terms in a second; the loader written in Python takes a minute.
    SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        shared = _shared_line(yaml, text, SafeLoader)
        if shared is not None:
            raise DataFileError(
                f"{name} has an anchor (&), alias (*) or merge key (<<) in line {shared}. Write the values out; "
                "quote texts that begin with & or *.",
                param="path",
            )
        # Repeated keys are visible in the node tree only; construction drops them silently.
        loader = SafeLoader(text)
        try:
            node = loader.get_single_node()
            if isinstance(node, yaml.MappingNode) and (line := _repeated(node)):
                raise DataFileError(f"{name} has a key twice, again in line {line}.", param="path")
            return None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" at line {mark.line + 1}"
        raise DataFileError(f"{name} is not valid YAML{where}. Check quotes and indentation.", param="path") from None
    except DataFileError:
        raise
    except (ValueError, TypeError, RecursionError, OverflowError):
        raise DataFileError(
            f"{name} is not a YAML file of strings, numbers, lists and mappings.", param="path"
        ) from None


def read_text(path: Path, *, owner: str, most: int, param: str = "path", named_by: Path | None = None) -> str:
    """Return the text of a regular file of at most ``most`` bytes, which must lie in the folder of ``named_by``."""
    try:
        # A concept file from another person must not read this user's other files as terms.
        if named_by is not None and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(named_by.parent)):
            raise InvalidInputError(
                f"`{param}` lies outside the folder of {named_by.name}. Copy it there.",
                code="E-CONCEPT-PATH",
                param=param,
            )
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise DataFileError(f"{path.name!r} is not a regular file.", param=param)
        if status.st_size > most:
            raise DataFileError(
                f"{path.name!r} has {status.st_size >> 20} MiB; the limit is {most >> 20} MiB.", param=param
            )
        return decode_text(path.read_bytes(), path.name, owner=owner, param=param)
    except FileNotFoundError:
        named = f" (`{param}`)" if named_by is None else f" (named by {param} in {named_by.name})"
        raise DataFileError(f"File not found: {path.name!r}{named}.", param=param) from None
    except VecveilError:
        raise
    except (OSError, ValueError) as error:
        raise DataFileError(
            f"Cannot read {path.name!r} (`{param}`): {getattr(error, 'strerror', None) or 'damaged name'}.", param=param
        ) from None


def _shared_line(yaml: Any, text: str, SafeLoader: Any) -> int | None:
    """Return the line of the first anchor, alias or merge key; nesting beyond `DEEPEST` raises RecursionError."""
    depth = 0
    # Events come from the parser alone: no alias is expanded before it is seen.
    for event in yaml.parse(text, Loader=SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        # Deep nesting exhausts the stack of the recursive constructor.
        if depth > DEEPEST:
            raise RecursionError
        merge = isinstance(event, yaml.ScalarEvent) and (
            event.tag == _MERGE or (event.value == "<<" and event.implicit[0])
        )
        if merge or getattr(event, "anchor", None) is not None:
            return int(event.start_mark.line) + 1
    return None


def _repeated(node: Any) -> int | None:
    """Return the line of the first repeated key; YAML would drop the earlier value."""
    seen: set[str] = set()
    for key, value in node.value:
        if isinstance(key.value, str):
            if key.value in seen:
                return int(key.start_mark.line) + 1
            seen.add(key.value)
        inside = value.value if value.id == "sequence" else [value]
        for each in inside:
            if each.id == "mapping" and (line := _repeated(each)):
                return line
    return None


def _refuse_unknown(content: dict[Any, Any], known: tuple[str, ...], param: str) -> None:
    for i, key in enumerate(content):
        if key in known:
            continue
        close = difflib.get_close_matches(key, known, n=1) if isinstance(key, str) else []
        # The message quotes only a likely typing error: any other key might be a sensitive term.
        got = f"the unknown key {key!r}" if close else f"an unknown key at position {i}"
        hint = f"Did you mean {close[0]!r}?" if close else "Terms belong in a list under terms."
        raise InvalidInputError(f"The concept file has {got}. {hint} Known keys: {', '.join(known)}.", param=param)


def _typed(content: dict[Any, Any], key: str, kind: type, constraint: str) -> Any:
    """Return the value of ``key``, or None if it is missing; raise for another type or an empty value."""
    if key not in content:
        return None
    value = content[key]
    if not isinstance(value, kind) or value == "":
        empty = value is None or value == ""
        got = "nothing" if empty else type(value).__name__
        raise InvalidInputError(f"`{key}` must be {constraint}, not {got}.", param=key)
    return value


def _lines(path: Path, concept_file: Path) -> list[str]:
    text = read_text(path, owner=_OWNER, param="terms_file", most=LARGEST_TERMS_FILE, named_by=concept_file)
    terms = [line for line in map(str.strip, text.splitlines()) if line]
    if not terms:
        raise DataFileError(f"{path.name} has no terms. Write one a line.", param="terms_file")
    return terms
