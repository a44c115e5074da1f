"""LangChain: `Embeddings` whose vectors are protected, around any other or the protector's own encoder.

    embeddings = ProtectedEmbeddings("drug.vecveil", OpenAIEmbeddings())
    store = Chroma(embedding_function=embeddings)

LangChain's stores keep `page_content` beside the vector; the class warns of this once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from vecveil.databases.release import (
    PolicyOptions,
    WrappedEmbedder,
    open_policy,
    policy_config,
    warn_plaintext,
    with_policy,
)
from vecveil.errors import InvalidInputError, MissingDependencyError
from vecveil.protector.policy import ReleasePolicy
from vecveil.validation import check_texts

try:
    from langchain_core.embeddings import Embeddings
except ImportError:
    raise MissingDependencyError("LangChain embeddings", "langchain-core", "langchain") from None

if TYPE_CHECKING:
    from vecveil.protector import Protector

__all__ = ["ProtectedEmbeddings"]

_OWNER = "ProtectedEmbeddings"
_SIDES = ("query", "documents")


class ProtectedEmbeddings(Embeddings):
    """LangChain embeddings with protected documents and queries.

    Args:
        protector: protector or path of its file.
        embeddings: any LangChain embeddings; None uses the protector's encoder. The first call embeds a dozen fixed
            sentences to verify that the protector was fitted for them.
        policy: keywords of `PolicyOptions`. With keyed noise equal texts get equal vectors; item ids are the texts.
        text_stored: warn once that the store keeps texts beside the vectors.

    A pickle or copy holds names of files alone; objects in memory are refused.
    """

    @with_policy
    def __init__(
        self,
        protector: Protector | str | os.PathLike[str],
        embeddings: Embeddings | None = None,
        *,
        text_stored: bool = True,
        **policy: Unpack[PolicyOptions],
    ) -> None:
        if embeddings is not None and not isinstance(embeddings, Embeddings):
            raise InvalidInputError.of(
                _OWNER, "embeddings", "LangChain embeddings or None", type(embeddings).__name__
            )
        self.embeddings = embeddings  # public, as LangChain's own wrappers have it
        self._wrapped = WrappedEmbedder(open_policy(protector, **policy), owner=_OWNER)
        self._given: dict[str, Any] = {"protector": protector, **policy}
        self._text_stored, self._warned = text_stored, False

    def __repr__(self) -> str:
        inner = "its own encoder" if self.embeddings is None else type(self.embeddings).__name__
        return f"ProtectedEmbeddings({self.policy.protector.method!r}, {inner})"

    def __reduce__(self) -> tuple[Callable[..., ProtectedEmbeddings], tuple[Any, ...]]:
        """Return the constructor arguments: names of files, never their content."""
        # Opened keys refuse to be pickled; another process opens key and ledger again by name.
        config = policy_config(**self._given, owner=_OWNER)
        return _reopened, (self.embeddings, {**config, "text_stored": self._text_stored})

    @property
    def policy(self) -> ReleasePolicy:
        """Release policy."""
        return self._wrapped.policy

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the protected vectors of documents."""
        embed = getattr(self.embeddings, "embed_documents", None)
        return _lists(self._wrapped.embed(self._documents(texts), embed))

    def embed_query(self, text: str) -> list[float]:
        """Return the protected vector of a query."""
        embed, verify = (getattr(self.embeddings, f"embed_{side}", None) for side in _SIDES)
        return self._wrapped.embed_query(text, embed, verify)

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        embed = getattr(self.embeddings, "aembed_documents", None)
        return _lists(await self._wrapped.aembed(self._documents(texts), embed))

    async def aembed_query(self, text: str) -> list[float]:
        embed, verify = (getattr(self.embeddings, f"aembed_{side}", None) for side in _SIDES)
        return await self._wrapped.aembed_query(text, embed, verify)

    def _documents(self, texts: Sequence[str]) -> list[str]:
        texts = list(check_texts(texts, owner=f"{_OWNER}.embed_documents", min_rows=0))
        if self._text_stored and texts and not self._warned:
            self._warned = True
            warn_plaintext(
                "LangChain's stores, which keep page_content",
                "Guard the store as you guard the texts, or keep texts elsewhere and pass text_stored=False.",
                stacklevel=4,
            )
        return texts


def _reopened(embeddings: Embeddings | None, config: dict[str, Any]) -> ProtectedEmbeddings:
    return ProtectedEmbeddings(embeddings=embeddings, **config)


def _lists(vectors: Any) -> list[list[float]]:
    listed: list[list[float]] = vectors.tolist()
    return listed
