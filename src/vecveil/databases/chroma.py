"""Chroma: collections in a folder or on a server, and a protecting embedding function.

Rows are read in the order of insertion. For cosines Chroma stores unit vectors and norms separately, so values read
differ from values written in the last bits. Chroma's client reads a server's token from the environment variables
``CHROMA_CLIENT_AUTH_PROVIDER`` and ``CHROMA_CLIENT_AUTH_CREDENTIALS``.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast
from urllib.parse import urlsplit

import numpy as np

from vecveil.databases.apart import StoreApart
from vecveil.databases.clients import Items
from vecveil.databases.release import (
    KeySource,
    check_saved,
    open_policy,
    policy_arguments,
    policy_config,
)
from vecveil.databases.store import (
    Batch,
    DatabaseStore,
    Match,
    StoreInfo,
    VectorStore,
    Where,
    check_cursor,
)
from vecveil.encoders.text_encoder import load_recorded_encoder
from vecveil.errors import IncompatibleError, InvalidInputError, MissingDependencyError, StoreError
from vecveil.protector.policy import QUERY_PROTECTIONS, STRONGER, QueryProtection
from vecveil.validation import check_same_length, check_texts

try:
    import chromadb
    from chromadb.api.types import Documents, EmbeddingFunction, Embeddings, Space
    from chromadb.utils.embedding_functions import (
        known_embedding_functions,
        register_embedding_function,
    )
except ImportError:
    raise MissingDependencyError("Chroma", "chromadb", "chroma") from None

Value = str | int | float | bool
_OWNER = "ProtectedEmbeddingFunction"
_DIMENSION = "vecveil:dimension"
# Fields of the document and the URI of a row; Chroma reserves the prefix.
_TEXT, _URI = "chroma:document", "chroma:uri"
_BATCH = 500
_CLEAR = "the documents of a Chroma collection"
_INSTEAD = "Add with vecveil.integrations.chroma.protect_and_add(collection, ids, documents) instead."
_NAMED = ("protector", "key", "ledger")
_built: dict[str, tuple[str, ChromaEmbeddingFunction]] = {}
"""Functions by configuration: Chroma builds one per call, and encoders load slowly."""


class ChromaStore(DatabaseStore):
    """One collection of Chroma in a folder, or at ``http://HOST:PORT``.

    Fields are the metadata, the text as ``chroma:document`` and the URI as ``chroma:uri``.
    """

    kind: ClassVar[str] = "chroma"
    metrics: ClassVar[Mapping[str, Any]] = {"cosine": "cosine", "euclidean": "l2", "dot": "ip"}
    place: ClassVar[str] = "a folder that Chroma wrote"
    page: ClassVar[int] = _BATCH
    embedding_function: Any = None

    def __init__(self, where: str, collection: str | None = None) -> None:
        super().__init__(where, collection)
        self._connected: Any = None
        self._opened: Any = None

    def apart(self) -> VectorStore:
        if self._remote:
            return self
        self.close()  # Chroma allows one process per folder
        apart = StoreApart(self.kind, os.path.abspath(self._where), self._name or None)
        if self.embedding_function is not None:
            apart.name_function(self.embedding_function)
        return apart

    def name_function(self, function: Any) -> None:
        """Set the embedding function that `create` attaches; without one Chroma attaches its default model.

        Args:
            function: an embedding function, or the configuration of a `ChromaEmbeddingFunction`; an empty one stands
                for a function that refuses texts.
        """
        if function == {}:
            self.embedding_function = _NoTexts()
            return
        # From a configuration, attach a stand-in with the same name, which opens no protector and no key.
        if isinstance(function, Mapping):
            register_embedding_function(_NamedFunction)  # type: ignore[no-untyped-call, unused-ignore]
            function = _NamedFunction.build_from_config(dict(function))
        self.embedding_function = function

    @property
    def normalises(self) -> bool:
        """True for collections with cosine distance."""
        return self.info().metric == "cosine"

    def close(self) -> None:
        client, self._connected, self._opened = self._connected, None, None
        if client is None:
            return
        # Chroma's close leaves the sockets of a remote client and its admin client open. No other client shares them.
        for part in (client, getattr(client, "_admin_client", None)) if self._remote else ():
            session = getattr(getattr(part, "_server", None), "_session", None)
            if session is not None:
                session.close()
        if hasattr(client, "close"):
            client.close()

    def _place_exists(self) -> bool:
        return self._remote or (Path(self._where) / "chroma.sqlite3").is_file()

    def _names(self) -> list[str]:
        return [str(collection.name) for collection in self._client().list_collections()]

    def _client(self) -> Any:
        if self._connected is None:
            settings = chromadb.config.Settings(anonymized_telemetry=False)
            if not self._remote:
                self._connected = chromadb.PersistentClient(self._where, settings)
                return self._connected
            parts = urlsplit(self._where)
            ssl = parts.scheme == "https"
            port = parts.port or (443 if ssl else 8000)
            self._connected = chromadb.HttpClient(
                host=parts.hostname or "", port=port, ssl=ssl, settings=settings
            )
        return self._connected

    def _collection(self) -> Any:
        if self._opened is None:
            name = self._known()
            # None: reading needs no embedding function, and building the saved one would open its files.
            self._opened = self._client().get_collection(name, embedding_function=None)
        return self._opened

    def _info(self) -> StoreInfo:
        collection = self._collection()
        settings = collection.configuration_json  # `configuration` would load an embedding function
        space = (settings.get("hnsw") or settings.get("spann") or {}).get("space")
        metric = self._metric_named(space)
        count = collection.count()
        # An empty collection of Chroma has no dimension, so `_create` stores it in the metadata.
        dimension = int((collection.metadata or {}).get(_DIMENSION, 0))
        if count:
            dimension = self._get(limit=1).vectors.shape[1]
        return StoreInfo(self.kind, collection.name, count, dimension, metric)

    def dimension(self) -> int:
        return int((self._collection().metadata or {}).get(_DIMENSION, 0)) or self._info().dimension

    def _create(self, dimension: int, metric: str | None, filter_fields: Sequence[str]) -> None:
        if metric is None and self.embedding_function is not None:
            metric = "euclidean"  # Chroma's default metric instead of the function's
        self._opened = self._client().create_collection(
            self._name,
            embedding_function=self.embedding_function,
            metadata={_DIMENSION: dimension},
            configuration=None if metric is None else {"hnsw": {"space": self.metrics[metric]}},
        )

    def _check_reuse(self, filter_fields: Sequence[str]) -> None:
        """Raise if an existing collection has another embedding function."""
        # Programs that add texts use the collection's function: another one would write clean vectors.
        ours = self.embedding_function
        if ours is None:
            return
        theirs = self._collection().configuration_json.get("embedding_function") or {}
        if theirs.get("name") != ours.name():
            raise StoreError.of(self._owner, "collection", "new, or made with a protected embedding function",
                                "one without", "Chroma would embed texts there without protection.",
                                "Remove it, or name another collection: it is made with the function.")  # fmt: skip
        ours.validate_config_update(theirs.get("config") or {}, ours.get_config())

    def _batches(self, size: int, after: str) -> Iterator[Batch]:
        offset = check_cursor(after, owner=self._owner)
        while len(batch := self._get(limit=size, offset=offset)):
            offset += len(batch)
            yield Batch(batch.ids, batch.vectors, batch.fields, str(offset))

    def _read(self, ids: list[str]) -> Batch:
        return self._get(ids=ids)

    def _get(self, **selection: Any) -> Batch:
        columns = ["embeddings", "metadatas", "documents", "uris"]
        rows = self._collection().get(**selection, include=columns)
        ids = tuple(str(name) for name in rows["ids"])
        vectors = np.asarray(rows["embeddings"], dtype=np.float32)
        # Without rows Chroma returns shape (0,).
        vectors = vectors.reshape(len(ids), vectors.size // max(len(ids), 1))
        return Batch(ids, vectors, tuple(_fields(len(ids), *(rows[name] for name in columns[1:]))))

    def _write(self, batch: Batch) -> None:
        collection = self._collection()
        rows = [self._split(fields) for fields in batch.fields]
        for start in range(0, len(batch), _BATCH):
            part = slice(start, start + _BATCH)
            ids = list(batch.ids[part])
            self._delete_stale(collection, ids, rows[part])
            collection.upsert(
                ids=ids,
                embeddings=batch.vectors[part],
                metadatas=[row[0] or None for row in rows[part]],
                **_optional("documents", [row[1] for row in rows[part]]),
                **_optional("uris", [row[2] for row in rows[part]]),
            )

    def _split(self, fields: Mapping[str, Any]) -> tuple[dict[str, Value], str | None, str | None]:
        """Return a row's metadata, text and URI; None values are dropped, as Chroma has none."""
        metadata: dict[str, Value] = {}
        for name, value in fields.items():
            if name in (_TEXT, _URI) or value is None:
                continue
            plain = value.item() if isinstance(value, np.generic) else value
            simple = isinstance(plain, list) and plain and all(isinstance(v, Value) for v in plain)
            if not isinstance(plain, Value) and not simple:
                raise InvalidInputError.of(self._owner, "fields", "texts, numbers, true or false, or lists of these",
                                           type(value).__name__, "Chroma's metadata hold nothing else.",
                                           "Leave the field out, or write it as text.")  # fmt: skip
            metadata[str(name)] = plain
        return metadata, fields.get(_TEXT), fields.get(_URI)

    def _delete_stale(self, collection: Any, ids: list[str], rows: list[tuple[Any, ...]]) -> None:
        """Delete rows with values that their replacement lacks."""
        # Chroma's upsert merges metadata and keeps an old text, which a protected row must not inherit.
        old = collection.get(ids=ids, include=["metadatas", "documents", "uris"])
        new = dict(zip(ids, rows, strict=True))
        stale = []
        for at, name in enumerate(old["ids"]):
            metadata, text, uri = (
                old[column][at] if old[column] else None
                for column in ("metadatas", "documents", "uris")
            )
            fields, new_text, new_uri = new[name]
            lost = (text is not None and new_text is None) or (uri is not None and new_uri is None)
            if lost or set(metadata or {}) - set(fields):
                stale.append(name)
        if stale:
            collection.delete(ids=stale)

    def _search(self, vector: Any, k: int, where: Where) -> list[Match]:
        columns = ["metadatas", "documents", "uris"]
        conditions = [{name: {"$in": list(values)}} for name, values in where.items()]
        answer = self._collection().query(
            query_embeddings=[vector],
            n_results=k,
            include=["distances", *columns],
            where={"$and": conditions} if len(conditions) > 1 else conditions[0] if conditions else None,
        )
        ids, distances = answer["ids"][0], answer["distances"][0]
        fields = _fields(len(ids), *(answer[name] and answer[name][0] for name in columns))
        return [
            Match(name, float(distance), row)
            for name, distance, row in zip(ids, distances, fields, strict=True)
        ]

    def _delete(self, ids: list[str]) -> None:
        self._collection().delete(ids=ids)


