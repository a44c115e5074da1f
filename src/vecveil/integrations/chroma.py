"""Chroma: an embedding function whose collections hold protected vectors, also when another program opens them.

    function = ProtectedEmbeddingFunction("drug.vecveil", key="env:VECVEIL_KEY")
    collection = client.create_collection("notes", embedding_function=function)

A collection keeps the function's configuration: names of files and variables, and the protector's fingerprint. Chroma
finds it by the name ``vecveil`` where this module has been imported, and refuses to embed where it has not.

Chroma stores the texts of what it embeds. `protect_and_add` adds vectors alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

from vecveil.errors import (
    IncompatibleError,
    InvalidInputError,
    MissingDependencyError,
    StoreError,
    message,
)
from vecveil.integrations.chroma_config import (
    NAMED,
    check_config,
    encoder_config,
    encoder_from,
    files_stamp,
)
from vecveil.integrations.embedders import TextRelease
from vecveil.integrations.opening import KeySource, open_policy, policy_config, warn_plaintext
from vecveil.protector.policy import STRONGER, QueryProtection
from vecveil.validation import check_same_length, check_texts

try:
    from chromadb.api.types import Documents, EmbeddingFunction, Embeddings, Space
    from chromadb.utils.embedding_functions import (
        register_embedding_function,
    )
except ImportError:
    raise MissingDependencyError("Protecting Chroma collections", "chromadb", "chroma") from None

__all__ = ["ProtectedEmbeddingFunction", "protect_and_add"]

_OWNER = "ProtectedEmbeddingFunction"
_BATCH = 500
_built: dict[str, tuple[str, ProtectedEmbeddingFunction]] = {}
"""By configuration: Chroma builds a function for every call, and an encoder is slow to load."""


@register_embedding_function  # type: ignore[no-untyped-call, untyped-decorator, unused-ignore]
class ProtectedEmbeddingFunction(EmbeddingFunction[Documents]):
    """Protected vectors for Chroma; queries as the policy says.

    Args:
        protector: its file, or the object.
        encoder: None takes the protector's; else any other Chroma embedding function, an encoder's name, or an object
            with ``encode``.
        query_protection: ``same``, ``stronger`` or ``map-only``; see `vecveil.ReleasePolicy`.
        query_noise: times the documents' noise, for ``stronger``.
        key: for keyed noise: ``env:NAME``, the path of a key file, or keys.
        ledger: of releases, or its file.

    What is given as an object is not written anywhere: a program that opens the collection later gives it again, with
    ``client.get_collection(name, embedding_function=...)``, and is refused until it does.

    Raises:
        InvalidInputError, IncompatibleError, ProtectorFileError, KeyFileError, LedgerError: what the parts raise.
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
        policy = open_policy(
            protector,
            query_protection=query_protection,
            query_noise=query_noise,
            key=key,
            ledger=ledger,
        )
        if query_protection != "same" and not hasattr(EmbeddingFunction, "embed_query"):
            raise InvalidInputError.of(_OWNER, "query_protection", "'same' with this version of Chroma",
                                       repr(query_protection), "It embeds queries as documents.",
                                       "Upgrade: pip install -U chromadb")  # fmt: skip
        query_encoder = (
            encoder.embed_query if callable(encoder) and hasattr(encoder, "embed_query") else None
        )
        self._texts: TextRelease | None = TextRelease(policy, encoder, query_encoder)
        self._warned = False
        given = {"protector": protector, "key": key, "ledger": ledger}
        named = {n: v for n, v in given.items() if isinstance(v, str | os.PathLike)}
        kept, missing = encoder_config(encoder)
        missing += [name for name in NAMED if given[name] is not None and name not in named]
        self._config: dict[str, Any] = {
            **policy_config(
                named.get("protector"),
                query_protection=query_protection,
                query_noise=float(query_noise),
                key=named.get("key"),
                ledger=named.get("ledger"),
                owner=_OWNER,
            ),
            **kept,
            "fingerprint": policy.protector.fingerprint,
            "give_again": missing,
        }

    def __repr__(self) -> str:
        return f"ProtectedEmbeddingFunction({json.dumps(self._config, sort_keys=True)})"

    def __call__(self, input: Documents) -> Embeddings:
        """Return the protected vectors of documents; called by Chroma, which stores their texts beside them."""
        release = self.release()
        self._warn()
        return list(release.documents(input))

    def embed_query(self, input: Any) -> Any:
        """Return the vectors of a list of queries; of a single text the numbers alone, for LangChain."""
        if isinstance(input, str):
            return [float(value) for value in self.release().queries([input])[0]]
        return list(self.release().queries(input))

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the protected vectors of documents as lists: what LangChain's Chroma class calls."""
        release = self.release()
        self._warn()
        vectors: list[list[float]] = release.documents(texts).tolist()
        return vectors

    def release(self) -> TextRelease:
        """Return what turns texts into protected vectors.

        Raises:
            InvalidInputError: the collection was made with objects that are in no configuration.
        """
        if self._texts is None:
            listed = ", ".join(self._config["give_again"])
            raise InvalidInputError(
                message(_OWNER, "embedding_function", "given when this collection is opened", "none",
                        f"It was made with objects that are not kept: {listed}.",
                        "Call get_collection(name, embedding_function=ProtectedEmbeddingFunction(...)).")
            )  # fmt: skip
        return self._texts

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            fix = "Add with vecveil.integrations.chroma.protect_and_add(collection, ids, documents) instead."
            warn_plaintext("the documents of a Chroma collection", fix, stacklevel=4)

    @staticmethod
    def name() -> str:
        """Return the name under which Chroma finds this function."""
        return "vecveil"

    def default_space(self) -> Space:
        """Return cosine: protected vectors are not of unit length."""
        return "cosine"

    def supported_spaces(self) -> list[Space]:
        """Return all three."""
        return ["cosine", "l2", "ip"]

    def get_config(self) -> dict[str, Any]:
        """Return what a collection keeps: names, never what is in the files or variables."""
        return cast(dict[str, Any], json.loads(json.dumps(self._config)))

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> ProtectedEmbeddingFunction:
        """Return the function of a collection that is opened again.

        Raises:
            IncompatibleError: the file holds another protector than the one that the collection was made with.
        """
        ProtectedEmbeddingFunction.validate_config(config)
        text = json.dumps(config, sort_keys=True)
        stamp = files_stamp(config)
        if text in _built and _built[text][0] == stamp:
            return _built[text][1]
        if config["give_again"]:
            function = ProtectedEmbeddingFunction.__new__(ProtectedEmbeddingFunction)
            function._texts, function._warned = None, False
            function._config = dict(config)
        else:
            names = ("query_protection", "query_noise", *NAMED)
            arguments = {name: config[name] for name in names if name in config}
            function = ProtectedEmbeddingFunction(
                **arguments, encoder=encoder_from(config.get("encoder"), _OWNER)
            )
            if function._config["fingerprint"] != config["fingerprint"]:
                raise IncompatibleError.of(_OWNER, "protector", "the one that the collection was made with",
                                           "a file that holds another", "Their vectors cannot be compared.",
                                           "Put the file back, or make a new collection.")  # fmt: skip
        _built[text] = (stamp, function)
        return function

    @staticmethod
    def validate_config(config: dict[str, Any]) -> None:
        """Refuse a configuration that `get_config` did not write."""
        check_config(config, _OWNER)

    def validate_config_update(
        self, old_config: dict[str, Any], new_config: dict[str, Any]
    ) -> None:
        """Refuse another protector or encoder for the same collection; queries, key and ledger may change."""
        for name in ("fingerprint", "encoder"):
            if old_config.get(name) != new_config.get(name):
                raise IncompatibleError.of(_OWNER, name, "that of the collection", "another",
                                           "Vectors of two protectors or encoders cannot be compared.",
                                           "Make a new collection.")  # fmt: skip


