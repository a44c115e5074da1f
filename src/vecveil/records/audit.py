"""The record of an audit, schema ``vecveil.audit/2`` (docs/formats.md). Reading leaves unknown keys out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from vecveil.records.reading import Count, Place, Record, Scalar, Share, Within

Family: TypeAlias = Literal[
    "token-inference", "probe", "candidates", "averaging", "alignment", "reconstruction", "held-out-terms"
]
FAMILIES: tuple[Family, ...] = Family.__args__  # type: ignore[attr-defined]
Number: TypeAlias = float | None
SEALED = "sealed index"
"""Value of the parameter ``mode`` in the audit of the storage of a sealed index."""
ROUNDED = 1e-3
"""Tolerance of ``over_chance`` against value and chance: records may hold rounded figures."""


def _over_chance(value: float | None, chance: float | None) -> float | None:
    """Return (value - chance) / (1 - chance), or None where there is no such figure."""
    # A value above 1 is no share, and has no position between chance and certainty.
    if value is None or chance is None or chance >= 1 or value > 1 + 1e-9:
        return None
    return (value - chance) / (1 - chance)


@dataclass(frozen=True, kw_only=True)
class LeakageFigure(Record):
    """A metric of an attack on protected and on clean vectors; higher means more leakage.

    None stands for what the audit could not measure, such as an AUC where one class is absent.
    """

    metric: str
    value: Number
    low: Number
    high: Number
    chance: Number
    clean: Number
    clean_low: Number
    clean_high: Number

    @property
    def over_chance(self) -> float | None:
        """Position of the value between chance (0) and certainty (1)."""
        return _over_chance(self.value, self.chance)

    @property
    def clean_over_chance(self) -> float | None:
        """Position of the clean value between chance (0) and certainty (1)."""
        return _over_chance(self.clean, self.chance)

    def check(self, place: Place) -> None:
        """Raise if the lower end of an interval is above the upper one."""
        for low, high in (("low", "high"), ("clean_low", "clean_high")):
            lower, upper = getattr(self, low), getattr(self, high)
            if lower is not None and upper is not None and lower > upper:
                raise place.key(low).fail(f"at most `{high}`", "a larger number")


@dataclass(frozen=True, kw_only=True)
class AttackRecord(LeakageFigure):
    """An attack: its main figure, and its other figures in ``also``."""

    name: str
    family: Family
    n: Count
    adaptive: bool
    seconds: Annotated[float, Within(0)]
    description: str
    cost: str
    also: Sequence[LeakageFigure]

    @property
    def figures(self) -> tuple[LeakageFigure, ...]:
        """The main figure and the others."""
        return (self, *self.also)

    @property
    def strength(self) -> float:
        """Rank of the attack in its family: the value of token inference, else the position over chance."""
        # Chance differs between attacks of a family (one of ten candidates, or of thousands), hence the
        # position over chance. Token inference has one chance level: the highest R-precision decides.
        over = None if self.family == "token-inference" else self.over_chance
        ranked = self.value if over is None else over
        return -math.inf if ranked is None else ranked

    def to_record(self) -> dict[str, Any]:
        """Return the attack as a JSON object."""
        over = {"over_chance": self.over_chance, "clean_over_chance": self.clean_over_chance}
        return super().to_record() | over

    def check(self, place: Place) -> None:
        """Raise if a figure is out of bounds or contradicts another."""
        # Shares of words cannot be negative; a figure of another family may be a cosine or a correlation.
        shares = self.family in ("token-inference", "averaging", "held-out-terms")
        bounds = Within(0.0 if shares else -1.0, 1.0)
        for key in ("value", "low", "high", "chance", "clean", "clean_low", "clean_high"):
            if getattr(self, key) is not None:
                place.key(key).number(bounds)
        super().check(place)
        for key, source in (("over_chance", "value"), ("clean_over_chance", "clean")):
            given, right = place.key(key), getattr(self, key)
            # Derived figures are saved for other programs; reading computes them anew and compares.
            number = None if given.value is None else given.number(Within())
            if (number is None) is not (right is None) or abs((number or 0) - (right or 0)) > ROUNDED:
                formula = f"(`{source}` - `chance`) / (1 - `chance`), null where one is missing"
                raise given.fail(formula, "another value")


@dataclass(frozen=True)
class FamilyRecord(Record):
    """A family of attacks, and the name of its strongest one."""

    family: Family
    worst: str


@dataclass(frozen=True)
class UtilityRecord(Record):
    """A utility measure, with both sides of each comparison protected or the documents alone."""

    label: str
    metric: str
    clean: Number
    value: Number
    relative: Number
    low: Number
    high: Number
    n: Count | None
    sides: Literal["both", "documents"]


@dataclass(frozen=True)
class GuaranteeRecord(Record):
    """The guarantee of the audited protector, as `vecveil.accounting.Guarantee.to_record` writes it."""

    kind: Literal["formal", "empirical", "obfuscation"]
    statement: str
    epsilon: Annotated[float, Within(0)] | None
    unit: str | None
    metric: str | None
    neighbours: str | None
    epsilon_euclidean_worst: Annotated[float, Within(0)] | None
    hidden_directions: Count | None
    promised: Sequence[str]
    not_promised: Sequence[str]
    conditional_on: Sequence[str]
    epsilon_euclidean_best: Number
    dimension: Number
    noise_norm: Number
    delta: Number
    mu: Number
    mu_euclidean_worst: Number


@dataclass(frozen=True)
class EncoderRecord(Record):
    """The encoder of the audited vectors, with the fields of `vecveil.protector.protector.EncoderInfo`."""

    name: str | None
    fingerprint: str | None
    precision: str | None
    probe: Sequence[float] = ()
    norms: Sequence[float] = ()
    options: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class TextCounts(Record):
    """Counts of texts and of the concept's words in them."""

    total: Count
    with_concept: Count
    without_concept: Count
    words: Count
    word_occurrences: Count
    vocabulary: Count
    token_instances: Count
    emptied: Count


