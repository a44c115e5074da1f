"""The protected side of an audit: by noise on vectors, or by texts that are rewritten before they are encoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vecveil.auditing.case import Encode, Side
from vecveil.metrics.tasks import UtilityRelease
from vecveil.types import Embeddings

if TYPE_CHECKING:
    from vecveil.concepts import ConceptMatches
    from vecveil.protector import Protector

__all__ = ["protected_side", "release_for_tasks", "rewritten_vectors"]


def rewritten_vectors(
    protector: Protector, matches: ConceptMatches, encode: Encode | None
) -> Embeddings:
    """Return (N, n) vectors of the audited texts as the protector rewrites them.

    A concept of given spans has spans for these texts only where the audited one does: it lends its own.
    """
    assert protector.rewriter is not None
    assert encode is not None
    spans = matches.spans if protector.rewriter.needs_spans else None
    return encode(protector.rewrite(matches.texts, spans=spans))


def protected_side(
    protector: Protector,
    embeddings: Embeddings,
    released: Embeddings | None,
    rng: np.random.Generator,
) -> Side:
    """Return the vectors that attackers learn from and are judged on.

    Args:
        released: (N, n) vectors of rewritten texts: the same text is always rewritten the same, so attackers learn
            from these, and there are no fresh releases. None where the protector adds noise to vectors.
    """
    if released is not None:
        return Side("protected", released, released)
    return Side(
        "protected",
        embeddings,
        protector.protect(embeddings, rng),
        protector.release(),
        protector.released_noise_covariance(),
    )


def release_for_tasks(
    protector: Protector, embeddings: Embeddings, released: Embeddings | None
) -> UtilityRelease:
    """Return the release that utility is measured with; without a generator the deterministic part alone."""
    if released is not None:
        from vecveil.protector.texts_only import released_rows

        return released_rows(embeddings, released, owner="audit")
    return lambda V, generator: protector.protect(V, generator, noise=generator is not None)
