"""LangChain: protected `Embeddings`, and a vector store over any other that seals texts and exact vectors.

    embeddings = ProtectedEmbeddings("drug.vecveil", OpenAIEmbeddings())
    store = ProtectedVectorStore(Chroma("notes", embeddings), "search.keys", name="notes")
    store = ProtectedVectorStore.from_sealed("notes/", "search.keys", embedding=OpenAIEmbeddings())

With `ProtectedEmbeddings` alone, a store keeps `page_content` next to the vector; the class warns once.
"""

from __future__ import annotations

import base64
import functools
import os
import secrets
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, Unpack

import numpy as np

from vecveil.errors import (
    IncompatibleError,
    InvalidInputError,
    KeyFileError,
    MissingDependencyError,
    StoreError,
    renamed,
    wrong_type,
)
from vecveil.index import Searchable
from vecveil.index.blob import SEALED_FIELD
from vecveil.index.searchable import on_thread
from vecveil.privacy.protector.policy import (
    PolicyOptions,
    ReleasePolicy,
    WrappedEmbedder,
    check_saved,
    open_policy,
    policy_config,
    warn_plaintext,
    with_policy,
)
from vecveil.privacy.utility.tasks import unit_rows
from vecveil.stores.collection import ProtectedCollection
from vecveil.stores.store import Batch, DatabaseStore, Match, StoreInfo, VectorStore, Where
from vecveil.texts.encoders.text_encoder import as_text_encoder, encoder_fingerprint
from vecveil.validation import check_count, check_same_length, check_sequence, check_texts

try:
    from langchain_core import vectorstores
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
except ImportError:
    raise MissingDependencyError("LangChain embeddings", "langchain-core", "langchain") from None

if TYPE_CHECKING:
    from vecveil.index import Ranking, Sealer, Unsealed
    from vecveil.privacy.protector import Protector

__all__ = ["ProtectedEmbeddings", "ProtectedVectorStore"]

Answer = TypeVar("Answer")

_OWNER = "ProtectedEmbeddings"
_STORE = "ProtectedVectorStore"
_ID_FIELD = "vecveil_id"
_VECTOR_FIELD = "vecveil_vector"
_SIDES = ("query", "documents")


