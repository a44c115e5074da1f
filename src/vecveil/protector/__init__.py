"""The fitted artefact that protects vectors: fit, save, load, release."""

import importlib
from typing import TYPE_CHECKING, Any

from vecveil.protector.protector import EncoderInfo, Protector, load

if TYPE_CHECKING:
    from vecveil.protector.fitting import fit, fit_labels, fit_pairs
    from vecveil.protector.methods import METHODS, TEXT_METHODS, Candidate, FitData, Method, register_method
    from vecveil.protector.policy import ReleasePolicy

__all__ = [
    "METHODS",
    "TEXT_METHODS",
    "Candidate",
    "EncoderInfo",
    "FitData",
    "Method",
    "Protector",
    "ReleasePolicy",
    "fit",
    "fit_labels",
    "fit_pairs",
    "load",
    "register_method",
]

# Loaded on first use: loading a protector and protecting vectors need none of these.
_LAZY = {
    **dict.fromkeys(("fit", "fit_labels", "fit_pairs"), "fitting"),
    **dict.fromkeys(("METHODS", "TEXT_METHODS", "Candidate", "FitData", "Method", "register_method"), "methods"),
    "ReleasePolicy": "policy",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"vecveil.protector.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
