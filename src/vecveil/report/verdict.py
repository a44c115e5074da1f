"""The verdict, written from the figures of the record alone, and the caveats that go with it."""

from __future__ import annotations

from vecveil.report.figures import NBSP, interval, percent, scale
from vecveil.report.record import Attack, Audit, Figure, Guarantee
from vecveil.report.wording import wording

__all__ = [
    "Strong",
    "Whole",
    "against_chance",
    "against_clean",
    "also_above_chance",
    "caveats",
    "guarantee_words",
    "sentence",
    "status",
    "utility_range",
    "without_encoder",
]

BELOW, OVERLAP, ABOVE = (
    "below clean",
    "not clearly below clean: the intervals overlap",
    "above clean",
)
AT_CHANCE = "at chance within its interval"
ABOVE_NAMED = 3
UNPROTECTED = "vectors-not-protected"
"""The code of the warning that a store holds the encoder's own vectors."""
_LEADS = {OVERLAP: "which is not clearly below the ", ABOVE: "which is above the "}


class Strong(str):
    """A part of the verdict that a report may set in bold."""

    __slots__ = ()


class Whole(str):
    """A part of the verdict that a report should keep on one line."""

    __slots__ = ()


def against_clean(figure: Figure) -> str:
    """Return where the interval on protected vectors lies against that on clean ones, or ``""``."""
    low, high = figure.low, figure.high
    if low is None or high is None or figure.clean_low is None or figure.clean_high is None:
        return ""
    if high < figure.clean_low:
        return BELOW
    return ABOVE if low > figure.clean_high else OVERLAP


def against_chance(figure: Figure) -> str:
    """Return where the interval on protected vectors lies against chance, or ``""``."""
    if figure.chance is None or figure.low is None or figure.high is None:
        return ""
    if figure.low > figure.chance:
        return "above chance"
    return AT_CHANCE if figure.high >= figure.chance else "below chance"


def status(figure: Figure) -> str:
    """Return both comparisons of one attack, for example ``above chance, below clean``."""
    if figure.value is None:
        return "not measurable on these texts"
    return ", ".join(part for part in (against_chance(figure), against_clean(figure)) if part)


def utility_range(audit: Audit) -> tuple[float, float] | None:
    """Return the lowest and the highest utility relative to clean, if any was measured."""
    kept = [each.relative for each in audit.utility if each.relative is not None]
    return (min(kept), max(kept)) if kept else None


WEAK_EPSILON = 10.0
"""Above this, per unit of Euclidean distance, the worst-case factor e^ε is no protection by itself."""


def guarantee_words(guarantee: Guarantee) -> str:
    """Return the kind of guarantee as half a sentence."""
    if guarantee.kind == "formal":
        scale_words = "" if guarantee.epsilon is None else f" at ε = {scale(guarantee.epsilon)}"
        worst = guarantee.epsilon_euclidean_worst
        weak = worst is not None and worst > WEAK_EPSILON
        return f"the guarantee is formal{scale_words}" + (
            ", a bound that excludes little by itself" if weak else ""
        )
    basis = {
        "empirical": "empirical, so these figures hold for the attacks tried",
        "obfuscation": "obfuscation, which rests on what an attacker does not know",
    }[guarantee.kind]
    return f"there is no formal guarantee ({basis})"


def sentence(audit: Audit) -> tuple[str, ...]:
    """Return the verdict, one sentence, in parts; those of type :class:`Strong` are key figures."""
    worst, figure = audit.worst, audit.worst.figure
    tried = sum(attack.family == "token-inference" for attack in audit.attacks)
    who = (
        "The token-inference attack tried"
        if tried == 1
        else f"The worst of {tried} token-inference attacks"
    )
    place = against_chance(figure)
    beside = "" if place == "above chance" else f": {place}"
    return (
        f"{who}, {worst.name}, recovered ",
        Strong(percent(figure.value)),
        f" of concept tokens from {wording(audit).vectors} (95{NBSP}% interval ",
        Whole(interval(figure.low, figure.high)),
        f"{beside})",
        *_clean_words(figure),
        "; chance is ",
        Strong(percent(figure.chance)),
        *_over_chance_words(figure),
        *_utility_words(audit),
        "; no guarantee is known of the store."
        if audit.guarantee is None
        else f"; {guarantee_words(audit.guarantee)}.",
    )


def _clean_words(figure: Figure) -> tuple[str, ...]:
    if figure.clean is None:
        return (", with no clean vectors to compare with",)
    return (
        ", ",
        _LEADS.get(against_clean(figure), "against "),
        Strong(percent(figure.clean)),
        " from clean ones (",
        Whole(interval(figure.clean_low, figure.clean_high)),
        ")",
    )


def _over_chance_words(figure: Figure) -> tuple[str, ...]:
    """Return how far the attack comes from chance to certainty; nothing unless it is above chance."""
    if figure.over_chance is None or against_chance(figure) != "above chance":
        return ()
    return (
        ", so it comes ",
        Whole(percent(figure.over_chance)),
        " of the way from chance to certainty",
    )