def protect_and_add(
    collection: Any,
    ids: Sequence[str],
    documents: Sequence[str],
    metadatas: Sequence[Mapping[str, Any]] | None = None,
    *,
    function: ProtectedEmbeddingFunction | None = None,
) -> None:
    """Write protected vectors to a Chroma collection, and not the texts.

    Rows with the same ids are replaced, so that a call that broke off can be repeated.

    Args:
        collection: made with a `ProtectedEmbeddingFunction`.
        metadatas: stored in clear, as they are.
        function: the collection's; needed only if it was made with objects.

    Raises:
        InvalidInputError: lengths differ, or the collection has no such function.
        StoreError: the database refused or went away; says how many rows were written.
    """
    owner = "protect_and_add"
    listed = list(check_texts(documents, owner=owner, param="documents", min_rows=0))
    names = list(check_texts(ids, owner=owner, param="ids", min_rows=0))
    rows = check_same_length(owner, documents=listed, ids=names)
    if metadatas is not None:
        check_same_length(owner, metadatas=metadatas, documents=listed)
    release = (function or _function_of(collection, owner)).release()
    for start in range(0, rows, _BATCH):
        stop = min(start + _BATCH, rows)
        vectors = release.documents(listed[start:stop], names[start:stop])
        beside = None if metadatas is None else [dict(one) for one in metadatas[start:stop]]
        try:
            collection.upsert(ids=names[start:stop], embeddings=vectors, metadatas=beside)
        except Exception as error:
            raise StoreError.of(owner, "collection", "there and able to take the rows", type(error).__name__,
                                f"{start} of {rows} rows were written.",
                                "Repeat the call: rows that are there are replaced.") from None  # fmt: skip


def _function_of(collection: Any, owner: str) -> ProtectedEmbeddingFunction:
    kept = collection.configuration_json.get("embedding_function") or {}
    if kept.get("name") != ProtectedEmbeddingFunction.name():
        raise InvalidInputError.of(owner, "collection", "one that was made with a ProtectedEmbeddingFunction",
                                   "another", fix="Pass function=.")  # fmt: skip
    return ProtectedEmbeddingFunction.build_from_config(kept["config"])
