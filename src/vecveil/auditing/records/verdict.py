"""Decide the verdict of an audit (the strongest attack of each family against chance and clean), and a build gate.

Both follow from the figures of the record alone, so reports can draw them from saved records.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, TypeAlias

from vecveil.auditing.records.audit_record import FAMILIES, AttackRecord, AuditRecord, LeakageFigure, LearningPoint
from vecveil.errors import InvalidInputError

# The audit's own sentences and the reports format shares alike.
NBSP = "\u00a0"
MISSING = "–"

ABOVE_CHANCE = "above chance"
AT_CHANCE = "at chance within its interval"
BELOW_CHANCE = "below chance"
BELOW_CLEAN = "below clean"
OVERLAP = "not clearly below clean: the intervals overlap"
ABOVE_CLEAN = "above clean"
UNMEASURED = "not measurable on these texts"

NO_ENCODER = "no-encoder"
"""Code of a skipped attack that needs the encoder."""
UNPROTECTED = "vectors-not-protected"
"""Code of the warning that a store contains the encoder's own vectors."""
WEAK_EPSILON = 10.0
"""ε per unit of Euclidean distance above which the worst-case factor e^ε (22,026 here) protects nothing by itself."""

LISTED = "R-precision of listed words"

FIRST_CHOICE = (
    "If you hold a key where you search, use a sealed index: the storage contains ciphertext and search is exact "
    "(`vecveil migrate SOURCE sealed:FOLDER --seal-key FILE`). Noise is for vectors that a database must rank, or that "
    "leave for somebody without a key."
)
"""The mode to try first, as ``fit``, ``frontier`` and the README name it; an audit's next steps shorten it."""

Grade: TypeAlias = Literal["hidden", "most", "part", "little", "not", "unknown"]
GRADES: dict[Grade, str] = {
    "hidden": "Hidden",
    "most": "Mostly hidden",
    "part": "Partly hidden",
    "little": "Hardly hidden",
    "not": "Not hidden",
    "unknown": "Not shown",
}
MOST, PART = 0.25, 0.5
"""Maximum share of the clean leak over chance that may remain for the grades ``most`` and ``part``."""
FREQUENT = 0.25
"""Chance level of token inference above which frequent words hide the recovery of rare ones."""
HIDES = {
    "hidden": "Hides the {words} from attackers who do not know the text",
    "most": "Hides most, not all, of what vectors reveal about the {words} from attackers who do not know the text",
    "part": "Hides a part of what vectors reveal about the {words}",
    "little": "Hides little of what vectors reveal about the {words}",
    "not": "Does not hide the {words}",
    "unknown": "This audit cannot show whether the {words} are hidden",
}
SEALED_WORDS = {
    True: (
        "The storage: nothing readable",
        "An attacker who has the storage learns sizes and times of writing only. An attacker who has the key, or the "
        "memory of this process, recovers everything.",
    ),
    False: (
        "The storage: not sealed",
        "An attacker without the key finds more in the storage than sizes and times of writing. Audit again with "
        "a different `--seed`; if it is found again, do not use this index.",
    ),
}
"""Heading and sentence of the verdict on a sealed index's storage, by whether nothing leaks."""
OBJECTS = ("search-bytes", "objects")
"""Prefixes of the names of attacks on a sealed index's objects, each of which is graded separately."""
UNHIDDEN = {
    "probe": "whether a text contains one",
    "candidates": "the text from somebody who knows it",
    "averaging": "words of a text released again",
    "held-out-terms": "words outside the list",
}
"""Verdict sentences about other families that protection hardly changes."""


@dataclass(frozen=True)
class FamilyVerdict:
    """The verdict on one family: its strongest attack, the grade, and the position of the main figure in words.

    ``besides`` are other figures of the family above chance, if the main figure is not.
    """

    family: str
    attack: AttackRecord
    grade: Grade
    words: str
    besides: tuple[tuple[AttackRecord, LeakageFigure], ...]


