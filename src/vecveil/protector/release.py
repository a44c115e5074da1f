"""Open release policies, and release the vectors of foreign embedders with one."""

from __future__ import annotations

import asyncio
import inspect
import os
import warnings
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt

from vecveil.encoders.text_encoder import PROBE_SENTENCES, matches_probe
from vecveil.errors import IncompatibleError, InvalidInputError, wrong_type
from vecveil.protector.policy import STRONGER, QueryProtection, ReleasePolicy
from vecveil.protector.protector import Protector, load
from vecveil.randomness import ItemId, NoiseKey, NoiseKeys
from vecveil.randomness.keyed import placed_source
from vecveil.types import Embeddings
from vecveil.validation import checked_vectors

if TYPE_CHECKING:
    from vecveil.accounting import Ledger

Vectors = npt.NDArray[np.float32]
KeySource = NoiseKeys | NoiseKey | str | os.PathLike[str] | None
"""Noise keys, path of a key file, or ``env:NAME``."""

Encode = Callable[[list[str]], Any]
AsyncEncode = Callable[[list[str]], Awaitable[Any]]
F = TypeVar("F", bound=Callable[..., None])


class PlaintextWarning(UserWarning):
    """Texts are stored beside their protected vectors: a reader of the store needs no attack."""


class CleanQueryWarning(UserWarning):
    """Queries are released clean: map-only with a method that has no map."""


class PolicyOptions(TypedDict, total=False):
    """Keywords of `open_policy`, accepted by every class of ``vecveil.integrations``.

    Attributes:
        query_protection: ``same``, ``stronger`` or ``map-only``; see `ReleasePolicy`.
        query_noise: noise scale of queries for ``stronger``, relative to documents.
        key: noise keys, path of a key file, or ``env:NAME``; never saved.
        ledger: ledger or path of its existing file. Counted releases stay counted if the database fails.
    """

    query_protection: QueryProtection
    query_noise: float
    key: KeySource
    ledger: Ledger | str | os.PathLike[str] | None


def open_policy(
    protector: Protector | ReleasePolicy | str | os.PathLike[str],
    *,
    query_protection: QueryProtection = "same",
    query_noise: float = STRONGER,
    key: KeySource = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
) -> ReleasePolicy:
    """Return the release policy of ``protector`` with the arguments of `PolicyOptions`.

    A `ReleasePolicy` is returned unchanged and accepts no further arguments but its own.
    """
    if isinstance(protector, ReleasePolicy):
        own = protector.query_protection, protector.query_noise, protector.key, protector.ledger
        if (query_protection, query_noise, key, ledger) not in (("same", STRONGER, None, None), own):
            raise InvalidInputError(
                "A ReleasePolicy has its own key and ledger: leave those arguments out, or pass the protector alone.",
                param="protector",
            )
        return protector
    if isinstance(key, str | os.PathLike):
        key = NoiseKeys.of(key)
    elif not isinstance(key, NoiseKeys | NoiseKey | None):
        raise wrong_type("open_policy", "key", "NoiseKeys, a path or env:NAME", key)
    if isinstance(ledger, str | os.PathLike):
        from vecveil.accounting import Ledger

        # A mistyped path must not start an empty ledger.
        ledger = Ledger(ledger, create=False)
    policy = ReleasePolicy(open_protector(protector), query_protection, query_noise, key, ledger)
    if policy.gives_clean_queries:
        warnings.warn(
            f"Queries are the encoder's own vectors: method {policy.protector.method!r} has no map for map-only. "
            "Keep them where clean vectors may be seen, or use query_protection='same'.",
            CleanQueryWarning,
            stacklevel=3,
        )
    return policy


def policy_arguments(protector: Any, **policy: Any) -> dict[str, Any]:
    """Return the arguments of `open_policy` that adapters save; a `ReleasePolicy` is taken apart."""
    if not isinstance(protector, ReleasePolicy):
        return {"protector": protector, **policy}
    return {field.name: getattr(protector, field.name) for field in fields(protector)}


