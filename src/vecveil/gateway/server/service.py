"""Service behind the routes: select a policy, encode the texts, release protected vectors."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from logging.handlers import SysLogHandler

from vecveil.errors import EncoderError, InvalidInputError, VecveilError
from vecveil.gateway.server.errors import ApiError, UpstreamError, not_granted
from vecveil.gateway.server.monitoring import Metrics, event
from vecveil.gateway.server.released import release
from vecveil.gateway.server.requests import (
    MAX_DOCUMENT,
    ApiClient,
    EmbeddingRequest,
    RerankRequest,
    Sealing,
    Side,
    read_secret,
)
from vecveil.gateway.server.settings import Limits, ServedPolicySettings, ServeSettings, UpstreamSettings
from vecveil.gateway.server.upstreams import Encoded, HttpUpstream, LocalUpstream, Upstream, VerifiedUpstream
from vecveil.gateway.server.vector_stores import FileThreads, ServedIndex, VectorStores, check_index, open_index
from vecveil.index import KeyStore, Sealer
from vecveil.index.audit_log import AuditLog
from vecveil.index.blob import key_id_of
from vecveil.index.keystore import token_fields, typed_value
from vecveil.index.sealer import filter_tokens
from vecveil.privacy.protector.policy import CleanQueryWarning, ReleasePolicy, open_policy
from vecveil.texts.encoders import load_encoder
from vecveil.texts.encoders.openai_compatible import is_endpoint, split_endpoint
from vecveil.texts.encoders.text_encoder import TextEncoder

_OWNER = "serve"
_FILE_THREADS = 8
_FILE_SECONDS = 15.0  # longer than the wait for the key store's lock
_SEARCH_THREADS = 8
_OPENAI_KEY = "OPENAI_API_KEY"
# Upstream errors that may pass: the server starts, and the first request verifies the upstream.
_TRANSIENT = frozenset({"upstream_timeout", "upstream_rate_limited", "upstream_failed", "upstream_authentication"})


@dataclass(frozen=True, eq=False)
class ServedPolicy:
    """A named policy and the upstream of its clean vectors."""

    name: str
    policy: ReleasePolicy
    upstream: Upstream


class Service:
    """Policies, verified upstreams and sealed indexes of one server.

    Args:
        policies: with distinct names.
        client_ids: accept item ids from clients.
        sealer: seals rows and ranks sealed documents for clients; None refuses both.
        indexes: sealed indexes that clients search, with distinct names.
        audit_log: logs each operation on an index.
    """

    def __init__(
        self,
        policies: Sequence[ServedPolicy],
        *,
        limits: Limits | None = None,
        client_ids: bool = False,
        sealer: Sealer | None = None,
        indexes: Sequence[ServedIndex] = (),
        audit_log: AuditLog | None = None,
    ) -> None:
        self.policies = {served.name: served for served in policies}
        self.limits = limits or Limits()
        self.client_ids = client_ids
        self.sealer = sealer
        self.created = int(time.time())
        self.metrics = Metrics()
        self._files = FileThreads(_FILE_THREADS, _FILE_SECONDS)
        searches = FileThreads(_SEARCH_THREADS, _FILE_SECONDS)
        self.stores = VectorStores(indexes, self.metrics, searches, created=self.created, audit_log=audit_log)
        self._upstreams = {
            served.name: VerifiedUpstream(served.name, served.policy.protector, served.upstream) for served in policies
        }
        self._started = False

    @property
    def checked(self) -> int:
        return sum(upstream.verified for upstream in self._upstreams.values())

    async def start(self) -> None:
        """Verify the upstreams that are reachable without a client's key; the first request verifies the others.

        Raises:
            IncompatibleError: an upstream is a different encoder.
            EncoderError: an upstream answers, but not with embeddings.
        """
        if self._started:
            return
        for name, served in self.policies.items():
            _warn(served)
            if served.upstream.takes_models:
                # The model, and so the encoder, is known only from a request.
                event("encoder is verified for each model that clients name", policy=name)
                continue
            try:
                await self._upstreams[name].ensure("", {})
            except UpstreamError as error:
                if not error.lost and error.code not in _TRANSIENT:
                    raise EncoderError(f"serve: upstream of the policy {name!r}: {error.text}") from None
                event(
                    "upstream not verified yet",
                    level=logging.WARNING,
                    policy=name,
                    upstream=served.upstream.name,
                    code=error.code,
                    message="The first request verifies it; nothing is released before.",
                )
        self._started = True

    async def aclose(self) -> None:
        # Verifications first: a pending one would use an upstream that is being closed.
        for verified in self._upstreams.values():
            verified.close()
        # Policies may share an upstream, which is closed once.
        for upstream in {id(served.upstream): served.upstream for served in self.policies.values()}.values():
            await upstream.aclose()
        await self.stores.aclose()

    def choose(self, request: EmbeddingRequest | RerankRequest) -> ServedPolicy:
        """Return the policy named in the header, else by the model name, else the only one; raise `ApiError` 404."""
        if request.policy is not None:
            if request.policy in self.policies:
                return self.policies[request.policy]
            text = "The header X-Vecveil-Policy names no policy; GET /v1/models lists them."
            raise ApiError(404, text, code="policy_not_found")
        if request.model in self.policies:
            return self.policies[request.model]
        # Clients keep their model name, such as text-embedding-3-small; one policy needs no name.
        if len(self.policies) == 1:
            return next(iter(self.policies.values()))
        text = "`model` names no policy; GET /v1/models lists them. Or name one in the header X-Vecveil-Policy."
        raise ApiError(404, text, code="model_not_found", param="model")

    async def answer(self, request: EmbeddingRequest, headers: Mapping[str, str], client: ApiClient) -> bytes:
        """Return the JSON answer to a request; every vector in it has passed `release`. `api_error_of` shows errors."""
        served = self.choose(request)
        protector = served.policy.protector
        dimension = protector.released_dimension
        # Not shortened: the leading coordinates of a protected vector do not form an embedding.
        if request.dimensions not in (None, dimension):
            text = f"`dimensions` must be {dimension} or left out: that is what the protector releases."
            raise ApiError(400, text, code="invalid_dimensions", param="dimensions")
        if request.sealing is not None:
            await self._files.run(partial(self._check_sealing, served, request.sealing, request.side, client))
        # The upstream sees no original text of a protector that rewrites texts, except of documents to seal.
        texts = await asyncio.to_thread(protector.seen, request.texts)
        embed = partial(
            self._upstreams[served.name].embed, model=request.model, headers=headers, query=request.side == "query"
        )
        with self.metrics.upstream.time():
            exact = encoded = await embed(texts)
            if request.sealing is not None and texts != request.texts:
                exact = await embed(request.texts)
                encoded = Encoded(encoded.vectors, encoded.tokens + exact.tokens)
        # Sealed first: what cannot be sealed is not released and not counted.
        sealed = await self._files.run(partial(self._sealed, served, request, exact)) if request.sealing else []
        # On a thread: protecting and serialising many vectors would block the event loop.
        run = asyncio.to_thread if served.policy.ledger is None else self._files.run
        body = await run(partial(self._release, served, request, encoded, sealed))
        self.metrics.vectors.labels(served.name, request.side).inc(len(request.texts))
        return body

    def _check_sealing(self, served: ServedPolicy, sealing: Sealing, side: Side, client: ApiClient) -> None:
        if self.sealer is None:
            raise ApiError(400, "This server has no key to seal with.", code="invalid_seal", param="seal")
        if side == "query":
            raise ApiError(400, "A query is not sealed.", code="invalid_seal", param="seal")
        if served.policy.protector.text_only:
            raise _rewriting()
        if not client.may("seal", sealing.collection):
            raise not_granted("collection")
        # Before the collection is made: its first request names its filter fields, and may be repeated after an error.
        token_fields(sealing.filter_fields, owner=_OWNER)
        for row in sealing.metadata or ():
            for field in sealing.filter_fields:
                if row and row.get(field) is not None:
                    typed_value(row[field])
        # Tokens of an additional field would show the database which later rows share its value.
        keys = self.sealer.keys
        filled = isinstance(keys, KeyStore) and sealing.collection in keys.collections()
        named = set(sealing.filter_fields) if filled and client.grants is not None else set()
        if named and not named <= set(keys.read(sealing.collection).filter_fields):
            text = "`filter_fields` names a field that the collection does not have. Its first request names them."
            raise ApiError(403, text, kind="permission_error", code="not_granted", param="filter_fields")

    async def rerank(self, request: RerankRequest, headers: Mapping[str, str], client: ApiClient) -> bytes:
        """Return the JSON answer to a request to rank sealed documents; errors as for `answer`."""
        if self.sealer is None:
            raise ApiError(404, "This server has no key to open documents with.", code="unknown_path")
        collection, served = await self._files.run(partial(self._target, self.sealer, request, client))
        embed = self._upstreams[served.name].embed
        encoded = await embed([request.query], model=request.model, headers=headers, query=True)
        if not encoded.vectors.any():  # an LSA encoder, for unknown words
            raise ApiError(400, "The encoder has no vector for `query`.", code="invalid_query", param="query")
        rank = partial(self.sealer.rank, ids=request.ids, collection=collection, top=request.top, on_invalid="skip")
        ranking = await self._files.run(partial(rank, encoded.vectors[0], request.blobs))
        # One error for every cause: a client must not learn which blobs are of other collections or ids.
        if ranking.skipped:
            problem = "A document does not open: it is damaged, or of another id, collection or key. None was ranked."
            raise ApiError(400, problem, code="document_not_opened", param="documents")
        self.metrics.blobs.labels("opened").inc(len(request.ids))
        positions = {name: i for i, name in enumerate(request.ids)}
        exact = client.may("scores", collection)
        results: list[dict[str, object]] = []
        for place, (name, score, text) in enumerate(zip(ranking.ids, ranking.scores, ranking.texts, strict=True)):
            # Without the grant, the score depends on the rank alone.
            shown = float(score) if exact else 1 - place / len(request.ids)
            document = {"document": {"text": text}} if request.with_texts and text is not None else {}
            results.append({"index": positions[name], "relevance_score": shown, **document})
        usage = {"total_tokens": encoded.tokens}
        return json.dumps({"model": request.model or served.name, "results": results, "usage": usage}).encode()

    def _target(self, sealer: Sealer, request: RerankRequest, client: ApiClient) -> tuple[str, ServedPolicy]:
        """Return the documents' collection, checked against the client's grants, and the policy that filled it."""
        keys = sealer.keys
        collection = request.collection or keys.collection_of(map(key_id_of, request.blobs))
        if collection is None or not client.may("rank", collection):
            raise not_granted()
        if request.with_texts and not client.may("texts", collection):
            raise not_granted("return_documents")
        protector = keys.read(collection).protector
        filled = [s for s in self.policies.values() if s.policy.protector.fingerprint == protector]
        if protector is not None and not filled:
            text = "The documents belong to a protector that this server does not serve."
            raise ApiError(409, text, code="another_protector")
        served = filled[0] if filled else self.choose(request)
        if served.policy.protector.text_only:
            raise _rewriting()
        return collection, served

    def _sealed(
        self, served: ServedPolicy, request: EmbeddingRequest, encoded: Encoded
    ) -> list[tuple[bytes, dict[str, str]]]:
        sealing = request.sealing
        assert sealing is not None
        assert self.sealer is not None
        keys, name, metadata = self.sealer.keys, sealing.collection, sealing.metadata
        with _failure_logged(served):
            # First: metadata that cannot be sealed must not create a collection.
            blobs = self.sealer.seal(
                encoded.vectors, texts=request.texts, ids=sealing.ids, collection=name, metadata=metadata
            )
            for position, blob in enumerate(blobs):
                if 4 * -(-len(blob) // 3) > MAX_DOCUMENT:
                    raise ApiError(
                        400,
                        f"The text and metadata at {position} are too long to be sealed: blobs have "
                        f"at most {MAX_DOCUMENT:,} characters.",
                        code="row_too_long",
                        param="input",
                    )
            protector = served.policy.protector
            keys.check_protector(name, protector.fingerprint, adding=True, encoder=protector.encoder_info.fingerprint)
            noted = keys.read(name)
            tokens = filter_tokens(noted, {*noted.filter_fields, *sealing.filter_fields}, blobs, metadata)
            keys.note_filter_fields(name, sealing.filter_fields)  # after the tokens, which check the values
        self.metrics.blobs.labels("sealed").inc(len(blobs))
        return list(zip(blobs, tokens, strict=True))

    def _release(
        self,
        served: ServedPolicy,
        request: EmbeddingRequest,
        encoded: Encoded,
        sealed: Sequence[tuple[bytes, dict[str, str]]],
    ) -> bytes:
        with _failure_logged(served), self.metrics.protection.time():
            released = release(served.policy, encoded.vectors, side=request.side, texts=request.texts, ids=request.ids)
        return released.to_json(model=request.named, as_base64=request.base64, tokens=encoded.tokens, sealed=sealed)


@contextmanager
def _failure_logged(served: ServedPolicy) -> Iterator[None]:
    try:
        yield
    except VecveilError as error:
        # Messages of VecveilError hold no text, vector or key.
        event("not released", level=logging.ERROR, policy=served.name, message=str(error))
        raise


def _rewriting() -> ApiError:
    # The exact vector is the original text's. Where rewriting is all the protection, no upstream sees that text.
    text = "A text-level method does not seal and rank: its upstream must not see the original text."
    return ApiError(400, text, code="sealing_not_supported", param="model")


def _warn(served: ServedPolicy) -> None:
    messages = []
    if served.policy.gives_clean_queries:
        messages.append(
            "query_noise 0 for a method without a map: the vectors of queries are the encoder's own, unprotected."
        )
    elif served.policy.query_noise == 0:
        messages.append("query_noise 0: the vectors of queries pass the map without noise and are not protected.")
    name = served.upstream.name
    local = ("http://127.", "http://localhost", "http://[::1]")
    if name.startswith("http://") and not name.startswith(local):
        messages.append("Texts and clean vectors cross the network to the upstream without TLS.")
    for message in messages:
        event("warning", level=logging.WARNING, policy=served.name, message=message)


def open_service(settings: ServeSettings) -> Service:
    """Return the service of ``settings``, whose upstreams are not yet verified; raise for unusable files or keys."""
    sealer = None if settings.seal_key is None else Sealer(settings.seal_key)
    if sealer is not None:
        for name, place in settings.indexes.items():
            check_index(name, place, sealer, named=settings.upstream.encoder is not None)
    upstreams: dict[str, Upstream] = {}  # policies of one encoder share it
    served = []
    for name, given in settings.policies.items():
        policy = _open_policy(given)
        encoder, info = given.upstream or settings.upstream.encoder, policy.protector.encoder_info
        shared = encoder if encoder is not None and is_endpoint(encoder) else f"{encoder or info.name} {info.precision}"
        if shared not in upstreams:
            if encoder is not None and is_endpoint(encoder):
                authenticated = settings.api_keys is not None
                upstreams[shared] = _http_upstream(encoder, settings.upstream, authenticated)
            else:
                # No cache: it would store clean vectors on disk.
                upstreams[shared] = LocalUpstream(policy.protector.encoder_for(encoder, show_progress=False))
        served.append(ServedPolicy(name, policy, upstreams[shared]))
    indexes = []
    if settings.indexes and sealer is not None:
        upstream, loaded = _index_upstream(settings, upstreams)
        indexes = [open_index(name, place, sealer, upstream, loaded) for name, place in settings.indexes.items()]
    return Service(
        served,
        limits=settings.limits,
        client_ids=settings.client_ids,
        sealer=sealer,
        indexes=indexes,
        audit_log=None if settings.audit_log is None else _audit_log(settings.audit_log),
    )


def _audit_log(destination: str | logging.Handler) -> AuditLog:
    if destination == "stdout":
        destination = logging.StreamHandler(sys.stdout)
    elif destination == "syslog":
        try:
            destination = SysLogHandler("/dev/log")
        except OSError as error:
            raise InvalidInputError(
                "serve: /dev/log, the syslog of this machine, does not answer. Name a file.", param="audit_log"
            ) from error
    log = AuditLog(destination)
    log.write("start", index="", principal="server")  # fails now, not at the first request
    return log


def _index_upstream(settings: ServeSettings, upstreams: Mapping[str, Upstream]) -> tuple[Upstream, TextEncoder]:
    """Return the upstream of index queries, shared with policies of the same encoder, and its encoder."""
    name = settings.upstream.encoder or "minilm"
    if is_endpoint(name):
        # The encoder is for its fingerprint; `HttpUpstream` sends the queries.
        loaded = load_encoder(name, cache=None, dimensions=settings.upstream.dimensions)
        return upstreams.get(name) or _http_upstream(name, settings.upstream, settings.api_keys is not None), loaded
    for key, upstream in upstreams.items():
        # A protector's options, such as a prompt, would make it a different encoder.
        if isinstance(upstream, LocalUpstream) and key.rpartition(" ")[0] == name and not upstream.encoder.options:
            return upstream, upstream.encoder
    loaded = load_encoder(name, cache=None, show_progress=False)
    return LocalUpstream(loaded), loaded


def _open_policy(given: ServedPolicySettings) -> ReleasePolicy:
    options = {name: value for name, value in vars(given).items() if name != "upstream"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CleanQueryWarning)  # `Service.start` logs it
        return open_policy(**options)


def _http_upstream(encoder: str, settings: UpstreamSettings, authenticated: bool) -> HttpUpstream:
    named = "#" in encoder
    url, model = split_endpoint(encoder if named else f"{encoder}#any", owner=_OWNER)
    # Without a model in the configuration, the client's model name goes to the upstream.
    key, forward = upstream_key(settings.key, authenticated=authenticated, environment=os.environ)
    if forward:
        event("clients' keys are sent to the upstream", upstream=url)
    return HttpUpstream(url, model if named else None, settings, key=key, forward_key=forward)


def upstream_key(given: str | None, *, authenticated: bool, environment: Mapping[str, str]) -> tuple[str | None, bool]:
    """Return the key for the upstream, and whether clients' keys are forwarded instead.

    Args:
        given: ``forward``, ``none``, ``env:NAME``, a file, or None for the default.
        authenticated: clients present keys of this server, which the upstream must not see.

    Raises:
        InvalidInputError: keys of this server would be forwarded.
        KeyFileError: the source contains no key.
    """
    if given == "forward" and authenticated:
        raise InvalidInputError(
            "`upstream.key` 'forward' sends a key of this server to the upstream, which must not see it. With "
            "`api_keys`, use env:NAME, a file or none.",
            param="upstream.key",
        )
    if given == "none":
        return None, False
    if given is None and authenticated:
        key = environment.get(_OPENAI_KEY)
        event("own key for the upstream", set=bool(key), variable=_OPENAI_KEY)
        return key or None, False
    if given is None or given == "forward":
        return None, True
    return read_secret(given, "upstream.key"), False