@dataclass(frozen=True)
class Verdict:
    """The verdict of an audit.

    Attributes:
        worst: the strongest token-inference attack on one release of a text, which decides the verdict.
        repeated: the strongest attack on several releases of a text, if it recovers more of the words than ``worst``.
        grade: how much of the clean leak is hidden from it, at ten times as many texts.
        words: that grade, with its subject.
        sentence: the verdict in one sentence, with leaks of other families that protection hardly changes.
        chance, clean: its position to chance and to clean vectors; empty if it has no such figure.
        besides: other token-inference figures above chance, if ``worst`` is not.
        others: the other families, each in its own metric.
        caveats: codes of the reservations, the gravest first.
        utility: lowest and highest utility relative to clean, if any was measured.
    """

    worst: AttackRecord
    repeated: AttackRecord | None
    grade: Grade
    words: str
    sentence: str
    chance: str
    clean: str
    besides: tuple[tuple[AttackRecord, LeakageFigure], ...]
    others: tuple[FamilyVerdict, ...]
    caveats: tuple[str, ...]
    utility: tuple[float, float] | None


def percent(share: float | None) -> str:
    """Return a share in percent with one decimal; numbers outside [-1, 1] are not shares and stay unchanged."""
    if share is None:
        return MISSING
    if abs(share) > 1 + 1e-9:
        return f"{share:.4g}"
    # Rounded to 0.0 %, a small leak would look like none.
    if 0 < share < 0.0005:
        return f"<0.1{NBSP}%"
    return f"{100 * share:.1f}{NBSP}%".replace("-", "\u2212")


def strongest(attacks: Iterable[AttackRecord]) -> dict[str, AttackRecord]:
    """Return the strongest attack of each family; the first of equals."""
    leading: dict[str, AttackRecord] = {}
    for attack in attacks:
        if attack.family not in leading or attack.strength > leading[attack.family].strength:
            leading[attack.family] = attack
    return leading


def against_chance(figure: LeakageFigure) -> str:
    """Return the position of the interval on protected vectors to chance, or ``""``."""
    if figure.chance is None or figure.low is None or figure.high is None:
        return ""
    # The end of the interval, not the value: noise alone puts half of all values above chance.
    if figure.low > figure.chance:
        return ABOVE_CHANCE
    return AT_CHANCE if figure.high >= figure.chance else BELOW_CHANCE


def against_clean(figure: LeakageFigure) -> str:
    """Return the position of the interval on protected vectors to that on clean ones, or ``""``."""
    low, high = figure.low, figure.high
    if low is None or high is None or figure.clean_low is None or figure.clean_high is None:
        return ""
    # Intervals that touch overlap: only a gap shows that protection lowers leakage.
    if high < figure.clean_low:
        return BELOW_CLEAN
    return ABOVE_CLEAN if low > figure.clean_high else OVERLAP


def grade(figure: LeakageFigure, besides: Sequence[object] = ()) -> Grade:
    """Return how much of the clean leak over chance is hidden, by the less favourable end of the interval.

    Args:
        besides: other figures above chance; with any, a figure at chance is graded ``most``.
    """
    chance, high, clean = figure.chance, figure.high, figure.clean_position
    if chance is None or high is None or figure.low is None or chance >= 1:
        return "unknown"
    if figure.clean_low is not None and figure.clean_low <= chance:
        # Protection cannot hide what clean vectors do not reveal, but protected vectors may still leak.
        return "not" if against_clean(figure) == ABOVE_CLEAN else "unknown"
    if against_chance(figure) != ABOVE_CHANCE:
        if against_clean(figure) == OVERLAP:
            return "unknown"  # from few texts: the interval contains chance and the clean leak
        return "most" if besides else "hidden"
    left = (high - chance) / (1 - chance)
    if figure.clean is None:
        return "little" if left > PART else "part"  # compared with certainty, so never called mostly hidden
    if against_clean(figure) != BELOW_CLEAN or clean is None:
        return "not"
    return "most" if left <= MOST * clean else "part" if left <= PART * clean else "little"


