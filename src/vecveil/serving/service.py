"""What answers a request for embeddings: which policy, whose vectors, protected how."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from vecveil.errors import EncoderError, VecveilError
from vecveil.randomness import WordStream
from vecveil.release_policy import ReleasePolicy
from vecveil.serving.ahead import Ahead
from vecveil.serving.checking import EncoderCheck
from vecveil.serving.errors import ApiError, UpstreamError, invalid
from vecveil.serving.local_upstream import LocalUpstream
from vecveil.serving.logs import event
from vecveil.serving.metrics import Metrics
from vecveil.serving.released import Released, release
from vecveil.serving.requests import EmbeddingRequest
from vecveil.serving.settings import Limits
from vecveil.serving.upstream import Encoded, Upstream

__all__ = ["ServedPolicy", "Service"]

T = TypeVar("T")

_INLINE_VALUES = 16_384
"""Vectors of so few values are protected at once: a thread would cost more than they do."""
_POSTPONED = frozenset({"upstream_timeout", "upstream_rate_limited", "upstream_failed"})


@dataclass(frozen=True, eq=False)
class ServedPolicy:
    """A policy under its name, and where its clean vectors come from."""

    name: str
    policy: ReleasePolicy
    upstream: Upstream


class Service:
    """Answers requests; one for each server.

    Args:
        policies: at least one, under different names.
        limits: of requests.
        client_ids: whether clients may name items.
    """

    def __init__(
        self,
        policies: Sequence[ServedPolicy],
        *,
        limits: Limits | None = None,
        client_ids: bool = False,
    ) -> None:
        self.policies = {one.name: one for one in policies}
        self.limits = limits or Limits()
        self.client_ids = client_ids
        self.created = int(time.time())
        self.running = 0  # requests that are being answered, for their limit
        self.metrics = Metrics()
        self._checks = {
            one.name: EncoderCheck(one.name, one.policy.protector, one.upstream) for one in policies
        }
        # An encoder in this process would have to stand still for it.
        self._ahead = {
            one.name: Ahead(one.policy)
            for one in policies
            if not isinstance(one.upstream, LocalUpstream)
        }
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="vecveil-protect")
        self._started = False

    @property
    def checked(self) -> int:
        """How many policies have an upstream that is known to be their encoder."""
        return sum(check.passed for check in self._checks.values())

    async def start(self) -> None:
        """Check what can be checked now.

        An upstream that is not there yet, or that wants a client's key, is checked with the first request.

        Raises:
            IncompatibleError: an upstream is another encoder.
            EncoderError: an upstream answers, but not with embeddings.
        """
        if self._started:
            return
        for one in self.policies.values():
            _warn(one)
            if one.upstream.takes_models:
                event("encoder is checked for each model that clients name", policy=one.name)
                continue
            try:
                await self._checks[one.name].ensure("", {})
            except UpstreamError as error:
                if not (error.lost or error.code in _POSTPONED or error.status == 401):
                    raise EncoderError(
                        f"serve: upstream of the policy {one.name!r}: {error.text}"
                    ) from None
                event(
                    "upstream not checked yet",
                    level=logging.WARNING,
                    policy=one.name,
                    upstream=one.upstream.name,
                    code=error.code,
                    message="The first request checks it; nothing is released before.",
                )
        self._started = True

    async def aclose(self) -> None:
        """Release threads and connections."""
        for check in self._checks.values():
            check.close()
        for upstream in {id(one.upstream): one.upstream for one in self.policies.values()}.values():
            await upstream.aclose()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def choose(self, request: EmbeddingRequest) -> ServedPolicy:
        """Return the policy: by header, by the model's name, or the only one.

        Raises:
            ApiError: 404, none of that name.
        """
        if request.policy is not None:
            found = self.policies.get(request.policy)
            if found is None:
                raise invalid(
                    "The header X-Vecveil-Policy names no policy; GET /v1/models lists them.",
                    code="policy_not_found",
                    status=404,
                )
            return found
        if request.model in self.policies:
            return self.policies[request.model]
        if len(self.policies) == 1:
            return next(iter(self.policies.values()))
        raise invalid(
            "`model` names no policy; GET /v1/models lists them. Or name one in the header X-Vecveil-Policy.",
            code="model_not_found",
            param="model",
            status=404,
        )

    async def answer(self, request: EmbeddingRequest, headers: Mapping[str, str]) -> bytes:
        """Return the answer to a request, in which every vector has passed `release`.

        Args:
            headers: of the client, lower-case.

        Raises:
            ApiError, VecveilError: see `vecveil.serving.errors.api_error_of`.
        """
        served = self.choose(request)
        policy = served.policy
        dimension = policy.protector.released_dimension
        if request.dimensions is not None and request.dimensions != dimension:
            raise invalid(
                f"`dimensions` must be {dimension} or left out: that is what the protector releases.",
                code="invalid_dimensions",
                param="dimensions",
            )
        texts = request.texts
        if policy.rewrites_texts:
            texts = await self._thread(partial(policy.protector.rewrite, texts))
        drawn: list[WordStream] = []
        ahead = self._ahead.get(served.name)
        if ahead is None or len(texts) * policy.protector.dimension > _INLINE_VALUES:
            encoded = await self._encode(served, request.model, texts, headers)
        else:
            with ahead.working(len(texts), request.side, alone=lambda: self.running < 2) as drawn:
                encoded = await self._encode(served, request.model, texts, headers)
        work = partial(self._protect, served, request, encoded, drawn.pop() if drawn else None)
        small = encoded.vectors.size <= _INLINE_VALUES and policy.ledger is None
        body = work() if small else await self._thread(work)
        self.metrics.note(self.metrics.vectors, len(request.texts), served.name, request.side)
        return body

    async def _encode(
        self, served: ServedPolicy, model: str, texts: list[str], headers: Mapping[str, str]
    ) -> Encoded:
        check = self._checks[served.name]
        started = time.perf_counter()
        try:
            await check.ensure(model, headers)
            before = _losses(served.upstream)
            encoded = await served.upstream.embed(
                texts, model=model, dimension=served.policy.protector.dimension, headers=headers
            )
            if _losses(served.upstream) != before:  # away, and back before it was given up
                self._forget(served.upstream)
                await check.ensure(model, headers)
            return encoded
        except UpstreamError as error:
            if error.lost:
                self._forget(served.upstream)
            raise
        finally:
            self.metrics.note(self.metrics.upstream, time.perf_counter() - started)

    def _forget(self, upstream: Upstream) -> None:
        for one in self.policies.values():
            if one.upstream is upstream:
                self._checks[one.name].forget()

    def _protect(
        self,
        served: ServedPolicy,
        request: EmbeddingRequest,
        encoded: Encoded,
        stream: WordStream | None,
    ) -> bytes:
        started = time.perf_counter()
        try:
            released: Released = release(
                served.policy,
                encoded.vectors,
                side=request.side,
                texts=request.texts,
                ids=request.ids,
                stream=stream,
            )
        except VecveilError as error:
            # Our own sentence; it holds neither text nor vector nor key.
            event("not released", level=logging.ERROR, policy=served.name, message=str(error))
            raise
        finally:
            self.metrics.note(self.metrics.protection, time.perf_counter() - started)
        return released.to_json(
            model=request.named, as_base64=request.base64, tokens=encoded.tokens
        )

    async def _thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def error_of(self, error: ApiError) -> ApiError:
        """Count an error that is answered, and return it."""
        self.metrics.note(self.metrics.errors, 1, error.code)
        return error


def _losses(upstream: Upstream) -> int:
    return getattr(upstream, "losses", 0)


def _warn(one: ServedPolicy) -> None:
    said = []
    if one.policy.gives_clean_queries:
        said.append(
            "map-only for a method without a map: the vectors of queries are the encoder's own, unprotected."
        )
    elif one.policy.query_protection == "map-only":
        said.append(
            "map-only: the vectors of queries pass the map without noise and are not protected."
        )
    name = one.upstream.name
    local = ("http://127.", "http://localhost", "http://[::1]")
    if name.startswith("http://") and not name.startswith(local):
        said.append("Texts and clean vectors cross the network to the upstream without TLS.")
    for message in said:
        event("warning", level=logging.WARNING, policy=one.name, message=message)
