"""The audit record, read strictly: every key is checked before a report shows anything of it.

An error names the key (``attacks[2].clean_low``) and the kind of value found, never a text.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vecveil.errors import DataFileError, InvalidInputError, VecveilError, message
from vecveil.report.reading import Node, Said

__all__ = ["SCHEMA", "Attack", "Audit", "Figure", "Guarantee", "Term", "Utility", "parse", "read"]

SCHEMA = "vecveil.audit/1"
KINDS = ("formal", "empirical", "obfuscation")
_TEXTS = ("total", "with_concept", "without_concept", "vocabulary", "token_instances", "emptied")


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric of one attack on protected and on clean vectors; higher means more leakage.

    ``None`` stands for what the audit could not measure, such as an AUC where one class is absent.
    """

    metric: str
    value: float | None
    low: float | None
    high: float | None
    chance: float | None
    clean: float | None
    clean_low: float | None
    clean_high: float | None


@dataclass(frozen=True, slots=True)
class Attack:
    name: str
    family: str
    figure: Figure
    n: int
    adaptive: bool
    seconds: float
    description: str
    also: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class Utility:
    key: str
    label: str
    metric: str
    clean: float | None
    value: float | None
    relative: float | None
    low: float | None
    high: float | None
    n: int | None
    sides: str


@dataclass(frozen=True, slots=True)
class Guarantee:
    kind: str
    statement: str
    epsilon: float | None
    unit: str | None
    metric: str | None
    neighbours: str | None
    epsilon_euclidean_worst: float | None
    hidden_directions: int | None
    promised: tuple[str, ...]
    not_promised: tuple[str, ...]
    conditional_on: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Term:
    term: str | None
    count: int
    clean: float | None
    value: float | None
    chance: float | None


@dataclass(frozen=True, slots=True)
class Audit:
    """A checked audit record."""

    vecveil: str
    created: str
    command: str | None
    concept: str
    method: str
    parameters: Mapping[str, Any]
    encoder: Mapping[str, Any] | None
    randomness: str
    texts: Mapping[str, int]
    split: Mapping[str, Any]
    guarantee: Guarantee
    utility: tuple[Utility, ...]
    attacks: tuple[Attack, ...]
    worst: Attack
    terms: tuple[Term, ...]
    limits: tuple[str, ...]
    seed: int
    tier: str
    seconds: float


def _figure(node: Node, low: float, high: float) -> Figure:
    within: dict[str, Any] = {"low": low, "high": high}
    figure = Figure(
        metric=node.text("metric"),
        value=node.maybe("value", node.number, **within),
        low=node.maybe("low", node.number, **within),
        high=node.maybe("high", node.number, **within),
        chance=node.maybe("chance", node.number, **within),
        clean=node.maybe("clean", node.number, **within),
        clean_low=node.maybe("clean_low", node.number, **within),
        clean_high=node.maybe("clean_high", node.number, **within),
    )
    for low_key, high_key in (("low", "high"), ("clean_low", "clean_high")):
        lower, upper = getattr(figure, low_key), getattr(figure, high_key)
        if lower is not None and upper is not None and lower > upper:
            raise node.fail(low_key, f"at most `{high_key}`", Said("a larger number"))
    return figure


def _attack(node: Node) -> Attack:
    return Attack(
        name=node.text("name"),
        family=(family := node.text("family")),
        figure=_figure(node, 0.0 if family == "token-inference" else -1.0, 1.0),
        n=node.count("n"),
        adaptive=node.flag("adaptive"),
        seconds=node.number("seconds", low=0),
        description=node.text("description"),
        also=tuple(_figure(each, -math.inf, math.inf) for each in node.children("also")),
    )


def _exceeds(one: Figure, other: Figure) -> bool:
    return one.value is not None and other.value is not None and one.value > other.value + 1e-12


def _worst(root: Node, attacks: tuple[Attack, ...]) -> Attack:
    """Return the attack that ``worst`` names, having checked that no other one did better."""
    name = root.text("worst")
    named = [a for a in attacks if a.name == name and a.family == "token-inference"]
    if len(named) != 1:
        raise root.fail(
            "worst", "the name of one token-inference attack", Said(f"{len(named)} such attacks")
        )
    worst = named[0]
    for missing in ("value", "low", "high", "chance", "clean", "clean_low", "clean_high"):
        if getattr(worst.figure, missing) is None:
            key = f"attacks[{attacks.index(worst)}].{missing}"
            raise root.fail(key, "a number for the attack that `worst` names", None)
    for other in attacks:
        figures = (other.figure, *other.also) if other.family == "token-inference" else ()
        for figure in figures:
            if figure.metric == worst.figure.metric and _exceeds(figure, worst.figure):
                raise root.fail(
                    "worst",
                    "the token-inference attack with the highest value",
                    Said("an attack that another one exceeds"),
                )
    return worst


