"""Attacks on released vectors: they measure what still leaks.

An attack sees released arrays and the declarations of a method, never the method: no module here may import
`vecveil.privacy.mechanisms` or `vecveil.privacy.protector`. Every attack is a class behind `Attack.run`; most callers
need only `token_inference_ladder`, and `vecveil.audit` runs all attacks. Reconstruction attacks are imported on first
use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from vecveil.auditing.attacks.alignment import (
    AlignmentAttack,
    PermutationAlignment,
    ProcrustesAlignment,
    RidgeAlignment,
    UnpairedAlignment,
)
from vecveil.auditing.attacks.attack import (
    FAMILIES,
    Attack,
    AttackFinding,
    AttackResult,
    CandidateVectors,
    Evidence,
    FurtherVectors,
    Knowledge,
    LabelledVectors,
    PairedVectors,
    Session,
    TextVectors,
    split_groups,
    text_groups,
)
from vecveil.auditing.attacks.candidates import (
    AnchorLinkingAttack,
    CandidateAttack,
    CosineMatching,
    FixedNormMatching,
    LikelihoodMatching,
    LinkingAttack,
    MembershipAttack,
)
from vecveil.auditing.attacks.ladder import LadderResult, ladder_attacks, register_attack, token_inference_ladder
from vecveil.auditing.attacks.perceptrons import MLCAttack, MLPAttack, NetworkAttack
from vecveil.auditing.attacks.probes import KernelProbe, LinearProbe, MLPProbe, ProbeAttack
from vecveil.auditing.attacks.release_model import Denoiser, fit_denoiser
from vecveil.auditing.attacks.token_inference import (
    BayesPosteriorAttack,
    EnsembleAttack,
    FaintDirectionsAttack,
    FurtherKernelAttack,
    KernelAttack,
    LinearAttack,
    NearestNeighboursAttack,
    TokenInferenceAttack,
    TransplantAttack,
)
from vecveil.auditing.attacks.whole_vocabulary import WholeVocabularyAttack
from vecveil.auditing.attacks.wrapped import (
    AccessPatternAttack,
    AveragingAttack,
    Denoised,
    MultilaterationAttack,
    RepeatedVectors,
    mean_of_releases,
)

if TYPE_CHECKING:
    from vecveil.auditing.attacks.reconstruction.base import ReconstructionAttack
    from vecveil.auditing.attacks.reconstruction.decoder import ALGENAttack, GEIAAttack
    from vecveil.auditing.attacks.reconstruction.t5 import PublishedCheckpoint
    from vecveil.auditing.attacks.reconstruction.vec2text import Vec2TextAttack

_RECONSTRUCTION = {
    "ALGENAttack": "decoder",
    "GEIAAttack": "decoder",
    "PublishedCheckpoint": "t5",
    "ReconstructionAttack": "base",
    "Vec2TextAttack": "vec2text",
}

__all__ = [
    "FAMILIES",
    "ALGENAttack",
    "AccessPatternAttack",
    "AlignmentAttack",
    "AnchorLinkingAttack",
    "Attack",
    "AttackFinding",
    "AttackResult",
    "AveragingAttack",
    "BayesPosteriorAttack",
    "CandidateAttack",
    "CandidateVectors",
    "CosineMatching",
    "Denoised",
    "Denoiser",
    "EnsembleAttack",
    "Evidence",
    "FaintDirectionsAttack",
    "FixedNormMatching",
    "FurtherKernelAttack",
    "FurtherVectors",
    "GEIAAttack",
    "KernelAttack",
    "KernelProbe",
    "Knowledge",
    "LabelledVectors",
    "LadderResult",
    "LikelihoodMatching",
    "LinearAttack",
    "LinearProbe",
    "LinkingAttack",
    "MLCAttack",
    "MLPAttack",
    "MLPProbe",
    "MembershipAttack",
    "MultilaterationAttack",
    "NearestNeighboursAttack",
    "NetworkAttack",
    "PairedVectors",
    "PermutationAlignment",
    "ProbeAttack",
    "ProcrustesAlignment",
    "PublishedCheckpoint",
    "ReconstructionAttack",
    "RepeatedVectors",
    "RidgeAlignment",
    "Session",
    "TextVectors",
    "TokenInferenceAttack",
    "TransplantAttack",
    "UnpairedAlignment",
    "Vec2TextAttack",
    "WholeVocabularyAttack",
    "fit_denoiser",
    "ladder_attacks",
    "mean_of_releases",
    "register_attack",
    "split_groups",
    "text_groups",
    "token_inference_ladder",
]


def __getattr__(name: str) -> Any:
    if name in _RECONSTRUCTION:
        home = f"vecveil.auditing.attacks.reconstruction.{_RECONSTRUCTION[name]}"
        return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
