"""Audits whose kernel attacks learn from few rows: the same kinds of attacks, in a fifth of the time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

ROWS = 1024
"""Instead of 5,000 to 8,192 made-up rows, whose cube is most of what an audit of a few hundred texts costs."""


@contextmanager
def small_attacks() -> Iterator[None]:
    """Let audits in this process use the ladder's attacks with at most `ROWS` rows each."""
    from vecveil.attacks import EnsembleAttack, KernelAttack
    from vecveil.attacks.token_inference.ladder import ladder_attacks

    def ladder(tier: Any = "quick", *, device: str = "auto") -> tuple[Any, ...]:
        return tuple(
            type(attack)(rows=ROWS) if isinstance(attack, KernelAttack | EnsembleAttack) else attack
            for attack in ladder_attacks(tier, device=device)
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vecveil.auditing.families.ladder_attacks", ladder)
        patch.setattr("vecveil.attacks.token_inference.kernel._MEMBER_ROWS", ROWS)
        yield