def with_policy(init: F) -> F:
    """Replace ``**policy`` in a constructor's signature by the keywords of `PolicyOptions`, for documentation."""
    own = list(inspect.signature(init).parameters.values())
    first = next(i for i, one in enumerate(own) if one.kind >= inspect.Parameter.KEYWORD_ONLY)
    options = list(inspect.signature(open_policy).parameters.values())[1:]
    init.__signature__ = inspect.Signature([*own[:first], *options, *own[first:-1]])  # type: ignore[attr-defined]
    return init


def open_protector(protector: Any) -> Protector:
    """Return ``protector``, loaded if it is a path."""
    if isinstance(protector, str | os.PathLike):
        return load(protector)
    if not isinstance(protector, Protector):
        raise wrong_type("open_protector", "protector", "a vecveil.Protector or the path of one", protector)
    return protector


def policy_config(
    protector: Any,
    *,
    query_protection: str = "same",
    query_noise: float = STRONGER,
    key: Any = None,
    ledger: Any = None,
    owner: str,
) -> dict[str, Any]:
    """Return the arguments of `open_policy` for a saved configuration: names of files, never objects or content."""
    config: dict[str, Any] = {"query_protection": query_protection, "query_noise": float(query_noise)}
    for name, value in (("protector", protector), ("key", key), ("ledger", ledger)):
        if value is not None:
            config[name] = saved_source(owner, name, value)
    return config


def fitted_candidates(protector: Protector | None) -> int:
    """Return the rows that a search fetches: those that ``protector`` was fitted for, or 200."""
    report = {} if protector is None else protector.report
    return int(report.get("sealed_search", {}).get("candidates", 200))


def check_saved(policy: ReleasePolicy, fingerprint: str | None) -> None:
    """Raise IncompatibleError if a saved configuration names the fingerprint of another protector than ``policy``'s."""
    if fingerprint not in (None, policy.protector.fingerprint):
        raise IncompatibleError("The protector file has changed since this was saved. Put it back.", param="protector")


def saved_source(owner: str, name: str, value: Any) -> str:
    """Return the name of a file, absolute, or of a variable, for a saved configuration; raise for an object."""
    if not isinstance(value, str | os.PathLike):
        said = f"{owner}: `{name}` is an object, which a saved configuration cannot hold. Save it, and pass its path."
        raise InvalidInputError(said, code="E-INPUT-TYPE", param=name)

    def place(path: str) -> str:
        # Absolute, since another working directory may open it.
        return str(Path(path).expanduser().absolute())

    return placed_source(value, place) if name in ("key", "sealer") else place(os.fspath(value))


def warn_plaintext(where: str, fix: str, *, stacklevel: int = 3) -> None:
    """Warn that texts are stored beside their protected vectors, in ``where``; ``fix`` is a sentence of advice."""
    warnings.warn(
        f"Texts lie beside their protected vectors in {where}: whoever reads the store reads them. {fix}",
        PlaintextWarning,
        stacklevel=stacklevel,
    )


