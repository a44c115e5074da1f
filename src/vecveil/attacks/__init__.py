"""What still leaks: attacks on released vectors.

An attack sees released arrays and what a method declares, never the method: nothing here may
import `vecveil.mechanisms` or `vecveil.protector`. Every attack is one class behind `Attack.run`; the
one call most people need is `token_inference_ladder`, and `vecveil.audit` runs everything.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vecveil.attacks.alignment import (
        AlignmentAttack,
        PermutationAlignment,
        ProcrustesAlignment,
        RidgeAlignment,
    )
    from vecveil.attacks.attack import FAMILIES, Attack, AttackResult, Finding, Session
    from vecveil.attacks.averaging import (
        AveragingAttack,
        MultilaterationAttack,
        RepeatedVectors,
        mean_of_releases,
    )
    from vecveil.attacks.candidates import (
        CandidateAttack,
        CosineMatching,
        FixedNormMatching,
        LikelihoodMatching,
    )
    from vecveil.attacks.denoising import Denoised, Denoiser, fit_denoiser
    from vecveil.attacks.evidence import (
        CandidateVectors,
        Evidence,
        FurtherVectors,
        Knowledge,
        LabelledVectors,
        PairedVectors,
        TextVectors,
        split_groups,
        text_groups,
    )
    from vecveil.attacks.probes import KernelProbe, LinearProbe, MLPProbe, ProbeAttack
    from vecveil.attacks.reconstruction.algen import ALGENAttack
    from vecveil.attacks.reconstruction.base import ReconstructionAttack
    from vecveil.attacks.reconstruction.geia import GEIAAttack
    from vecveil.attacks.reconstruction.vec2text.attack import Vec2TextAttack
    from vecveil.attacks.reconstruction.vec2text.published import PublishedCheckpoint
    from vecveil.attacks.token_inference.base import TokenInferenceAttack
    from vecveil.attacks.token_inference.kernel import (
        EnsembleAttack,
        FurtherKernelAttack,
        KernelAttack,
        TransplantAttack,
    )
    from vecveil.attacks.token_inference.ladder import (
        LadderResult,
        ladder_attacks,
        register_attack,
        token_inference_ladder,
    )
    from vecveil.attacks.token_inference.linear import FaintDirectionsAttack, LinearAttack
    from vecveil.attacks.token_inference.neighbours import (
        BayesPosteriorAttack,
        NearestNeighboursAttack,
    )
    from vecveil.attacks.token_inference.perceptrons import MLCAttack, MLPAttack
    from vecveil.attacks.unpaired import UnpairedAlignment

_WHERE = {
    "FAMILIES": "attack",
    "ALGENAttack": "reconstruction.algen",
    "AlignmentAttack": "alignment",
    "Attack": "attack",
    "AttackResult": "attack",
    "AveragingAttack": "averaging",
    "BayesPosteriorAttack": "token_inference.neighbours",
    "CandidateAttack": "candidates",
    "CandidateVectors": "evidence",
    "CosineMatching": "candidates",
    "Denoised": "denoising",
    "Denoiser": "denoising",
    "EnsembleAttack": "token_inference.kernel",
    "Evidence": "evidence",
    "FaintDirectionsAttack": "token_inference.linear",
    "Finding": "attack",
    "FixedNormMatching": "candidates",
    "FurtherKernelAttack": "token_inference.kernel",
    "FurtherVectors": "evidence",
    "GEIAAttack": "reconstruction.geia",
    "KernelAttack": "token_inference.kernel",
    "KernelProbe": "probes",
    "Knowledge": "evidence",
    "LabelledVectors": "evidence",
    "LadderResult": "token_inference.ladder",
    "LikelihoodMatching": "candidates",
    "LinearAttack": "token_inference.linear",
    "LinearProbe": "probes",
    "MLCAttack": "token_inference.perceptrons",
    "MLPAttack": "token_inference.perceptrons",
    "MLPProbe": "probes",
    "MultilaterationAttack": "averaging",
    "NearestNeighboursAttack": "token_inference.neighbours",
    "PairedVectors": "evidence",
    "PermutationAlignment": "alignment",
    "ProbeAttack": "probes",
    "ProcrustesAlignment": "alignment",
    "PublishedCheckpoint": "reconstruction.vec2text.published",
    "ReconstructionAttack": "reconstruction.base",
    "RepeatedVectors": "averaging",
    "RidgeAlignment": "alignment",
    "Session": "attack",
    "TextVectors": "evidence",
    "TokenInferenceAttack": "token_inference.base",
    "TransplantAttack": "token_inference.kernel",
    "UnpairedAlignment": "unpaired",
    "Vec2TextAttack": "reconstruction.vec2text.attack",
    "fit_denoiser": "denoising",
    "ladder_attacks": "token_inference.ladder",
    "mean_of_releases": "averaging",
    "register_attack": "token_inference.ladder",
    "split_groups": "evidence",
    "text_groups": "evidence",
    "token_inference_ladder": "token_inference.ladder",
}

__all__ = [
    "FAMILIES",
    "ALGENAttack",
    "AlignmentAttack",
    "Attack",
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
    "Finding",
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
    "MLCAttack",
    "MLPAttack",
    "MLPProbe",
    "MultilaterationAttack",
    "NearestNeighboursAttack",
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
    "fit_denoiser",
    "ladder_attacks",
    "mean_of_releases",
    "register_attack",
    "split_groups",
    "text_groups",
    "token_inference_ladder",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"vecveil.attacks.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
