"""The methods by name, one file each: from pairs, labels and ordinary texts to a noise shape and a map."""

from vecveil.errors import InvalidInputError, unknown_name, wrong_type
from vecveil.protector.data import Data
from vecveil.protector.method import Aim, Candidate, Method
from vecveil.protector.methods.covariance import COVARIANCE
from vecveil.protector.methods.plain import GAUSSIAN, LAPLACE, LDP_GAUSSIAN, PURKAYASTHA, SHUFFLE
from vecveil.protector.methods.sparse import SPARSE
from vecveil.protector.methods.sparse_whitebox import SPARSE_WHITEBOX
from vecveil.protector.methods.subspace import SUBSPACE
from vecveil.protector.methods.text_level import TEXT_METHODS
from vecveil.protector.methods.textcrafter import TEXTCRAFTER, TEXTCRAFTER_SUBSPACE

__all__ = ["METHODS", "TEXT_METHODS", "Aim", "Candidate", "Data", "Method", "method_named", "register_method"]

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        SUBSPACE,
        COVARIANCE,
        SPARSE,
        SPARSE_WHITEBOX,
        LAPLACE,
        PURKAYASTHA,
        GAUSSIAN,
        LDP_GAUSSIAN,
        TEXTCRAFTER,
        TEXTCRAFTER_SUBSPACE,
        SHUFFLE,
    )
}


def register_method(method: Method) -> None:
    """Register a method, so that `vecveil.fit`, `fit_pairs` and experiments in this process accept its name.

    A saved protector stores the mechanism and the map, and loads without the method.
    """
    if not isinstance(method, Method):
        raise wrong_type("register_method", "method", "a Method", method)
    if method.name in METHODS or method.name in TEXT_METHODS:
        raise InvalidInputError(
            f"A method named {repr(method.name)[:60]} exists already.", code="E-INPUT-NAME", param="method"
        )
    METHODS[method.name] = method


def method_named(name: str) -> Method:
    """Return the method of this name that protects vectors."""
    if isinstance(name, str) and name in TEXT_METHODS:
        raise InvalidInputError(
            f"Method {name!r} rewrites texts before they are encoded, and these vectors already hold the concept. Call "
            "vecveil.fit with texts and a concept that matches them.",
            param="method",
        )
    if not isinstance(name, str) or name not in METHODS:
        raise unknown_name("fit", "method", sorted(METHODS), name)
    return METHODS[name]
