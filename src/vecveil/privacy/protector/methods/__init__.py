"""The methods by name: from pairs, labels and ordinary texts to a noise shape and a map."""

from vecveil.errors import InvalidInputError, wrong_type
from vecveil.privacy.protector.data import Data
from vecveil.privacy.protector.method import Aim, Candidate, Method
from vecveil.privacy.protector.methods.noise import COVARIANCE, GAUSSIAN, LAPLACE, LDP_GAUSSIAN, PURKAYASTHA, SHUFFLE
from vecveil.privacy.protector.methods.sparse import SPARSE, SPARSE_WHITEBOX
from vecveil.privacy.protector.methods.subspace import SUBSPACE
from vecveil.privacy.protector.methods.text_level import TEXT_METHODS
from vecveil.privacy.protector.methods.textcrafter import TEXTCRAFTER, TEXTCRAFTER_SUBSPACE

__all__ = ["METHODS", "TEXT_METHODS", "Aim", "Candidate", "Data", "Method", "register_method"]

METHODS: dict[str, Method] = {
    "subspace": SUBSPACE,
    "covariance": COVARIANCE,
    "sparse": SPARSE,
    "sparse-whitebox": SPARSE_WHITEBOX,
    "laplace": LAPLACE,
    "purkayastha": PURKAYASTHA,
    "gaussian": GAUSSIAN,
    "ldp-gaussian": LDP_GAUSSIAN,
    "textcrafter": TEXTCRAFTER,
    "textcrafter-subspace": TEXTCRAFTER_SUBSPACE,
    "shuffle": SHUFFLE,
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
