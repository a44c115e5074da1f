"""LangChain: `Embeddings` whose vectors are protected, around any other or the protector's own encoder.

    embeddings = ProtectedEmbeddings("drug.vecveil", OpenAIEmbeddings())
    store = Chroma(embedding_function=embeddings)

LangChain's stores keep `page_content` beside the vector; the class warns of this once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vecveil.errors import InvalidInputError, MissingDependencyError
from vecveil.integrations.embedders import WrappedEmbedder
from vecveil.integrations.opening import KeySource, open_policy, policy_config, warn_plaintext
from vecveil.protector.policy import STRONGER, QueryProtection, ReleasePolicy
from vecveil.validation import check_texts

try:
    from langchain_core.embeddings import Embeddings
except ImportError:
    raise MissingDependencyError("LangChain embeddings", "langchain-core", "langchain") from None

if TYPE_CHECKING:
    from vecveil.accounting import Ledger
    from vecveil.protector import Protector

__all__ = ["ProtectedEmbeddings"]

_OWNER = "ProtectedEmbeddings"


class ProtectedEmbeddings(Embeddings):
    """LangChain embeddings with protected documents and queries.

    Args:
        protector: protector or path of its file.
        embeddings: any LangChain embeddings; None uses the protector's encoder. The first call embeds a dozen fixed
            sentences to verify that the protector was fitted for them.
        query_protection, query_noise: protection of queries; see `vecveil.protector.policy`.
        key: noise keys, path of a key file, or ``env:NAME``. With keyed noise equal texts get equal vectors.
        ledger: ledger or path of its file; item ids are the texts.
        text_stored: warn once that the store keeps texts beside the vectors.

    A pickle or copy holds names of files alone; objects in memory are refused.
    """

    def __init__(
        self,
        protector: Protector | str | os.PathLike[str],
        embeddings: Embeddings | None = None,
        *,
        query_protection: QueryProtection = "same",
        query_noise: float = STRONGER,
        key: KeySource = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        text_stored: bool = True,
    ) -> None:
        if embeddings is not None and not isinstance(embeddings, Embeddings):
            raise InvalidInputError.of(
                _OWNER, "embeddings", "LangChain embeddings or None", type(embeddings).__name__
            )
        self.embeddings = embeddings  # public, as LangChain's own wrappers have it
        self._policy = open_policy(
            protector, query_protection=query_protection, query_noise=query_noise, key=key, ledger=ledger
        )  # fmt: skip
        self._wrapped = WrappedEmbedder(self._policy, owner=_OWNER)
        self._given = {"protector": protector, "key": key, "ledger": ledger}
        self._text_stored, self._warned = text_stored, False

    def __repr__(self) -> str:
        inner = "its own encoder" if self.embeddings is None else type(self.embeddings).__name__
        return f"ProtectedEmbeddings({self._policy.protector.method!r}, {inner})"

    def __reduce__(self) -> tuple[Callable[..., ProtectedEmbeddings], tuple[Any, ...]]:
        """Return the constructor arguments: names of files, never their content."""
        # Opened keys refuse to be pickled; another process opens key and ledger again by name.
        config = policy_config(
            **self._given,
            query_protection=self._policy.query_protection,
            query_noise=self._policy.query_noise,
            owner=_OWNER,
        )
        return _reopened, (self.embeddings, {**config, "text_stored": self._text_stored})

    @property
    def policy(self) -> ReleasePolicy:
        """Release policy."""
        return self._policy

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the protected vectors of documents."""
        texts = self._documents(texts)
        embed = None if self.embeddings is None else self.embeddings.embed_documents
        return _lists(self._wrapped.embed(texts, embed))

    def embed_query(self, text: str) -> list[float]:
        """Return the protected vector of a query."""
        inner = self.embeddings
        # Verified with embed_documents: the probe was recorded from documents, and a query may get a prompt.
        if inner is None:
            return _lists(self._wrapped.embed([text], None, query=True))[0]

        def embed(texts: list[str]) -> list[list[float]]:
            return [inner.embed_query(texts[0])]

        return _lists(self._wrapped.embed([text], embed, query=True, verify=inner.embed_documents))[0]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        texts = self._documents(texts)
        embed = None if self.embeddings is None else self.embeddings.aembed_documents
        return _lists(await self._wrapped.aembed(texts, embed))

    async def aembed_query(self, text: str) -> list[float]:
        inner = self.embeddings
        if inner is None:
            return _lists(await self._wrapped.aembed([text], None, query=True))[0]

        async def embed(texts: list[str]) -> list[list[float]]:
            return [await inner.aembed_query(texts[0])]

        return _lists(
            await self._wrapped.aembed([text], embed, query=True, verify=inner.aembed_documents)
        )[0]

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
