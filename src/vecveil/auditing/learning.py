"""The learning curve: the strongest attack on parts of its texts, continued to ten times as many.

An attacker has more texts than the defender. The logit of R-precision is close to linear in the logarithm of the number
of texts, from chance up to what clean vectors tell; the line is fitted to four points and continued.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import expit, logit

from vecveil.attacks import AttackResult
from vecveil.auditing.case import Case, Side
from vecveil.auditing.families import token_inference_jobs
from vecveil.auditing.jobs import WorkFolder, run_jobs
from vecveil.metrics.estimates import NORMAL
from vecveil.records.audit import LearningPoint

SHARES = (1 / 8, 1 / 4, 1 / 2)
AHEAD = 10.0
FEWEST = 20  # texts of a part: from fewer an attack learns next to nothing
_EDGE = 2e-3  # R-precision this close to 0 or 1 has no useful logit
_STEADY = 0.5  # least error of a point beside its neighbours, relative to that of the test texts, which they share


def learning_curve(
    case: Case, side: Side, worst: AttackResult, work: WorkFolder | None = None
) -> list[LearningPoint]:
    """Return the R-precision of the strongest attack on an eighth, a quarter, half and all of its training texts."""
    jobs = {job.name: job for job in token_inference_jobs(side.seen or case, side)[0]}
    of_part = jobs[worst.name].of_part
    if of_part is None:
        return []
    texts, whole = of_part(1.0)
    parts = [part for part in map(of_part, SHARES) if part[0] >= FEWEST]
    results = run_jobs([job for _, job in parts], work, show_progress=case.options.show_progress)
    measured = [(count, results[job.side, job.name]) for count, job in parts]
    return [LearningPoint(count, each.main.value, each.main.low, each.main.high)
            for count, each in [*measured, (texts, worst)]]  # fmt: skip


def forecast(curve: Sequence[LearningPoint], ahead: float = AHEAD) -> LearningPoint | None:
    """Return the curve's figure for ``ahead`` times as many texts, with a 95 % interval; None from under three points.

    The interval holds the error of the test texts, which all points share, and that of the line.
    """
    texts = np.array([point.texts for point in curve], dtype=float)
    if len(np.unique(texts)) < 3:
        return None
    values = np.clip([point.value for point in curve], _EDGE, 1 - _EDGE)
    widths = np.array([point.high - point.low for point in curve])
    shared = float(np.mean(widths / (2 * NORMAL * values * (1 - values))))
    x, y = np.log2(texts), logit(values)
    slope, level = np.polyfit(x - x.mean(), y, 1)
    beyond = x[-1] + np.log2(ahead) - x.mean()
    rest = y - level - slope * (x - x.mean())
    error = max(float(np.sqrt((rest**2).sum() / (len(x) - 2))), _STEADY * shared)
    # More texts never tell less: a falling line is noise.
    middle = max(level + max(slope, 0.0) * beyond, y[-1])
    spread = NORMAL * np.sqrt(shared**2 + error**2 * (1 / len(x) + beyond**2 / ((x - x.mean()) ** 2).sum()))
    value, low, high = (float(expit(each)) for each in (middle, middle - spread, middle + spread))
    return LearningPoint(round(ahead * texts[-1]), value, low, high)


def strongest_result(results: Mapping[tuple[str, str], AttackResult]) -> AttackResult:
    """Return the token-inference attack with the highest R-precision on protected vectors."""
    tried = [each for (side, _), each in results.items() if side == "protected" and each.family == "token-inference"]
    return max(tried, key=lambda result: result.value)
