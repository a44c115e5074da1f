"""Haystack: a document store of sealed documents, and components that protect embeddings for other stores.

    embedder ─► DocumentWriter(SealedDocumentStore)          text embedder ─► SealedEmbeddingRetriever
    embedder ─► DocumentProtector ─► DocumentWriter          text embedder ─► QueryProtector ─► retriever

Text-level methods go before the embedder: `DocumentProtector` for documents, `QueryRewriter` for queries.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np

from vecveil.errors import InvalidInputError, MissingDependencyError, renamed, wrong_type
from vecveil.index import Searchable
from vecveil.io import expanded
from vecveil.privacy.protector.policy import (
    KeySource,
    PlaintextWarning,
    ReleasePolicy,
    check_saved,
    open_policy,
    policy_config,
    saved_source,
    warn_plaintext,
)
from vecveil.stores.collection import CollectionOptions, ProtectedCollection
from vecveil.stores.locations import is_local, public_name
from vecveil.types import Embeddings
from vecveil.validation import checked_vectors

try:
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.document_stores.errors import DuplicateDocumentError
    from haystack.document_stores.types import DuplicatePolicy
    from haystack.errors import FilterError
    from haystack.utils import Secret
except ImportError:
    raise MissingDependencyError("Haystack components", "haystack-ai", "haystack") from None

if TYPE_CHECKING:
    from vecveil.index import Unsealed
    from vecveil.privacy.accounting import Ledger
    from vecveil.privacy.protector import Protector

__all__ = ["DocumentProtector", "QueryProtector", "QueryRewriter", "SealedDocumentStore", "SealedEmbeddingRetriever"]

_STORE, _RETRIEVER = "SealedDocumentStore", "SealedEmbeddingRetriever"
_FINGERPRINT = "vecveil_protector"  # added to Haystack's keys of a saved component
_REST = "_haystack_document"  # in sealed metadata: a document's parts except content and meta
_SEALED = "sealed:"
_PATHS = ("cache", "trusted_state")  # arguments of `SealedIndex`
_FIELDS = ("id", "content", "blob", "embedding", "sparse_embedding", "score")  # of a document, except meta
_OPERATORS = {"==": "eq", "!=": "ne", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "in": "in", "not in": "nin"}
_CLEAR = "Drop it with keep_content=False, or guard the store as you guard the texts."


class _Saved:
    """Saves a component with the names of its files and variables, never their content."""

    _policy: ReleasePolicy
    _options: dict[str, Any]
    """Arguments of the policy."""

    def to_dict(self) -> dict[str, Any]:
        """Return the constructor arguments; raise InvalidInputError for objects in memory."""
        config = policy_config(**self._options, owner=type(self).__name__)
        options = {name: value for name, value in config.items() if name in self._options}
        saved: dict[str, Any] = default_to_dict(self, **self._own_options(), **options)
        return {**saved, _FINGERPRINT: self._policy.protector.fingerprint}

    def _own_options(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        loaded: Self = default_from_dict(cls, data)
        if _FINGERPRINT in data:
            check_saved(loaded._policy, data[_FINGERPRINT])
        return loaded


def _refuse_both_stages(policy: ReleasePolicy) -> None:
    if policy.rewrites_texts and not policy.protector.text_only:
        said = f"The protector rewrites texts and protects vectors, with an embedder in between. Write to a {_STORE}."
        raise InvalidInputError(said, param="protector")


@component
class DocumentProtector(_Saved):
    """Protects the embeddings of documents, between embedder and writer.

    With a text-level method it rewrites their content instead, before the embedder; id, meta and blob are unchanged.
    A serialised pipeline contains names of files, never their content; objects in memory are refused.

    Args:
        protector: protector, path of its file, or a `ReleasePolicy`.
        keep_content: keep content, blob and sparse embedding next to the vector in the store, with one warning. False
            drops them and keeps id and meta.
        key: noise keys, path of a key file, or ``env:NAME``. Item ids are the documents' ids.
    """

    def __init__(
        self,
        protector: Protector | ReleasePolicy | str | os.PathLike[str],
        *,
        keep_content: bool = True,
        key: KeySource = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
    ) -> None:
        self._options = {"protector": protector, "key": key, "ledger": ledger}
        self._policy = open_policy(**self._options)
        _refuse_both_stages(self._policy)
        self._keep_content, self._warned = keep_content, False
        if self._policy.rewrites_texts and not keep_content:
            said = "`keep_content` is True for a method that rewrites texts: the embedder needs the content."
            raise InvalidInputError(said, param="keep_content")

    def _own_options(self) -> dict[str, Any]:
        return {"keep_content": self._keep_content}

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """Return protected copies of ``documents``; raise unless each has a finite embedding of the fit's dimension."""
        if not documents:
            return {"documents": []}
        if self._policy.rewrites_texts:
            return {"documents": self._rewritten(documents)}
        missing = sum(document.embedding is None for document in documents)
        if missing:
            said = f"{missing} documents have no embedding. Put the DocumentProtector after a document embedder."
            raise InvalidInputError(said, param="documents")
        self._warn(documents)
        embeddings = [document.embedding for document in documents]
        vectors = checked_vectors(embeddings, rows=len(documents), owner="DocumentProtector.run")
        released = self._released(documents, vectors)
        # The sparse embedding too: its indices represent words of the text.
        gone: dict[str, Any] = {} if self._keep_content else {"content": None, "blob": None, "sparse_embedding": None}
        rows = zip(documents, released, strict=True)
        return {"documents": [replace(document, embedding=row.tolist(), **gone) for document, row in rows]}

    def _released(self, documents: list[Document], vectors: Embeddings) -> Embeddings:
        # A call of the policy takes texts for all rows or none, and the texts enter keyed noise. In two calls the
        # noise of a document does not depend on whether its neighbours have content.
        released = np.empty((len(vectors), self._policy.protector.released_dimension), vectors.dtype)
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
        made = [one.embedding is not None or one.sparse_embedding is not None for one in documents]
        if wrong := sum(one.content is None or early for one, early in zip(documents, made, strict=True)):
            said = f"{wrong} documents have an embedding or no content. Put the component before the document embedder."
            raise InvalidInputError(said, param="documents")
        if not self._warned and any(one.id == _own_id(one) for one in documents):
            self._warned = True
            _warn_ids(stacklevel=5)
        texts = self._policy.protector.rewrite([one.content or "" for one in documents])
        return [replace(one, content=text) for one, text in zip(documents, texts, strict=True)]

    def _warn(self, documents: list[Document]) -> None:
        if self._warned:
            return
        if self._keep_content:
            if any(one.content or one.blob or one.sparse_embedding for one in documents):
                self._warned = True
                warn_plaintext("the documents that Haystack writes", _CLEAR, stacklevel=4)
        elif any(one.content and one.id == _own_id(one) for one in documents):
            self._warned = True
            _warn_ids(stacklevel=5)