def _fields(rows: int, metadatas: Any, documents: Any, uris: Any) -> list[dict[str, Any]]:
    fields = [dict(row or {}) for row in metadatas or [{}] * rows]
    for name, column in ((_TEXT, documents), (_URI, uris)):
        for row, value in zip(fields, column or (), strict=False):
            if value is not None:
                row[name] = value
    return fields


def _optional(name: str, column: list[str | None]) -> dict[str, list[str | None]]:
    return {name: column} if any(value is not None for value in column) else {}


class ChromaEmbeddingFunction(EmbeddingFunction[Documents]):
    """Embedding function of Chroma with protected vectors.

    Args:
        protector: protector, path of its file, or a `ReleasePolicy`.
        encoder: another embedding function of Chroma, an encoder's name, or an object with ``encode``; None uses the
            protector's encoder.
        query_protection, query_noise, key, ledger: see `PolicyOptions`.

    A collection saves names of files, not objects. If the function was made with objects, a program that opens the
    collection must pass it again: ``client.get_collection(name, embedding_function=...)``.
    """

    def __init__(
        self,
        protector: Any,
        *,
        encoder: Any = None,
        query_protection: QueryProtection = "same",
        query_noise: float = STRONGER,
        key: KeySource = None,
        ledger: Any = None,
    ) -> None:
        given: dict[str, Any] = {"protector": protector, "query_protection": query_protection,
                                 "query_noise": query_noise, "key": key, "ledger": ledger}  # fmt: skip
        policy = open_policy(**given)
        if policy.query_protection != "same" and not hasattr(EmbeddingFunction, "embed_query"):
            raise InvalidInputError.of(_OWNER, "query_protection", "'same' with this version of Chroma",
                                       repr(policy.query_protection), "It embeds queries as documents.",
                                       "Upgrade: pip install -U chromadb")  # fmt: skip
        query_encoder = getattr(encoder, "embed_query", None) if callable(encoder) else None
        self._items: Items | None = Items(policy, encoder, query_encoder, owner=_OWNER)
        names = policy_arguments(**given)
        encoder_config, missing = _encoder_config(encoder)
        for name in _NAMED:
            if names[name] is not None and not isinstance(names[name], str | os.PathLike):
                missing.append(name)
                names[name] = None
        self._config: dict[str, Any] = {
            **policy_config(**names, owner=_OWNER),
            **encoder_config,
            "fingerprint": policy.protector.fingerprint,
            "give_again": missing,
        }

    def __repr__(self) -> str:
        return f"{_OWNER}({json.dumps(self._config, sort_keys=True)})"

    def __call__(self, input: Documents) -> Embeddings:
        """Return the protected vectors of documents; Chroma stores the texts beside them."""
        self._check_collection(_calling_collection())
        items = self.release()
        items.warn_if_text(None, None, _CLEAR, _INSTEAD, kept=True)
        return list(items.documents(input)[0])

    def embed_query(self, input: Any) -> Any:
        """Return the protected vectors of queries; for a single text, as LangChain passes it, one list of floats."""
        self._check_collection(_calling_collection())
        if isinstance(input, str):
            return [float(value) for value in self.release().query(input)]
        return list(self.release().queries(input))

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the protected vectors of documents as lists, for LangChain's Chroma class."""
        self._check_collection(_calling_collection())
        items = self.release()
        items.warn_if_text(None, None, _CLEAR, _INSTEAD, kept=True)
        vectors: list[list[float]] = items.documents(list(texts))[0].tolist()
        return vectors

    def release(self) -> Items:
        """Return the policy with its encoder.

        Raises:
            InvalidInputError: the collection was made with objects, which must be passed again.
        """
        if self._items is None:
            listed = ", ".join(self._config["give_again"])
            raise InvalidInputError.of(_OWNER, "embedding_function", "given when this collection is opened", "none",
                                       f"It was made with objects that are not kept: {listed}.",
                                       f"Call get_collection(name, embedding_function={_OWNER}(...)).")  # fmt: skip
        return self._items

    def _check_collection(self, collection: Any) -> None:
        """Raise IncompatibleError if ``collection`` was saved with the function of another protector."""
        saved = getattr(collection, "configuration_json", {}).get("embedding_function") or {}
        config = saved.get("config") if saved.get("name") == self.name() else None
        if isinstance(config, Mapping) and config.get("fingerprint") != self._config["fingerprint"]:
            raise IncompatibleError.of(_OWNER, "collection", "one that was made with this function",
                                       "one that is saved with another protector's function",
                                       "Chroma leaves the function in a dict passed as configuration=, and "
                                       "saves it again for the next collection.",
                                       "Open it with its own function, or make another with a fresh dict.")  # fmt: skip

    @staticmethod
    def name() -> str:
        return "vecveil"

    def default_space(self) -> Space:
        # Noise changes the norms, so inner products would not be cosines.
        return "cosine"

    def supported_spaces(self) -> list[Space]:
        return ["cosine", "l2", "ip"]

    def get_config(self) -> dict[str, Any]:
        """Return the saved configuration: names, never the content of files or variables."""
        return cast(dict[str, Any], json.loads(json.dumps(self._config)))

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> ChromaEmbeddingFunction:
        """Return the function of a saved collection.

        Raises:
            IncompatibleError: the file holds another protector than at the collection's creation.
        """
        ChromaEmbeddingFunction.validate_config(config)
        text = json.dumps(config, sort_keys=True)
        stamp = _files_stamp(config)  # rotated keys and replaced protectors take effect
        if text in _built and _built[text][0] == stamp:
            return _built[text][1]
        if config["give_again"]:
            function = _unopened(ChromaEmbeddingFunction, config)
        else:
            arguments = {
                n: config[n] for n in (*_NAMED, "query_protection", "query_noise") if n in config
            }
            function = ChromaEmbeddingFunction(
                **arguments, encoder=_encoder_from(config.get("encoder"))
            )
            check_saved(function.release().policy, config["fingerprint"], _OWNER)
        _built[text] = (stamp, function)
        return function

    @staticmethod
    def validate_config(config: dict[str, Any]) -> None:
        """Raise InvalidInputError for a configuration that `get_config` did not write."""
        # The configuration comes from the database, which is not trusted.
        valid = isinstance(config, Mapping) and (
            config.get("query_protection") in QUERY_PROTECTIONS
            and isinstance(config.get("query_noise"), int | float)
            and isinstance(config.get("fingerprint"), str)
            and isinstance(config.get("give_again"), list)
            and all(isinstance(config.get(name, ""), str) for name in _NAMED)
            and ("protector" in config or "protector" in config["give_again"])
        )
        if not valid:
            raise InvalidInputError.of(
                _OWNER, "config", "what get_config returned", "something else"
            )

    def validate_config_update(
        self, old_config: dict[str, Any], new_config: dict[str, Any]
    ) -> None:
        """Raise for a changed protector or encoder; query settings, key and ledger may change."""
        for name in ("fingerprint", "encoder"):
            if old_config.get(name) != new_config.get(name):
                raise IncompatibleError.of(_OWNER, name, "that of the collection", "another",
                                           "Vectors of two protectors or encoders cannot be compared.",
                                           "Make a new collection.")  # fmt: skip


