"""Which attack speaks for its family: the one that comes farthest from chance to certainty.

Chance differs between attacks of one family (one of ten candidates, or one of thousands), so raw figures do not
rank them. Token inference has one chance level, and its verdict is the highest R-precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["over_chance", "strongest"]


def over_chance(value: float | None, chance: float | None) -> float | None:
    """Return how far a figure lies on the way from chance (0) to certainty (1)."""
    if value is None or chance is None or chance >= 1:
        return None
    return (value - chance) / (1 - chance)


def strongest(attacks: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the strongest attack of each family, of entries of a record; what was not measured comes last."""
    found: dict[str, Mapping[str, Any]] = {}
    for attack in attacks:
        family = attack["family"]
        if family not in found or _strength(attack) > _strength(found[family]):
            found[family] = attack
    return found


def _strength(attack: Mapping[str, Any]) -> float:
    """Return what attacks of a family are ranked by: over chance, or the figure itself without chance."""
    value = attack["value"]
    over = over_chance(value, attack["chance"])
    ranked = value if over is None or attack["family"] == "token-inference" else over
    return -math.inf if ranked is None else float(ranked)