@component
class QueryProtector(_Saved):
    """Protects the embedding of a query, before the retriever.

    Args:
        protector: protector, path of its file, or a `ReleasePolicy`; text-level methods need a `QueryRewriter`.
        query_noise: noise of queries, in units of documents'; see `vecveil.privacy.protector.policy`.
        key: noise keys, path of a key file, or ``env:NAME``; item ids come from the embeddings.
    """

    def __init__(
        self,
        protector: Protector | ReleasePolicy | str | os.PathLike[str],
        *,
        query_noise: float = 1.0,
        key: KeySource = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
    ) -> None:
        self._options = {"protector": protector, "query_noise": query_noise, "key": key, "ledger": ledger}
        self._policy = open_policy(**self._options)
        if self._policy.rewrites_texts:
            said = "The protector rewrites texts. Put a QueryRewriter before the text embedder."
            raise InvalidInputError(said, param="protector")

    @component.output_types(embedding=list[float])
    def run(self, embedding: list[float]) -> dict[str, list[float]]:
        """Return the protected ``embedding`` of a query."""
        vectors = checked_vectors([embedding], rows=1, owner="QueryProtector.run")
        return {"embedding": self._policy.queries(vectors)[0].tolist()}


@component
class QueryRewriter(_Saved):
    """Rewrites the text of a query with a text-level ``protector``, before the text embedder."""

    def __init__(self, protector: Protector | str | os.PathLike[str]) -> None:
        self._options = {"protector": protector}
        self._policy = open_policy(protector)
        _refuse_both_stages(self._policy)
        if not self._policy.rewrites_texts:
            said = "The protector protects vectors. Put a QueryProtector after the text embedder."
            raise InvalidInputError(said, param="protector")

    @component.output_types(text=str)
    def run(self, text: str) -> dict[str, str]:
        return {"text": self._policy.protector.rewrite([text])[0]}


