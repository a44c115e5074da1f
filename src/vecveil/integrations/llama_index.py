"""LlamaIndex: a `BaseEmbedding` whose vectors are protected, around any other or the protector's own encoder.

    Settings.embed_model = ProtectedEmbedding("drug.vecveil", OpenAIEmbedding())

What it wraps is called below its public methods: those report every vector, clean, to whoever listens to events.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vecveil.errors import IncompatibleError, InvalidInputError, MissingDependencyError
from vecveil.integrations.embedders import WrappedEmbedder
from vecveil.integrations.opening import KeySource, open_policy, policy_config, warn_plaintext
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
_IN_MEMORY = "(in memory)"


class ProtectedEmbedding(BaseEmbedding):  # type: ignore[misc, unused-ignore]
    """An embedding model whose documents and queries leave protected.

    Args:
        protector: or the path of its file.
        embed_model: any LlamaIndex embedding; None takes the protector's own encoder. Before its first use it embeds
            a dozen fixed sentences, to see that the protector was fitted for it.
        query_protection: ``same``, ``stronger`` or ``map-only``; see `vecveil.protector.policy`.
        query_noise: times the documents' noise, for ``stronger``.
        key: keys, the path of a key file, or ``env:NAME``. With keyed noise a text gets the same vector every time.
        ledger: or the path of its file; items are named by their text.
        text_stored: whether the index keeps texts beside the vectors, as LlamaIndex's do; then the first documents
            give a warning.
        options: of `BaseEmbedding`, such as ``embed_batch_size``.

    `to_dict`, `to_json` and a pickle hold names of files, never what is in them. `from_dict` needs those files and,
    where an embedding was wrapped, ``embed_model=`` again.

    Raises:
        InvalidInputError: an embedding of another kind, a cache that would answer queries with documents' vectors, or
            what `open_policy` refuses.
        IncompatibleError: `from_dict` finds another protector in the file than the one that was named.
    """

    protector: str = Field(frozen=True)
    protector_fingerprint: str = Field(frozen=True)
    wraps: str | None = Field(default=None, frozen=True)
    query_protection: str = Field(default="same", frozen=True)
    query_noise: float = Field(default=STRONGER, frozen=True)
    key: str | None = Field(default=None, frozen=True)
    ledger: str | None = Field(default=None, frozen=True)
    text_stored: bool = Field(default=True, frozen=True)

    _policy: ReleasePolicy = PrivateAttr()
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
        wraps, fingerprint = options.pop("wraps", None), options.pop("protector_fingerprint", None)
        given = {"protector": protector, "key": key, "ledger": ledger}
        missing = [name for name, value in given.items() if isinstance(value, str) and value == _IN_MEMORY]
        if wraps is not None and embed_model is None:
            missing.append("embed_model")
        if missing:
            raise InvalidInputError.of(_OWNER, missing[0], "given again", "the note that there was one",
                                       "It was an object, and objects are not written down.",
                                       f"Call {_OWNER}.from_dict(data, {missing[0]}=...).")  # fmt: skip
        policy = open_policy(
            protector,
            query_protection=query_protection,
            query_noise=query_noise,
            key=key,
            ledger=ledger,
        )
        if fingerprint not in (None, policy.protector.fingerprint):
            raise IncompatibleError.of(_OWNER, "protector", f"the one that was named ({fingerprint[:12]})",
                                       f"another ({policy.protector.fingerprint[:12]})",
                                       "Its vectors do not match those of that one.")  # fmt: skip
        if options.get("embeddings_cache") is not None and query_protection != "same":
            raise InvalidInputError.of(_OWNER, "embeddings_cache", "left out with another protection for queries",
                                       "a cache", "It gives a query the vector of a document.")  # fmt: skip
        # The name appears in events and in LlamaIndex's cache keys.
        encoder = (
            policy.protector.encoder_info.name if embed_model is None else embed_model.model_name
        )
        options.setdefault("model_name", f"vecveil/{policy.protector.method}/{encoder}")
        fields: dict[str, Any] = {
            "protector": _name(protector),
            "protector_fingerprint": policy.protector.fingerprint,
            "wraps": None if embed_model is None else embed_model.class_name(),
            "query_protection": query_protection,
            "query_noise": query_noise,
            "key": _name(key),
            "ledger": _name(ledger),
            "text_stored": text_stored,
        }
        super().__init__(**fields, **options)  # pydantic fields first: private attributes need the instance
        self._policy, self._inner = policy, embed_model
        self._given = given
        self._wrapped = WrappedEmbedder(policy, owner=_OWNER)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex writes it down."""
        return _OWNER

    def __reduce__(self) -> tuple[Callable[..., ProtectedEmbedding], tuple[Any, ...]]:
        """Return the arguments that make it anew: names of files, never their content."""
        config = policy_config(
            **self._given,
            query_protection=self.query_protection,
            query_noise=self.query_noise,
            owner=_OWNER,
        )
        options = {"embed_batch_size": self.embed_batch_size, "num_workers": self.num_workers}
        return _reopened, (self._inner, {**config, **options, "text_stored": self.text_stored})

    @property
    def policy(self) -> ReleasePolicy:
        """How documents and queries are released."""
        return self._policy

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self._warn()
        embed = None if self._inner is None else self._inner._get_text_embeddings
        return _lists(self._wrapped.embed(texts, embed))

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self._warn()
        embed = None if self._inner is None else self._inner._aget_text_embeddings
        return _lists(await self._wrapped.aembed(texts, embed))

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return (await self._aget_text_embeddings([text]))[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        inner = self._inner
        if inner is None:
            return _lists(self._wrapped.embed([query], None, query=True))[0]

        def embed(texts: list[str]) -> list[list[float]]:
            return [inner._get_query_embedding(texts[0])]

        vectors = self._wrapped.embed([query], embed, query=True, verify=inner._get_text_embeddings)
        return _lists(vectors)[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        inner = self._inner
        if inner is None:
            return _lists(await self._wrapped.aembed([query], None, query=True))[0]

        async def embed(texts: list[str]) -> list[list[float]]:
            return [await inner._aget_query_embedding(texts[0])]

        vectors = await self._wrapped.aembed([query], embed, query=True, verify=inner._aget_text_embeddings)
        return _lists(vectors)[0]

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
    """Return what may be written down of an argument of `open_policy`: the name of a file or variable."""
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        return _IN_MEMORY
    text = os.fspath(value)
    return text if text.startswith("env:") else str(Path(text).expanduser().absolute())


def _lists(vectors: Any) -> list[list[float]]:
    listed: list[list[float]] = vectors.tolist()
    return listed
