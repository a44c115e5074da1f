"""`ReleasePolicy`: releases of a collection's documents and of the queries compared with them, for any embedder.

Documents always pass the protector. A query passes the same map, with ``query_noise`` in units of a document's noise:

1           the protection of a document: for queries that an untrusted party sees.
above 1     more noise and the same map: a query is often shorter and more specific than a document.
0           none, which protects nothing: for queries that stay on the trusted side, with better search.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import warnings
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt

from vecveil.errors import IncompatibleError, InvalidInputError, out_of_range, renamed, wrong_type
from vecveil.io import expanded
from vecveil.keys import KeyFile, NoiseKey, placed_source
from vecveil.privacy.accounting import Ledger
from vecveil.privacy.protector.protector import Protector, load
from vecveil.privacy.randomness import content_ids
from vecveil.texts.encoders.text_encoder import PROBE_SENTENCES, matches_probe
from vecveil.types import Embeddings, RandomSource, Texts
from vecveil.validation import ItemId, check_embeddings, check_texts, checked_vectors

_OWNER = "ReleasePolicy"


@dataclass(frozen=True, eq=False)
class ReleasePolicy:
    """A protector, and its use on both sides of a search.

    Args:
        protector: of the documents.
        query_noise: noise of a query in units of a document's: 1 or more, or 0 for the map without noise.
        key: for keyed noise on both sides: the same item with the same content gets the same release, so averaging
            repeated requests gains nothing. Never shown and never saved.
        ledger: counts the releases of each item and refuses those beyond its cap.

    The caller's ids identify items, else their texts, else their vectors.
    """

    protector: Protector
    query_noise: float = 1.0
    key: NoiseKey | KeyFile | None = field(default=None, repr=False)
    ledger: Ledger | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.protector, Protector):
            raise wrong_type(
                _OWNER, "protector", "a vecveil.Protector", self.protector, fix="Load it with vecveil.load(path)."
            )
        noise = self.query_noise
        if isinstance(noise, bool) or not isinstance(noise, int | float) or not (noise == 0 or 1 <= noise < np.inf):
            raise out_of_range(_OWNER, "query_noise", "0, or a number of at least 1", repr(noise)[:40])
        if self.key is not None and not isinstance(self.key, NoiseKey | KeyFile):
            raise wrong_type(_OWNER, "key", "a vecveil.KeyFile", self.key, fix="Read it with KeyFile.from_file(path).")
        if self.protector.text_only and (self.key is not None or self.ledger is not None):
            param = "key" if self.key is not None else "ledger"
            raise InvalidInputError(f"Leave out `{param}`: the method rewrites texts and adds no noise.", param=param)
        if self.protector.text_only and noise != 1:
            said = "Leave out `query_noise`: the method rewrites queries as it rewrites documents."
            raise InvalidInputError(said, param="query_noise")
        _ = self._query_protector  # a method without a scale fails here, not at the first query

    @cached_property
    def _query_protector(self) -> Protector:
        return self.protector.rescaled(self.query_noise) if self.query_noise > 1 else self.protector

    @property
    def rewrites_texts(self) -> bool:
        """True if texts are rewritten before encoding, by a text stage or a text-level method."""
        return self.protector.rewriter is not None

    @property
    def gives_clean_queries(self) -> bool:
        """True if queries are released clean, without noise and without a map."""
        protector = self.protector
        plain = protector.map is None and not protector.after and protector.before.kind == "none"
        return self.query_noise == 0 and plain

    def documents(
        self,
        X: Embeddings,
        rng: RandomSource = None,
        *,
        ids: Sequence[ItemId] | None = None,
        texts: Texts | None = None,
        rewritten: bool = False,
    ) -> Embeddings:
        """Return the stored form of the clean vectors ``X`` (N, n): (N, m), same dtype.

        Args:
            rng: None for secure noise; a seed is repeatable and insecure.
            ids: one per row.
            texts: the texts of ``X``; with a key or a ledger and no ids they identify the items.
            rewritten: ``X`` are vectors of texts that the protector has rewritten; see `Protector.protect`.
        """
        return self._release(self.protector, X, rng, ids, texts, rewritten)

    def queries(
        self,
        X: Embeddings,
        rng: RandomSource = None,
        *,
        ids: Sequence[ItemId] | None = None,
        texts: Texts | None = None,
        rewritten: bool = False,
    ) -> Embeddings:
        """Return the released form of clean query vectors ``X`` (N, n): (N, m), same dtype."""
        if self.query_noise == 0:
            X = self._checked(self.protector, X)
            return self.protector.protect(X, noise=False, rewritten=rewritten)
        return self._release(self._query_protector, X, rng, ids, texts, rewritten)

    def embed_documents(
        self, texts: Texts, rng: RandomSource = None, *, ids: Sequence[ItemId] | None = None
    ) -> Embeddings:
        """Return the released vectors of ``texts``, encoded by the protector's encoder."""
        return self._embed(texts, rng, ids, query=False)

    def embed_queries(
        self, texts: Texts, rng: RandomSource = None, *, ids: Sequence[ItemId] | None = None
    ) -> Embeddings:
        """Return the released vectors of ``texts`` as queries, encoded by the protector's encoder."""
        return self._embed(texts, rng, ids, query=True)

    def _embed(self, texts: Texts, rng: RandomSource, ids: Sequence[ItemId] | None, *, query: bool) -> Embeddings:
        texts = check_texts(texts, owner=_OWNER, min_rows=0)
        if not texts:  # load no encoder for an empty list
            return np.empty((0, self.protector.released_dimension), dtype=np.float32)
        encoder = self.protector.loaded_encoder()
        encode = getattr(encoder, "encode_query", encoder.encode) if query else encoder.encode
        X = np.asarray(encode(self.protector.seen(texts)))
        return (self.queries if query else self.documents)(X, rng, ids=ids, texts=texts, rewritten=True)

    def _release(
        self,
        protector: Protector,
        X: Embeddings,
        rng: RandomSource,
        ids: Sequence[ItemId] | None,
        texts: Texts | None,
        rewritten: bool,
    ) -> Embeddings:
        X = self._checked(protector, X)  # checks norms, so protect can skip that (lengths=False)
        if self.key is None and self.ledger is None:
            return protector.protect(X, rng, lengths=False, rewritten=rewritten)
        if texts is not None:
            texts = check_texts(texts, owner=_OWNER, min_rows=0)
        # Keyed noise can depend on texts only where the encoder is known.
        known = texts if self.key is not None and protector.encoder_info.fingerprint else None
        return protector.protect(
            X,
            rng,
            ids=content_ids(X, texts) if ids is None else ids,
            key=self.key,
            texts=known,
            ledger=self.ledger,
            lengths=False,
            rewritten=rewritten,
        )

    @staticmethod
    def _checked(protector: Protector, X: Embeddings) -> Embeddings:
        """Return ``X``, checked; raise IncompatibleError for rows too long for the noise."""
        # NaN fails in check_norms, or in the release if the protector knows no norms.
        X = check_embeddings(X, owner=_OWNER, param="X", dimension=protector.dimension, finite=False)
        protector.check_norms(X, owner=_OWNER)
        return X