@dataclass(frozen=True)
class SplitCounts(Record):
    """The split of the texts that hold an attacked word."""

    unit: str
    groups: Count
    train: Count
    validation: Count
    test: Count


@dataclass(frozen=True)
class TermRecord(Record):
    """The share of a term's test occurrences that the worst attack recovered; ``term`` None: anonymous."""

    term: str | None
    count: Count
    clean: Share | None
    value: Share | None
    chance: Share | None


@dataclass(frozen=True)
class LearningPoint(Record):
    """R-precision of the worst attack after learning from so many texts."""

    texts: Count
    value: Share
    low: Share
    high: Share


@dataclass(frozen=True)
class LintWarning(Record):
    """A warning about how the vectors are kept."""

    code: str
    message: str


@dataclass(frozen=True)
class FrameworkFinding(Record):
    """The bearing of the figures on one item of a published framework."""

    framework: str
    item: str
    title: str
    finding: str
    attacks: Sequence[str]


@dataclass(frozen=True)
class ReconstructionRecord(Record):
    """A text, and the texts that an attack wrote from its clean and its protected vector."""

    attack: str
    original: str
    clean: str | None
    protected: str | None


@dataclass(frozen=True)
class SkippedAttack(Record):
    """An attack that was not run, and why, as a sentence and as a code."""

    attack: str
    family: Family
    reason: str
    code: str


@dataclass(frozen=True, kw_only=True)
class AnonymityFigure(LeakageFigure):
    """A figure of the attack ``attack``: its metric, ``n`` and the unit that is resampled for the interval.

    A subject is the person that texts are about.
    """

    attack: str
    unit: Literal["text", "subject"]
    n: Count


@dataclass(frozen=True)
class AnonymityCriterion(Record):
    """One criterion with the figures that measure it, or the reason why there are none."""

    criterion: Literal["singling-out", "linkability", "inference"]
    figures: Sequence[AnonymityFigure]
    missing: str | None

    def check(self, place: Place) -> None:
        """Raise unless there are either figures or a reason."""
        if bool(self.figures) is (self.missing is not None):
            raise place.key("missing").fail("a reason without figures, else null", "another value")


@dataclass(frozen=True)
class AnonymityRecord(Record):
    """The three criteria of the Article 29 Working Party's opinion 05/2014 on anonymisation techniques.

    ``subjects`` counts the subjects of the judged texts; None if the audit does not know whose the texts are.
    """

    SCHEMA: ClassVar[str] = "vecveil.anonymity/1"

    subjects: Count | None
    criteria: Sequence[AnonymityCriterion]