def grade_ahead(decided: Grade, figure: LeakageFigure, forecast: LearningPoint | None) -> Grade:
    """Return the grade halfway to the forecast's upper end, since an attacker has more texts than the audit.

    Without a forecast no grade is mostly hidden. A figure at chance stays hidden if its interval contains the forecast.
    """
    chance = figure.chance
    if decided not in ("hidden", "most", "part") or chance is None or figure.high is None:
        return decided
    if forecast is None:
        return "part" if decided == "most" else decided
    if decided == "hidden" and forecast.value <= figure.high:
        return decided
    left = (max(figure.high, forecast.cautious) - chance) / (1 - chance)
    clean = figure.clean_position
    if clean is None:
        return "little" if left > PART else "part"
    return "most" if left <= MOST * clean else "part" if left <= PART * clean else "little"


def listed_against_unlisted(audit: AuditRecord) -> tuple[AttackRecord, LeakageFigure | None] | None:
    """Return the strongest attack on unlisted words, and its figure of listed words: one attack, one protector."""
    attack = audit.strongest.get("held-out-terms")
    if attack is None:
        return None
    return attack, next((figure for figure in attack.also if figure.metric == LISTED), None)


def status(figure: LeakageFigure) -> str:
    """Return both comparisons of one figure, for example ``above chance, below clean``."""
    if figure.value is None:
        return UNMEASURED
    return ", ".join(part for part in (against_chance(figure), against_clean(figure)) if part)


def standing(figure: LeakageFigure) -> str:
    """Return both comparisons of one figure, with the reason for a missing one."""
    if figure.value is None:
        return UNMEASURED
    no_chance = "chance not stated" if figure.chance is None else "no interval, so no verdict"
    no_clean = "no clean side" if figure.clean is None else "clean not comparable"
    return f"{against_chance(figure) or no_chance}; {against_clean(figure) or no_clean}"


def above_chance_besides(
    attacks: Sequence[AttackRecord], worst: AttackRecord
) -> tuple[tuple[AttackRecord, LeakageFigure], ...]:
    """Return the figures above chance, the farthest first, if the main figure of ``worst`` is not above it."""
    # Only where the main figure is not above chance could the family pass for harmless.
    if against_chance(worst) == ABOVE_CHANCE:
        return ()
    above = [
        (attack, figure)
        for attack in attacks
        for figure in attack.figures
        if figure is not worst and against_chance(figure) == ABOVE_CHANCE
    ]
    return tuple(sorted(above, key=lambda pair: -(pair[1].position or 0.0)))


def decide(audit: AuditRecord) -> Verdict:
    worst = audit.worst_attack
    kept = [each.relative for each in audit.utility.values() if each.relative is not None]
    if audit.is_sealed:
        return _decide_sealed(audit)
    others = []
    for family, attack in audit.strongest.items():
        if family != "token-inference":
            above = above_chance_besides(audit.members(family), attack)
            # Only the token-inference curve is continued to more texts.
            graded = grade_ahead(grade(attack, above), attack, None)
            others.append(FamilyVerdict(family, attack, graded, standing(attack), above))
    besides = above_chance_besides(audit.members("token-inference"), worst)
    decided = grade_ahead(grade(worst, besides), worst, audit.forecast)
    # One release, and the equal releases under one key, reveal no more than the main figure.
    several = (each for each in audit.members("averaging") if not each.name.endswith(("-1", "-keyed")))
    repeated = next(several, None)
    if repeated is not None and (repeated.value or 0.0) <= (worst.value or 0.0):
        repeated = None
    return Verdict(
        worst=worst,
        repeated=repeated,
        grade=decided,
        words=f"{_subject(audit).capitalize()}: {GRADES[decided].lower()}",
        sentence=_sentence(audit, decided, others),
        chance=against_chance(worst),
        clean=against_clean(worst),
        besides=besides,
        others=tuple(others),
        caveats=tuple(caveats(audit)),
        utility=(min(kept), max(kept)) if kept else None,
    )


def judged(attack: AttackRecord) -> list[LeakageFigure]:
    """Return the figures that decide on a sealed index's storage: the main one, and the AUC."""
    # Chance does not bound the others, such as confidence: an attacker who learns from noise is confident and wrong.
    return [figure for figure in attack.figures if figure is attack or figure.metric == "AUC"]