Vectors = npt.NDArray[np.float32]
KeySource = KeyFile | NoiseKey | str | os.PathLike[str] | None
"""Noise keys, path of a key file, or ``env:NAME``."""

Encode = Callable[[list[str]], Any]
AsyncEncode = Callable[[list[str]], Awaitable[Any]]
F = TypeVar("F", bound=Callable[..., None])


class PlaintextWarning(UserWarning):
    """Texts are stored in plain text with their protected vectors: an attacker with the store reads them."""


class CleanQueryWarning(UserWarning):
    """Queries are released clean: ``query_noise=0`` with a method that has no map."""


class PolicyOptions(TypedDict, total=False):
    """Keywords of `open_policy`, accepted by every class of ``vecveil.gateway``.

    Attributes:
        query_noise: noise of a query in units of a document's, or 0; see `ReleasePolicy`.
        key: noise keys, path of a key file, or ``env:NAME``; never saved.
        ledger: ledger or path of its existing file. Counted releases stay counted if the database fails.
    """

    query_noise: float
    key: KeySource
    ledger: Ledger | str | os.PathLike[str] | None


def open_policy(
    protector: Protector | ReleasePolicy | str | os.PathLike[str],
    *,
    query_noise: float = 1.0,
    key: KeySource = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
) -> ReleasePolicy:
    """Return the release policy of ``protector`` with these `PolicyOptions`; a `ReleasePolicy` accepts none."""
    if isinstance(protector, ReleasePolicy):
        own = protector.query_noise, protector.key, protector.ledger
        if (query_noise, key, ledger) not in ((1, None, None), own):
            raise InvalidInputError(
                "A ReleasePolicy has its own key and ledger: leave those arguments out, or pass the protector alone.",
                param="protector",
            )
        return protector
    if isinstance(key, str | os.PathLike):
        with renamed("path", "key"):
            key = KeyFile.of(key)
    elif not isinstance(key, KeyFile | NoiseKey | None):
        raise wrong_type("open_policy", "key", "KeyFile, a path or env:NAME", key)
    if isinstance(ledger, str | os.PathLike):
        # A mistyped path must not start an empty ledger.
        ledger = Ledger(ledger, create=False)
    policy = ReleasePolicy(open_protector(protector), query_noise, key, ledger)
    if policy.gives_clean_queries:
        warnings.warn(
            f"Queries are the encoder's own vectors: method {policy.protector.method!r} has no map. "
            "Keep them where clean vectors may be seen, or leave out query_noise=0.",
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
    protector: Any, *, query_noise: float = 1.0, key: Any = None, ledger: Any = None, owner: str
) -> dict[str, Any]:
    """Return the arguments of `open_policy` for a saved configuration: names of files, never objects or content."""
    config: dict[str, Any] = {"query_noise": float(query_noise)}
    for name, value in (("protector", protector), ("key", key), ("ledger", ledger)):
        if value is not None:
            config[name] = saved_source(owner, name, value)
    return config


