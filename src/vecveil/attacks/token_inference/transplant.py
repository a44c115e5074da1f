"""The transplant attack: training texts made up by moving what a concept word does from text to text."""

from __future__ import annotations

import numpy as np

from vecveil.attacks.evidence import LabelledVectors
from vecveil.attacks.knowledge import Knowledge
from vecveil.attacks.token_inference.kernel import KernelAttack, Material
from vecveil.errors import InvalidInputError, message

__all__ = ["TransplantAttack"]

_SHARE_REAL = 0.4
_COPIES = 3


class TransplantAttack(KernelAttack):
    """Kernel ridge regression on real vectors and on made-up ones.

    An attacker who has texts with and without the concept can take the difference Φ(s⁺) − Φ(s⁻) of one
    text, add it to Φ(t⁻) of another, bring the sum to the norm that vectors have, and release it: a text
    that says t about the words of s. There are N² of them, in other contexts than the words had, and what is
    left of a word behind an erasure is seen far better with them.

    It needs `LabelledVectors.without`.
    """

    name = "transplant"
    description = (
        "Kernel ridge regression that also learns from made-up texts: the difference that a concept word "
        "makes, moved to other texts."
    )
    cost = "as kernel, and encoding the training texts without the concept"
    source = "Own: differences of pairs, moved to other texts."

    def require(self, train: LabelledVectors) -> None:
        """Refuse evidence without `LabelledVectors.without`."""
        if train.without is None:
            raise InvalidInputError(
                message("TransplantAttack", "train",
                        "labelled vectors with `without`, vectors of the same texts with the concept removed",
                        "None", "It moves the difference of the two to other texts.",
                        "Give them, or take KernelAttack.")
            )  # fmt: skip

    def _material(
        self, parts: list[LabelledVectors], knowledge: Knowledge, rng: np.random.Generator
    ) -> Material:
        X = np.concatenate([part.X for part in parts])
        L = np.concatenate([part.L for part in parts])
        without = np.concatenate([part.without for part in parts if part.without is not None])
        copies = max(1, min(_COPIES, int(_SHARE_REAL * self.rows) // len(X)))
        if not knowledge.adaptive:
            copies = 1  # the same vectors again teach nothing
        real = np.concatenate([rng.permutation(len(X)) for _ in range(copies)])[: self.rows]
        made = max(0, self.rows - len(real))
        source, target = (rng.integers(0, len(X), made) for _ in range(2))
        moved = without[target] + (X[source] - without[source])
        norms = np.linalg.norm(X[source], axis=1) / np.maximum(np.linalg.norm(moved, axis=1), 1e-12)
        moved = (moved * norms[:, None]).astype(X.dtype)
        rows = np.concatenate([X[real], moved])
        return Material(
            rows, np.concatenate([L[real], L[source]]), np.ones(len(rows), dtype=np.float32)
        )