def leaks(attack: AttackRecord) -> bool:
    """Return whether an attack on a sealed index's storage found a leak.

    A leak is twice as far above chance as the 95 % interval: an audit has some thirty figures, and one in forty exceeds
    chance by its interval without any leak. A single value that is readable in an object is a leak too.
    """
    if attack.name.startswith(OBJECTS[0]):
        return bool(attack.value)
    return any(
        figure.value - figure.chance > 2 * (figure.value - figure.low) + 1e-12
        for figure in judged(attack)
        if figure.value is not None and figure.chance is not None and figure.low is not None
    )


def _decide_sealed(audit: AuditRecord) -> Verdict:
    worst, parts = audit.worst_attack, dict[str, list[AttackRecord]]()
    for attack in audit.attacks:
        kind = next((name for name in OBJECTS if attack.name.startswith(name)), attack.family)
        parts.setdefault(kind, []).append(attack)
    verdicts = {
        kind: FamilyVerdict(
            kind,
            attack := worst if worst in members else max(members, key=lambda each: each.strength),
            "not" if any(map(leaks, members)) else "hidden",
            standing(attack),
            (),
        )
        for kind, members in parts.items()
    }
    nothing = not any(map(leaks, audit.attacks))
    words, sentence = SEALED_WORDS[nothing]
    return Verdict(
        worst=worst,
        repeated=None,
        grade="hidden" if nothing else "not",
        words=words,
        sentence=sentence,
        chance=against_chance(worst),
        clean=against_clean(worst),
        besides=(),
        others=tuple(verdicts[kind] for kind in verdicts if kind != worst.family),
        caveats=("sealed-intervals", "sealed-key"),
        utility=None,
    )


def _subject(audit: AuditRecord) -> str:
    return "concept’s words" if audit.is_store else "listed words"


def _sentence(audit: AuditRecord, decided: Grade, others: Sequence[FamilyVerdict]) -> str:
    lead = HIDES[decided].format(words=_subject(audit))
    open_to = [UNHIDDEN[v.family] for v in others if v.family in UNHIDDEN and v.grade in ("little", "not")]
    if not open_to:
        return f"{lead}."
    return f"{lead}{', nor ' if decided == 'not' else '; does not hide '}{', nor '.join(open_to)}."


@functools.cache
def controls() -> list[dict[str, Any]]:
    """Return the items of published frameworks (``records/controls.toml``)."""
    file = resources.files("vecveil.auditing.records").joinpath("controls.toml")
    items: list[dict[str, Any]] = tomllib.loads(file.read_text(encoding="utf-8"))["control"]
    return items


def caveats(audit: AuditRecord) -> list[str]:
    """Return the codes of the reservations about the verdict, the gravest first."""
    # In order of gravity: reports print the codes as they come.
    worst, codes = audit.worst_attack, []
    token_inference = audit.members("token-inference")
    unprotected = any(warning.code == UNPROTECTED for warning in audit.lint)
    if above_chance_besides(token_inference, worst):
        codes.append("above-chance-besides")
    # An attack that recovers nothing from clean vectors cannot show that protection changes anything.
    if worst.chance is not None and worst.clean_low is not None and worst.clean_low <= worst.chance:
        codes.append("clean-at-chance")
    if worst.chance is not None and worst.chance > FREQUENT and audit.texts.vocabulary > 1:
        codes.append("frequent-words")
    if worst.clean is None:
        codes.append("no-clean-side")
    elif (place := against_clean(worst)) in (OVERLAP, ABOVE_CLEAN):
        codes.append("overlaps-clean" if place == OVERLAP else "above-clean")
    if audit.guarantee is None:
        codes.append("unprotected" if unprotected else "unknown-protection")
    else:
        codes.append("formal" if audit.guarantee.kind == "formal" else "no-formal-guarantee")
    if audit.is_store and audit.encoder is None and skipped_without_encoder(audit):
        codes.append("without-encoder")
    # Unprotected vectors have no release to adapt to.
    if not any(attack.adaptive for attack in token_inference) and not unprotected:
        codes.append("not-adaptive")
    if audit.randomness == "seeded" and not audit.is_store:
        codes.append("seeded")
    return codes


