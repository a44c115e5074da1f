"""Specifications: YAML files read into typed settings (subclasses of `Spec`); unknown keys are errors.

The section ``quick`` replaces settings in a coarse run; a list under its ``problems`` selects problems by name.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
import json
import sys
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from vecveil.concepts.concept_file import load_yaml
from vecveil.errors import DataFileError, InvalidInputError, VecveilError, unknown_name


def import_modules(names: Sequence[str]) -> None:
    """Import modules once: Python files by path (relative to the current folder), others by name.

    Raises:
        DataFileError: a module is missing or cannot be imported.
    """
    for name in names:
        try:
            if name.endswith(".py"):
                import_file(Path(name).resolve())
            else:
                importlib.import_module(name)
        except VecveilError:
            raise
        except Exception as error:
            text = f"`modules`: importing {repr(name)[:80]} raised {type(error).__name__}."
            raise DataFileError(f"experiment: {text}", param="modules") from error


def import_file(path: Path) -> types.ModuleType:
    """Return the module of a Python file, imported once."""
    name = f"vecveil_own_{path.stem}"
    held = sys.modules.get(name)
    if held is not None and getattr(held, "__file__", None) == str(path):
        return held
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(path.name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ConceptSpec:
    """A problem's concept, the union of the kinds given.

    Attributes:
        terms_file: a file in the data folder: JSON or YAML (a list, or terms by group), or one term a line.
        groups: of the terms file; none takes all.
        spans: labels of the data set's own annotated spans; ``*`` takes all.
        gazetteer: data set -> span labels whose annotated texts become terms.
        entities: entity types of a recogniser.
        engine, model: the recogniser, see `vecveil.Concept.from_entities`.
        patterns: regular expressions.
    """

    terms: tuple[str, ...] = ()
    terms_file: str | None = None
    groups: tuple[str, ...] = ()
    spans: tuple[str, ...] = ()
    gazetteer: dict[str, tuple[str, ...]] = field(default_factory=dict)
    entities: tuple[str, ...] = ()
    engine: str = "presidio"
    model: str | None = None
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ProblemSpec:
    """Texts, a concept in them, and a utility task.

    Attributes:
        data: one data set, or several of one kind to pool.
        utility: data set of the task; None: the first in ``data``.
        texts: maximum number of texts with the concept, and of texts without, drawn by group.
    """

    data: tuple[str, ...]
    concept: ConceptSpec
    utility: str | None = None
    texts: int | None = None


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The settings of every experiment.

    Attributes:
        encoder: a name or folder for `vecveil.load_encoder`.
        seeds: cells are measured with the seeds 0 to seeds - 1.
        texts: a cap on every problem's ``texts``.
        attacks: names of token-inference attacks; ``quick`` and ``full`` stand for those of a tier.
        modules: Python files or modules to import, which register methods, attacks or data sets. Their code runs.
    """

    experiment: str
    problems: dict[str, ProblemSpec] = field(default_factory=dict)
    encoder: str = "minilm"
    seeds: int = 1
    texts: int | None = None
    attacks: tuple[str, ...] = ("quick",)
    modules: tuple[str, ...] = ()
    is_quick: bool = False

    def problem(self, name: str) -> ProblemSpec:
        """Return a problem with the cap on its texts applied."""
        own = self.problems[name]
        caps = [cap for cap in (own.texts, self.texts) if cap is not None]
        return dataclasses.replace(own, texts=min(caps, default=None))

    @property
    def digest(self) -> str:
        return digest(json_ready(self))


def check_names(
    param: str, given: Iterable[str], known: Iterable[str], *, owner: str = "experiment", fix: str = ""
) -> None:
    """Raise `InvalidInputError` for the first unknown name."""
    known = tuple(known)
    for name in given:
        if name not in known:
            raise unknown_name(owner, param, known, name, fix=fix)


def wrong(param: str, text: str) -> InvalidInputError:
    return InvalidInputError(f"experiment: {text}", param=param)


def _file_error(owner: str, param: str, text: str) -> DataFileError:
    return DataFileError(f"{owner}: `{param}` {text}", param=param)


def whole_numbers(options: Mapping[str, float]) -> dict[str, Any]:
    """Return options with 100.0 as 100, for counts."""
    return {key: int(value) if value == int(value) else value for key, value in options.items()}


def json_ready(settings: Any) -> Any:
    return json.loads(json.dumps(dataclasses.asdict(settings)))