@dataclass(frozen=True, kw_only=True)
class AuditRecord(Record):
    """The record of an audit. ``method`` and ``guarantee`` are None for a store."""

    SCHEMA: ClassVar[str] = "vecveil.audit/2"

    vecveil: str
    kind: Literal["protector", "store"]
    created: str
    command: str | None
    concept: str
    method: str | None
    parameters: Mapping[str, Any]
    encoder: EncoderRecord | None
    randomness: str | None
    texts: TextCounts
    split: SplitCounts
    guarantee: GuaranteeRecord | None
    concept_distance: Mapping[str, Any] | None
    utility: Mapping[str, UtilityRecord]
    attacks: Sequence[AttackRecord]
    worst: str
    learning_curve: Sequence[LearningPoint]
    forecast: LearningPoint | None
    families: Sequence[FamilyRecord]
    anonymity: AnonymityRecord
    terms: Sequence[TermRecord]
    skipped: Sequence[SkippedAttack]
    lint: Sequence[LintWarning]
    frameworks: Sequence[FrameworkFinding]
    reconstructions: Sequence[ReconstructionRecord]
    limits: Sequence[str]
    seed: int
    tier: str
    seconds: Annotated[float, Within(0)]

    @property
    def is_store(self) -> bool:
        """True for the audit of a store, whose protector is unknown."""
        return self.kind == "store"

    @property
    def is_sealed(self) -> bool:
        """True for the audit of the storage of a sealed index, by attackers without the key."""
        return self.is_store and self.parameters.get("mode") == SEALED

    @property
    def has_clean(self) -> bool:
        """True if any figure was measured on clean vectors too."""
        return any(each.clean is not None for attack in self.attacks for each in attack.figures)

    @property
    def worst_attack(self) -> AttackRecord:
        """The token-inference attack with the highest R-precision."""
        return next(attack for attack in self.attacks if attack.name == self.worst)

    @property
    def strongest(self) -> dict[str, AttackRecord]:
        """The strongest attack of each family, in the order of `FAMILIES`."""
        # `worst` decides for token inference even if `families` has no entry for it.
        names = {entry.family: entry.worst for entry in self.families} | {"token-inference": self.worst}
        named = {attack.name: attack for attack in self.attacks}
        return {family: named[names[family]] for family in FAMILIES if family in names}

    def members(self, family: str) -> tuple[AttackRecord, ...]:
        """Return the attacks of a family, the strongest first."""
        members = [attack for attack in self.attacks if attack.family == family]
        strongest = self.strongest.get(family)
        # The named attack first, whatever rounding does to the strengths of equals.
        return tuple(sorted(members, key=lambda attack: (attack is not strongest, -attack.strength)))

    def check(self, place: Place) -> None:
        """Raise if parts of the record contradict each other."""
        # Reports trust these fields without further checks: what contradicts the kind must not reach a page.
        if self.is_store:
            for key in ("method", "guarantee", "concept_distance"):
                if (given := place.key(key)).value is not None:
                    raise given.fail("null in the audit of a store")
        else:
            for key in ("method", "randomness", "guarantee"):
                if getattr(self, key) is None:
                    raise place.key(key).fail("given in the audit of a protector")
        names = [attack.name for attack in self.attacks]
        for i, attack in enumerate(place.key("attacks").items()):
            if names.index(names[i]) < i:
                raise attack.key("name").fail("unique", "the name of an earlier attack")
        self._check_worst(place)
        self._check_families(place)
        for finding in place.key("frameworks").items():
            if not set(finding.value["attacks"]) <= set(names):
                raise finding.key("attacks").fail("names of attacks of the record", "another name")
        for criterion in place.key("anonymity").key("criteria").items():
            for figure in criterion.key("figures").items():
                if figure.value["attack"] not in names:
                    raise figure.key("attack").fail("the name of an attack of the record", "another name")
        for text in place.key("reconstructions").items():
            if text.value["attack"] not in names:
                raise text.key("attack").fail("the name of an attack of the record", "another name")

    def _check_worst(self, place: Place) -> None:
        """Raise unless ``worst`` names a complete figure that no other token-inference attack exceeds."""
        tried = [attack for attack in self.attacks if attack.family == "token-inference"]
        worst = next((attack for attack in tried if attack.name == self.worst), None)
        if worst is None:
            raise place.key("worst").fail("the name of one token-inference attack", "another name")
        clean = ("clean", "clean_low", "clean_high")
        has_clean = any(getattr(worst, key) is not None for key in clean)
        for key in ("value", "low", "high", "chance", *(clean if has_clean else ())):
            if getattr(worst, key) is None:
                attack = place.key("attacks").items()[list(self.attacks).index(worst)]
                raise attack.key(key).fail("a number for the attack that `worst` names")
        # Every figure in the metric of `worst`: an edited record must not hide a stronger attack.
        for rival in (each for attack in tried for each in attack.figures):
            if rival.metric == worst.metric and (rival.value or 0) > (worst.value or 0) + 1e-12:
                constraint = "the token-inference attack with the highest value"
                raise place.key("worst").fail(constraint, "an attack that another one exceeds")

    def _check_families(self, place: Place) -> None:
        """Raise unless every tried family names its strongest attack once."""
        # Named by `worst` already: an entry for it is optional, and must agree.
        seen = {"token-inference"}
        for entry, at in zip(self.families, place.key("families").items(), strict=True):
            if entry.family in seen and (entry.family, entry.worst) != ("token-inference", self.worst):
                if entry.family == "token-inference":
                    raise at.key("worst").fail("the attack that `worst` names", "another one")
                raise at.key("family").fail("another one than those before", "one of them again")
            members = [attack for attack in self.attacks if attack.family == entry.family]
            named = next((attack for attack in members if attack.name == entry.worst), None)
            if named is None:
                raise at.key("worst").fail("the name of an attack of the family", "another name")
            if any(attack.strength > named.strength + 1e-12 for attack in members):
                constraint = "the attack of its family that comes farthest from chance to certainty"
                raise at.key("worst").fail(constraint, "an attack that another one exceeds")
            seen.add(entry.family)
        for attack in self.attacks:
            if attack.family not in seen:
                constraint = "a list with one entry for every family that was tried"
                raise place.key("families").fail(constraint, f"a list without {attack.family}")