class ProtectedEmbeddings(Embeddings):
    """LangChain embeddings with protected documents and queries.

    A pickle or copy contains only names of files; objects in memory are refused.

    Args:
        protector: protector, path of its file, or a `ReleasePolicy`.
        embeddings: any LangChain embeddings; None uses the protector's encoder. The first call embeds a dozen fixed
            sentences to verify that they are the encoder of the fit.
        policy: keywords of `PolicyOptions`. With keyed noise equal texts get equal vectors; item ids are the texts.
        text_stored: warn once that the store keeps the texts.
    """

    @with_policy
    def __init__(
        self,
        protector: Protector | ReleasePolicy | str | os.PathLike[str],
        embeddings: Embeddings | None = None,
        *,
        text_stored: bool = True,
        **policy: Unpack[PolicyOptions],
    ) -> None:
        if embeddings is not None and not isinstance(embeddings, Embeddings):
            raise wrong_type(_OWNER, "embeddings", "LangChain embeddings or None", embeddings)
        self.embeddings = embeddings  # public, as LangChain's own wrappers have it
        self._wrapped = WrappedEmbedder(open_policy(protector, **policy), owner=_OWNER)
        self._given: dict[str, Any] = {"protector": protector, **policy}
        self._text_stored, self._warned = text_stored, False
        self._handed: dict[str, list[float]] | None = None

    def __repr__(self) -> str:
        inner = "its own encoder" if self.embeddings is None else type(self.embeddings).__name__
        return f"ProtectedEmbeddings({self.policy.protector.method!r}, {inner})"

    def __reduce__(self) -> tuple[Callable[..., ProtectedEmbeddings], tuple[Any, ...]]:
        # Opened keys refuse to be pickled; another process opens key and ledger again by name.
        config = policy_config(**self._given, owner=_OWNER)
        config["text_stored"] = self._text_stored
        return _reopened, (self.embeddings, config, self.policy.protector.fingerprint)

    @property
    def policy(self) -> ReleasePolicy:
        """Release policy."""
        return self._wrapped.policy

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the protected vectors of documents."""
        if self._handed is not None:
            return self._handed_over(texts, self._handed)
        embed = getattr(self.embeddings, "embed_documents", None)
        return _lists(self._wrapped.embed(self._documents(texts), embed))

    def embed_query(self, text: str) -> list[float]:
        """Return the protected vector of a query."""
        if self._handed and text in self._handed:
            return self._handed[text]
        embed, verify = (getattr(self.embeddings, f"embed_{side}", None) for side in _SIDES)
        return self._wrapped.embed_query(text, embed, verify)

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        if self._handed is not None:
            return self._handed_over(texts, self._handed)
        embed = getattr(self.embeddings, "aembed_documents", None)
        return _lists(await self._wrapped.aembed(self._documents(texts), embed))

    async def aembed_query(self, text: str) -> list[float]:
        if self._handed and text in self._handed:
            return self._handed[text]
        embed, verify = (getattr(self.embeddings, f"aembed_{side}", None) for side in _SIDES)
        return await self._wrapped.aembed_query(text, embed, verify)

    @contextmanager
    def handing(self, vectors: Mapping[str, list[float]]) -> Iterator[None]:
        """Within the block, return ``vectors`` for these texts to the store of a `ProtectedVectorStore`."""
        self._handed = handed = {} if self._handed is None else self._handed
        handed.update(vectors)
        try:
            yield
        finally:
            for text in vectors:
                handed.pop(text, None)

    @staticmethod
    def _handed_over(texts: list[str], handed: Mapping[str, list[float]]) -> list[list[float]]:
        if not all(text in handed for text in texts):
            said = f"The store would keep these texts unsealed. Add them through the {_STORE}."
            raise StoreError(said, code="E-STORE-UNSEALED", param="texts")
        return [handed[text] for text in texts]

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


def _reopened(
    embeddings: Embeddings | None, config: dict[str, Any], fingerprint: str | None = None
) -> ProtectedEmbeddings:
    made = ProtectedEmbeddings(embeddings=embeddings, **config)
    check_saved(made.policy, fingerprint)
    return made


def _lists(vectors: Any) -> list[list[float]]:
    listed: list[list[float]] = vectors.tolist()
    return listed


def _awaited(method: Callable[..., Answer]) -> Callable[..., Coroutine[Any, Any, Answer]]:
    """Return the method that runs ``method`` on a thread of the index, or of the event loop."""

    @functools.wraps(method)
    async def call(self: ProtectedVectorStore, /, *args: Any, **options: Any) -> Answer:
        answer: Answer = await on_thread(self.collection, getattr(self, method.__name__), *args, **options)
        return answer

    return call


class ProtectedVectorStore(vectorstores.VectorStore):
    """LangChain vector store that searches exactly over an inner store that sees almost nothing.

    The inner store contains protected vectors, and sealed blobs in place of texts. Their candidates are opened here,
    ranked by the exact cosine, and returned as documents with text, metadata and id. Relevance scores are the cosines,
    at least 0. Asynchronous methods run on threads.

    In Chroma, in Qdrant and at a location, rows have the format of `ProtectedCollection` and `vecveil migrate`. A
    `SealedIndex` needs no inner store, and a search finds the exact neighbours: see `from_sealed`.

    Args:
        store: location of a database as for `vecveil scan`, a `vecveil.stores.VectorStore`, or a LangChain vector
            store made with a `ProtectedEmbeddings`, which from now on refuses texts added to the store directly. Stores
            other than Chroma and Qdrant must be empty at first, and replace equal ids. Or a `SealedIndex` or
            `ProtectedCollection`, without further arguments.
        sealer: sealer, or the path of its key store.
        name: name of the collection in the key store; by default the location.
        embeddings: embeddings of ``store``, if it has no attribute ``embeddings``.
        store_filter: converts ``{field: strings}`` to a filter of ``store`` for rows whose fields each contain one of
            their strings. Default: a function for `InMemoryVectorStore`, else ``{field: {"$in": [...]}}`` (PGVector,
            Pinecone, MongoDB).
        options: ``candidates``, ``query_noise``, ``filter_fields`` and ``blobs`` of `ProtectedCollection`.

    Attributes:
        collection: the `ProtectedCollection` or `SealedIndex` behind it.
    """

    def __init__(
        self,
        store: vectorstores.VectorStore | VectorStore | Searchable | str,
        sealer: Sealer | str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        embeddings: Embeddings | None = None,
        store_filter: Callable[[Where], Any] | None = None,
        **options: Any,
    ) -> None:
        self.collection: Any
        self._row_id: Callable[[str], str] = str
        if isinstance(store, Searchable):
            if sealer is not None or name is not None or store_filter is not None or options:
                raise InvalidInputError("Pass the other arguments where you open the index.", param="store")
            if embeddings is not None:
                _check_encoder(store, embeddings)
            self.collection, self._exact = store, embeddings
            return
        if sealer is None:
            raise wrong_type(_STORE, "sealer", "a sealer or the path of its key store", sealer)
        if not isinstance(store, vectorstores.VectorStore | VectorStore | str):
            raise wrong_type(_STORE, "store", "a LangChain vector store, a SealedIndex or a location", store)
        protected = getattr(store, "embeddings", None) or embeddings
        if not isinstance(protected, ProtectedEmbeddings):
            raise wrong_type(_STORE, "store", "a store made with ProtectedEmbeddings", protected)
        if embeddings not in (None, protected):
            raise InvalidInputError("`embeddings` differ from the store's. Leave them out.", param="embeddings")
        self._exact = protected.embeddings
        database: Any = store
        if isinstance(store, vectorstores.VectorStore):
            database = _database_of(store, protected, store_filter)
            if name is None:
                raise InvalidInputError("Pass `name`, the collection's name in the key store.", param="name")
            with protected.handing({}):  # from now on they refuse other texts
                pass
        if isinstance(database, LangChainDatabase):
            self._row_id = _row_id
        encoder = None if self._exact is None else _Exact(self._exact)
        self.collection = ProtectedCollection(database, protected.policy, sealer, name=name, encoder=encoder, **options)

    def __repr__(self) -> str:
        return f"{_STORE}({self.collection!r})"

    @property
    def embeddings(self) -> Embeddings | None:
        """Exact embeddings, for the vectors of `similarity_search_by_vector`; None for the collection's encoder."""
        return self._exact

    @classmethod
    def from_sealed(
        cls, location: str | os.PathLike[str], key: Any, *, embedding: Embeddings | None = None, **options: Any
    ) -> Self:
        """Return a store over the `SealedIndex` at ``location``, which the first documents create.

        Args:
            embedding: LangChain embeddings, instead of the option ``encoder``.
            options: arguments of `SealedIndex`.
        """
        from vecveil.index import SealedIndex

        return cls(SealedIndex(location, key, **{"encoder": embedding, **options}), embeddings=embedding)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **options: Any,
    ) -> Self:
        """Return a store with ``texts``; ``options`` are arguments of the class, including ``store`` and ``sealer``."""
        made = cls(embeddings=embedding, **options)
        made.add_texts(texts, metadatas, ids=ids)
        return made

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **hints: Any,
    ) -> list[str]:
        """Seal and write documents, replacing equal ids; return their ids. Hints such as ``batch_size`` are ignored."""
        texts = list(check_texts(texts, owner=f"{_STORE}.add_texts", min_rows=0))
        names = [str(name or uuid.uuid4()) for name in _listed(ids or [None] * len(texts))]
        check_same_length(_STORE, texts=texts, ids=names, metadatas=metadatas or texts)
        metadata = [
            {**row} if name == self._row_id(name) else {**row, _ID_FIELD: name}
            for row, name in zip(metadatas or [{}] * len(texts), names, strict=True)
        ]
        self.collection.add(texts, ids=[self._row_id(name) for name in names], metadata=metadata)
        return names

    def delete(self, ids: list[str] | None = None, **hints: Any) -> bool | None:
        """Delete documents by id; unknown ids are ignored."""
        if ids is None:
            raise InvalidInputError("Pass `ids`: LangChain cannot list the rows.", param="ids")
        self.collection.delete([self._row_id(name) for name in _listed(ids)])
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        return _documents(self.collection.get([self._row_id(name) for name in _listed(ids)], missing="skip"))

    def similarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        return [document for document, _ in self.similarity_search_with_score(query, k, **options)]

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **options: Any) -> list[Document]:
        return [document for document, _ in self.similarity_search_with_score(embedding, k, **options)]

    def similarity_search_with_score(
        self, query: str | list[float], k: int = 4, filter: Mapping[str, Any] | None = None, **options: Any
    ) -> list[tuple[Document, float]]:
        """Return documents with their exact cosines to a text or a clean vector, largest first.

        Args:
            filter: ``where`` of the collection: value, or list of values, by filter field; for a `SealedIndex` also
                ``{"year": {"$gte": 2024}}``, ``$and``, ``$or`` and ``$not``, over every field.
            options: further arguments of the collection's `search`, such as ``mode="hybrid"`` of a `SealedIndex`.
        """
        hits = self._ranked(query, k, filter, **options)
        return [] if hits is None else list(zip(_documents(hits), hits.scores.tolist(), strict=True))

    def max_marginal_relevance_search(
        self,
        query: str | list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> list[Document]:
        k = check_count(k, owner=f"{_STORE}.max_marginal_relevance_search", param="k")
        hits = self._ranked(query, max(k, fetch_k), filter, **options)
        if hits is None or not hits.ids:
            return []
        X, chosen = unit_rows(hits.vectors), [0]
        redundancy = X @ X[0]
        # LangChain's own function needs the query's vector, which a text query does not have.
        while len(chosen) < min(k, len(X)):
            gain = lambda_mult * hits.scores - (1 - lambda_mult) * redundancy
            gain[chosen] = -np.inf
            chosen.append(int(np.argmax(gain)))
            redundancy = np.maximum(redundancy, X @ X[chosen[-1]])
        documents = _documents(hits)
        return [documents[place] for place in chosen]

    def max_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        return self.max_marginal_relevance_search(embedding, k, fetch_k, lambda_mult, **options)

    aadd_texts = _awaited(add_texts)
    adelete = _awaited(delete)
    aget_by_ids = _awaited(get_by_ids)
    asimilarity_search = _awaited(similarity_search)
    asimilarity_search_by_vector = _awaited(similarity_search_by_vector)
    asimilarity_search_with_score = _awaited(similarity_search_with_score)
    amax_marginal_relevance_search = _awaited(max_marginal_relevance_search)
    amax_marginal_relevance_search_by_vector = _awaited(max_marginal_relevance_search_by_vector)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        # LangChain's relevance is from 0 to 1; rounding may take a cosine beyond 1.
        return lambda cosine: min(max(cosine, 0.0), 1.0)

    @renamed("where", "filter")
    @renamed("top", "k")
    def _ranked(
        self, query: str | list[float], top: int, where: Mapping[str, Any] | None, **options: Any
    ) -> Ranking | None:
        exact = query if isinstance(query, str) else np.asarray(query, np.float32)
        try:
            ranking: Ranking = self.collection.search(exact, top=top, where=where, **options)
            return ranking
        except (KeyFileError, StoreError) as error:
            # Before its first document a collection has no data key.
            if error.code == "E-SEAL-COLLECTION" and not self.collection.count():
                return None
            raise


class LangChainDatabase(DatabaseStore):
    """A LangChain vector store as the database of a `ProtectedCollection`.

    The content of a document is ``id:blob`` (as for ``/v1/rerank``). Its metadata are the filter tokens and the
    protected vector in float16, since LangChain returns no vectors. LangChain cannot list or count rows. Ids are UUIDs.
    """

    kind = "langchain"
    metrics: ClassVar[Mapping[str, Any]] = {"cosine": None}  # all metrics rank rows of equal norm alike

    def __init__(
        self,
        store: vectorstores.VectorStore,
        embeddings: ProtectedEmbeddings,
        store_filter: Callable[[Where], Any] | None = None,
    ) -> None:
        super().__init__(self.kind, type(store).__name__)
        self.store, self.embeddings, self._owner = store, embeddings, _STORE
        self._filter = store_filter or _filter_of(store)
        self._first = np.ones(embeddings.policy.protector.released_dimension, np.float32)

    def _names(self) -> list[str]:
        return [self._name] if self._nearest(self._first, 1) else []

    def _info(self) -> StoreInfo:
        return StoreInfo(self.kind, self._name, len(self._names()), self.dimension())

    def dimension(self) -> int:
        return len(self._first)

    def _create(self, dimension: int, metric: str | None, filter_fields: Sequence[str]) -> None:
        pass

    def _batches(self, size: int, after: str) -> Iterator[Batch]:
        yield self._batch(self._nearest(self._first, 1))
        said = "LangChain cannot list the rows of a store. Add the documents again (docs/integrations/rag.md)."
        raise StoreError(said, param="store")

    def _read(self, ids: list[str]) -> Batch:
        return self._batch(self.store.get_by_ids(ids))

    def _write(self, batch: Batch) -> None:
        X = unit_rows(batch.vectors)
        contents, metadata = [], []
        for name, fields, x in zip(batch.ids, batch.fields, X.astype("<f2"), strict=True):
            row = {**fields, _VECTOR_FIELD: base64.b64encode(x.tobytes()).decode()}
            contents.append(f"{name}:{row.pop(SEALED_FIELD, '')}")
            metadata.append(row)
        with self.embeddings.handing(dict(zip(contents, X.tolist(), strict=True))):
            self.store.add_texts(contents, metadata, ids=list(batch.ids))

    def _search(self, vector: Any, k: int, where: Where) -> list[Match]:
        # LangChain's scores differ between stores: the distance is the rank.
        rows = map(_row, self._nearest(vector, k, where))
        return [Match(name, float(place), fields) for place, (name, fields) in enumerate(rows)]

    def _nearest(self, vector: Any, k: int, where: Where | None = None) -> list[Document]:
        token, query = secrets.token_hex(16), unit_rows(np.atleast_2d(vector))[0].tolist()
        options = {"filter": self._filter(where)} if where else {}
        with self.embeddings.handing({token: query}):
            return self.store.similarity_search(token, k=k, **options)

    def _batch(self, documents: Sequence[Document]) -> Batch:
        rows = [_row(document) for document in documents]
        X = np.zeros((len(rows), len(self._first)), np.float32)
        for x, (_, fields) in zip(X, rows, strict=True):
            if vector := fields.get(_VECTOR_FIELD):
                x[:] = np.frombuffer(base64.b64decode(vector), "<f2")
        return Batch(tuple(name for name, _ in rows), X, tuple(fields for _, fields in rows))

    def _delete(self, ids: list[str]) -> None:
        self.store.delete(ids)


def _database_of(
    store: vectorstores.VectorStore, embeddings: ProtectedEmbeddings, store_filter: Callable[[Where], Any] | None
) -> VectorStore:
    """Return the database behind a LangChain store, on its own client if vecveil supports it."""
    module, held = type(store).__module__.partition(".")[0], vars(store)
    if module == "langchain_chroma":
        from vecveil.stores.chroma import ChromaStore

        return _adopted(ChromaStore, held["_client"], held["_collection_name"])
    if module == "langchain_qdrant":
        from vecveil.stores.qdrant import QdrantStore

        return _adopted(QdrantStore, held.get("_client"), held["collection_name"])
    return LangChainDatabase(store, embeddings, store_filter)


def _adopted(kind: Any, client: Any, name: str) -> VectorStore:
    """Return the store of class ``kind`` on a client that LangChain opens and closes."""

    class Adopted(kind):  # type: ignore[misc]
        def close(self) -> None:
            pass

        def _check_reuse(self, filter_fields: Sequence[str]) -> None:
            pass  # LangChain's collection has no embedding function, and its embeddings refuse texts

        # LangChain's default metric need not be the cosine: all metrics rank rows of equal norm alike.
        def _write(self, batch: Batch) -> None:
            super()._write(Batch(batch.ids, unit_rows(batch.vectors), batch.fields))

        def _search(self, vector: Any, k: int, where: Where) -> list[Match]:
            matches: list[Match] = super()._search(unit_rows(vector[None])[0], k, where)
            return matches

    database: Any = Adopted("langchain://", name)
    database._connected, database._owner = client, _STORE
    opened: VectorStore = database
    return opened


class _Exact:
    """Encoder of a collection: LangChain embeddings, which may treat queries differently."""

    def __init__(self, embeddings: Embeddings) -> None:
        self._embeddings = embeddings

    def encode(self, texts: Sequence[str], /) -> list[list[float]]:
        return self._embeddings.embed_documents(list(texts))

    def encode_query(self, texts: Sequence[str], /) -> list[list[float]]:
        return [self._embeddings.embed_query(text) for text in texts]


def _check_encoder(collection: Any, embeddings: Any) -> None:
    """Raise IncompatibleError for embeddings whose fingerprint is not that of the rows' encoder."""
    encoder = as_text_encoder(embeddings, cache=None)
    if encoder.model_fingerprint is None:
        return
    if isinstance(collection, ProtectedCollection):
        collection.policy.protector.encoder_info.check(encoder)
        return
    noted = collection.noted_encoder if collection.exists() else None
    if (noted or encoder_fingerprint(collection.encoder)) not in (None, encoder.model_fingerprint):
        said = "The index was made with a different encoder. Pass `embeddings` of that one, or leave them out."
        raise IncompatibleError(said, code="E-INCOMPATIBLE-ENCODER", param="embeddings")


def _listed(ids: Any) -> list[Any]:
    return check_sequence(ids, "a list of strings", owner=_STORE, param="ids")


def _row_id(name: str) -> str:
    """Return the UUID ``name``, or one derived from it: Qdrant and Weaviate accept no other ids."""
    try:
        return str(uuid.UUID(name))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, name))


def _row(document: Document) -> tuple[str, dict[str, Any]]:
    """Return id and fields of a row; a document of another program has no blob."""
    name, _, blob = document.page_content.partition(":")
    sealed = {SEALED_FIELD: blob} if _VECTOR_FIELD in document.metadata else {}
    return name, {**document.metadata, **sealed}


def _documents(rows: Unsealed) -> list[Document]:
    documents = []
    for name, text, metadata in zip(rows.ids, rows.texts, rows.metadata, strict=True):
        own = dict(metadata or {})
        documents.append(Document(text or "", id=own.pop(_ID_FIELD, name), metadata=own))
    return documents


def _filter_of(store: vectorstores.VectorStore) -> Callable[[Where], Any]:
    if isinstance(store, vectorstores.InMemoryVectorStore):
        return lambda where: lambda row: all(row.metadata.get(field) in some for field, some in where.items())

    def clauses(where: Where) -> dict[str, Any]:
        parts = [{field: {"$in": list(some)}} for field, some in where.items()]
        return parts[0] if len(parts) == 1 else {"$and": parts}

    return clauses
