"""Training of TextCrafter: PII classifier, policy network, reward, policy gradient.

What a trained policy applies to vectors is in `vecveil.mechanisms` and needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vecveil.textcrafter.curves import EpochMeasures, LearningCurves
    from vecveil.textcrafter.reward import reward_lower_bound
    from vecveil.textcrafter.settings import PolicySettings
    from vecveil.textcrafter.training import TrainedPolicy, train_policy

_WHERE = {
    "EpochMeasures": "curves",
    "LearningCurves": "curves",
    "PolicySettings": "settings",
    "TrainedPolicy": "training",
    "reward_lower_bound": "reward",
    "train_policy": "training",
}

__all__ = [
    "EpochMeasures",
    "LearningCurves",
    "PolicySettings",
    "TrainedPolicy",
    "reward_lower_bound",
    "train_policy",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"vecveil.textcrafter.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
