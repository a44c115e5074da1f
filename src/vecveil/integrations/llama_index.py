"""LlamaIndex: a protecting `BaseEmbedding`, around any other or the protector's encoder.

    Settings.embed_model = ProtectedEmbedding("drug.vecveil", OpenAIEmbedding())

It calls the private methods of the embedding that it wraps: the public ones emit events with clean vectors.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vecveil.databases.release import (
    KeySource,
    WrappedEmbedder,
    open_policy,
    policy_config,
    warn_plaintext,
)
from vecveil.errors import IncompatibleError, InvalidInputError, MissingDependencyError
from vecveil.protector.policy import STRONGER, QueryProtection, ReleasePolicy

try:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import Field, PrivateAttr
except ImportError:
    raise MissingDependencyError("LlamaIndex embeddings", "llama-index-core", "llama-index") from None

if TYPE_CHECKING:
    from vecveil.accounting import Ledger
    from vecveil.protector import Protector

__all__ = ["ProtectedEmbedding"]

_OWNER = "ProtectedEmbedding"
# Stands for an argument that was an object; `from_dict` asks for it again.
_IN_MEMORY = "(in memory)"
_SIDES = ("query_embedding", "text_embeddings")


class ProtectedEmbedding(BaseEmbedding):  # type: ignore[misc, unused-ignore]
    """LlamaIndex embedding with protected documents and queries.

    Args:
        protector: protector or path of its file.
        embed_model: any LlamaIndex embedding; None uses the protector's encoder. The first call embeds a dozen fixed
            sentences to verify that the protector was fitted for it.
        query_protection, query_noise: protection of queries; see `vecveil.protector.policy`.
        key: noise keys, path of a key file, or ``env:NAME``. With keyed noise equal texts get equal vectors.
        ledger: ledger or path of its file; item ids are the texts.
        text_stored: warn once that the index keeps texts beside the vectors.
        options: fields of `BaseEmbedding`, such as ``embed_batch_size``.

    `to_dict`, `to_json` and a pickle hold names of files, never their content. `from_dict` needs those files, and
    ``embed_model=`` again if an embedding was wrapped.

    Raises:
        InvalidInputError: a cache that would answer queries with documents' vectors, or raised by `open_policy`.
        IncompatibleError: `from_dict` finds another protector in the file.
    """

    protector: str = Field(frozen=True)
    protector_fingerprint: str = Field(frozen=True)
    wraps: str | None = Field(default=None, frozen=True)
    query_protection: str = Field(default="same", frozen=True)
    query_noise: float = Field(default=STRONGER, frozen=True)
    key: str | None = Field(default=None, frozen=True)
    ledger: str | None = Field(default=None, frozen=True)
    text_stored: bool = Field(default=True, frozen=True)

    _wrapped: WrappedEmbedder = PrivateAttr()
    _inner: Any = PrivateAttr(default=None)
    _given: dict[str, Any] = PrivateAttr()
    _warned: bool = PrivateAttr(default=False)

    def __init__(
        self,
        protector: Protector | str | os.PathLike[str],
        embed_model: BaseEmbedding | None = None,
        *,
        query_protection: QueryProtection = "same",
        query_noise: float = STRONGER,
        key: KeySource = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        text_stored: bool = True,
        **options: Any,
    ) -> None:
        if embed_model is not None and not isinstance(embed_model, BaseEmbedding):
            raise InvalidInputError.of(
                _OWNER, "embed_model", "a LlamaIndex embedding or None", type(embed_model).__name__
            )
        # Only `from_dict` passes these two: fields of the saved configuration, not options of BaseEmbedding.
        wraps, fingerprint = options.pop("wraps", None), options.pop("protector_fingerprint", None)
        given: dict[str, Any] = {
            "protector": protector, "query_protection": query_protection, "query_noise": query_noise,
            "key": key, "ledger": ledger,
        }  # fmt: skip
        missing = [name for name, value in given.items() if isinstance(value, str) and value == _IN_MEMORY]
        if wraps is not None and embed_model is None:
            missing.append("embed_model")
        if missing:
            raise InvalidInputError.of(_OWNER, missing[0], "passed again", "nothing",
                                       "It was an object, and objects are not saved.",
                                       f"Call {_OWNER}.from_dict(data, {missing[0]}=...).",
                                       code="E-INPUT-SAVED")  # fmt: skip
        policy = open_policy(**given)
        if fingerprint not in (None, policy.protector.fingerprint):
            raise IncompatibleError.of(_OWNER, "protector", f"the saved one ({fingerprint[:12]})",
                                       f"another ({policy.protector.fingerprint[:12]})",
                                       "Vectors of two protectors cannot be compared.")  # fmt: skip
        if options.get("embeddings_cache") is not None and query_protection != "same":
            raise InvalidInputError.of(_OWNER, "embeddings_cache", "left out with another protection for queries",
                                       "a cache", "It gives a query the vector of a document.")  # fmt: skip
        # LlamaIndex shows the name in events and uses it in cache keys, where it must differ from the clean model.
        encoder = (
            policy.protector.encoder_info.name if embed_model is None else embed_model.model_name
        )
        options.setdefault("model_name", f"vecveil/{policy.protector.method}/{encoder}")
        fields: dict[str, Any] = {
            **given,
            "protector": _name(protector),
            "protector_fingerprint": policy.protector.fingerprint,
            "wraps": None if embed_model is None else embed_model.class_name(),
            "key": _name(key),
            "ledger": _name(ledger),
            "text_stored": text_stored,
        }
        super().__init__(**fields, **options)  # pydantic fields first: private attributes need the instance
        self._inner, self._given = embed_model, given
        self._wrapped = WrappedEmbedder(policy, owner=_OWNER)

    @classmethod
    def class_name(cls) -> str:
        return _OWNER

    def __reduce__(self) -> tuple[Callable[..., ProtectedEmbedding], tuple[Any, ...]]:
        """Return the constructor arguments: names of files, never their content."""
        config = policy_config(**self._given, owner=_OWNER)
        options = {"embed_batch_size": self.embed_batch_size, "num_workers": self.num_workers}
        return _reopened, (self._inner, {**config, **options, "text_stored": self.text_stored})

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


def _reopened(embed_model: Any, config: dict[str, Any]) -> ProtectedEmbedding:
    return ProtectedEmbedding(embed_model=embed_model, **config)


def _name(value: Any) -> str | None:
    """Return the serialised form of an argument of `open_policy`: the name of a file or variable."""
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        return _IN_MEMORY
    text = os.fspath(value)
    return text if text.startswith("env:") else str(Path(text).expanduser().absolute())


def _lists(vectors: Any) -> list[list[float]]:
    listed: list[list[float]] = vectors.tolist()
    return listed
