"""The artefact that protects, and how it is fitted, saved and loaded."""

from typing import TYPE_CHECKING, Any

from vecveil.protector.encoder_info import EncoderInfo
from vecveil.protector.files import load
from vecveil.protector.protector import Protector

if TYPE_CHECKING:
    from vecveil.protector.fitting import fit_pairs
    from vecveil.protector.fitting_labels import fit_labels
    from vecveil.protector.fitting_texts import fit
    from vecveil.protector.methods import METHODS, FitData, Method, register_method
    from vecveil.protector.text_methods import TEXT_METHODS

__all__ = [
    "METHODS",
    "TEXT_METHODS",
    "EncoderInfo",
    "FitData",
    "Method",
    "Protector",
    "fit",
    "fit_labels",
    "fit_pairs",
    "load",
    "register_method",
]


def __getattr__(name: str) -> Any:
    if name == "fit":
        from vecveil.protector.fitting_texts import fit

        return fit
    if name == "fit_pairs":
        from vecveil.protector.fitting import fit_pairs

        return fit_pairs
    if name == "fit_labels":
        from vecveil.protector.fitting_labels import fit_labels

        return fit_labels
    if name == "TEXT_METHODS":
        from vecveil.protector.text_methods import TEXT_METHODS

        return TEXT_METHODS
    if name in ("METHODS", "FitData", "Method", "register_method"):
        import vecveil.protector.methods as methods

        return getattr(methods, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
