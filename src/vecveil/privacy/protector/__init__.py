"""The fitted artefact that protects vectors: fit, save, load, release."""

import importlib
from typing import TYPE_CHECKING, Any

from vecveil.privacy.protector.protector import Protector, load
from vecveil.texts.encoders import EncoderInfo

if TYPE_CHECKING:
    from vecveil.privacy.protector.fitting import fit, fit_labels, fit_pairs
    from vecveil.privacy.protector.methods import METHODS, TEXT_METHODS, Aim, Candidate, Data, Method, register_method
    from vecveil.privacy.protector.policy import CleanQueryWarning, PlaintextWarning, ReleasePolicy, open_policy

__all__ = [
    "METHODS",
    "TEXT_METHODS",
    "Aim",
    "Candidate",
    "CleanQueryWarning",
    "Data",
    "EncoderInfo",
    "Method",
    "PlaintextWarning",
    "Protector",
    "ReleasePolicy",
    "fit",
    "fit_labels",
    "fit_pairs",
    "load",
    "open_policy",
    "register_method",
]

# Loaded on first use: loading a protector and protecting vectors need none of these.
_LAZY = {
    **dict.fromkeys(("fit", "fit_labels", "fit_pairs"), "fitting"),
    **dict.fromkeys(("METHODS", "TEXT_METHODS", "Aim", "Candidate", "Data", "Method", "register_method"), "methods"),
    **dict.fromkeys(("CleanQueryWarning", "PlaintextWarning", "ReleasePolicy", "open_policy"), "policy"),
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"vecveil.privacy.protector.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
