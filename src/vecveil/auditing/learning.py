"""The learning curve: the strongest attack on parts of its texts, continued to ten times as many.

An attacker has more texts than the defender. A line is fitted to the logit of R-precision against the logarithm of the
number of texts. What further texts teach depends on their kind: the upper end of the forecast continues the line, as
texts like the audited ones would; the lower end is what the attack recovers already; the figure lets every doubling
teach half as much as the one before, as sentences of other sources did (benchmarks/results/gpu.json).
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


def learning_curve(case: Case, side: Side, worst: AttackResult, work: WorkFolder | None = None) -> list[LearningPoint]:
    """Return the R-precision of the strongest attack on an eighth, a quarter, half and all of its training texts."""
    jobs = {job.name: job for job in token_inference_jobs(side.seen or case, side)[0]}
    of_part = jobs[worst.name].of_part
    if of_part is None:
        return []
    texts, whole = of_part(1.0)
    parts = [part for part in map(of_part, SHARES) if part[0] >= FEWEST]
    results = run_jobs([job for _, job in parts], work, show_progress=case.options.show_progress)
    measured = [(count, results[job.side, job.name]) for count, job in parts]
    return [
        LearningPoint(count, each.main.value, each.main.low, each.main.high)
        for count, each in [*measured, (texts, worst)]
    ]


def forecast(curve: Sequence[LearningPoint], ahead: float = AHEAD) -> LearningPoint | None:
    """Return the curve's figure for ``ahead`` times as many texts, with a 95 % interval; None from under three points.

    Both ends hold the error of the test texts, which all points share, and the upper one that of the line.
    """
    texts = np.array([point.texts for point in curve], dtype=float)
    if len(np.unique(texts)) < 3:
        return None
    values = np.clip([point.value for point in curve], _EDGE, 1 - _EDGE)
    widths = np.array([point.high - point.low for point in curve])
    shared = float(np.mean(widths / (2 * NORMAL * values * (1 - values))))
    x, y = np.log2(texts), logit(values)
    slope, level = np.polyfit(x - x.mean(), y, 1)
    # More texts never tell less: a falling line is noise.
    slope, beyond = max(slope, 0.0), x[-1] + np.log2(ahead) - x.mean()
    rest = y - level - slope * (x - x.mean())
    error = max(float(np.sqrt((rest**2).sum() / (len(x) - 2))), _STEADY * shared)
    spread = NORMAL * np.sqrt(shared**2 + error**2 * (1 / len(x) + beyond**2 / ((x - x.mean()) ** 2).sum()))
    # Half as much with every doubling: 1/2 + 1/4 + ... for log2(ahead) doublings.
    middle = y[-1] + slope * (1 - 1 / ahead)
    ends = (middle, y[-1] - NORMAL * shared, max(middle + NORMAL * shared, level + slope * beyond + spread))
    return LearningPoint(round(ahead * texts[-1]), *(float(expit(each)) for each in ends))


def strongest_result(results: Mapping[tuple[str, str], AttackResult]) -> AttackResult:
    """Return the token-inference attack with the highest R-precision on protected vectors."""
    tried = [each for (side, _), each in results.items() if side == "protected" and each.family == "token-inference"]
    return max(tried, key=lambda result: result.value)
