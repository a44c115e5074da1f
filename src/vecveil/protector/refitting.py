"""Fits the same method with the same settings on other data, as an audit of unlisted terms needs it."""

from __future__ import annotations

from typing import Any

from vecveil.errors import InvalidInputError
from vecveil.mechanisms import TextCrafter
from vecveil.protector.fitting import fit_pairs
from vecveil.protector.methods import METHODS
from vecveil.protector.protector import Protector
from vecveil.types import Embeddings, Groups, TokenLabels

__all__ = ["refit", "refit_refusal"]


def refit_refusal(protector: Protector) -> str | None:
    """Return why the method cannot be fitted again on other words, or None if it can.

    Either what it does is the same whatever the words are, or its settings are not in its report.
    """
    if isinstance(protector.mechanism, TextCrafter):
        return "Its policy is learnt from whole texts, not from a list of words, and takes minutes to train."
    if protector.rewriter is not None:
        return "It rewrites texts: there is nothing to fit on vectors."
    if not METHODS[protector.method].options:
        return f"Method {protector.method!r} does the same whatever the words are."
    parameters = protector.report.get("parameters")
    if not parameters or parameters.get("shape") == "given":
        return "The settings that the protector was fitted with are not known."
    return None


def refit(
    protector: Protector,
    positive: Embeddings,
    negative: Embeddings,
    token_labels: TokenLabels,
    background: Embeddings | None,
    *,
    groups: Groups | None = None,
) -> Protector:
    """Return a protector with the method, settings and noise of ``protector``, fitted on other data.

    Args:
        positive, negative, token_labels, background, groups: as for `fit_pairs`.

    Raises:
        InvalidInputError: the method cannot be fitted again; see `refit_refusal`.
    """
    refused = refit_refusal(protector)
    if refused is not None:
        raise InvalidInputError.of(
            "refit", "protector", "one that can be fitted again", "another", refused
        )
    known = METHODS[protector.method].options
    options: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in protector.report["parameters"].items()
        if key in known
    }
    if protector.method == "subspace":
        n = protector.dimension
        options["kept"] = min(int(options["kept"]), n - int(options["rank"]))
    scales = protector.mechanism.parameters()
    wanted = str(protector.report.get("postprocess", "")).split(", ")[0]
    maps = [wanted] if wanted in ("none", "wiener") else []
    return fit_pairs(
        positive, negative, token_labels, background,
        method=protector.method, epsilon=scales["epsilon"], before=protector.before,
        postprocess=[*maps, *protector.after] or None, output=protector.output, groups=groups,
        seed=int(protector.report.get("seed", 0)), show_progress=False, **options,
    )  # fmt: skip
