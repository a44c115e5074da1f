"""Compare an audit with a limit and with an earlier audit: what fails a build."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vecveil.errors import InvalidInputError
from vecveil.records.audit import FAMILIES, AttackRecord, AuditRecord
from vecveil.records.verdict import percent


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
                f"The baseline has the {name} {before!r}, this audit has {now!r}. Their figures do "
                "not compare: audit again for a new baseline.",
                param="baseline",
            )


def check_gate(
    audit: AuditRecord, *, above: float | None = None, baseline: AuditRecord | None = None, worse_by: float = 0.0
) -> GateResult:
    """Return what fails in ``audit``.

    Args:
        above: largest share of the words that the worst attack may recover.
        baseline: an earlier audit of the same concept.
        worse_by: share by which a main figure may exceed that of the baseline. Of each family and metric the highest
            figures are compared. Outside token inference, where few texts are judged, the interval must also lie above
            the earlier figure. A family that the baseline has and this audit lacks fails.
    """
    failures, notes = [], []
    worst = audit.worst_attack
    if above is not None and not (worst.value or 0.0) <= above + 1e-12:  # a limit of nan fails
        failures.append(f"{_found(worst)}; the limit is {percent(above)}.")
    counts = [(each.texts.total, each.texts.words) for each in (baseline or audit, audit)]
    if counts[0] != counts[1]:
        before_and_now = "{:,} texts and {:,} words; this audit has {:,} and {:,}".format(*counts[0], *counts[1])
        notes.append(f"the baseline has {before_and_now}.")
    for family in FAMILIES if baseline is not None else ():
        assert baseline is not None
        before, now = _highest(baseline.members(family)), _highest(audit.members(family))
        for metric, earlier in before.items():
            attack = now.get(metric)
            if not now:
                failures.append(f"{family} was not measured; in the baseline {_found(earlier)}.")
                break
            if attack is None:
                notes.append(f"not compared: {_found(earlier)} in the baseline; this audit has {', '.join(now)}.")
                continue
            shown = family == "token-inference" or attack.low is None or attack.low > (earlier.value or 0.0)
            if shown and not (attack.value or 0.0) <= (earlier.value or 0.0) + worse_by + 1e-12:
                failures.append(
                    f"{_found(attack)}, in the baseline {_found(earlier)}; "
                    f"at most {100 * worse_by:g} points more are allowed."
                )
    return GateResult(tuple(failures), tuple(notes))


def _highest(attacks: Iterable[AttackRecord]) -> dict[str, AttackRecord]:
    """Return the attack with the highest main figure by metric."""
    highest: dict[str, AttackRecord] = {}
    for attack in attacks:
        if attack.value is not None:
            highest[attack.metric] = max(highest.get(attack.metric, attack), attack, key=lambda each: each.value or 0.0)
    return highest


def _found(attack: AttackRecord) -> str:
    return f"{attack.name} reaches {percent(attack.value)} ({attack.metric})"
