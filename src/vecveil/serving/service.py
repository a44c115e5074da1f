"""Service behind the routes: select a policy, encode the texts, release protected vectors."""

from __future__ import annotations

import asyncio
import logging
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vecveil.databases.release import CleanQueryWarning, open_policy
from vecveil.encoders import load_encoder
from vecveil.encoders.openai_compatible import is_endpoint, split_endpoint
from vecveil.errors import EncoderError, InvalidInputError, VecveilError
from vecveil.protector import Protector
from vecveil.protector.policy import ReleasePolicy
from vecveil.serving.api_keys import read_secret
from vecveil.serving.errors import ApiError, UpstreamError
from vecveil.serving.logs import event
from vecveil.serving.metrics import Metrics
from vecveil.serving.released import release
from vecveil.serving.requests import EmbeddingRequest
from vecveil.serving.settings import Limits, ServedPolicySettings, ServeSettings, UpstreamSettings
from vecveil.serving.upstreams import (
    Encoded,
    HttpUpstream,
    LocalUpstream,
    Upstream,
    VerifiedUpstream,
)

__all__ = ["ServedPolicy", "Service", "open_service", "upstream_key"]

_OWNER = "serve"
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
    """Policies and verified upstreams of one server.

    Args:
        policies: at least one, with distinct names.
        client_ids: accept item ids from clients.
    """

    def __init__(
        self,
        policies: Sequence[ServedPolicy],
        *,
        limits: Limits | None = None,
        client_ids: bool = False,
    ) -> None:
        self.policies = {served.name: served for served in policies}
        self.limits = limits or Limits()
        self.client_ids = client_ids
        self.created = int(time.time())
        self.metrics = Metrics()
        self._upstreams = {
            served.name: VerifiedUpstream(served.name, served.policy.protector, served.upstream)
            for served in policies
        }
        self._started = False

    @property
    def checked(self) -> int:
        """Number of policies with a verified upstream."""
        return sum(upstream.verified for upstream in self._upstreams.values())

    async def start(self) -> None:
        """Verify the upstreams that are reachable without a client's key; the first request verifies the others.

        Raises:
            IncompatibleError: an upstream is another encoder.
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
                event("upstream not verified yet", level=logging.WARNING, policy=name, upstream=served.upstream.name,
                      code=error.code, message="The first request verifies it; nothing is released before.",
                )  # fmt: skip
        self._started = True

    async def aclose(self) -> None:
        """Release threads and connections."""
        # Verifications first: a pending one would use an upstream that is being closed.
        for verified in self._upstreams.values():
            verified.close()
        # Policies may share an upstream, which is closed once.
        for upstream in {id(served.upstream): served.upstream for served in self.policies.values()}.values():
            await upstream.aclose()

    def choose(self, request: EmbeddingRequest) -> ServedPolicy:
        """Return the policy named in the header, else by the model name, else the only policy.

        Raises:
            ApiError: 404 for an unknown name.
        """
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

    async def answer(self, request: EmbeddingRequest, headers: Mapping[str, str]) -> bytes:
        """Return the JSON answer to a request; every vector in it has passed `release`.

        Raises:
            ApiError, VecveilError: see `vecveil.serving.errors.api_error_of`.
        """
        served = self.choose(request)
        protector = served.policy.protector
        dimension = protector.released_dimension
        # Not shortened: the leading coordinates of a protected vector do not form an embedding.
        if request.dimensions not in (None, dimension):
            text = f"`dimensions` must be {dimension} or left out: that is what the protector releases."
            raise ApiError(400, text, code="invalid_dimensions", param="dimensions")
        texts = request.texts
        # Rewriting comes before encoding, so that the upstream sees no original text.
        if served.policy.rewrites_texts:
            texts = await asyncio.to_thread(protector.rewrite, texts)
        with self.metrics.upstream.time():
            encoded = await self._upstreams[served.name].embed(texts, model=request.model, headers=headers)
        # On a thread: protecting and serialising many vectors would block the event loop.
        body = await asyncio.to_thread(self._release, served, request, encoded)
        self.metrics.vectors.labels(served.name, request.side).inc(len(request.texts))
        return body

    def _release(self, served: ServedPolicy, request: EmbeddingRequest, encoded: Encoded) -> bytes:
        try:
            with self.metrics.protection.time():
                released = release(
                    served.policy, encoded.vectors, side=request.side, texts=request.texts, ids=request.ids
                )
        except VecveilError as error:
            # Messages of VecveilError hold no text, vector or key.
            event("not released", level=logging.ERROR, policy=served.name, message=str(error))
            raise
        return released.to_json(model=request.named, as_base64=request.base64, tokens=encoded.tokens)


def _warn(served: ServedPolicy) -> None:
    messages = []
    if served.policy.gives_clean_queries:
        messages.append("map-only for a method without a map: the vectors of queries are the encoder's own, "
                        "unprotected.")  # fmt: skip
    elif served.policy.query_protection == "map-only":
        messages.append("map-only: the vectors of queries pass the map without noise and are not protected.")
    name = served.upstream.name
    local = ("http://127.", "http://localhost", "http://[::1]")
    if name.startswith("http://") and not name.startswith(local):
        messages.append("Texts and clean vectors cross the network to the upstream without TLS.")
    for message in messages:
        event("warning", level=logging.WARNING, policy=served.name, message=message)


def open_service(settings: ServeSettings) -> Service:
    """Return the service of ``settings``, with upstreams still to be verified.

    Raises:
        VecveilError: an unusable file, key or encoder.
    """
    upstreams: dict[str, Upstream] = {}  # policies of one encoder share it
    served = []
    for name, given in settings.policies.items():
        policy = _open_policy(given)
        encoder = given.upstream or settings.upstream.encoder or _fitted_encoder(policy.protector)
        # The fitted precision: bf16 vectors differ from fp32 ones. "auto" for encoders without this option.
        precision = policy.protector.encoder_info.precision or ""
        precision = precision if precision in ("fp32", "bf16") else "auto"
        shared = encoder if is_endpoint(encoder) else f"{encoder} {precision}"
        if shared not in upstreams:
            if is_endpoint(encoder):
                authenticated = settings.api_keys is not None
                upstreams[shared] = _http_upstream(encoder, settings.upstream, authenticated)
            else:
                # The cache would store clean vectors on disk.
                loaded = load_encoder(encoder, precision=precision, cache=None, show_progress=False)
                upstreams[shared] = LocalUpstream(loaded)
        served.append(ServedPolicy(name, policy, upstreams[shared]))
    return Service(served, limits=settings.limits, client_ids=settings.client_ids)


def _open_policy(given: ServedPolicySettings) -> ReleasePolicy:
    options = {name: value for name, value in vars(given).items() if name != "upstream"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CleanQueryWarning)  # `Service.start` logs it
        return open_policy(**options)


def _fitted_encoder(protector: Protector) -> str:
    info = protector.encoder_info
    if info.name is None or info.precision == "native":
        raise InvalidInputError.of(_OWNER, "upstream", "given for a protector whose encoder has no name", "none",
                                   "It was fitted on vectors alone, or with an encoder of your own.",
                                   "Name the encoder or its server: --upstream NAME|URL#MODEL.")  # fmt: skip
    return info.name


def _http_upstream(encoder: str, settings: UpstreamSettings, authenticated: bool) -> HttpUpstream:
    named = "#" in encoder
    url, model = split_endpoint(encoder if named else f"{encoder}#any", owner=_OWNER)
    # Without a model in the configuration, the client's model name goes to the upstream.
    key, forward = upstream_key(settings.key, authenticated=authenticated, environment=os.environ)
    if forward:
        event("clients' keys are sent to the upstream", upstream=url)
    return HttpUpstream(url, model if named else None, settings, key=key, forward_key=forward)


def upstream_key(
    given: str | None, *, authenticated: bool, environment: Mapping[str, str]
) -> tuple[str | None, bool]:
    """Return the key for the upstream, and whether clients' keys are forwarded instead.

    Args:
        given: ``forward``, ``none``, ``env:NAME``, a file, or None for the default.
        authenticated: clients present keys of this server, which the upstream must not see.

    Raises:
        InvalidInputError: keys of this server would be forwarded.
        KeyFileError: the source holds no key.
    """
    if given == "forward" and authenticated:
        raise InvalidInputError.of(_OWNER, "upstream.key", "env:NAME, a file or none beside api_keys", "'forward'",
                                   "Clients show a key of this server, which the upstream must not see.")  # fmt: skip
    if given == "none":
        return None, False
    if given is None and authenticated:
        key = environment.get(_OPENAI_KEY)
        event("own key for the upstream", set=bool(key), variable=_OPENAI_KEY)
        return key or None, False
    if given is None or given == "forward":
        return None, True
    return read_secret(given, "upstream.key"), False
