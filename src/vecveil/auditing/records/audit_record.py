"""The record of an audit, schema ``vecveil.audit/2`` (docs/formats.md). Reading ignores unknown keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.special import expit, logit

from vecveil.schema import Conflict, Count, Finite, Positive, Record, Scalar, Share

Family: TypeAlias = Literal[
    "token-inference",
    "probe",
    "candidates",
    "averaging",
    "alignment",
    "reconstruction",
    "held-out-terms",
    "whole-vocabulary",
    "membership",
]
FAMILIES: tuple[Family, ...] = Family.__args__  # type: ignore[attr-defined]
COUNTS_WORDS: tuple[Family, ...] = ("token-inference", "averaging", "held-out-terms", "whole-vocabulary")
"""Families whose figures are shares of word occurrences, which ``n`` counts; the ``n`` of others counts texts."""
Number: TypeAlias = Finite | None
SEALED = "sealed index"
"""Value of the parameter ``mode`` in the audit of a sealed index's storage."""
ROUNDED = 1e-3
"""Tolerance of ``over_chance`` against value and chance: records may contain rounded figures."""


def over_chance(value: float | None, chance: float | None) -> float | None:
    """Return (value - chance) / (1 - chance), or None if undefined."""
    # A value above 1 is no share, and has no position between chance and certainty.
    if value is None or chance is None or chance >= 1 or value > 1 + 1e-9:
        return None
    return (value - chance) / (1 - chance)


class LeakageFigure(Record, frozen=True, kw_only=True):
    """A metric of an attack on protected and on clean vectors; higher means more leakage.

    None marks what the audit could not measure, such as an AUC with one class absent.
    """

    metric: str
    value: Number
    low: Number
    high: Number
    chance: Number
    clean: Number
    clean_low: Number
    clean_high: Number

    def __post_init__(self) -> None:
        for low, high in ((self.low, self.high), (self.clean_low, self.clean_high)):
            if low is not None and high is not None and low > high:
                raise Conflict("low" if low is self.low else "clean_low", "the interval ends before it begins")

    @property
    def position(self) -> float | None:
        """Position of the value between chance (0) and certainty (1)."""
        return over_chance(self.value, self.chance)

    @property
    def clean_position(self) -> float | None:
        """Position of the clean value between chance (0) and certainty (1)."""
        return over_chance(self.clean, self.chance)


class AttackRecord(LeakageFigure, frozen=True, kw_only=True, omit_defaults=True):
    """An attack: its main figure, and its other figures in ``also``.

    Attributes:
        over_chance, clean_over_chance: `position` and `clean_position`, saved for other programs.
        converged: whether the last two thirds of its training added at most .01 on validation texts; None for an attack
            that is not trained in steps.
    """

    name: str
    family: Family
    n: Count
    adaptive: bool
    seconds: Positive
    description: str
    cost: str
    also: tuple[LeakageFigure, ...]
    over_chance: Number
    clean_over_chance: Number
    converged: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        # Shares of words cannot be negative; a figure of another family may be a cosine or a correlation.
        least = 0.0 if self.family in COUNTS_WORDS else -1.0
        for key in ("value", "low", "high", "chance", "clean", "clean_low", "clean_high"):
            figure = getattr(self, key)
            if figure is not None and not least - 1e-9 <= figure <= 1 + 1e-9:
                raise Conflict(key, f"expected a number from {least:g} to 1")
        for key, right in (("over_chance", self.position), ("clean_over_chance", self.clean_position)):
            given = getattr(self, key)
            if (given is None) is not (right is None) or abs((given or 0) - (right or 0)) > ROUNDED:
                raise Conflict(key, "not the position of the figure between `chance` and 1")

    @property
    def figures(self) -> tuple[LeakageFigure, ...]:
        return (self, *self.also)

    @property
    def strength(self) -> float:
        """Rank of the attack in its family: the value of token inference, else the position over chance."""
        # Chance differs between attacks of a family (one of ten candidates, or of thousands), hence the
        # position over chance. Token inference has one chance level: the highest R-precision decides.
        over = None if self.family == "token-inference" else self.position
        ranked = self.value if over is None else over
        return -math.inf if ranked is None else ranked


