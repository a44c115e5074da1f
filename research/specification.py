"""What an experiment is to measure: a YAML file, read into typed settings; unknown keys are refused.

A specification names its experiment and gives fields of that experiment's class of settings (a subclass of `Spec`).
Its section ``quick`` holds values that take the place of others in a coarse run; there a list under ``problems``
chooses some of the problems by name.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.resources
import importlib.util
import json
import sys
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from vecveil.concepts.concept_file import shared_line
from vecveil.errors import (
    DataFileError,
    InvalidInputError,
    MissingDependencyError,
    VecveilError,
    message,
    unknown_name,
)


def import_modules(names: Sequence[str]) -> None:
    """Import modules once: Python files by their path, others by their name.

    Args:
        names: paths that end in ``.py``, relative to the current folder, or names of installed modules.

    Raises:
        DataFileError: one is missing or cannot be imported.
    """
    for name in names:
        try:
            if name.endswith(".py"):
                _import_file(Path(name).resolve())
            else:
                importlib.import_module(name)
        except VecveilError:
            raise
        except Exception as error:
            raise DataFileError(
                message("experiment", "modules", "Python files or modules that can be imported", repr(name)[:80],
                        f"Importing it raised {type(error).__name__}.")
            ) from error  # fmt: skip


def _import_file(path: Path) -> None:
    name = f"vecveil_own_{path.stem}"
    held = sys.modules.get(name)
    if held is not None and getattr(held, "__file__", None) == str(path):
        return
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


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ConceptSpec:
    """What is to be hidden in a problem; several kinds are united.

    Attributes:
        terms: words and phrases.
        terms_file: a file in the data folder: JSON or YAML (a list, or groups of terms by name), or one term a line.
        groups: of the terms file; none takes all.
        spans: labels of the data set's own annotated spans; ``*`` takes all.
        gazetteer: data set -> span labels; what is annotated there so becomes terms here.
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
    """Texts, a concept in them, and what the vectors are used for.

    Attributes:
        data: one data set, or several of one kind whose texts are pooled.
        concept: what is hidden.
        utility: the data set whose task is measured; None: of the first in ``data``.
        texts: at most so many texts with the concept, and so many without, drawn by group.
    """

    data: tuple[str, ...]
    concept: ConceptSpec
    utility: str | None = None
    texts: int | None = None


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The settings that every experiment has.

    Attributes:
        experiment: its name.
        problems: by name.
        encoder: a name or folder for `vecveil.load_encoder`.
        seeds: every cell is measured with the seeds 0 to seeds - 1.
        texts: a cap on every problem's ``texts``.
        attacks: names of token-inference attacks; ``quick`` and ``full`` stand for those of a tier.
        modules: Python files or modules that register methods, attacks or data sets of one's own. They run.
        is_quick: whether this is the coarse version.
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
        """A hash of every setting."""
        return digest(json_ready(self))


def check_names(
    param: str,
    given: Iterable[str],
    known: Iterable[str],
    *,
    owner: str = "experiment",
    fix: str = "",
) -> None:
    """Raise `InvalidInputError` for the first name that is not among the known ones."""
    known = tuple(known)
    for name in given:
        if name not in known:
            raise unknown_name(owner, param, known, name, fix=fix)


def wrong(
    param: str, constraint: str, got: object, why: str = "", fix: str = ""
) -> InvalidInputError:
    """Return the error for a setting that an experiment cannot have."""
    return InvalidInputError.of("experiment", param, constraint, got, why, fix)


def whole_numbers(options: Mapping[str, float]) -> dict[str, Any]:
    """Return options with 100.0 as 100: counts are counts."""
    return {key: int(value) if value == int(value) else value for key, value in options.items()}


def json_ready(settings: Any) -> Any:
    """Return the fields of a dataclass as JSON holds them."""
    return json.loads(json.dumps(dataclasses.asdict(settings)))


