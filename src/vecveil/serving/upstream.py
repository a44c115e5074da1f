"""Where clean vectors come from: an encoder in this process, or a server that speaks OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from vecveil.types import Embeddings

__all__ = ["Encoded", "Upstream"]


@dataclass(frozen=True, repr=False)
class Encoded:
    """Clean vectors, never shown and never sent.

    Attributes:
        vectors: (N, n) float32, finite.
        tokens: that the upstream counted, 0 if it counted none.
    """

    vectors: Embeddings
    tokens: int = 0


class Upstream(Protocol):
    """Gives the clean vectors of texts."""

    @property
    def name(self) -> str:
        """For logs: a model's name, or a URL without secrets."""
        ...

    @property
    def takes_models(self) -> bool:
        """Whether the model that the client names decides which encoder answers."""
        ...

    async def embed(
        self,
        texts: Sequence[str],
        *,
        model: str,
        dimension: int | None,
        headers: Mapping[str, str],
    ) -> Encoded:
        """Return the vectors of ``texts``.

        Args:
            model: as the client named it.
            dimension: that they must have; None takes any.
            headers: of the client.

        Raises:
            UpstreamError, EncoderError: no answer, or another one than a finite vector for each text.
        """
        ...

    async def aclose(self) -> None:
        """Release what it holds."""
        ...