class FamilyRecord(Record, frozen=True):
    """A family of attacks, and the name of its strongest one."""

    family: Family
    worst: str


class UtilityRecord(Record, frozen=True):
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


class GuaranteeRecord(Record, frozen=True):
    """The guarantee of the audited protector, as `vecveil.accounting.Guarantee.to_record` writes it."""

    kind: Literal["formal", "empirical", "obfuscation"]
    statement: str
    epsilon: Positive | None
    unit: str | None
    metric: str | None
    neighbours: str | None
    epsilon_euclidean_worst: Positive | None
    hidden_directions: Count | None
    promised: tuple[str, ...]
    not_promised: tuple[str, ...]
    conditional_on: tuple[str, ...]
    epsilon_euclidean_best: Number
    dimension: Count | None
    noise_norm: Number
    delta: Number
    mu: Number
    mu_euclidean_worst: Number


class EncoderRecord(Record, frozen=True):
    """The encoder of the audited vectors, with the fields of `vecveil.privacy.protector.EncoderInfo`."""

    name: str | None
    fingerprint: str | None
    precision: str | None
    probe: tuple[Finite, ...]
    norms: tuple[Finite, ...]
    options: Mapping[str, Scalar]


class TextCounts(Record, frozen=True):
    """Counts of texts and of the concept's words in them."""

    total: Count
    with_concept: Count
    without_concept: Count
    words: Count
    word_occurrences: Count
    vocabulary: Count
    token_instances: Count
    emptied: Count


class SplitCounts(Record, frozen=True):
    """The split of the texts that contain an attacked word."""

    unit: str
    groups: Count
    train: Count
    validation: Count
    test: Count


class TermRecord(Record, frozen=True):
    """The share of a term's test occurrences that the worst attack recovered; ``term`` None: anonymous."""

    term: str | None
    count: Count
    clean: Share | None
    value: Share | None
    chance: Share | None


class LearningPoint(Record, frozen=True):
    """R-precision of the worst attack after learning from that many texts."""

    texts: Count
    value: Share
    low: Share
    high: Share

    @property
    def cautious(self) -> float:
        """Return the log-odds midpoint of value and upper end: values were too low (benchmarks/forecast.py)."""
        return float(expit(logit(np.clip([self.value, self.high], 1e-9, 1 - 1e-9)).mean()))


class LintWarning(Record, frozen=True):
    """A warning about the storage of the vectors, or about the given texts."""

    code: str
    message: str


class FrameworkFinding(Record, frozen=True):
    """The relevance of the figures to one item of a published framework."""

    framework: str
    item: str
    title: str
    finding: str
    attacks: tuple[str, ...]


class ReconstructionRecord(Record, frozen=True):
    """A text, and the texts that an attack wrote from its clean and its protected vector."""

    attack: str
    original: str
    clean: str | None
    protected: str | None


class SkippedAttack(Record, frozen=True):
    """A skipped attack and the reason, as a sentence and as a code."""

    attack: str
    family: Family
    reason: str
    code: str


class AnonymityFigure(LeakageFigure, frozen=True, kw_only=True):
    """A figure of the attack ``attack``: its metric, ``n`` and the unit that is resampled for the interval."""

    attack: str
    unit: Literal["text", "subject"]
    n: Count


class AnonymityCriterion(Record, frozen=True):
    """One criterion with the figures that measure it, or the reason why there are none."""

    criterion: Literal["singling-out", "linkability", "inference"]
    figures: tuple[AnonymityFigure, ...]
    missing: str | None

    def __post_init__(self) -> None:
        if bool(self.figures) is (self.missing is not None):
            raise Conflict("missing", "give either figures or the reason why there are none")


class AnonymityRecord(Record, frozen=True, tag_field="schema", tag="vecveil.anonymity/1"):
    """The three criteria of the Article 29 Working Party's opinion 05/2014 on anonymisation techniques.

    ``subjects`` counts the subjects of the test texts; None if the audit does not know them.
    """

    subjects: Count | None
    criteria: tuple[AnonymityCriterion, ...]


class AuditRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="vecveil.audit/2"):
    """The record of an audit. ``method`` and ``guarantee`` are None for a store."""

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
    attacks: tuple[AttackRecord, ...]
    worst: str
    learning_curve: tuple[LearningPoint, ...]
    forecast: LearningPoint | None
    families: tuple[FamilyRecord, ...]
    anonymity: AnonymityRecord
    terms: tuple[TermRecord, ...]
    skipped: tuple[SkippedAttack, ...]
    lint: tuple[LintWarning, ...]
    frameworks: tuple[FrameworkFinding, ...]
    reconstructions: tuple[ReconstructionRecord, ...]
    limits: tuple[str, ...]
    seed: int
    tier: str
    seconds: Positive

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
        # The named attack first: rounding may reorder equals.
        return tuple(sorted(members, key=lambda attack: (attack is not strongest, -attack.strength)))

    def __post_init__(self) -> None:
        # Reports trust these fields without further checks, so reject those that contradict the kind.
        absent = ("method", "guarantee", "concept_distance") if self.is_store else ()
        for key in absent:
            if getattr(self, key) is not None:
                raise Conflict(key, "a store has none: null")
        for key in () if self.is_store else ("method", "randomness", "guarantee"):
            if getattr(self, key) is None:
                raise Conflict(key, "the audit of a protector states it")
        if self.forecast is not None and not any(point.texts for point in self.learning_curve[-1:]):
            raise Conflict("forecast", "it continues a learning curve, and there is none")
        names = [attack.name for attack in self.attacks]
        for i, name in enumerate(names):
            if name in names[:i]:
                raise Conflict(f"attacks[{i}].name", "an earlier attack has this name")
        self._check_worst()
        self._check_families()
        named = [(f"frameworks[{i}].attacks", name) for i, f in enumerate(self.frameworks) for name in f.attacks]
        for i, criterion in enumerate(self.anonymity.criteria):
            place = f"anonymity.criteria[{i}].figures"
            named += [(f"{place}[{j}].attack", figure.attack) for j, figure in enumerate(criterion.figures)]
        named += [(f"reconstructions[{i}].attack", text.attack) for i, text in enumerate(self.reconstructions)]
        for place, name in named:
            if name not in names:
                raise Conflict(place, "no attack of the record has this name")

    def _check_worst(self) -> None:
        """Raise unless ``worst`` names a complete figure that no other token-inference attack exceeds."""
        tried = [attack for attack in self.attacks if attack.family == "token-inference"]
        worst = next((attack for attack in tried if attack.name == self.worst), None)
        if worst is None:
            raise Conflict("worst", "no token-inference attack has this name")
        clean = ("clean", "clean_low", "clean_high")
        has_clean = any(getattr(worst, key) is not None for key in clean)
        for key in ("value", "low", "high", "chance", *(clean if has_clean else ())):
            if getattr(worst, key) is None:
                raise Conflict(f"attacks[{self.attacks.index(worst)}].{key}", "the worst attack has this figure")
        # Every figure in the metric of `worst`: an edited record must not hide a stronger attack.
        for rival in (each for attack in tried for each in attack.figures):
            if rival.metric == worst.metric and (rival.value or 0) > (worst.value or 0) + 1e-12:
                raise Conflict("worst", "another token-inference attack has a higher value")

    def _check_families(self) -> None:
        """Raise unless every tried family names its strongest attack once."""
        # Named by `worst` already: an entry for it is optional, and must agree.
        seen = {"token-inference"}
        for i, entry in enumerate(self.families):
            if entry.family in seen and (entry.family, entry.worst) != ("token-inference", self.worst):
                key, again = f"families[{i}]", entry.family != "token-inference"
                raise Conflict(*((f"{key}.family", "listed twice") if again else (f"{key}.worst", "not `worst`")))
            members = [attack for attack in self.attacks if attack.family == entry.family]
            named = next((attack for attack in members if attack.name == entry.worst), None)
            if named is None:
                raise Conflict(f"families[{i}].worst", "no attack of the family has this name")
            if any(attack.strength > named.strength + 1e-12 for attack in members):
                raise Conflict(f"families[{i}].worst", "another attack of the family finds more over chance")
            seen.add(entry.family)
        for attack in self.attacks:
            if attack.family not in seen:
                raise Conflict("families", f"the family {attack.family} is missing")