class WrappedEmbedder:
    """A release policy around an embedder: a framework's, or a user's function.

    Before its first use the embedder embeds fixed sentences, whose vectors must match the protector's probe. For a
    protector that was fitted on vectors alone, only the dimension is verified. ``owner`` is a class, for errors.
    """

    def __init__(self, policy: ReleasePolicy, *, owner: str) -> None:
        self.policy = policy
        self._owner = owner
        # Fitted on vectors alone: no probe to compare with.
        self.verified = not policy.protector.encoder_info.probe

    def probe(self) -> list[str]:
        """Return the sentences for `compare`, or an empty list once the embedder is verified."""
        return [] if self.verified else list(PROBE_SENTENCES)

    def compare(self, vectors: Any) -> None:
        """Verify the embedder by its vectors of the probe sentences; raise IncompatibleError for another one."""
        # First: vectors of another dimension have no distance to the probe.
        array = self._checked(vectors, len(PROBE_SENTENCES))
        info = self.policy.protector.encoder_info
        if not matches_probe(array, info.probe, owner=self._owner):
            said = f"The protector was fitted for another encoder ({info.name}). Use that one, or fit a new protector."
            raise IncompatibleError(said, code="E-INCOMPATIBLE-ENCODER", param="encoder")
        self.verified = True

    def embed(
        self,
        texts: Sequence[str],
        embed: Encode | None,
        *,
        ids: Sequence[ItemId] | None = None,
        query: bool = False,
        verify: Encode | None = None,
    ) -> Embeddings:
        """Verify the embedder and return the released vectors of ``texts``, float32 (N, m).

        Args:
            embed: the embedder's function; None uses the protector's encoder.
            ids: item ids for keyed noise and the ledger; None uses the texts.
            query: release as queries.
            verify: function for the probe sentences, where ``embed`` is for queries.
        """
        if embed is None or not len(texts):
            embed_own = self.policy.embed_queries if query else self.policy.embed_documents
            return embed_own(texts, ids=ids)
        # The probe was recorded from documents: some models embed queries with another prompt.
        if sentences := self.probe():
            self.compare((verify or embed)(sentences))
        return self.released(embed(self.seen(texts)), texts, ids, query=query)

    async def aembed(
        self, texts: Sequence[str], embed: AsyncEncode | None, *, query: bool = False, verify: AsyncEncode | None = None
    ) -> Embeddings:
        """Asynchronous `embed`; rewriting and releasing run on a thread."""
        if embed is None or not len(texts):
            return await asyncio.to_thread(self.embed, texts, None, query=query)
        if sentences := self.probe():
            self.compare(await (verify or embed)(sentences))
        vectors = await embed(await asyncio.to_thread(self.seen, texts))
        return await asyncio.to_thread(self.released, vectors, texts, query=query)

    def embed_query(self, text: str, embed: Callable[[str], Any] | None, verify: Encode | None) -> list[float]:
        """Return `embed` of one query; ``embed`` takes one text."""
        encode = None if embed is None else lambda texts: [embed(texts[0])]
        vector: list[float] = self.embed([text], encode, query=True, verify=verify)[0].tolist()
        return vector

    async def aembed_query(
        self, text: str, embed: Callable[[str], Awaitable[Any]] | None, verify: AsyncEncode | None
    ) -> list[float]:
        """Asynchronous `embed_query`."""

        async def encode(texts: list[str]) -> list[Any]:
            assert embed is not None
            return [await embed(texts[0])]

        wrapped = None if embed is None else encode
        vectors = await self.aembed([text], wrapped, query=True, verify=verify)
        vector: list[float] = vectors[0].tolist()
        return vector

    def seen(self, texts: Sequence[str]) -> list[str]:
        """Return the texts to embed: rewritten if the protector rewrites texts."""
        return self.policy.protector.seen(texts)

    def released(
        self, vectors: Any, texts: Sequence[str], ids: Sequence[ItemId] | None = None, *, query: bool = False
    ) -> Embeddings:
        """Return the embedder's vectors of `seen` for ``texts`` as the policy releases them, float32 (N, m)."""
        # A missing row would shift all later vectors to other texts' ids.
        array = self._checked(vectors, len(texts))
        release = self.policy.queries if query else self.policy.documents
        return release(array, ids=ids, texts=texts, rewritten=True)

    def _checked(self, vectors: Any, rows: int) -> Embeddings:
        array = checked_vectors(vectors, rows=rows, owner=self._owner)
        expected = self.policy.protector.dimension
        if array.shape[1] != expected:
            said = f"The encoder returns {array.shape[1]} dimensions; the protector was fitted for {expected}."
            raise IncompatibleError(said, code="E-INCOMPATIBLE-DIMENSION", param="encoder")
        return array