def _utility_words(audit: Audit) -> tuple[str, ...]:
    bounds = utility_range(audit)
    if bounds is None:
        return () if audit.is_store else ("; utility was not measured",)
    measured = [each for each in audit.utility if each.relative is not None]
    if len(measured) == 1:
        return (
            "; utility kept is ",
            Strong(percent(bounds[0])),
            f" of clean ({measured[0].label})",
        )
    lowest = min(measured, key=lambda each: each.relative or 0.0)
    return (
        "; utility kept is ",
        Strong(f"{percent(bounds[0])} to {percent(bounds[1])}"),
        f" of clean over {len(measured)} measures (lowest: {lowest.label})",
    )


def also_above_chance(attacks: tuple[Attack, ...], worst: Attack) -> tuple[str, ...]:
    """Return the figures above chance that stand beside a main figure of ``worst`` that is not.

    A family is not at chance because its main figure is: another metric, or an attack with another
    chance level, may be above. The three farthest above are named, the rest counted.
    """
    if against_chance(worst.figure) == "above chance":
        return ()
    found = [
        (attack, figure)
        for attack in attacks
        for figure in attack.figures
        if figure is not worst.figure and against_chance(figure) == "above chance"
    ]
    found.sort(key=lambda each: -(each[1].over_chance or 0.0))
    named = tuple(
        f"{figure.metric} of {attack.name} ({percent(figure.value)}, chance {percent(figure.chance)})"
        for attack, figure in found[:ABOVE_NAMED]
    )
    rest = len(found) - len(named)
    return (*named, f"and {rest} more") if rest else named


def caveats(audit: Audit) -> tuple[str, ...]:
    """Return what a reader must know to read the verdict right, the gravest first."""
    figure, found = audit.worst.figure, []
    if above := also_above_chance(audit.members("token-inference"), audit.worst):
        found.append(f"Token inference is above chance all the same in: {'; '.join(above)}.")
    if (
        figure.chance is not None
        and figure.clean_low is not None
        and figure.clean_low <= figure.chance
    ):
        found.append(
            "On clean vectors the attack is not above chance either, so this audit cannot show "
            "what protection changes."
        )
    found += _against_clean_caveat(audit)
    found.append(_guarantee_caveat(audit))
    if unread := without_encoder(audit):
        found.append(unread)
    adaptive = any(a.adaptive for a in audit.attacks if a.family == "token-inference")
    if not adaptive and not _unprotected(audit):
        found.append(
            "No attack could draw fresh releases, as the store comes without its protector; an "
            "attacker who has it may recover more."
            if audit.is_store
            else "No token-inference attack was adaptive, that is, trained on freshly protected "
            "vectors; an attacker who adapts may recover more."
        )
    if audit.randomness == "seeded" and not audit.is_store:
        found.append(
            "The release that was attacked has seeded noise, made for this audit so that it can be repeated; "
            "vectors to store need fresh noise, which is what `protect` draws unless given a seed."
        )
    return tuple(found)


def _against_clean_caveat(audit: Audit) -> list[str]:
    figure, store = audit.worst.figure, audit.is_store
    if figure.clean is None:
        return [
            "There are no clean vectors to compare with, so this audit cannot show whether the "
            f"{wording(audit).vectors} leak less than clean ones."
        ]
    place = against_clean(figure)
    if place == OVERLAP:
        return [
            "This audit does not show that the stored vectors leak less than clean ones: the two "
            "intervals overlap."
            if store
            else "This audit does not show that protection lowers leakage: the intervals with and "
            "without protection overlap."
        ]
    if place == ABOVE:
        return [
            "The stored vectors leak more than clean ones."
            if store
            else "Leakage is higher with protection than without."
        ]
    return []


def _unprotected(audit: Audit) -> bool:
    """Return whether the vectors of a store turned out to be the encoder's own."""
    return any(each.code == UNPROTECTED for each in audit.lint)


def _guarantee_caveat(audit: Audit) -> str:
    more = "another attack may recover more"
    if audit.guarantee is None and _unprotected(audit):
        return (
            "These are the encoder's own vectors, which nothing protects: the figures are those of the "
            f"attacks tried, and {more}."
        )
    if audit.guarantee is None:
        return (
            "Nothing is known of how these vectors were made: the figures hold for the attacks "
            f"tried, and {more}."
        )
    if audit.guarantee.kind == "formal":
        return f"The leakage figure is measured, not part of the guarantee: {more}."
    kind = audit.guarantee.kind
    return f"The protection is {kind}: nothing but these measurements supports it, and {more}."


def without_encoder(audit: Audit) -> str:
    """Return which attacks on a store were not run for want of the encoder, or ``""``."""
    if not audit.is_store or audit.encoder is not None:
        return ""
    names = [each.attack for each in audit.skipped if "encoder" in each.reason]
    if not names:
        return ""
    said = f"Not run for want of the encoder: {', '.join(names)}. `--encoder NAME` runs them"
    if "transplant" not in names:
        return f"{said}."
    return f"{said}; transplant, which often finds most, if the vectors are that encoder's own."