def register() -> None:
    """Register the embedding function with Chroma."""
    # Not done on import: the subprocess of `StoreApart` must not build a function that reads a key.
    register_embedding_function(ChromaEmbeddingFunction)  # type: ignore[no-untyped-call, unused-ignore]


class _NamedFunction(ChromaEmbeddingFunction):
    """Stand-in for the function in the subprocess of `StoreApart`; it opens no file."""

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> ChromaEmbeddingFunction:
        return _unopened(_NamedFunction, config)


class _NoTexts(EmbeddingFunction[Documents]):
    """Refuses texts: a program that adds them to a sealed collection would add clean vectors.

    Programs without vecveil do not know the function, and are refused by Chroma.
    """

    def __init__(self) -> None:
        pass

    def __call__(self, input: Documents) -> Embeddings:
        raise StoreError.of("Chroma", "collection", "filled by vecveil.ProtectedCollection", "one that is sealed",
                            "Vectors of texts or queries that Chroma embeds are clean.")  # fmt: skip

    @staticmethod
    def name() -> str:
        return "vecveil-sealed"

    def default_space(self) -> Space:
        return "cosine"

    def get_config(self) -> dict[str, Any]:
        return {}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> _NoTexts:
        return _NoTexts()


def _calling_collection() -> Any:
    """Return the collection whose method embeds texts just now, or None."""
    # Chroma passes nothing but texts, and compares names of functions only: the calling frames alone tell that a
    # collection was saved with another protector.
    frame = sys._getframe(2)
    for _ in range(2):
        caller = frame.f_locals.get("self")
        caller = getattr(caller, "_chroma_collection", caller)  # LangChain's vector store holds the collection there
        if hasattr(caller, "configuration_json"):
            return caller
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None


