"""The parts of an audit record as they are read: each is checked, key by key, before it is shown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from vecveil.report.reading import Node, Said

__all__ = [
    "FAMILIES",
    "Attack",
    "Figure",
    "Framework",
    "Guarantee",
    "Lint",
    "Reconstruction",
    "Skipped",
    "Term",
    "Utility",
    "read_attack",
    "read_family",
    "read_framework",
    "read_guarantee",
    "read_reconstruction",
    "read_term",
    "read_utility",
]

FAMILIES = (
    "token-inference",
    "probe",
    "candidates",
    "averaging",
    "alignment",
    "reconstruction",
    "held-out-terms",
)
GUARANTEES = ("formal", "empirical", "obfuscation")
SLACK = 1e-3
"""How far ``over_chance`` may be from what value and chance give: records may hold rounded figures."""


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

    @property
    def over_chance(self) -> float | None:
        """Where the value lies between chance (0) and certainty (1)."""
        return relative_to_chance(self.value, self.chance)

    @property
    def clean_over_chance(self) -> float | None:
        """The same for clean vectors."""
        return relative_to_chance(self.clean, self.chance)


@dataclass(frozen=True, slots=True)
class Attack:
    name: str
    family: str
    figure: Figure
    n: int
    adaptive: bool
    seconds: float
    description: str
    cost: str
    also: tuple[Figure, ...]

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The main figure and the others."""
        return (self.figure, *self.also)

    @property
    def strength(self) -> float:
        """What ranks it in its family: over chance, or the figure without chance or in token inference."""
        over = None if self.family == "token-inference" else self.figure.over_chance
        ranked = self.figure.value if over is None else over
        return -math.inf if ranked is None else ranked


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
class Lint:
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Framework:
    framework: str
    item: str
    title: str
    finding: str
    attacks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reconstruction:
    attack: str
    original: str
    clean: str | None
    protected: str | None


@dataclass(frozen=True, slots=True)
class Skipped:
    attack: str
    family: str
    reason: str


def relative_to_chance(value: float | None, chance: float | None) -> float | None:
    """Return (value - chance) / (1 - chance), or None where there is no such figure."""
    if value is None or chance is None or chance >= 1 or value > 1 + 1e-9:
        return None
    return (value - chance) / (1 - chance)


def _figure(node: Node, low: float, high: float) -> Figure:
    within: dict[str, Any] = {"low": low, "high": high}
    keys = ("value", "low", "high", "chance", "clean", "clean_low", "clean_high")
    shares = {key: node.maybe(key, node.number, **within) for key in keys}
    figure = Figure(node.text("metric"), **shares)
    for low_key, high_key in (("low", "high"), ("clean_low", "clean_high")):
        lower, upper = getattr(figure, low_key), getattr(figure, high_key)
        if lower is not None and upper is not None and lower > upper:
            raise node.fail(low_key, f"at most `{high_key}`", Said("a larger number"))
    return figure


def _check_over_chance(node: Node, figure: Figure) -> None:
    for key in ("over_chance", "clean_over_chance"):
        given, right = node.maybe(key, node.number), getattr(figure, key)
        if (given is None) is not (right is None) or (
            given is not None and right is not None and abs(given - right) > SLACK
        ):
            value = "clean" if key.startswith("clean") else "value"
            constraint = f"(`{value}` - `chance`) / (1 - `chance`), null where one is missing"
            raise node.fail(key, constraint, Said("something else"))


def read_family(node: Node) -> str:
    """Return the key ``family``."""
    family = node.text("family")
    if family not in FAMILIES:
        raise node.fail("family", f"one of {', '.join(FAMILIES)}", Said("another value"))
    return family


def read_attack(node: Node) -> Attack:
    """Return one entry of ``attacks``."""
    family = read_family(node)
    shares = family in ("token-inference", "averaging", "held-out-terms")
    figure = _figure(node, 0.0 if shares else -1.0, 1.0)
    _check_over_chance(node, figure)
    return Attack(
        name=node.text("name"),
        family=family,
        figure=figure,
        n=node.count("n"),
        adaptive=node.flag("adaptive"),
        seconds=node.number("seconds", low=0),
        description=node.text("description"),
        cost=node.text("cost"),
        also=tuple(_figure(each, -math.inf, math.inf) for each in node.children("also")),
    )


def read_utility(key: str, node: Node) -> Utility:
    """Return one entry of ``utility``."""
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


def read_guarantee(node: Node) -> Guarantee:
    """Return the object ``guarantee``."""
    kind = node.text("kind")
    if kind not in GUARANTEES:
        raise node.fail("kind", f"one of {', '.join(GUARANTEES)}", Said("another value"))
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


def read_term(node: Node) -> Term:
    """Return one entry of ``terms``."""
    shares: dict[str, Any] = {"low": 0, "high": 1}
    return Term(
        term=node.maybe("term", node.text),
        count=node.count("count"),
        clean=node.maybe("clean", node.number, **shares),
        value=node.maybe("value", node.number, **shares),
        chance=node.maybe("chance", node.number, **shares),
    )


def read_framework(node: Node, names: set[str]) -> Framework:
    """Return one entry of ``frameworks``; the attacks it names must be in the record."""
    attacks = node.texts("attacks")
    if not names.issuperset(attacks):
        raise node.fail("attacks", "names of attacks of the record", Said("another name"))
    return Framework(
        framework=node.text("framework"),
        item=node.text("item"),
        title=node.text("title"),
        finding=node.text("finding"),
        attacks=attacks,
    )


def read_reconstruction(node: Node, names: set[str]) -> Reconstruction:
    """Return one entry of ``reconstructions``; its attack must be in the record."""
    if (attack := node.text("attack")) not in names:
        raise node.fail("attack", "the name of an attack of the record", Said("another name"))
    return Reconstruction(
        attack=attack,
        original=node.text("original"),
        clean=node.maybe("clean", node.text),
        protected=node.maybe("protected", node.text),
    )