def digest(settings: Any) -> str:
    """Return a hash of JSON-ready settings, independent of the order of keys."""
    text = json.dumps(settings, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def parse_spec(text: str, kinds: Mapping[str, type[Spec]], *, quick: bool, owner: str) -> Spec:
    """Return the settings in a YAML text.

    Args:
        kinds: the class of settings of each experiment by name.
        quick: apply the section ``quick``.

    Raises:
        DataFileError: not YAML, an unknown experiment or key, or a value of the wrong type; names the key.
    """
    found = load_yaml(text, owner, owner="experiment")
    if not isinstance(found, dict) or "experiment" not in found:
        raise _file_error(owner, "experiment", "is missing.")
    name = found["experiment"]
    if not isinstance(name, str) or name not in kinds:
        known = ", ".join(sorted(kinds))
        raise _file_error(owner, "experiment", f"{repr(name)[:60]} is unknown; use one of {known}.")
    coarse = found.pop("quick", None) or {}
    if not isinstance(coarse, dict):
        raise _file_error(owner, "quick", f"takes a mapping, not {type(coarse).__name__}.")
    if quick and not coarse:
        text = "is missing. Leave --quick out, or add a section that says what the coarse version changes."
        raise _file_error(owner, "quick", text)
    if "is_quick" in found or "is_quick" in coarse:
        raise _file_error(owner, "is_quick", "is set by --quick; leave it out.")
    modules = found.get("modules") or []
    import_modules([modules] if isinstance(modules, str) else [str(one) for one in modules])
    merged = {**found, **coarse}
    chosen = coarse.get("problems")
    if isinstance(chosen, list):
        merged["problems"] = _chosen(found.get("problems") or {}, chosen, owner)
    typed = _typed(kinds[name], merged, owner, "")  # a wrong quick section is found without --quick too
    if not quick:
        typed = _typed(kinds[name], found, owner, "")
    return dataclasses.replace(typed, is_quick=quick)


def _chosen(problems: Mapping[str, Any], names: list[Any], owner: str) -> dict[str, Any]:
    unknown = [name for name in names if name not in problems]
    if unknown:
        known = ", ".join(map(str, problems))
        raise _file_error(owner, "quick.problems", f"names {repr(unknown[0])[:60]}; use some of {known}.")
    return {name: problems[name] for name in names}


def _typed(kind: type[T], given: Any, owner: str, path: str) -> T:
    """Return a dataclass from a mapping, its fields checked by their annotations."""
    if not isinstance(given, dict):
        raise _file_error(owner, path or "file", f"takes a mapping of keys, not {type(given).__name__}.")
    hints = typing.get_type_hints(kind)
    known = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    names = ", ".join(sorted(known if path else {*known, "quick"} - {"is_quick"}))
    for key in given:
        if key not in known:
            raise _file_error(owner, f"{path}{key}"[:80], f"is an unknown key; use some of {names}.")
    missing = [
        name
        for name, f in known.items()
        if name not in given and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise _file_error(owner, f"{path}{missing[0]}", "is missing.")
    values: dict[str, Any] = {}
    for key, value in given.items():
        if value == 0 and known[key].metadata.get("least") == 0 and value is not False:
            values[key] = 0
        else:
            values[key] = _value(hints[key], value, owner, f"{path}{key}")
    try:
        return kind(**values)
    except InvalidInputError as error:
        raise DataFileError(f"{owner}: {error}", param=error.param) from None


def _value(hint: Any, given: Any, owner: str, path: str) -> Any:
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if given is None and type(None) in inside:
            return None
        return _value(next(one for one in inside if one is not type(None)), given, owner, path)
    if origin is tuple:
        items = given if isinstance(given, list) else [given]
        return tuple(_value(inside[0], v, owner, f"{path}[{i}]") for i, v in enumerate(items))
    if origin is dict:
        if not isinstance(given, dict):
            raise _file_error(owner, path, f"takes a mapping, not {type(given).__name__}.")
        return {str(k): _value(inside[1], v, owner, f"{path}.{k}") for k, v in given.items()}
    if dataclasses.is_dataclass(hint):
        return _typed(typing.cast(type[Any], hint), given, owner, f"{path}.")
    if hint is float and isinstance(given, int) and not isinstance(given, bool):
        return float(given)
    if hint is int and not isinstance(given, bool) and isinstance(given, int) and given < 1:
        raise _file_error(owner, path, f"is {given}; use a whole number of at least 1.")
    if not isinstance(given, hint) or (isinstance(given, bool) and hint is not bool):
        names = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
        fix = " Put quotes around it." if hint is str else ""
        raise _file_error(owner, path, f"takes {names.get(hint, str(hint))}, not {type(given).__name__}.{fix}")
    return given