def _warn_ids(stacklevel: int) -> None:
    warnings.warn(
        "Haystack's default ids are unsalted hashes of the documents: anyone with access to the store can confirm a "
        "guessed text. Give documents your own ids.",
        PlaintextWarning,
        stacklevel=stacklevel,
    )


def _own_id(document: Document) -> str:
    """Return Haystack's default id of a document before embedding: a hash of its fields."""
    # Haystack computes the default id for an empty one, when neither vectors nor score are set yet.
    hashed: str = replace(document, id="", embedding=None, sparse_embedding=None, score=None).id
    return hashed


class SealedDocumentStore(_Saved):
    """Haystack document store over a `ProtectedCollection` or `SealedIndex`, for Haystack's own writers.

    The database of a collection reads protected vectors, ids, lengths and filter tokens; content, meta and blob of a
    document are sealed. Document embeddings must be clean ones of the protector's encoder, which also embeds documents
    without one. Documents come back without embeddings. A serialised pipeline contains names of files and variables,
    never their content; objects in memory are refused.

    Args:
        database: location as for `vecveil scan`; a Haystack `Secret` if it contains a password. Or ``sealed:FOLDER``,
            the location of a `SealedIndex`, or an open index or collection.
        protector: protector, path of its file, or a `ReleasePolicy`; None for an index.
        sealer: path of the key store, or ``env:NAME:STORE``.
        name, candidates, query_noise, filter_fields: as for `ProtectedCollection`. Filters are ``==`` and ``in`` on the
            meta fields ``filter_fields``, joined by ``AND``; an index has all filters of Haystack on every meta field.
        key: noise keys, path of a key file, or ``env:NAME``; item ids are the documents' ids.
        index: arguments of `SealedIndex`.

    Attributes:
        collection: the `ProtectedCollection` or `SealedIndex`.
    """

    def __init__(
        self,
        database: str | Secret | Searchable,
        protector: Protector | ReleasePolicy | str | os.PathLike[str] | None = None,
        sealer: Any = None,
        *,
        key: KeySource = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        index: Mapping[str, Any] | None = None,
        **collection: Unpack[CollectionOptions],
    ) -> None:
        self._options = {"protector": protector, "key": key, "ledger": ledger}
        self._index = dict(index or {})
        self._database, self._sealer, self._warned = database, sealer, False
        self._own = collection | {"filter_fields": list(collection.get("filter_fields", ()))}
        where: Any = database.resolve_value() if isinstance(database, Secret) else database
        self.collection: Any = where
        is_index = isinstance(where, str) and where.startswith(_SEALED)
        unused: dict[str, Any] = {} if is_index else {"index": index or None}
        if isinstance(where, Searchable):
            unused["sealer"] = sealer
        if isinstance(where, Searchable) or is_index:
            unused |= {**self._options, **collection}
        for name, value in unused.items():
            if value is not None:
                fix = "Pass it in `index`." if is_index else "An open index or collection has its own arguments."
                said = f"{_STORE}: `{name}` does not belong to this kind of `database`. {fix}"
                raise InvalidInputError(said, param=name)
        if isinstance(where, Searchable):
            return
        if is_index:
            from vecveil.index import SealedIndex

            self.collection = SealedIndex(where, sealer, **self._index)
            return
        if protector is None:
            raise wrong_type(
                _STORE, "protector", "a protector or its path", protector, fix="Only a sealed index needs none."
            )
        self._policy = open_policy(**self._options)
        self.collection = ProtectedCollection(where, self._policy, sealer, **self._own)

    @classmethod
    def from_sealed(cls, location: str, key: Any, **options: Any) -> Self:
        """Return a store over the `SealedIndex` at ``location``; ``options`` are its arguments."""
        return cls(_SEALED + os.fspath(location).removeprefix(_SEALED), None, key, index=options)

    def to_dict(self) -> dict[str, Any]:
        """Return the constructor arguments; raise InvalidInputError for objects in memory and storage options."""
        if not isinstance(self._database, str) or not self._database.startswith(_SEALED):
            return super().to_dict()
        wrong = [name for name, value in self._index.items() if not isinstance(value, str | os.PathLike | int | float)]
        if wrong:
            said = f"{_STORE}: `{wrong[0]}` is an object, which a saved configuration cannot hold."
            raise InvalidInputError(said, code="E-INPUT-TYPE", param=wrong[0])
        index = {
            name: str(expanded(value).absolute()) if name in _PATHS else value for name, value in self._index.items()
        }
        place = self._database.removeprefix(_SEALED)
        place = place if "://" in place else str(expanded(place).absolute())
        sealer = saved_source(_STORE, "sealer", self._sealer)
        saved: dict[str, Any] = default_to_dict(
            self, database=_SEALED + place, protector=None, sealer=sealer, index=index
        )
        return saved

    def _own_options(self) -> dict[str, Any]:
        where: Any = self._database
        if isinstance(where, str):
            # Absolute, since a different working directory may open it.
            where, local = public_name(where), is_local(where)
            if where != self._database and not local:
                said = "The location has a user, password or option. To save it, pass Secret.from_env_var('NAME')."
                raise InvalidInputError(said, param="database")
        elif not isinstance(where, Secret):
            raise wrong_type(_STORE, "database", "a location or Secret, to be saved", where)
        return {"database": where, "sealer": saved_source(_STORE, "sealer", self._sealer), **self._own}

    def count_documents(self) -> int:
        """Return the number of documents."""
        number: int = self.collection.count()
        return number

    @renamed("where", "filters")
    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """Return all documents that match ``filters``; reads the whole collection."""
        return _documents(self.collection.get(where=_where(filters)))

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Protect, seal and write documents; return their number.

        Raises:
            DuplicateDocumentError: an id is stored already, or given twice, and the policy is FAIL or NONE. Nothing was
                written.
            SealingError: the stored document of an id does not open. Only OVERWRITE has written rows.
        """
        owner, chosen = f"{_STORE}.write_documents", dict[str, Document]()
        if not isinstance(documents, list) or not all(isinstance(one, Document) for one in documents):
            raise wrong_type(owner, "documents", "a list of Documents", documents)
        if any(one.content is None and one.embedding is None for one in documents):
            raise InvalidInputError("A document has neither content nor embedding.", param="documents")
        if self.collection.rewrites_texts and any(one.content is None for one in documents):
            raise InvalidInputError("The protector rewrites texts, and a document has none.", param="documents")
        if not self._warned and any(one.content and one.id == _own_id(one) for one in documents):
            self._warned = True
            _warn_ids(stacklevel=4)
        replaces = policy == DuplicatePolicy.OVERWRITE
        ids = [one.id for one in documents]
        # Open the rows: with SKIP, a row that the database only claims to have would be a lost document.
        stored = set() if replaces else set(self.collection.get(ids, missing="skip").ids)
        for document in documents:
            if replaces or not (document.id in stored or document.id in chosen):
                chosen[document.id] = document
            elif policy != DuplicatePolicy.SKIP:
                raise DuplicateDocumentError(f"{owner}: a document with the id {document.id[:80]!r} exists already.")
        for embedded in (True, False):  # `add` takes vectors for all rows or none
            rows = [one for one in chosen.values() if (one.embedding is not None) is embedded]
            vectors = np.array([one.embedding for one in rows], np.float32) if embedded else None
            self.collection.add(
                [one.content or "" for one in rows],
                ids=[one.id for one in rows],
                metadata=[_sealed(one) for one in rows],
                vectors=vectors,
            )
        return len(documents) if replaces else len(chosen)

    @renamed("ids", "document_ids")
    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete documents; unknown ids are ignored."""
        if document_ids is None:
            raise wrong_type(f"{_STORE}.delete_documents", "document_ids", "a list of ids", None)
        self.collection.delete(document_ids)

    async def count_documents_async(self) -> int:
        return await asyncio.to_thread(self.count_documents)

    async def filter_documents_async(self, filters: dict[str, Any] | None = None) -> list[Document]:
        return await asyncio.to_thread(self.filter_documents, filters)

    async def write_documents_async(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        return await asyncio.to_thread(self.write_documents, documents, policy)

    async def delete_documents_async(self, document_ids: list[str]) -> None:
        await asyncio.to_thread(self.delete_documents, document_ids)


@component
class SealedEmbeddingRetriever:
    """Retrieves documents of a `SealedDocumentStore`, decrypted, by the exact cosine.

    Args:
        filters, top_k: defaults, which the arguments of `run` replace.
    """

    def __init__(
        self, document_store: SealedDocumentStore, *, filters: dict[str, Any] | None = None, top_k: int = 10
    ) -> None:
        if not isinstance(document_store, SealedDocumentStore):
            raise wrong_type(_RETRIEVER, "document_store", f"a {_STORE}", document_store)
        self.document_store, self.filters, self.top_k = document_store, filters, top_k

    def to_dict(self) -> dict[str, Any]:
        store = self.document_store.to_dict()
        saved: dict[str, Any] = default_to_dict(self, document_store=store, filters=self.filters, top_k=self.top_k)
        return saved

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        options = data["init_parameters"]
        store = SealedDocumentStore.from_dict(options["document_store"])
        loaded: Self = default_from_dict(cls, {**data, "init_parameters": {**options, "document_store": store}})
        return loaded

    @component.output_types(documents=list[Document])
    @renamed("where", "filters")
    @renamed("top", "top_k")
    def run(
        self,
        query_embedding: list[float] | None = None,
        query: str | None = None,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
    ) -> dict[str, list[Document]]:
        """Return the documents nearest to the clean ``query_embedding``, or to the text ``query``.

        A protector that rewrites texts requires ``query``.
        """
        if (query is None) == (query_embedding is None):
            raise InvalidInputError("Pass exactly one of `query` and `query_embedding`.", param="query")
        collection, top = self.document_store.collection, self.top_k if top_k is None else top_k
        rows = collection.search(
            np.asarray(query_embedding, np.float32) if query is None else query,
            top=top,
            where=_where(filters or self.filters),
        )
        return {"documents": _documents(rows)}

    @component.output_types(documents=list[Document])
    async def run_async(
        self,
        query_embedding: list[float] | None = None,
        query: str | None = None,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
    ) -> dict[str, list[Document]]:
        return await asyncio.to_thread(self.run, query_embedding, query, filters, top_k)


def _sealed(document: Document) -> dict[str, Any]:
    fields = document.to_dict(flatten=False)
    rest = {name: fields[name] for name in ("blob", "sparse_embedding") if fields[name] is not None}
    if document.content is None:
        rest["content"] = None
    return {**document.meta, **({_REST: rest} if rest else {})}


def _documents(rows: Unsealed) -> list[Document]:
    documents = []
    scores = getattr(rows, "scores", None)
    for at, (name, text, metadata) in enumerate(zip(rows.ids, rows.texts, rows.metadata, strict=True)):
        meta = dict(metadata or {})
        rest = meta.pop(_REST, {})
        score = None if scores is None else float(scores[at])
        documents.append(Document.from_dict({"id": name, "content": text, "meta": meta, "score": score, **rest}))
    return documents


def _where(filters: dict[str, Any] | None) -> dict[str, Any]:
    """Return Haystack's filters as the ``where`` of a collection or index; raise FilterError for malformed ones."""
    return _joined(filters) if filters else {}


def _joined(part: Any) -> dict[str, Any]:
    if not isinstance(part, dict) or "operator" not in part:
        raise _malformed("A condition has no operator.")
    operator, field, value = part["operator"], part.get("field"), part.get("value")
    if field is None:
        if operator not in ("AND", "OR", "NOT") or not isinstance(part.get("conditions"), list):
            raise _malformed("A condition compares a field, or joins a list of conditions by AND, OR or NOT.")
        return {f"${operator.lower()}": [_joined(each) for each in part["conditions"]]}
    if operator not in _OPERATORS or "value" not in part or not isinstance(field, str):
        raise _malformed(f"A comparison has a field, a value and one of the operators {', '.join(_OPERATORS)}.")
    if field in _FIELDS:
        raise _malformed("Filters compare fields of meta.")
    if operator in ("in", "not in") and not isinstance(value, list):
        raise _malformed("The operators `in` and `not in` take a list.")
    if operator in (">", ">=", "<", "<="):
        if value is None:
            return {"$or": []}  # None has no order
        try:
            ordered = datetime.fromisoformat(value) if isinstance(value, str) else value
        except ValueError:
            ordered = None
        if isinstance(ordered, bool) or not isinstance(ordered, int | float | datetime):
            raise _malformed(f"The operator {operator} takes a number or an ISO date.")
    return {field.removeprefix("meta."): {_OPERATORS[operator]: value}}


class MalformedFilterError(InvalidInputError, FilterError):
    """Filters are not of Haystack's form, or name no field of meta."""


def _malformed(text: str) -> MalformedFilterError:
    return MalformedFilterError(f"`filters`: {text}", param="filters")
