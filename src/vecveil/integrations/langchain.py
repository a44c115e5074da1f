"""LangChain: `Embeddings` whose vectors are protected, around any other or the protector's own encoder.

    embeddings = ProtectedEmbeddings("drug.vecveil", OpenAIEmbeddings())
    store = Chroma(embedding_function=embeddings)

LangChain's stores keep `page_content` beside the vector whatever the embeddings do. One warning says so.
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
    """Embeddings whose documents and queries leave protected.

    Args:
        protector: or the path of its file.
        embeddings: any LangChain embeddings; None takes the protector's own encoder. Before its first use it embeds
            a dozen fixed sentences, to see that the protector was fitted for it.
        query_protection: ``same``, ``stronger`` or ``map-only``; see `vecveil.protector.policy`.
        query_noise: times the documents' noise, for ``stronger``.
        key: keys, the path of a key file, or ``env:NAME``. With keyed noise a text gets the same vector every time.
        ledger: or the path of its file; items are named by their text.
        text_stored: whether the store keeps texts beside the vectors, as LangChain's stores do; then the first
            documents give a warning.

    A pickle or a copy holds names of files alone; one made of objects in memory is refused.

    Raises:
        InvalidInputError: embeddings of another kind, or what `open_policy` refuses.
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
        """Return the arguments that make it anew: names of files, never their content."""
        config = policy_config(
            **self._given,
            query_protection=self._policy.query_protection,
            query_noise=self._policy.query_noise,
            owner=_OWNER,
        )
        return _reopened, (self.embeddings, {**config, "text_stored": self._text_stored})

    @property
    def policy(self) -> ReleasePolicy:
        """How documents and queries are released."""
        return self._policy

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the protected vectors of documents."""
        texts = self._documents(texts)
        embed = None if self.embeddings is None else self.embeddings.embed_documents
        return _lists(self._wrapped.embed(texts, embed))

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query, protected as `query_protection` says."""
        inner = self.embeddings
        # The probe consists of documents: some models embed a query differently.
        if inner is None:
            return _lists(self._wrapped.embed([text], None, query=True))[0]

        def embed(texts: list[str]) -> list[list[float]]:
            return [inner.embed_query(texts[0])]

        return _lists(self._wrapped.embed([text], embed, query=True, verify=inner.embed_documents))[0]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the protected vectors of documents; the embeddings are awaited."""
        texts = self._documents(texts)
        embed = None if self.embeddings is None else self.embeddings.aembed_documents
        return _lists(await self._wrapped.aembed(texts, embed))

    async def aembed_query(self, text: str) -> list[float]:
        """Return the vector of a query; the embeddings are awaited."""
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
