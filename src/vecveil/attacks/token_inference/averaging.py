"""Averaging: what somebody reads who sees the same text released several times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vecveil.attacks.base import Attack, Finding, Session
from vecveil.attacks.evidence import LabelledVectors
from vecveil.attacks.knowledge import Knowledge
from vecveil.attacks.token_inference.linear import LinearAttack
from vecveil.errors import InvalidInputError
from vecveil.types import Embeddings, Release
from vecveil.validation import check_count

__all__ = ["AveragingAttack", "mean_of_releases"]

_PROBE = 64  # rows that are released twice to see whether the noise repeats


def mean_of_releases(release: Release, k: int) -> Release:
    """Return an oracle whose release is the mean of ``k`` releases of the same vectors.

    Args:
        release: The oracle ``release(X, rng) -> Y``.
        k: Releases of each text; the variance of fresh noise falls to 1/k, keyed noise stays as it is.
    """
    count = check_count(k, owner="mean_of_releases", param="k")

    def released(X: Embeddings, rng: np.random.Generator) -> Embeddings:
        first = release(X, rng)
        total = first.astype(np.float64)
        for _ in range(count - 1):
            total += release(X, rng)
        return (total / count).astype(first.dtype)

    return released


class AveragingAttack(Attack[LabelledVectors, Any]):
    """A token-inference attack on means of ``k`` releases of each text.

    ``test.X`` must hold means of ``k`` releases. With an oracle the attack learns on means of ``k`` fresh
    releases, and the declared noise covariance is divided by ``k`` unless two releases of the same texts
    are equal, which is how keyed noise shows: the figure is then the same for every ``k``. Without an oracle
    the training vectors must be means of ``k`` releases too, and the declared covariance is divided by
    ``k``.
    """

    family = "averaging"

    def __init__(self, k: int, inner: Attack[LabelledVectors, Any] | None = None) -> None:
        """Keep the number of releases.

        Args:
            k: Releases of each text that the attacker has; 1 is the inner attack itself.
            inner: A token-inference attack; None takes `LinearAttack`, the cheapest that is strong.
        """
        self.k = check_count(k, owner="AveragingAttack", param="k")
        self.inner = LinearAttack() if inner is None else inner
        if self.inner.family != "token-inference":
            raise InvalidInputError.of("AveragingAttack", "inner", "a token-inference attack",
                                       f"one of the family {self.inner.family!r}")  # fmt: skip
        self.name = f"averaging-{self.k}-{self.inner.name}"
        several = self.k > 1
        on = f"the mean of {self.k} releases" if several else "one release"
        self.description = f"On {on} of each text: {self.inner.description}"
        self.cost = f"{self.k} release{'s' * several} of each text; {self.inner.cost}"
        self.source = "Own: the mean of repeated releases; composition from the attacker's side."
        self.state_type = self.inner.state_type
        self.validation_share = self.inner.validation_share

    def _fit(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> Any:
        averaged = self._averaged(knowledge, train, session.rng)
        return self.inner._fit(train, validation, averaged, session)

    def _judge(
        self,
        state: Any,
        train: LabelledVectors,
        test: LabelledVectors,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> Finding:
        return self.inner._judge(state, train, test, self._averaged(knowledge, train, rng), rng)

    def _check(self, train: LabelledVectors, test: LabelledVectors, knowledge: Knowledge) -> None:
        self.inner._check(train, test, knowledge)

    def _settings(self) -> Mapping[str, Any]:
        inner = {f"inner.{key}": value for key, value in self.inner._settings().items()}
        return {"inner": self.inner.name, "k": self.k, **inner}

    def _averaged(
        self, knowledge: Knowledge, train: LabelledVectors, rng: np.random.Generator
    ) -> Knowledge:
        """Return what is known of means of k releases."""
        S, release = knowledge.noise_covariance, knowledge.release
        repeats = False
        if release is not None:
            some = train.X[:_PROBE]
            repeats = np.array_equal(knowledge.draw(some, rng), knowledge.draw(some, rng))
        return Knowledge(
            knowledge.dimension,
            None if release is None else mean_of_releases(release, self.k),
            S if S is None or repeats else np.asarray(S, dtype=np.float64) / self.k,
        )
