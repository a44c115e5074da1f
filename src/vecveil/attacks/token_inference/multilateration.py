"""Multilateration against words: what somebody reads who has several releases of a text of the same length of noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vecveil.attacks.base import Attack, Finding, Session
from vecveil.attacks.checkpoints import Checkpoint
from vecveil.attacks.evidence import LabelledVectors
from vecveil.attacks.knowledge import Knowledge
from vecveil.attacks.spheres import Locator, fit_locator
from vecveil.attacks.token_inference.linear import LinearAttack
from vecveil.errors import DataFileError, InvalidInputError, message
from vecveil.types import Embeddings, Release
from vecveil.validation import check_count

__all__ = ["MultilaterationAttack", "RepeatedVectors"]


@dataclass(frozen=True, eq=False, repr=False)
class RepeatedVectors(LabelledVectors):
    """Labelled vectors that are means of k releases each, with the releases.

    Attributes:
        releases: (N, k, n) the releases of each text.
    """

    releases: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        shape = np.shape(self.releases)
        if len(shape) != 3 or (shape[0], shape[2]) != self.X.shape or not shape[1]:
            raise InvalidInputError.of("RepeatedVectors", "releases",
                                       "of shape (N, k, n) for X of shape (N, n)", f"shape {shape}",
                                       fix="Make them with `RepeatedVectors.of`.")  # fmt: skip
        if not np.isfinite(self.releases).all():
            raise InvalidInputError.of("RepeatedVectors", "releases", "finite", "nan or inf")

    @classmethod
    def of(
        cls,
        X: Embeddings,
        L: Any,
        k: int,
        release: Release,
        rng: np.random.Generator,
        groups: Any = None,
    ) -> RepeatedVectors:
        """Return ``k`` releases of the clean vectors ``X``, (N, n), with the labels ``L``, (N, V)."""
        count = check_count(k, owner="RepeatedVectors", param="k")
        releases = np.stack([release(X, rng) for _ in range(count)], axis=1)
        mean = releases.mean(axis=1, dtype=np.float64).astype(releases.dtype)
        return cls(mean, L, groups, releases=releases)

    def take(self, rows: Any) -> RepeatedVectors:
        """Return the given rows."""
        part = super().take(rows)
        return RepeatedVectors(
            part.X, part.L, part.groups, part.without, part.further, self.releases[rows]
        )


@dataclass(frozen=True, eq=False)
class _Fitted:
    locator: Locator
    inner: Any
    inner_type: ClassVar[type[Any]]

    def save(self, folder: Path) -> None:
        """Write both parts into folders of their own."""
        Checkpoint(folder / "locator", {}).save(self.locator)
        Checkpoint(folder / "inner", {}).save(self.inner)

    @classmethod
    def load(cls, folder: Path) -> _Fitted:
        """Read both parts."""
        locator = Checkpoint(folder / "locator", {}).load(Locator)
        inner = Checkpoint(folder / "inner", {}).load(cls.inner_type)
        if locator is None or inner is None:
            raise DataFileError.of("MultilaterationAttack", "checkpoint",
                                   "a folder with the parts `locator` and `inner`",
                                   f"{folder.name}, which cannot be read as one", fix="Remove the folder.")  # fmt: skip
        return cls(locator, inner)


class MultilaterationAttack(Attack[LabelledVectors, Any]):
    """A token-inference attack on clean vectors that are located from ``k`` releases of each text.

    The estimate is the Wiener filter of the mean of the releases, moved onto the spheres ‖y_j − x‖ = r around
    them, as far as training texts show that these distances are the same (`vecveil.attacks.spheres`). Where they
    are, n + 1 releases give the clean vector exactly; where they are not, or where releases repeat, the mean is what
    is left. ``test`` must be `RepeatedVectors`, and an oracle is needed. The inner attack learns from
    clean vectors with the error that the estimate was measured to have.
    """

    family = "averaging"

    def __init__(self, k: int, inner: Attack[LabelledVectors, Any] | None = None) -> None:
        """Keep the number of releases.

        Args:
            k: Releases of each text that the attacker has.
            inner: A token-inference attack that reads the estimates; None takes `LinearAttack`.
        """
        self.k = check_count(k, owner="MultilaterationAttack", param="k")
        self.inner = LinearAttack() if inner is None else inner
        if self.inner.family != "token-inference":
            raise InvalidInputError.of("MultilaterationAttack", "inner", "a token-inference attack",
                                       f"one of the family {self.inner.family!r}")  # fmt: skip
        several = self.k > 1
        self.name = f"averaging-{self.k}-spheres-{self.inner.name}"
        self.description = (
            f"On the clean vector as {self.k} release{'s' * several} of each text locate it, by their mean and "
            f"their distances: {self.inner.description}"
        )
        self.cost = f"{self.k} release{'s' * several} of each text; {self.inner.cost}"
        self.source = (
            "Own: multilateration from ‖e' − e‖ = r, as TextCrafter states it of its releases."
        )
        self.state_type = type("_Fitted", (_Fitted,), {"inner_type": self.inner.state_type})
        self.validation_share = self.inner.validation_share

    def _fit(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> Any:
        locator = fit_locator(train.X, validation.X, self.k, knowledge, session.rng)
        inside = Session(session.rng, session.show_progress)
        inner = self.inner._fit(train, validation, locator.knowledge(), inside)
        return self.state_type(locator, inner)

    def _judge(
        self,
        state: Any,
        train: LabelledVectors,
        test: Any,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> Finding:
        locator: Locator = state.locator
        located = locator(test.releases).astype(test.X.dtype)
        read = LabelledVectors(located, test.L, test.groups)
        found = self.inner._judge(state.inner, train, read, locator.knowledge(), rng)
        worth = {
            "spheres": locator.spheres,
            "error": locator.error,
            "error_of_the_mean": locator.averaged,
        }
        return dataclasses.replace(found, details={**worth, **found.details})

    def _check(self, train: LabelledVectors, test: Any, knowledge: Knowledge) -> None:
        owner = type(self).__name__
        if not isinstance(test, RepeatedVectors) or test.releases.shape[1] != self.k:
            raise InvalidInputError(
                message(owner, "test", f"`RepeatedVectors` of {self.k} releases each", f"{type(test).__name__}",
                        "The mean alone does not say how far each release lies from the text's vector.")
            )  # fmt: skip
        if not knowledge.adaptive or train.dimension != test.dimension:
            raise InvalidInputError(
                message(owner, "release", "an oracle whose releases have the dimension of the clean vectors",
                        "none, or another dimension",
                        "Distances are taken between released and clean vectors of training texts.")
            )  # fmt: skip
        self.inner._check(train, test, knowledge)

    def _settings(self) -> Mapping[str, Any]:
        inner = {f"inner.{key}": value for key, value in self.inner._settings().items()}
        return {"inner": self.inner.name, "k": self.k, **inner}
