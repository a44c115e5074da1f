"""What still leaks: attacks on released vectors.

An attack sees released arrays and what a method declares, never the method: nothing here may
import `vecveil.mechanisms` or `vecveil.protector`. Every attack is one class behind `Attack.run`; the
one call most people need is `token_inference_ladder`, and `vecveil.audit` runs everything.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vecveil.attacks.alignment.base import AlignmentAttack
    from vecveil.attacks.alignment.permutation import PermutationAlignment
    from vecveil.attacks.alignment.procrustes import ProcrustesAlignment
    from vecveil.attacks.alignment.ridge import RidgeAlignment
    from vecveil.attacks.alignment.unpaired import UnpairedAlignment
    from vecveil.attacks.base import FAMILIES, Attack, AttackResult, Finding, Session
    from vecveil.attacks.candidates.base import CandidateAttack
    from vecveil.attacks.candidates.cosine import CosineMatching
    from vecveil.attacks.candidates.fixed_norm import FixedNormMatching
    from vecveil.attacks.candidates.likelihood import LikelihoodMatching
    from vecveil.attacks.denoising import Denoised, Denoiser, fit_denoiser
    from vecveil.attacks.evidence import (
        CandidateVectors,
        Evidence,
        LabelledVectors,
        PairedVectors,
        TextVectors,
    )
    from vecveil.attacks.further_evidence import FurtherVectors
    from vecveil.attacks.knowledge import Knowledge
    from vecveil.attacks.probes.base import ProbeAttack
    from vecveil.attacks.probes.kernel import KernelProbe
    from vecveil.attacks.probes.linear import LinearProbe
    from vecveil.attacks.probes.mlp import MLPProbe
    from vecveil.attacks.reconstruction.algen import ALGENAttack
    from vecveil.attacks.reconstruction.base import ReconstructionAttack
    from vecveil.attacks.reconstruction.geia import GEIAAttack
    from vecveil.attacks.reconstruction.vec2text.attack import Vec2TextAttack
    from vecveil.attacks.reconstruction.vec2text.published import PublishedCheckpoint
    from vecveil.attacks.splits import split_groups, text_groups
    from vecveil.attacks.token_inference.averaging import AveragingAttack, mean_of_releases
    from vecveil.attacks.token_inference.base import TokenInferenceAttack
    from vecveil.attacks.token_inference.ensemble import EnsembleAttack
    from vecveil.attacks.token_inference.faint import FaintDirectionsAttack
    from vecveil.attacks.token_inference.further import FurtherKernelAttack
    from vecveil.attacks.token_inference.kernel import KernelAttack
    from vecveil.attacks.token_inference.ladder import (
        LadderResult,
        ladder_attacks,
        register_attack,
        token_inference_ladder,
    )
    from vecveil.attacks.token_inference.linear import LinearAttack
    from vecveil.attacks.token_inference.mlc import MLCAttack
    from vecveil.attacks.token_inference.mlp import MLPAttack
    from vecveil.attacks.token_inference.multilateration import (
        MultilaterationAttack,
        RepeatedVectors,
    )
    from vecveil.attacks.token_inference.neighbours import NearestNeighboursAttack
    from vecveil.attacks.token_inference.posterior import BayesPosteriorAttack
    from vecveil.attacks.token_inference.transplant import TransplantAttack

_WHERE = {
    "FAMILIES": "base",
    "ALGENAttack": "reconstruction.algen",
    "AlignmentAttack": "alignment.base",
    "Attack": "base",
    "AttackResult": "base",
    "AveragingAttack": "token_inference.averaging",
    "BayesPosteriorAttack": "token_inference.posterior",
    "CandidateAttack": "candidates.base",
    "CandidateVectors": "evidence",
    "CosineMatching": "candidates.cosine",
    "Denoised": "denoising",
    "Denoiser": "denoising",
    "EnsembleAttack": "token_inference.ensemble",
    "Evidence": "evidence",
    "FaintDirectionsAttack": "token_inference.faint",
    "Finding": "base",
    "FixedNormMatching": "candidates.fixed_norm",
    "FurtherKernelAttack": "token_inference.further",
    "FurtherVectors": "further_evidence",
    "GEIAAttack": "reconstruction.geia",
    "KernelAttack": "token_inference.kernel",
    "KernelProbe": "probes.kernel",
    "Knowledge": "knowledge",
    "LabelledVectors": "evidence",
    "LadderResult": "token_inference.ladder",
    "LikelihoodMatching": "candidates.likelihood",
    "LinearAttack": "token_inference.linear",
    "LinearProbe": "probes.linear",
    "MLCAttack": "token_inference.mlc",
    "MLPAttack": "token_inference.mlp",
    "MLPProbe": "probes.mlp",
    "MultilaterationAttack": "token_inference.multilateration",
    "NearestNeighboursAttack": "token_inference.neighbours",
    "PairedVectors": "evidence",
    "PermutationAlignment": "alignment.permutation",
    "ProbeAttack": "probes.base",
    "ProcrustesAlignment": "alignment.procrustes",
    "PublishedCheckpoint": "reconstruction.vec2text.published",
    "ReconstructionAttack": "reconstruction.base",
    "RepeatedVectors": "token_inference.multilateration",
    "RidgeAlignment": "alignment.ridge",
    "Session": "base",
    "TextVectors": "evidence",
    "TokenInferenceAttack": "token_inference.base",
    "TransplantAttack": "token_inference.transplant",
    "UnpairedAlignment": "alignment.unpaired",
    "Vec2TextAttack": "reconstruction.vec2text.attack",
    "fit_denoiser": "denoising",
    "ladder_attacks": "token_inference.ladder",
    "mean_of_releases": "token_inference.averaging",
    "register_attack": "token_inference.ladder",
    "split_groups": "splits",
    "text_groups": "splits",
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
