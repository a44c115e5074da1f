"""Audits of a second: the ladder's kinds of attacks, made small."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from harness.small_attacks import small_audits
from vecveil.auditing.attacks import Attack, KernelAttack, LinearAttack, MLCAttack, MLPAttack
from vecveil.privacy.networks import PUBLISHED


@pytest.fixture(scope="module")
def quick_audits() -> Iterator[None]:
    def ladder(tier: str = "quick", device: str = "auto") -> tuple[Attack, ...]:
        brief = MLCAttack(replace(PUBLISHED, epochs=3))
        return LinearAttack(), KernelAttack(rows=512), MLPAttack((64,), epochs=8), brief

    with small_audits(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("vecveil.auditing.families.ladder_attacks", ladder)
        yield
