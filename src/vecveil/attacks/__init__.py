"""What still leaks: attacks on released vectors.

An attack sees released arrays and what a method declares, never the method: nothing here may
import `vecveil.mechanisms` or `vecveil.protector`. Every attack is one class behind `Attack.run`; the
one call most people need is `token_inference_ladder`, and `vecveil.audit` runs everything.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vecveil.attacks.base import FAMILIES, Attack, AttackResult, Finding, Session
    from vecveil.attacks.evidence import (
        CandidateVectors,
        Evidence,
        Knowledge,
        LabelledVectors,
        PairedVectors,
        TextVectors,
    )
    from vecveil.attacks.splits import split_groups, text_groups
    from vecveil.attacks.token_inference.base import TokenInferenceAttack
    from vecveil.attacks.token_inference.faint import FaintDirectionsAttack
    from vecveil.attacks.token_inference.kernel import KernelAttack
    from vecveil.attacks.token_inference.ladder import (
        LadderResult,
        ladder_attacks,
        token_inference_ladder,
    )
    from vecveil.attacks.token_inference.linear import LinearAttack
    from vecveil.attacks.token_inference.mlc import MLCAttack
    from vecveil.attacks.token_inference.mlp import MLPAttack
    from vecveil.attacks.token_inference.transplant import TransplantAttack

_WHERE = {
    "FAMILIES": "base",
    "Attack": "base",
    "AttackResult": "base",
    "Finding": "base",
    "Session": "base",
    "CandidateVectors": "evidence",
    "Evidence": "evidence",
    "Knowledge": "evidence",
    "LabelledVectors": "evidence",
    "PairedVectors": "evidence",
    "TextVectors": "evidence",
    "split_groups": "splits",
    "text_groups": "splits",
    "TokenInferenceAttack": "token_inference.base",
    "FaintDirectionsAttack": "token_inference.faint",
    "KernelAttack": "token_inference.kernel",
    "LadderResult": "token_inference.ladder",
    "ladder_attacks": "token_inference.ladder",
    "token_inference_ladder": "token_inference.ladder",
    "LinearAttack": "token_inference.linear",
    "MLCAttack": "token_inference.mlc",
    "MLPAttack": "token_inference.mlp",
    "TransplantAttack": "token_inference.transplant",
}

__all__ = [
    "FAMILIES",
    "Attack",
    "AttackResult",
    "CandidateVectors",
    "Evidence",
    "FaintDirectionsAttack",
    "Finding",
    "KernelAttack",
    "Knowledge",
    "LabelledVectors",
    "LadderResult",
    "LinearAttack",
    "MLCAttack",
    "MLPAttack",
    "PairedVectors",
    "Session",
    "TextVectors",
    "TokenInferenceAttack",
    "TransplantAttack",
    "ladder_attacks",
    "split_groups",
    "text_groups",
    "token_inference_ladder",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"vecveil.attacks.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
