"""What still leaks: attacks on released vectors.

An attack sees released arrays and what a method declares, never the method: nothing here may
import `vecveil.mechanisms` or `vecveil.protector`. The one call most people need is
`token_inference_ladder`.
"""

from vecveil.attacks.base import Attack, AttackResult
from vecveil.attacks.faint import FaintDirectionsAttack
from vecveil.attacks.kernel import KernelAttack
from vecveil.attacks.knowledge import Knowledge, LabelledVectors
from vecveil.attacks.ladder import LadderResult, ladder_attacks, token_inference_ladder
from vecveil.attacks.linear import LinearAttack
from vecveil.attacks.mlc import MLCAttack
from vecveil.attacks.mlp import MLPAttack
from vecveil.attacks.splits import split_groups, text_groups
from vecveil.attacks.transplant import TransplantAttack

__all__ = [
    "Attack",
    "AttackResult",
    "FaintDirectionsAttack",
    "KernelAttack",
    "Knowledge",
    "LabelledVectors",
    "LadderResult",
    "LinearAttack",
    "MLCAttack",
    "MLPAttack",
    "TransplantAttack",
    "ladder_attacks",
    "split_groups",
    "text_groups",
    "token_inference_ladder",
]
