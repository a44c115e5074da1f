"""Audits whose attacks learn from few rows, pairs and texts: the same kinds of attacks, in a fifth of the time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

ROWS = 1024
"""Instead of 5,000 to 8,192 made-up rows, whose cube is most of what an audit of a few hundred texts costs."""
PAIRS = (10, 100)
"""Known pairs of the alignments, instead of up to 1,000."""


@contextmanager
def small_attacks() -> Iterator[None]:
    """Let audits in this process use the ladder's attacks with at most `ROWS` rows each."""
    from vecveil.auditing.attacks import EnsembleAttack, KernelAttack, NetworkAttack
    from vecveil.auditing.attacks.ladder import ladder_attacks

    def ladder(tier: Any = "quick", *, device: str = "auto") -> tuple[Any, ...]:
        return tuple(
            type(attack)(rows=ROWS)
            if isinstance(attack, KernelAttack | EnsembleAttack)
            else NetworkAttack(64, device=device)
            if isinstance(attack, NetworkAttack)
            else attack
            for attack in ladder_attacks(tier, device=device)
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vecveil.auditing.families.ladder_attacks", ladder)
        patch.setattr("vecveil.auditing.attacks.token_inference._MEMBER_ROWS", ROWS)
        yield


@contextmanager
def small_audits() -> Iterator[None]:
    """As `small_attacks`, with few known pairs and few made-up texts, whose encoding costs more than the attacks."""
    from vecveil.auditing import families

    alignments = tuple((name, partial(maker, pairs=PAIRS)) for name, maker in families.ALIGNMENTS)
    with small_attacks(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(families, "ALIGNMENTS", alignments)
        patch.setattr("vecveil.auditing.case.VERSIONS", 4)
        patch.setattr("vecveil.auditing.case.MOST_SUBSTITUTED", {"quick": 40, "full": 40})
        patch.setattr("vecveil.auditing.case.MOST_EXCHANGED", 100)
        yield
