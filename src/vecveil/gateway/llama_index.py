"""LlamaIndex: a vector store of sealed nodes, and a protecting `BaseEmbedding` for other stores.

    index = VectorStoreIndex.from_vector_store(SealedVectorStore(collection), embed_model=OpenAIEmbedding())
    index = VectorStoreIndex.from_vector_store(SealedVectorStore.from_sealed("notes/", "search.keys"), ...)
    Settings.embed_model = ProtectedEmbedding("drug.vecveil", OpenAIEmbedding())

`SealedVectorStore` protects clean vectors itself: give its index the plain embedding. `ProtectedEmbedding` calls the
private methods of the wrapped embedding, because the public ones emit events with clean vectors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from vecveil.errors import InvalidInputError, MissingDependencyError, renamed, unknown_name, wrong_type
from vecveil.index import Searchable, Unsealed
from vecveil.index.searchable import on_thread
from vecveil.privacy.protector.policy import (
    KeySource,
    ReleasePolicy,
    WrappedEmbedder,
    check_saved,
    open_policy,
    policy_arguments,
    policy_config,
    saved_source,
    warn_plaintext,
)
from vecveil.validation import check_count

try:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import Field, PrivateAttr
    from llama_index.core.indices.query.embedding_utils import get_top_k_embeddings, get_top_k_mmr_embeddings
    from llama_index.core.schema import BaseNode, MetadataMode, TextNode
    from llama_index.core.storage.kvstore.types import DEFAULT_COLLECTION, BaseKVStore
    from llama_index.core.vector_stores.types import (
        BasePydanticVectorStore,
        FilterCondition,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )
    from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
except ImportError:
    raise MissingDependencyError("LlamaIndex embeddings", "llama-index-core", "llama-index") from None

if TYPE_CHECKING:
    from vecveil.privacy.accounting import Ledger
    from vecveil.privacy.protector import Protector

__all__ = ["ProtectedEmbedding", "SealedVectorStore"]

_OWNER, _STORE = "ProtectedEmbedding", "SealedVectorStore"
# Placeholder for an argument that was an object; `from_dict` requires it again.
_IN_MEMORY = "(in memory)"
# LlamaIndex's metadata names: id of a node's document; the node as JSON, and its class.
_DOCUMENT, _NODE = "ref_doc_id", ("_node_content", "_node_type")
_DOCUMENT_KEYS = ("doc_id", "document_id")  # the same id in filters, as in LlamaIndex's stores
_SIDES = ("query_embedding", "text_embeddings")
# A list in the metadata matches by each of its values.
_OPERATORS = {
    "==": "eq",
    "!=": "ne",
    ">": "gt",
    ">=": "gte",
    "<": "lt",
    "<=": "lte",
    "in": "in",
    "nin": "nin",
    "any": "in",
    "contains": "eq",
    "text_match": "contains",
    "text_match_insensitive": "icontains",
}


class ProtectedEmbedding(BaseEmbedding):  # type: ignore[misc, unused-ignore]
    """LlamaIndex embedding with protected documents and queries.

    `to_dict`, `to_json` and a pickle hold names of files, never their content. `from_dict` needs those files, and
    ``embed_model=`` again if an embedding was wrapped.

    Args:
        protector: protector, path of its file, or a `ReleasePolicy`.
        embed_model: any LlamaIndex embedding; None uses the protector's encoder. The first call embeds a dozen fixed
            sentences to verify that it is the encoder of the fit.
        query_noise: noise of queries, in units of documents'; see `vecveil.privacy.protector.policy`.
        key: noise keys, path of a key file, or ``env:NAME``. With keyed noise equal texts get equal vectors.
        ledger: ledger or path of its file; item ids are the texts.
        text_stored: warn once that the index keeps the texts.
        options: fields of `BaseEmbedding`, such as ``embed_batch_size``.
    """

    protector: str = Field(frozen=True)
    protector_fingerprint: str = Field(frozen=True)
    wraps: str | None = Field(default=None, frozen=True)
    query_noise: float = Field(default=1.0, frozen=True)
    key: str | None = Field(default=None, frozen=True)
    ledger: str | None = Field(default=None, frozen=True)
    text_stored: bool = Field(default=True, frozen=True)

    _wrapped: WrappedEmbedder = PrivateAttr()
    _inner: Any = PrivateAttr(default=None)
    _given: dict[str, Any] = PrivateAttr()
    _warned: bool = PrivateAttr(default=False)

    def __init__(
        self,
        protector: Protector | ReleasePolicy | str | os.PathLike[str],
        embed_model: BaseEmbedding | None = None,
        *,
        query_noise: float = 1.0,
        key: KeySource = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        text_stored: bool = True,
        **options: Any,
    ) -> None:
        if embed_model is not None and not isinstance(embed_model, BaseEmbedding):
            raise wrong_type(_OWNER, "embed_model", "a LlamaIndex embedding or None", embed_model)
        # Only `from_dict` passes these two: fields of the saved configuration, not options of BaseEmbedding.
        wraps, fingerprint = options.pop("wraps", None), options.pop("protector_fingerprint", None)
        given: dict[str, Any] = {"protector": protector, "query_noise": query_noise, "key": key, "ledger": ledger}
        missing = [name for name, value in given.items() if isinstance(value, str) and value == _IN_MEMORY]
        if wraps is not None and embed_model is None:
            missing.append("embed_model")
        if missing:
            said = f"Objects are not saved: pass it again, {_OWNER}.from_dict(data, {missing[0]}=...)."
            raise InvalidInputError(said, code="E-INPUT-SAVED", param=missing[0])
        policy, given = open_policy(**given), policy_arguments(**given)
        check_saved(policy, fingerprint)
        cache = options.get("embeddings_cache")
        if cache is not None and policy.query_noise != 1:
            said = "Leave out `embeddings_cache`: it would give queries the vectors of documents."
            raise InvalidInputError(said, param="embeddings_cache")
        if isinstance(cache, BaseKVStore):
            options["embeddings_cache"] = _OwnCache(cache, policy.protector.fingerprint)
        # LlamaIndex shows the name in events and uses it in cache keys, where it must differ from the clean model.
        encoder = policy.protector.encoder_info.name if embed_model is None else embed_model.model_name
        options.setdefault("model_name", f"vecveil/{policy.protector.method}/{encoder}")
        fields: dict[str, Any] = {
            **given,
            "protector": _name(protector),
            "protector_fingerprint": policy.protector.fingerprint,
            "wraps": None if embed_model is None else embed_model.class_name(),
            "key": _name(given["key"]),
            "ledger": _name(given["ledger"]),
            "text_stored": text_stored,
        }
        super().__init__(**fields, **options)  # pydantic fields first: private attributes need the instance
        self._inner, self._given = embed_model, given
        self._wrapped = WrappedEmbedder(policy, owner=_OWNER)

    @classmethod
    def class_name(cls) -> str:
        return _OWNER

    def __reduce__(self) -> tuple[Callable[..., ProtectedEmbedding], tuple[Any, ...]]:
        config = policy_config(**self._given, owner=_OWNER)
        own = ("embed_batch_size", "num_workers", "protector_fingerprint", "text_stored")
        return _reopened, (self._inner, {**config, **{name: getattr(self, name) for name in own}})

    @property
    def policy(self) -> ReleasePolicy:
        """Release policy."""
        return self._wrapped.policy

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self._warn()
        return _lists(self._wrapped.embed(texts, getattr(self._inner, "_get_text_embeddings", None)))

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self._warn()
        embed = getattr(self._inner, "_aget_text_embeddings", None)
        return _lists(await self._wrapped.aembed(texts, embed))

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return (await self._aget_text_embeddings([text]))[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        embed, verify = (getattr(self._inner, f"_get_{side}", None) for side in _SIDES)
        return self._wrapped.embed_query(query, embed, verify)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        embed, verify = (getattr(self._inner, f"_aget_{side}", None) for side in _SIDES)
        return await self._wrapped.aembed_query(query, embed, verify)

    def _warn(self) -> None:
        if self.text_stored and not self._warned:
            self._warned = True
            warn_plaintext(
                "LlamaIndex's indexes, which keep the text of every node",
                "Guard index and store as you guard the texts, or keep texts elsewhere and pass text_stored=False.",
                stacklevel=5,
            )


class _OwnCache(BaseKVStore):  # type: ignore[misc, unused-ignore]
    """Part of a key-value store for one protector.

    LlamaIndex uses texts as keys, and would return clean vectors that another embedding stored under them.
    """

    def __init__(self, store: BaseKVStore, fingerprint: str) -> None:
        self._store, self._fingerprint = store, fingerprint

    def _own(self, collection: str) -> str:
        return f"{collection}/{self._fingerprint}"

    def put(self, key: str, val: dict[str, Any], collection: str = DEFAULT_COLLECTION) -> None:
        self._store.put(key, val, self._own(collection))

    async def aput(self, key: str, val: dict[str, Any], collection: str = DEFAULT_COLLECTION) -> None:
        await self._store.aput(key, val, self._own(collection))

    def get(self, key: str, collection: str = DEFAULT_COLLECTION) -> dict[str, Any] | None:
        return self._store.get(key, self._own(collection))

    async def aget(self, key: str, collection: str = DEFAULT_COLLECTION) -> dict[str, Any] | None:
        return await self._store.aget(key, self._own(collection))

    def get_all(self, collection: str = DEFAULT_COLLECTION) -> dict[str, dict[str, Any]]:
        return self._store.get_all(self._own(collection))

    async def aget_all(self, collection: str = DEFAULT_COLLECTION) -> dict[str, dict[str, Any]]:
        return await self._store.aget_all(self._own(collection))

    def delete(self, key: str, collection: str = DEFAULT_COLLECTION) -> bool:
        return self._store.delete(key, self._own(collection))

    async def adelete(self, key: str, collection: str = DEFAULT_COLLECTION) -> bool:
        return await self._store.adelete(key, self._own(collection))


def _reopened(embed_model: Any, config: dict[str, Any]) -> ProtectedEmbedding:
    return ProtectedEmbedding(embed_model=embed_model, **config)


def _name(value: Any) -> str | None:
    """Return the serialised form of an argument of `open_policy`: the name of a file or variable."""
    if value is None:
        return None
    return saved_source(_OWNER, "key", value) if isinstance(value, str | os.PathLike) else _IN_MEMORY


def _lists(vectors: Any) -> list[list[float]]:
    listed: list[list[float]] = vectors.tolist()
    return listed


class SealedVectorStore(BasePydanticVectorStore):  # type: ignore[misc, unused-ignore]
    """LlamaIndex vector store over a `ProtectedCollection` or `SealedIndex`: decrypted nodes, with exact scores.

    Text, metadata and relationships of a node are sealed. The database of a collection reads protected vectors, ids,
    lengths and filter tokens. A collection filters by ``==`` and ``in`` on ``filter_fields``, joined by ``and``; an
    index has all filters, over every field. Modes: ``default``, ``mmr``, and for an index ``hybrid``, where ``alpha``
    weighs vectors against words. With ``node_ids`` a query ranks these nodes exactly, without a search.

    Args:
        collection: with ``ref_doc_id`` among its ``filter_fields``, because LlamaIndex deletes documents by it. The
            index's embedding finds its candidates, and must be the clean one that the protector was fitted for.
    """

    stores_text: bool = True

    _collection: Any = PrivateAttr()

    def __init__(self, collection: Searchable) -> None:
        if not isinstance(collection, Searchable):
            raise wrong_type(_STORE, "collection", "a ProtectedCollection or SealedIndex", collection)
        if collection.filter_fields is not None and _DOCUMENT not in collection.filter_fields:
            said = f"Put {_DOCUMENT!r} among the filter_fields of the collection: LlamaIndex deletes documents by it."
            raise InvalidInputError(said, param="collection")
        super().__init__(stores_text=True)
        self._collection = collection

    @classmethod
    def from_sealed(cls, location: str | os.PathLike[str], key: Any, **options: Any) -> Self:
        """Return a store over the `SealedIndex` at ``location``; ``options`` are its arguments."""
        from vecveil.index import SealedIndex

        return cls(SealedIndex(location, key, **options))

    @classmethod
    def class_name(cls) -> str:
        return _STORE

    @property
    def client(self) -> Any:
        """The collection or index."""
        return self._collection

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Protect, seal and write nodes with their embeddings, replacing equal ids."""
        if not nodes:
            return []
        ids = [node.node_id for node in nodes]
        self._collection.add(
            [node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes],
            ids=ids,
            metadata=[self._sealed(node) for node in nodes],
            vectors=np.array([node.get_embedding() for node in nodes], np.float32),
        )
        return ids

    @renamed("where", "filters")
    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the nearest nodes by the exact cosine.

        A protector that rewrites texts needs ``query_str``; others prefer ``query_embedding``.

        Raises:
            SealingError: a candidate's blob is missing or does not open.
        """
        modes = {VectorStoreQueryMode.DEFAULT: get_top_k_embeddings, VectorStoreQueryMode.MMR: get_top_k_mmr_embeddings}
        owner, mmr = f"{_STORE}.query", query.mode == VectorStoreQueryMode.MMR
        # LlamaIndex's functions take 0 for all nodes.
        top = check_count(query.similarity_top_k, owner=owner, param="similarity_top_k")
        threshold = kwargs.pop("mmr_threshold", query.mmr_threshold)
        if kwargs:  # it may narrow the search
            raise unknown_name(owner, "vector_store_kwargs", ("mmr_threshold",), next(iter(kwargs)))
        hybrid: dict[str, Any] = {}
        if query.mode == VectorStoreQueryMode.HYBRID and self._collection.filter_fields is None:
            if query.node_ids:
                said = f"{owner}: `node_ids` are ranked by vectors alone. Use the mode default or mmr, or filters."
                raise InvalidInputError(said, param="node_ids")
            if not query.query_str:
                raise InvalidInputError(f"{owner}: the mode hybrid needs `query_str`.", param="query_str")
            hybrid = {"mode": "hybrid", "words": query.query_str}
            if query.alpha is not None:
                hybrid["alpha"] = query.alpha
            if query.hybrid_top_k is not None:
                top = check_count(query.hybrid_top_k, owner=owner, param="hybrid_top_k")
        elif query.mode not in modes:
            known = ("default", "mmr", "hybrid (of a SealedIndex)")
            raise unknown_name(owner, "mode", known, str(query.mode))
        where, embedding = _where(query.filters, query.doc_ids), query.query_embedding
        rows: Any
        if query.node_ids:  # an index over this store gives an empty list for all
            rows = self._collection.get(query.node_ids, where=where, missing="skip")
        else:
            by_text = embedding is None or self._collection.rewrites_texts
            question = (query.query_str or "") if by_text else np.asarray(embedding, np.float32)
            depth = max(self._collection.candidates, top)
            rows = self._collection.search(question, top=depth if mmr else top, where=where, **hybrid)
        if mmr or query.node_ids:
            options = {"mmr_threshold": threshold} if mmr else {}
            scores, ids = modes.get(query.mode, get_top_k_embeddings)(
                embedding or [], list(rows.vectors), similarity_top_k=top, embedding_ids=rows.ids, **options
            )
        else:
            scores, ids = rows.scores, rows.ids
        nodes = {node.node_id: node for node in _nodes(rows)}
        return VectorStoreQueryResult([nodes[name] for name in ids], [float(score) for score in scores], ids)

    @renamed("where", "filters")
    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Return nodes by id, by filter or both, else all; unknown ids are left out."""
        return _nodes(self._collection.get(node_ids, where=_where(filters), missing="skip"))

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete the nodes of a document; an unknown document is ignored."""
        if not isinstance(ref_doc_id, str):  # a comparison with None matches every node without a document
            raise wrong_type(f"{_STORE}.delete", "ref_doc_id", "a string", ref_doc_id)
        try:
            names = self._collection.ids(where={_DOCUMENT: [ref_doc_id]})
        except InvalidInputError as error:
            if error.code != "E-INPUT-NAME":  # no node is of a document
                raise
            return
        self._collection.delete(names)

    @renamed("where", "filters")
    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Delete nodes by id, by filter or both."""
        if node_ids is None and filters is None:
            raise InvalidInputError("Pass node_ids or filters. To delete all nodes, call clear().", param="node_ids")
        if node_ids is None and _has_empty_list(filters):
            said = "`filters` has an empty list, which every node matches. To delete all nodes, call clear()."
            raise InvalidInputError(said, param="filters")
        rows = None if filters is None else self._collection.get(node_ids, where=_where(filters), missing="skip")
        self._collection.delete((node_ids or []) if rows is None else rows.ids)

    def clear(self) -> None:
        """Delete all nodes; the collection and its key stay."""
        self._collection.delete(self._collection.ids())

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        return await on_thread(self._collection, self.add, nodes, **kwargs)

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        return await on_thread(self._collection, self.query, query, **kwargs)

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        return await on_thread(self._collection, self.get_nodes, node_ids, filters)

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        await on_thread(self._collection, self.delete, ref_doc_id, **delete_kwargs)

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        await on_thread(self._collection, self.delete_nodes, node_ids, filters, **delete_kwargs)

    async def aclear(self) -> None:
        await on_thread(self._collection, self.clear)

    def _sealed(self, node: BaseNode) -> dict[str, Any]:
        """Return what the blob contains besides the text: the node and its filter values."""
        row = node_to_metadata_dict(node, remove_text=True)
        values = {**node.metadata, _DOCUMENT: node.ref_doc_id}  # LlamaIndex writes "None" for a node of no document
        if (fields := self._collection.filter_fields) is not None:
            own = {k: v for k, v in node.metadata.items() if isinstance(v, str | bool | int)}  # for other programs
            values = {**own, **{name: values.get(name) for name in fields}}
        return {**{k: v for k, v in values.items() if v is not None}, **{name: row[name] for name in _NODE}}


