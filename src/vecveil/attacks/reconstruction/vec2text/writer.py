"""A network with its tokeniser and the map to its inputs: vectors in, texts out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.features import InputMap
from vecveil.attacks.reconstruction.tokenisers import Ids, Tokeniser, padded
from vecveil.attacks.reconstruction.vec2text.networks import Shape, write_ids

__all__ = ["Language", "Writer"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Language:
    """Texts as the networks see them.

    Attributes:
        tokeniser: Cuts texts into tokens.
        pad: Id that starts a text and fills it up.
        max_tokens: Longest text.
    """

    tokeniser: Tokeniser
    pad: int
    max_tokens: int

    def ids(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each text, its end included."""
        return self.tokeniser.encode(texts, self.max_tokens)

    def guess_ids(self, texts: Sequence[str]) -> list[Ids]:
        """Return ids as a corrector reads them, with the start that a written text has."""
        return [np.concatenate([[self.pad], ids]) for ids in self.ids(texts)]

    def texts(self, rows: Iterable[Sequence[int]]) -> list[str]:
        """Return the text of each row of ids."""
        return self.tokeniser.decode([[i for i in row if i != self.pad] for row in rows])


@dataclass(frozen=True, eq=False)
class Writer:
    """A hypothesiser or a corrector.

    Attributes:
        module: The network.
        shape: What its projections look like.
        language: Its tokens.
        inputs: From released vectors to what the network reads.
    """

    module: Any
    shape: Shape
    language: Language
    inputs: InputMap

    def guess(self, targets: Array, *, beam: int = 1) -> list[list[str]]:
        """Return ``beam`` texts for each released vector, the likeliest first."""
        return self._write({"target": self.inputs(targets)}, beam)

    def propose(
        self, targets: Array, texts: Sequence[str], vectors: Array, *, beam: int = 1
    ) -> list[list[str]]:
        """Return ``beam`` better texts for each target, given a text and that text's vector."""
        ids, _ = padded(self.language.guess_ids(texts), fill=self.language.pad)
        batch: dict[str, Array] = {
            "target": self.inputs(targets),
            "guess": self.inputs(vectors),
            "guess_ids": ids,
        }
        return self._write(batch, beam)

    def _write(self, batch: dict[str, Array], beam: int) -> list[list[str]]:
        found = write_ids(self.module, batch, beam=beam, max_tokens=self.language.max_tokens)
        texts = iter(self.language.texts(ids for some in found for ids in some))
        return [[next(texts) for _ in some] for some in found]
