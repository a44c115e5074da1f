"""The YAML file of ``vecveil serve --config``: checked key by key, without anything secret in it."""

from __future__ import annotations

import os
import types
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from vecveil.concepts.concept_file import shared_line
from vecveil.errors import DataFileError, InvalidInputError, MissingDependencyError, message
from vecveil.serving.settings import Limits, PolicySettings, ServeSettings, UpstreamSettings

__all__ = ["read_config"]

_OWNER = "serve --config"
_LARGEST = 2**20
_PATHS = ("protector", "key", "ledger", "api_keys")
_FOLDERS = ("encoder", "upstream")


def read_config(path: str | os.PathLike[str]) -> ServeSettings:
    """Return the settings in a YAML file; paths in it are relative to its folder.

    Raises:
        DataFileError: no YAML that can be read.
        InvalidInputError: an unknown key, or a value that cannot be. Values are not shown: one may be a secret that
            was put into the wrong place.
        MissingDependencyError: PyYAML is not installed.
    """
    path = Path(path)
    content = dict(_mapping(_read(path), "the file"))
    policies = {
        str(name): _section(PolicySettings, _policy(value), f"policies.{name}", path.parent)
        for name, value in _mapping(content.pop("policies", None), "policies").items()
    }
    sections: dict[str, Any] = {}
    if (given := content.pop("upstream", None)) is not None:
        given = {"encoder": given} if isinstance(given, str) else given
        sections["upstream"] = _section(UpstreamSettings, given, "upstream", path.parent)
    if (given := content.pop("limits", None)) is not None:
        sections["limits"] = _section(Limits, given, "limits", path.parent)
    plain = _checked(ServeSettings, content, "the file", path.parent)
    return ServeSettings(policies=policies, **sections, **plain)


def _policy(value: Any) -> Any:
    """Return the mapping of a policy; a name alone is its protector."""
    return {"protector": value} if isinstance(value, str) else value


def _section(kind: type[Any], value: Any, where: str, folder: Path) -> Any:
    checked = _checked(kind, _mapping(value, where), where, folder)
    if kind is PolicySettings and "protector" not in checked:
        raise InvalidInputError.of(_OWNER, f"{where}.protector", "given", "none")
    return kind(**checked)


def _checked(kind: type[Any], given: Mapping[Any, Any], where: str, folder: Path) -> dict[str, Any]:
    hints = get_type_hints(kind)
    known = [each.name for each in fields(kind)]
    checked: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise InvalidInputError.of(
                _OWNER, where, f"of the keys {', '.join(known)}", "another key"
            )
        if not _fits(value, hints[name]):
            raise InvalidInputError.of(
                _OWNER, f"{where}.{name}", _said(hints[name]), type(value).__name__
            )
        if name in _PATHS:
            value = _relative(value, folder)
        elif name in _FOLDERS and isinstance(value, str) and (folder / value).is_dir():
            value = str(folder / value)  # else a name or a URL
        checked[name] = value
    return checked


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if hint is type(None):
        return value is None
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(hint, type):
        return isinstance(value, hint)
    return value in get_args(hint)  # a Literal


def _said(hint: Any) -> str:
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_said(one) for one in get_args(hint) if one is not type(None))
    names = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}
    if isinstance(hint, type):
        return names.get(hint, hint.__name__)
    return "one of " + ", ".join(map(str, get_args(hint)))


def _relative(value: Any, folder: Path) -> Any:
    if not isinstance(value, str) or value.startswith("env:") or value in ("forward", "none"):
        return value
    return str(folder / Path(value).expanduser())


def _mapping(value: Any, where: str) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise InvalidInputError.of(_OWNER, where, "a mapping", type(value).__name__)
    return value


def _read(path: Path) -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingDependencyError("Reading a configuration", "pyyaml", "serve") from None
    wrong: DataFileError
    try:
        if path.stat().st_size > _LARGEST:
            raise DataFileError.of(_OWNER, "path", f"a file of at most {_LARGEST} bytes", path.name)
        text = path.read_text("utf-8")
        shared = shared_line(yaml, text)
        if shared is not None:
            raise DataFileError.of(_OWNER, "path",
                                   "a YAML file without anchors (&), aliases (*) and merge keys (<<)",
                                   f"{path.name}, one in line {shared}", fix="Write the values out.")  # fmt: skip
        return yaml.safe_load(text)
    except OSError as error:
        wrong = DataFileError(
            message(_OWNER, "path", "a file that can be read", type(error).__name__)
        )
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f", wrong at line {mark.line + 1}"
        wrong = DataFileError(message(_OWNER, "path", "a YAML file", f"{path.name}{where}"))
    except DataFileError:
        raise
    except (ValueError, TypeError, RecursionError):
        wrong = DataFileError(message(_OWNER, "path", "a YAML file in UTF-8", path.name))
    raise wrong