def _nodes(rows: Unsealed) -> list[BaseNode]:
    return [
        metadata_dict_to_node(row, text=text)
        if row and _NODE[0] in row
        else TextNode(id_=name, text=text or "", metadata=row or {})  # written by another program
        for name, text, row in zip(rows.ids, rows.texts, rows.metadata, strict=True)
    ]


def _where(filters: MetadataFilters | None, doc_ids: list[str] | None = None) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [] if doc_ids is None else [{_DOCUMENT: {"in": doc_ids}}]
    if filters is not None and filters.filters:
        parts.append(_joined(filters))
    return {"$and": parts} if parts else {}


def _has_empty_list(part: Any) -> bool:
    """Return whether a list of filters, or of values that a node must all have or not have, is empty."""
    if isinstance(part, MetadataFilters):
        return not part.filters or any(map(_has_empty_list, part.filters))
    return part.value == [] and part.operator.value in ("all", "nin")


def _joined(part: Any) -> dict[str, Any]:
    """Return LlamaIndex's filters as the ``where`` of a collection or index."""
    if isinstance(part, MetadataFilters):
        inner = [_joined(each) for each in part.filters]
        if part.condition in (None, FilterCondition.AND):
            return {"$and": inner}
        return {"$or": inner} if part.condition == FilterCondition.OR else {"$not": {"$or": inner}}
    key, operator, value = part.key, part.operator.value, part.value
    if key in _DOCUMENT_KEYS:
        key = _DOCUMENT
    if operator == "all":
        return {"$and": [{key: {"eq": each}} for each in (value if isinstance(value, list) else [value])]}
    if operator == "is_empty":
        return {"$or": [{key: {"exists": False}}, {key: {"eq": ""}}]}
    return {key: {_OPERATORS[operator]: value}}