def _utility(key: str, node: Node) -> Utility:
    sides = node.text("sides")
    if sides not in ("both", "documents"):
        raise node.fail("sides", "'both' or 'documents'", Said("another value"))
    return Utility(
        key=key,
        label=node.text("label"),
        metric=node.text("metric"),
        clean=node.maybe("clean", node.number),
        value=node.maybe("value", node.number),
        relative=node.maybe("relative", node.number),
        low=node.maybe("low", node.number),
        high=node.maybe("high", node.number),
        n=node.maybe("n", node.count),
        sides=sides,
    )


def _guarantee(node: Node) -> Guarantee:
    kind = node.text("kind")
    if kind not in KINDS:
        raise node.fail("kind", f"one of {', '.join(KINDS)}", Said("another value"))
    return Guarantee(
        kind=kind,
        statement=node.text("statement"),
        epsilon=node.maybe("epsilon", node.number, low=0),
        unit=node.maybe("unit", node.text),
        metric=node.maybe("metric", node.text),
        neighbours=node.maybe("neighbours", node.text),
        epsilon_euclidean_worst=node.maybe("epsilon_euclidean_worst", node.number, low=0),
        hidden_directions=node.maybe("hidden_directions", node.count),
        promised=node.texts("promised"),
        not_promised=node.texts("not_promised"),
        conditional_on=node.texts("conditional_on"),
    )


def _term(node: Node) -> Term:
    shares: dict[str, Any] = {"low": 0, "high": 1}
    return Term(
        term=node.maybe("term", node.text),
        count=node.count("count"),
        clean=node.maybe("clean", node.number, **shares),
        value=node.maybe("value", node.number, **shares),
        chance=node.maybe("chance", node.number, **shares),
    )


def _check_schema(root: Node) -> None:
    schema = root.text("schema")
    if schema != SCHEMA:
        known = (
            schema if re.fullmatch(r"vecveil\.[a-z]{1,20}/\d{1,4}", schema) else "another schema"
        )
        raise root.fail(
            "schema", SCHEMA, Said(known), "Use the version of vecveil that wrote the record."
        )


def parse(
    record: Any, *, owner: str = "render_audit", error: type[VecveilError] = InvalidInputError
) -> Audit:
    """Return the checked record; raises ``error`` with the key of the first thing that is wrong."""
    root = Node(record, "", owner, error)
    _check_schema(root)
    texts, split, encoder = root.child("texts"), root.child("split"), None
    if root.get("encoder") is not None:
        node = root.child("encoder")
        encoder = {key: node.maybe(key, node.text) for key in ("name", "fingerprint", "precision")}
    utility = root.child("utility")
    attacks = tuple(_attack(node) for node in root.children("attacks"))
    names = [attack.name for attack in attacks]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise root.fail(f"attacks[{i}].name", "unique", Said("the name of an earlier attack"))
    return Audit(
        vecveil=root.text("vecveil"),
        created=root.text("created"),
        command=root.maybe("command", root.text),
        concept=root.text("concept"),
        method=root.text("method"),
        parameters=root.child("parameters").data,
        encoder=encoder,
        randomness=root.text("randomness"),
        texts={key: texts.count(key) for key in _TEXTS if key != "emptied" or key in texts.data},
        split={
            "unit": split.text("unit"),
            **{key: split.count(key) for key in ("groups", "train", "validation", "test")},
        },
        guarantee=_guarantee(root.child("guarantee")),
        utility=tuple(_utility(str(key), utility.child(key)) for key in utility.data),
        attacks=attacks,
        worst=_worst(root, attacks),
        terms=tuple(_term(node) for node in root.children("terms")),
        limits=root.texts("limits"),
        seed=int(root.number("seed")),
        tier=root.text("tier"),
        seconds=root.number("seconds", low=0),
    )


def read(path: str | os.PathLike[str], *, owner: str = "write_audit_html") -> Audit:
    """Return the checked record in the file ``path``.

    Raises:
        DataFileError: the file cannot be read, is not UTF-8 JSON, or a key is missing or wrong.
    """
    fix = "Pass the audit.json that vecveil wrote."
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        why = problem.strerror or type(problem).__name__
        raise DataFileError(message(owner, "record", "a readable file", why, fix=fix)) from None
    except (ValueError, RecursionError):
        raise DataFileError(
            message(owner, "record", "a UTF-8 JSON file", "a file that is not", fix=fix)
        ) from None
    return parse(record, owner=owner, error=DataFileError)