def digest(settings: Any) -> str:
    """Return a hash of JSON-ready settings, the same whatever their order."""
    text = json.dumps(settings, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_yaml(text: str, *, owner: str) -> Any:
    """Return what a YAML text holds."""
    try:
        import yaml
    except ImportError as error:
        raise MissingDependencyError("Experiments", "PyYAML", "experiments") from error
    try:
        shared = shared_line(yaml, text)
        if shared is None:
            return yaml.safe_load(text)
        where = f", anchors or aliases in line {shared}"
    except (ValueError, TypeError, RecursionError):  # a date that is none, a number of 5,000 digits
        where = ""
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
    raise DataFileError.of(owner, "file", "YAML", f"something else{where}")


def shipped_spec(name: str) -> str:
    """Return the text of the specification that comes with an experiment."""
    folder = importlib.resources.files("research") / "specs"
    return (folder / f"{name}.yaml").read_text(encoding="utf-8")


def parse_spec(text: str, kinds: Mapping[str, type[Spec]], *, quick: bool, owner: str) -> Spec:
    """Return the settings in a YAML text.

    Args:
        kinds: the class of settings of each experiment by name.
        quick: apply the section ``quick``.

    Raises:
        DataFileError: not YAML, an unknown experiment or key, or a value of another type; names the key.
    """
    found = read_yaml(text, owner=owner)
    if not isinstance(found, dict) or "experiment" not in found:
        raise DataFileError.of(owner, "experiment", "given in a mapping of keys", "none")
    name = found["experiment"]
    if not isinstance(name, str) or name not in kinds:
        known = "one of " + ", ".join(sorted(kinds))
        raise DataFileError.of(owner, "experiment", known, repr(name)[:60])
    coarse = found.pop("quick", None) or {}
    if not isinstance(coarse, dict):
        raise DataFileError.of(owner, "quick", "a mapping", type(coarse).__name__)
    if quick and not coarse:
        raise DataFileError.of(owner, "quick", "a section of the file for --quick", "nothing",
                               fix="Leave --quick out, or say in it what the coarse version changes.")  # fmt: skip
    if "is_quick" in found or "is_quick" in coarse:
        raise DataFileError.of(owner, "is_quick", "left out", "given", "--quick sets it.")
    modules = found.get("modules") or []
    import_modules([modules] if isinstance(modules, str) else [str(one) for one in modules])
    merged = {**found, **coarse}
    chosen = coarse.get("problems")
    if isinstance(chosen, list):
        merged["problems"] = _chosen(found.get("problems") or {}, chosen, owner)
    typed = _typed(
        kinds[name], merged, owner, ""
    )  # a wrong quick section is found without --quick too
    if not quick:
        typed = _typed(kinds[name], found, owner, "")
    return dataclasses.replace(typed, is_quick=quick)


def _chosen(problems: Mapping[str, Any], names: list[Any], owner: str) -> dict[str, Any]:
    unknown = [name for name in names if name not in problems]
    if unknown:
        known = "of names among " + ", ".join(map(str, problems))
        raise DataFileError.of(owner, "quick.problems", known, repr(unknown[0])[:60])
    return {name: problems[name] for name in names}


def _typed(kind: type[T], given: Any, owner: str, path: str) -> T:
    """Return a dataclass from a mapping, its fields checked by their annotations."""
    if not isinstance(given, dict):
        raise DataFileError.of(owner, path or "file", "a mapping of keys", type(given).__name__)
    hints = typing.get_type_hints(kind)
    known = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    names = ", ".join(sorted(known if path else {*known, "quick"} - {"is_quick"}))
    for key in given:
        if key not in known:
            raise DataFileError.of(owner, f"{path}{key}"[:80], "a known key", "an unknown one",
                                   fix=f"Known are {names}.")  # fmt: skip
    missing = [
        name
        for name, f in known.items()
        if name not in given
        and f.default is dataclasses.MISSING
        and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise DataFileError.of(owner, f"{path}{missing[0]}", "given", "nothing")
    values: dict[str, Any] = {}
    for key, value in given.items():
        if value == 0 and known[key].metadata.get("least") == 0 and value is not False:
            values[key] = 0
        else:
            values[key] = _value(hints[key], value, owner, f"{path}{key}")
    try:
        return kind(**values)
    except InvalidInputError as error:
        raise DataFileError(f"{owner}: {error}") from None


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
            raise DataFileError.of(owner, path, "a mapping", type(given).__name__)
        return {str(k): _value(inside[1], v, owner, f"{path}.{k}") for k, v in given.items()}
    if dataclasses.is_dataclass(hint):
        return _typed(typing.cast(type[Any], hint), given, owner, f"{path}.")
    if hint is float and isinstance(given, int) and not isinstance(given, bool):
        return float(given)
    if hint is int and not isinstance(given, bool) and isinstance(given, int) and given < 1:
        raise DataFileError.of(owner, path, "a whole number of at least 1", given)
    if not isinstance(given, hint) or (isinstance(given, bool) and hint is not bool):
        names = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
        fix = "Put quotes around it." if hint is str else ""
        raise DataFileError.of(
            owner, path, names.get(hint, str(hint)), type(given).__name__, fix=fix
        )
    return given
