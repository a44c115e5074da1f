"""Haystack: components that protect embeddings between embedder and writer or retriever.

    embedder ─► DocumentProtector ─► DocumentWriter          text embedder ─► QueryProtector ─► retriever

Text-level methods go before the embedder: `DocumentProtector` for documents, `QueryRewriter` for queries.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from vecveil.databases.release import KeySource, open_policy, policy_config, warn_plaintext
from vecveil.encoders.protocol import checked_vectors
from vecveil.errors import InvalidInputError, MissingDependencyError
from vecveil.protector.policy import STRONGER, QueryProtection
from vecveil.types import Embeddings

try:
    from haystack import Document, component, default_from_dict, default_to_dict
except ImportError:
    raise MissingDependencyError("Haystack components", "haystack-ai", "haystack") from None

if TYPE_CHECKING:
    from vecveil.accounting import Ledger
    from vecveil.protector import Protector

__all__ = ["DocumentProtector", "QueryProtector", "QueryRewriter"]

_CLEAR = "Drop it with keep_content=False, or guard the store as you guard the texts."


class _Saved:
    """Serialise a component by names of files and variables, never by their content."""

    _options: dict[str, Any]
    """Arguments of the policy."""

    def to_dict(self) -> dict[str, Any]:
        """Return the constructor arguments; raise InvalidInputError for objects in memory."""
        config = policy_config(**self._options, owner=type(self).__name__)
        options = {name: value for name, value in config.items() if name in self._options}
        saved: dict[str, Any] = default_to_dict(self, **self._own_options(), **options)
        return saved

    def _own_options(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        loaded: Self = default_from_dict(cls, data)
        return loaded


@component
class DocumentProtector(_Saved):
    """Protects the embeddings of documents, between embedder and writer.

    With a text-level method it rewrites their content instead, before the embedder.

    Args:
        protector: protector or path of its file.
        keep_content: keep content, blob and sparse embedding, with one warning: the store then holds them beside the
            vector. False drops them; id and meta stay.
        key: noise keys, path of a key file, or ``env:NAME``. Item ids are the documents' ids.

    A serialised pipeline holds names of files, never their content; objects in memory are refused.
    """

    def __init__(
        self,
        protector: Protector | str | os.PathLike[str],
        *,
        keep_content: bool = True,
        key: KeySource = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
    ) -> None:
        self._options = {"protector": protector, "key": key, "ledger": ledger}
        self._policy = open_policy(**self._options)
        self._keep_content, self._warned = keep_content, False
        if self._policy.rewrites_texts and not keep_content:
            raise InvalidInputError.of("DocumentProtector", "keep_content",
                                       "True for a method that rewrites texts", False,
                                       "The embedder behind it needs the rewritten content.")  # fmt: skip

    def _own_options(self) -> dict[str, Any]:
        return {"keep_content": self._keep_content}

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """Return protected copies of ``documents``.

        Raises:
            InvalidInputError: a document without a finite embedding; for a text-level method, a document without
                content or with an embedding.
            IncompatibleError: the dimension differs from the protector's.
        """
        if not documents:
            return {"documents": []}
        if self._policy.rewrites_texts:
            return {"documents": self._rewritten(documents)}
        missing = sum(document.embedding is None for document in documents)
        if missing:
            raise InvalidInputError.of("DocumentProtector.run", "documents", "documents with embeddings",
                                       f"{missing} without", fix="Put it behind a document embedder.")  # fmt: skip
        self._warn(documents)
        vectors = checked_vectors(
            [document.embedding for document in documents], rows=len(documents), owner="DocumentProtector.run"
        )  # fmt: skip
        released = self._released(documents, vectors)
        # The sparse embedding too: its indices stand for words of the text.
        gone: dict[str, Any] = (
            {} if self._keep_content else {"content": None, "blob": None, "sparse_embedding": None}
        )
        return {
            "documents": [
                replace(document, embedding=row.tolist(), **gone)
                for document, row in zip(documents, released, strict=True)
            ]
        }

    def _released(self, documents: list[Document], vectors: Embeddings) -> Embeddings:
        # A call of the policy takes texts for all rows or none, and the texts enter keyed noise. In two calls the
        # noise of a document does not depend on whether its neighbours have content.
        released = np.empty(
            (len(vectors), self._policy.protector.released_dimension), vectors.dtype
        )
        texts = [document.content for document in documents]
        for named in (True, False):
            rows = [i for i, text in enumerate(texts) if (text is not None) is named]
            if rows:
                released[rows] = self._policy.documents(
                    vectors[rows],
                    ids=[documents[i].id for i in rows],
                    texts=[text for text in texts if text is not None] if named else None,
                )
        return released

    def _rewritten(self, documents: list[Document]) -> list[Document]:
        wrong = sum(one.content is None or one.embedding is not None for one in documents)
        if wrong:
            raise InvalidInputError.of("DocumentProtector.run", "documents",
                                       "documents with content and without embeddings", f"{wrong} others",
                                       "The method rewrites texts before they are embedded.",
                                       "Put the component before the document embedder.")  # fmt: skip
        texts = self._policy.protector.rewrite([one.content or "" for one in documents])
        return [replace(one, content=text) for one, text in zip(documents, texts, strict=True)]

    def _warn(self, documents: list[Document]) -> None:
        if self._warned:
            return
        if self._keep_content:
            if any(one.content or one.blob or one.sparse_embedding for one in documents):
                self._warned = True
                warn_plaintext("the documents that Haystack writes", _CLEAR, stacklevel=4)
        # keep_content=False, but the default id is an unsalted hash of the content: guessed texts can be confirmed.
        elif any(one.content and one.id == _own_id(one) for one in documents):
            self._warned = True
            warn_plaintext(
                "the documents that Haystack writes, as their ids: a plain hash, which tells whoever guesses a text",
                "Give documents ids of your own.",
                stacklevel=4,
            )


@component
class QueryProtector(_Saved):
    """Protects the embedding of a query, before the retriever.

    Args:
        protector: protector or path of its file; text-level methods need a `QueryRewriter`.
        query_protection, query_noise: protection of queries; see `vecveil.protector.policy`.
        key: noise keys, path of a key file, or ``env:NAME``; item ids come from the embeddings.
    """

    def __init__(
        self,
        protector: Protector | str | os.PathLike[str],
        *,
        query_protection: QueryProtection = "same",
        query_noise: float = STRONGER,
        key: KeySource = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
    ) -> None:
        self._options = {"protector": protector, "query_protection": query_protection, "query_noise": query_noise,
                         "key": key, "ledger": ledger}  # fmt: skip
        self._policy = open_policy(**self._options)
        if self._policy.rewrites_texts:
            raise InvalidInputError.of("QueryProtector", "protector", "one that protects vectors",
                                       "one that rewrites texts", "An embedding comes too late for it.",
                                       "Put a QueryRewriter before the text embedder.")  # fmt: skip
    @component.output_types(embedding=list[float])
    def run(self, embedding: list[float]) -> dict[str, list[float]]:
        """Return the protected ``embedding`` of a query."""
        vectors = checked_vectors([embedding], rows=1, owner="QueryProtector.run")
        return {"embedding": self._policy.queries(vectors)[0].tolist()}


@component
class QueryRewriter(_Saved):
    """Rewrites the text of a query with a text-level method, before the text embedder.

    Args:
        protector: protector or path of its file.
    """

    def __init__(self, protector: Protector | str | os.PathLike[str]) -> None:
        self._options = {"protector": protector}
        self._policy = open_policy(protector)
        if not self._policy.rewrites_texts:
            raise InvalidInputError.of("QueryRewriter", "protector", "one that rewrites texts",
                                       "one that protects vectors",
                                       fix="Put a QueryProtector behind the text embedder.")  # fmt: skip
    @component.output_types(text=str)
    def run(self, text: str) -> dict[str, str]:
        return {"text": self._policy.protector.rewrite([text])[0]}


def _own_id(document: Document) -> str:
    """Return Haystack's default id of a document before embedding: a hash of its fields."""
    # Haystack computes the default id for an empty one, when neither vectors nor score are set yet.
    hashed: str = replace(document, id="", embedding=None, sparse_embedding=None, score=None).id
    return hashed