def fitted_candidates(protector: Protector | None) -> int:
    """Return the number of rows that a search fetches: that of the fit of ``protector``, or 200."""
    report = {} if protector is None else protector.report
    return int(report.get("sealed_search", {}).get("candidates", 200))


def check_saved(policy: ReleasePolicy, fingerprint: str | None) -> None:
    """Raise IncompatibleError if a saved configuration names a different protector than ``policy``'s."""
    if fingerprint not in (None, policy.protector.fingerprint):
        raise IncompatibleError("The protector file has changed since this was saved. Put it back.", param="protector")


def saved_source(owner: str, name: str, value: Any) -> str:
    """Return the absolute file name, or the variable, for a saved configuration; raise for an object."""
    if not isinstance(value, str | os.PathLike):
        said = f"{owner}: `{name}` is an object, which a saved configuration cannot hold. Save it, and pass its path."
        raise InvalidInputError(said, code="E-INPUT-TYPE", param=name)

    def place(path: str) -> str:
        # Absolute, since a different working directory may open it.
        return str(expanded(path).absolute())

    return placed_source(value, place) if name in ("key", "sealer") else place(os.fspath(value))


def warn_plaintext(where: str, fix: str, *, stacklevel: int = 3) -> None:
    """Warn that ``where`` stores texts in plain text with their vectors; ``fix`` is a sentence of advice."""
    warnings.warn(
        f"Texts are stored in clear with their vectors, in {where}: anyone with access can read them. {fix}",
        PlaintextWarning,
        stacklevel=stacklevel,
    )


class WrappedEmbedder:
    """A release policy around an embedder: a framework's, or a user's function.

    Before its first use the embedder embeds fixed sentences, whose vectors must match the protector's probe; for a
    protector fitted on vectors alone, their dimension. ``owner`` is a class, for errors.
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
        """Verify the embedder by its vectors of the probe sentences; raise IncompatibleError for a different one."""
        # First: vectors of a different dimension have no distance to the probe.
        array = self._checked(vectors, len(PROBE_SENTENCES))
        info = self.policy.protector.encoder_info
        if not matches_probe(array, info.probe, owner=self._owner):
            said = (
                f"The protector was fitted for a different encoder ({info.name}). Use that one, or fit a new protector."
            )
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
            verify: function for the probe sentences, where ``embed`` is for queries.
        """
        if embed is None or not len(texts):
            embed_own = self.policy.embed_queries if query else self.policy.embed_documents
            return embed_own(texts, ids=ids)
        # The probe was recorded from documents: some models embed queries with a different prompt.
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
