"""The kernel attack with further texts: texts that the attacker has made or found, and labelled itself."""

from __future__ import annotations

import numpy as np

from vecveil.attacks.evidence import LabelledVectors
from vecveil.attacks.knowledge import Knowledge
from vecveil.attacks.token_inference.kernel import KernelAttack, Material, is_noisy
from vecveil.errors import InvalidInputError
from vecveil.validation import check_count

__all__ = ["FurtherKernelAttack"]

_COPIES = 2  # releases of each own text, where one block holds everything
_SHARE_OWN = 0.5


class FurtherKernelAttack(KernelAttack):
    """Kernel ridge regression on own texts and on further ones, which count less.

    Further texts (`LabelledVectors.further`) are training texts with a concept word exchanged for another, or
    sentences of a corpus in which the concept's words stand. More of them than one fit can hold are dealt into
    blocks, each beside own texts that are released anew; the blocks' predictions are averaged (Zhang, Duchi and
    Wainwright, 2013).
    """

    name = "kernel-further"
    description = (
        "Kernel ridge regression that also learns from texts that the attacker has made by exchanging concept "
        "words, or found in a corpus."
    )
    cost = "as kernel, and encoding the further texts"
    source = "Own; kernel ridge regression divided into blocks, Zhang, Duchi and Wainwright (2013)."

    def __init__(self, *, rows: int = 6000, blocks: int = 4) -> None:
        """Keep the most rows of a block and the most blocks."""
        super().__init__(rows=rows)
        self.blocks = check_count(blocks, owner="FurtherKernelAttack", param="blocks")

    def require(self, train: LabelledVectors) -> None:
        """Refuse evidence without `LabelledVectors.further`."""
        if train.further is None:
            raise InvalidInputError.of("FurtherKernelAttack", "train",
                                       "labelled vectors with `further`, vectors of texts made or found",
                                       "None", "It learns from them beside the training texts.",
                                       "Give them, or take KernelAttack.")  # fmt: skip

    def _material(
        self, parts: list[LabelledVectors], knowledge: Knowledge, rng: np.random.Generator
    ) -> Material:
        further = parts[0].further
        assert further is not None  # `require` has been asked
        X = np.concatenate([part.X for part in parts])
        L = np.concatenate([part.L for part in parts])
        own = min(len(X), max(1, int(_SHARE_OWN * self.rows)))
        space = max(1, self.rows - own)
        count = min(self.blocks, -(-len(further) // space))
        dealt = np.array_split(rng.permutation(len(further))[: count * space], count)
        copies = 1
        if count == 1 and is_noisy(X, knowledge, rng):
            copies = max(1, min(_COPIES, (self.rows - len(dealt[0])) // own))
        taken = [
            np.concatenate([rng.permutation(len(X))[:own] for _ in range(copies)]) for _ in dealt
        ]
        rows = np.concatenate([*taken, *(len(X) + block for block in dealt)])
        sizes = [len(each) for each in (*taken, *dealt)]
        places = np.split(np.arange(len(rows)), np.cumsum(sizes)[:-1])
        ones = np.ones(len(X), dtype=np.float32)
        return Material(
            np.concatenate([X, further.X])[rows],
            np.concatenate([L, further.L])[rows],
            np.concatenate([ones, further.weight])[rows],
            tuple(np.concatenate([places[i], places[count + i]]) for i in range(count)),
        )
