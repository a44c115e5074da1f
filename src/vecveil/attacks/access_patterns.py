"""Access patterns: read the words of a row from the log of queries that fetched it, without its vector."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.attack import Attack, AttackFinding, Session, WrappedAttack
from vecveil.attacks.evidence import LabelledVectors
from vecveil.attacks.token_inference.kernel import KernelAttack
from vecveil.types import Embeddings
from vecveil.validation import check_count

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AccessMap:
    """The map from the queries that fetched a row to its place among rows that are fetched together.

    Attributes:
        axes: (Q, d) weights of the queries.
    """

    axes: FloatArray

    def __call__(self, accesses: Embeddings) -> Embeddings:
        """Return coordinates (N, d) of rows that the queries fetched, (N, Q) zeros and ones."""
        counts = accesses.sum(axis=1, keepdims=True, dtype=np.float64)
        # A row that is fetched often must not lie farther out.
        shares = accesses / np.sqrt(np.maximum(counts, 1.0))
        coordinates: Embeddings = (shares @ self.axes).astype(np.float32)
        return coordinates


def fit_access_map(accesses: Embeddings, *, dimensions: int = 64) -> AccessMap:
    """Return the leading directions of rows that are fetched together, each query weighted by its surprise.

    Formula: latent semantic analysis (Deerwester et al. 1990) of rows and queries in the place of texts and words, with
    inverse document frequencies.
    """
    check_count(dimensions, owner="fit_access_map", param="dimensions")
    fetched = accesses.sum(axis=0, dtype=np.float64)
    weights = np.log(len(accesses) / np.maximum(fetched, 1.0))
    counts = np.maximum(accesses.sum(axis=1, keepdims=True, dtype=np.float64), 1.0)
    weighted = accesses * weights / np.sqrt(counts)
    axes = np.linalg.svd(weighted - weighted.mean(axis=0), full_matrices=False)[2][:dimensions]
    return AccessMap(weights[:, None] * axes.T)


class AccessPatternAttack(WrappedAttack):
    """A token-inference attack on what a log of queries tells of a row: which queries fetched it.

    ``X`` holds a row of zeros and ones for each stored row, a column for each query of the log. The log shows neither
    text nor vector of a query. Rows of one subject are fetched together, so that known texts of a part of the rows tell
    the subjects of the others. A log of ids that was computed from released vectors tells no more of a row than its own
    release does, unless queries were made for that row's text: then each is a further release of it.
    """

    name = "access-patterns"
    description = "Token inference from the queries that fetched each row, by the rows that are fetched together."
    family = "token-inference"
    source = "Own; Deerwester et al. (1990), latent semantic analysis; Islam et al. (2012), access-pattern leakage."

    def __init__(self, inner: Attack[LabelledVectors, Any] | None = None, *, dimensions: int = 64) -> None:
        """Keep the inner attack (None: `KernelAttack`) and the most directions of the map."""
        super().__init__(KernelAttack() if inner is None else inner)
        self.k = check_count(dimensions, owner="AccessPatternAttack", param="dimensions")
        self.cost = f"the log of queries, and known texts of a part of the rows; {self.inner.cost}"
        self.state_type = {"map": AccessMap, "inner": self.inner.state_type}

    def _fit(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> Any:
        places = fit_access_map(np.concatenate([train.X, validation.X]), dimensions=self.k)
        learnt, held = (replace(part, X=places(part.X)) for part in (train, validation))
        knowledge = replace(session.knowledge, dimension=learnt.dimension)
        inner = self.inner._fit(learnt, held, session.inner(knowledge))
        return {"map": places, "inner": inner}

    def _judge(self, state: Any, train: LabelledVectors, test: LabelledVectors, session: Session) -> AttackFinding:
        known, met = (replace(part, X=state["map"](part.X)) for part in (train, test))
        knowledge = replace(session.knowledge, dimension=met.dimension)
        return self.inner._judge(state["inner"], known, met, replace(session, knowledge=knowledge))
