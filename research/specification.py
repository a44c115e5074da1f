"""Specifications: YAML files read into typed settings (subclasses of `Spec`); unknown keys are errors.

The section ``quick`` replaces settings in a coarse run; a list under its ``problems`` selects problems by name.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import json
import re
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec.structs import replace

from vecveil.errors import DataFileError, InvalidInputError, VecveilError, unknown_name
from vecveil.privacy.concepts.concept_file import load_yaml


def import_modules(names: Sequence[str]) -> None:
    """Import modules once: Python files by path (relative to the current folder), others by name.

    A module that is missing or cannot be imported raises `DataFileError`.
    """
    for name in names:
        try:
            if name.endswith(".py"):
                import_file(Path(name).resolve())
            else:
                importlib.import_module(name)
        except VecveilError:
            raise
        except (Exception, SystemExit) as error:
            if name.endswith(".py") and not Path(name).exists():
                text = f"File not found: {Path(name).name} (named by `modules`, relative to the current folder)."
                raise DataFileError(text, param="modules") from None
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
        with contextlib.redirect_stdout(sys.stderr):  # its output is not a result
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def load_beside(module: str, name: str) -> Any:
    """Return the content of a YAML file in the folder of a module, given by its ``__file__``."""
    return load_yaml((Path(module).parent / name).read_text(encoding="utf-8"), name, owner="experiment")


Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1 << 53)]
MOST_SEEDS = 1000  # every seed is a cell of each setting
Seeds: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MOST_SEEDS)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all settings."""


class ConceptSpec(Settings, frozen=True, kw_only=True):
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
    gazetteer: dict[str, tuple[str, ...]] = {}
    entities: tuple[str, ...] = ()
    engine: str = "presidio"
    model: str | None = None
    patterns: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The concept in words, for reports."""
        parts = [f"{len(self.terms)} listed words"] if self.terms else []
        if self.terms_file:
            groups = f" ({', '.join(self.groups)})" if self.groups else ""
            parts.append(f"the listed words of {self.terms_file}{groups}")
        if self.spans:
            parts.append(f"spans that the data annotate{_labels(self.spans)}")
        parts += [f"words that {source} annotates{_labels(labels)}" for source, labels in self.gazetteer.items()]
        if self.entities:
            parts.append(f"named entities that {self.model or self.engine} finds")
        parts += [f"{len(self.patterns)} patterns"] if self.patterns else []
        return ", ".join(parts)


def _labels(labels: Sequence[str]) -> str:
    return "" if "*" in labels else f" as {', '.join(labels)}"


class ProblemSpec(Settings, frozen=True, kw_only=True):
    """Texts, a concept in them, and a utility task.

    Attributes:
        data: one data set, or several of one kind to pool.
        utility: data set of the task; None: the first in ``data``.
        texts: maximum number of texts with the concept, and of texts without, drawn by group.
    """

    data: tuple[str, ...]
    concept: ConceptSpec
    utility: str | None = None
    texts: Whole | None = None


class Spec(Settings, frozen=True, kw_only=True):
    """The settings of every experiment.

    Attributes:
        encoder: a name or folder for `vecveil.load_encoder`.
        seeds: cells are measured with the seeds 0 to seeds - 1.
        texts: a cap on every problem's ``texts``.
        attacks: names of token-inference attacks; ``quick`` and ``full`` are tiers.
        modules: Python files or modules to import, which register methods, attacks or data sets. Their code runs.
    """

    experiment: str
    problems: dict[str, ProblemSpec] = {}
    encoder: str = "minilm"
    seeds: Seeds = 1
    texts: Whole | None = None
    attacks: tuple[str, ...] = ("quick",)
    modules: tuple[str, ...] = ()
    is_quick: bool = False

    def problem(self, name: str) -> ProblemSpec:
        """Return a problem with the cap on its texts applied."""
        own = self.problems[name]
        caps = [cap for cap in (own.texts, self.texts) if cap is not None]
        return replace(own, texts=min(caps, default=None))

    def concepts(self) -> dict[str, ConceptSpec]:
        """Return the concept of each problem."""
        return {name: self.problem(name).concept for name in self.problems}

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
    return msgspec.json.decode(msgspec.json.encode(settings))


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
        said = "The file is empty." if found is None else "`experiment` is missing."
        fix = "`vecveil experiment spec NAME` prints a specification to edit."
        raise DataFileError(f"{owner}: {said} {fix}", param="experiment")
    name = found["experiment"]
    if not isinstance(name, str) or name not in kinds:
        known = ", ".join(sorted(kinds))
        raise _file_error(owner, "experiment", f"{repr(name)[:60]} is unknown; use one of {known}.")
    try:
        json.dumps(found, allow_nan=False, skipkeys=True, default=str)
    except ValueError:
        raise DataFileError(f"{owner}: a setting is .nan or .inf. Write a number.", param="name") from None
    coarse = found.pop("quick", None) or {}
    if not isinstance(coarse, dict):
        raise _file_error(owner, "quick", f"takes a mapping, not {type(coarse).__name__}.")
    if quick and not coarse:
        text = "is missing. Leave --quick out, or add a section that says what the coarse version changes."
        raise _file_error(owner, "quick", text)
    if "is_quick" in found or "is_quick" in coarse:
        raise _file_error(owner, "is_quick", "is set by --quick; leave it out.")
    if isinstance(modules := found.get("modules"), list):
        import_modules([str(one) for one in modules])
    merged = {**found, **coarse}
    chosen = coarse.get("problems")
    if isinstance(chosen, list) and isinstance(problems := found.get("problems"), dict):
        merged["problems"] = _chosen(problems, chosen, owner)
    typed = _read(kinds[name], merged, owner)  # detect a wrong quick section without --quick too
    return replace(typed if quick else _read(kinds[name], found, owner), is_quick=quick)


def _chosen(problems: Mapping[str, Any], names: list[Any], owner: str) -> dict[str, Any]:
    unknown = [name for name in names if not isinstance(name, str) or name not in problems]
    if unknown:
        known = ", ".join(map(str, problems))[:300]
        raise _file_error(owner, "quick.problems", f"names {repr(unknown[0])[:60]}; use some of {known}.")
    return {name: problems[name] for name in names}


def _read(kind: type[Spec], given: dict[str, Any], owner: str) -> Spec:
    """Return the settings in a mapping, checked by the annotations of their class."""
    problems = given.get("problems")
    parts: list[tuple[str, type[Any], Any]] = [("", kind, given)]
    for name, one in problems.items() if isinstance(problems, dict) else ():
        if isinstance(one, dict) and isinstance(one.get("data"), str):
            one["data"] = [one["data"]]
        parts.insert(0, (f"problems.{name}.", ProblemSpec, one))  # alone, so that an error names the problem
    for prefix, part, settings in parts:
        try:
            found = msgspec.convert(settings, part)
        except msgspec.ValidationError as error:
            if isinstance(cause := error.__cause__, InvalidInputError):
                raise DataFileError(f"{owner}: {cause}", param=cause.param) from None
            words, _, place = str(error).partition(" - at ")
            place = place.rpartition("`$")[2].strip(".`")
            field = re.fullmatch("Object (contains unknown|missing required) field `(.{1,60}).*`", words)
            if field:
                place = f"{place}.{field[2]}".lstrip(".")
                words = "is missing" if field[1] == "missing required" else "is an unknown key; see docs/experiments.md"
            else:
                words = f"{words[:1].lower()}{words[1:]}" + (". Put quotes around it" if "`str`, got" in words else "")
            raise _file_error(owner, f"{prefix}{place}".rstrip("."), f"{words}.") from None
    spec: Spec = found
    return spec
