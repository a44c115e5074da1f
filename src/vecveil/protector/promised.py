"""What a protector promises: its mechanism's guarantee, with what came before and after the noise."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vecveil.accounting import Guarantee

if TYPE_CHECKING:
    from vecveil.protector.protector import Protector

__all__ = ["promise_of"]

NO_PAIRS = (
    "Anything about the labels themselves. The neighbours are texts: labels give no pairs of texts with and without "
    "the concept, so how far apart texts of different labels are is not known, and what an attacker tells is measured."
)


def promise_of(protector: Protector) -> Guarantee:
    """Return what ``protector`` promises, in which metric and on which condition."""
    report = protector.report
    fitted_on = ""
    if report.get("pairs"):
        fitted_on = f"{report['pairs']} pairs of texts with and without the concept"
    elif "labelled" in report:
        fitted_on = f"{report['labelled']} texts with labels of {report['labels']} classes"
    promise = protector.mechanism.guarantee(
        down=None if protector.map is None else protector.map.down, fitted_on=fitted_on
    )
    if "labelled" in report:
        promise = replace(promise, not_promised=(NO_PAIRS, *promise.not_promised))
    if protector.before.largest_norm is not None:
        promise = promise.within_norm(protector.before.largest_norm)
    after = [] if protector.map is None else ["a linear map"]
    after += [step.label for step in protector.after]
    return promise.followed_by(tuple(after)) if after else promise