def skipped_without_encoder(audit: AuditRecord) -> list[str]:
    """Return the attacks that were skipped because they need the encoder."""
    return [each.attack for each in audit.skipped if each.code == NO_ENCODER]


@dataclass(frozen=True)
class GateResult:
    """Sentences on the attacks that exceed a limit, and on those that could not be compared."""

    failures: tuple[str, ...]
    notes: tuple[str, ...]


def check_baseline(baseline: AuditRecord, *, concept: str, kind: str, tier: str) -> None:
    """Raise `InvalidInputError` if the figures of ``baseline`` do not compare with an audit of this kind."""
    for name, before, now in (
        ("concept", baseline.concept, concept),
        ("kind", baseline.kind, kind),
        ("tier", baseline.tier, tier),
    ):
        if before != now:
            raise InvalidInputError(
                f"The baseline has the {name} {before[:60]!r}, this audit has {now[:60]!r}. Their figures do "
                "not compare: audit again for a new baseline.",
                param="baseline",
            )


def check_gate(
    audit: AuditRecord, *, above: float | None = None, baseline: AuditRecord | None = None, worse_by: float = 0.0
) -> GateResult:
    """Return the failures of ``audit``.

    Args:
        above: maximum share of the words that the worst attack may recover.
        baseline: an earlier audit of the same concept.
        worse_by: share by which the highest main figure of each family and metric may exceed the baseline's. Outside
            token inference, with few test texts, the interval must also lie above the earlier figure. A family that the
            baseline has and this audit lacks fails.
    """
    failures, notes = [], []
    worst = audit.worst_attack
    if above is not None and not (worst.value or 0.0) <= above + 1e-12:  # a limit of nan fails
        failures.append(f"{_found(worst)}; the limit is {percent(above)}.")
    counts = [(each.texts.total, each.texts.words) for each in (baseline or audit, audit)]
    if counts[0] != counts[1]:
        before_and_now = "{:,} texts and {:,} words; this audit has {:,} and {:,}".format(*counts[0], *counts[1])
        notes.append(f"the baseline has {before_and_now}.")
    for name, now_used in _settings(audit).items():
        if (used := _settings(baseline or audit)[name]) != now_used:
            notes.append(f"the baseline has the {name} {used!r}; this audit has {now_used!r}.")
    for family in FAMILIES if baseline is not None else ():
        assert baseline is not None
        before, now = _highest(baseline.members(family)), _highest(audit.members(family))
        if now and not before:
            notes.append(f"not compared: {family}, which the baseline lacks.")
        for metric, earlier in before.items():
            attack = now.get(metric)
            if not now:
                failures.append(f"{family} was not measured; in the baseline {_found(earlier)}.")
                break
            if attack is None:
                # Token inference has one metric: with another one in the baseline everything would pass.
                said = failures if family == "token-inference" else notes
                said.append(f"not compared: {_found(earlier)} in the baseline; this audit has {', '.join(now)}.")
                continue
            shown = family == "token-inference" or attack.low is None or attack.low > (earlier.value or 0.0)
            if shown and not (attack.value or 0.0) <= (earlier.value or 0.0) + worse_by + 1e-12:
                failures.append(
                    f"{_found(attack)}, in the baseline {_found(earlier)}; "
                    f"at most {100 * worse_by:g} points more are allowed."
                )
    return GateResult(tuple(failures), tuple(notes))


def _settings(audit: AuditRecord) -> dict[str, object]:
    """Return settings besides the texts that may explain a difference of two audits, by name."""
    encoder = None if audit.encoder is None else audit.encoder.name
    return {"vecveil": audit.vecveil, "method": audit.method, "encoder": encoder, "seed": audit.seed}


def _highest(attacks: Iterable[AttackRecord]) -> dict[str, AttackRecord]:
    """Return the attack with the highest main figure by metric."""
    highest: dict[str, AttackRecord] = {}
    for attack in attacks:
        if attack.value is not None:
            highest[attack.metric] = max(highest.get(attack.metric, attack), attack, key=lambda each: each.value or 0.0)
    return highest


def _found(attack: AttackRecord) -> str:
    return f"{attack.name} reaches {percent(attack.value)} ({attack.metric})"