def _unopened(
    kind: type[ChromaEmbeddingFunction], config: dict[str, Any]
) -> ChromaEmbeddingFunction:
    function = kind.__new__(kind)
    function._items, function._config = None, dict(config)
    return function


def _encoder_config(encoder: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the saved form of an encoder, and ``["encoder"]`` if it has none."""
    if encoder is None:
        return {}, []
    if isinstance(encoder, str):
        return {"encoder": encoder}, []
    if hasattr(encoder, "is_legacy") and not encoder.is_legacy():
        return {"encoder": {"name": encoder.name(), "config": encoder.get_config()}}, []
    return {}, ["encoder"]


def _encoder_from(config: Any) -> Any:
    if config is None:
        return None
    # The database is not trusted: it must not choose a server that gets the texts and a key.
    if not isinstance(config, Mapping):
        return load_recorded_encoder(str(config), owner=_OWNER)
    known = known_embedding_functions.get(config["name"])
    if known is None or known.__module__.startswith("chromadb."):
        raise InvalidInputError.of(_OWNER, "encoder", "an embedding function that you registered", "another",
                                   "Chroma's own functions take servers and names of keys from the database.",
                                   "Pass embedding_function= when you open the collection.",
                                   code="E-ENCODER-NOT-NAMED")  # fmt: skip
    return known.build_from_config(dict(config["config"]))


def _files_stamp(config: Mapping[str, Any]) -> str:
    """Return a hash that changes with the files and variables of the configuration."""
    parts: list[Any] = []
    for name in _NAMED[:2]:
        value = str(config.get(name, ""))
        if value.startswith("env:"):
            parts.append(os.environ.get(value.removeprefix("env:")))
        elif value and os.path.exists(value):
            state = os.stat(value)
            parts.append((state.st_mtime_ns, state.st_size))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def protect_and_add(
    collection: Any,
    ids: Sequence[str],
    documents: Sequence[str],
    metadatas: Sequence[Mapping[str, Any]] | None = None,
    *,
    function: ChromaEmbeddingFunction | None = None,
) -> None:
    """Write protected vectors to a Chroma collection without their texts.

    Rows with the same ids are replaced, so an interrupted call can be repeated.

    Args:
        collection: collection with a `ChromaEmbeddingFunction`.
        metadatas: stored in clear.
        function: the collection's function; required only if it was made with objects and the collection was opened
            without it.

    Raises:
        InvalidInputError: the collection has no such function.
        IncompatibleError: the collection was saved with another protector's function.
        StoreError: the database failed; the message counts the written rows.
    """
    owner = "protect_and_add"
    texts = list(check_texts(documents, owner=owner, param="documents", min_rows=0))
    names = list(check_texts(ids, owner=owner, param="ids", min_rows=0))
    rows = check_same_length(owner, documents=texts, ids=names)
    if metadatas is not None:
        check_same_length(owner, metadatas=metadatas, documents=texts)
    saved = collection.configuration_json.get("embedding_function") or {}
    if function is None and saved.get("name") != ChromaEmbeddingFunction.name():
        raise InvalidInputError.of(owner, "collection", f"one that was made with a {_OWNER}", "another",
                                   fix="Pass function=.")  # fmt: skip
    # The function that `collection.add` and `query` use, which need not be the saved one.
    held = getattr(collection, "_embedding_function", None)
    held = held if isinstance(held, ChromaEmbeddingFunction) else None
    for given in filter(None, (held, function)):
        given._check_collection(collection)
    function = function or held or ChromaEmbeddingFunction.build_from_config(saved["config"])
    items = function.release()
    for start in range(0, rows, _BATCH):
        part = slice(start, start + _BATCH)
        vectors, _ = items.documents(texts[part], names[part])
        beside = None if metadatas is None else [dict(row) for row in metadatas[part]]
        try:
            collection.upsert(ids=names[part], embeddings=vectors, metadatas=beside)
        except Exception as error:
            raise StoreError.of(owner, "collection", "there and able to take the rows", type(error).__name__,
                                f"{start} of {rows} rows were written.",
                                "Repeat the call: rows that are there are replaced.") from None  # fmt: skip
