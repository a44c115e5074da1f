"""From settings to a service: files are opened, encoders loaded, keys read."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from vecveil.encoders.openai_compatible import is_endpoint, split_endpoint
from vecveil.errors import InvalidInputError
from vecveil.protector import Protector, load
from vecveil.release_policy import ReleasePolicy
from vecveil.serving.api_keys import read_noise_keys, read_secret
from vecveil.serving.http_upstream import HttpUpstream
from vecveil.serving.local_upstream import LocalUpstream
from vecveil.serving.logs import event
from vecveil.serving.service import ServedPolicy, Service
from vecveil.serving.settings import PolicySettings, ServeSettings, UpstreamSettings
from vecveil.serving.upstream import Upstream

__all__ = ["open_service", "upstream_key"]

_OWNER = "serve"
_OPENAI_KEY = "OPENAI_API_KEY"


def open_service(settings: ServeSettings) -> Service:
    """Return the service that ``settings`` describe; its upstreams are not asked yet.

    Raises:
        VecveilError: a file, key or encoder that cannot be used.
    """
    opened = {name: _policy(given) for name, given in settings.policies.items()}
    upstreams = _Upstreams(settings)
    served = [
        ServedPolicy(name, policy, upstreams.of(settings.policies[name], policy.protector))
        for name, policy in opened.items()
    ]
    return Service(served, limits=settings.limits, client_ids=settings.client_ids)


def _policy(given: PolicySettings) -> ReleasePolicy:
    from vecveil.accounting import Ledger

    return ReleasePolicy(
        load(given.protector),
        query_protection=given.query_protection,
        query_noise=given.query_noise,
        key=read_noise_keys(given.key),
        ledger=None if given.ledger is None else Ledger(given.ledger, create=False),
    )


class _Upstreams:
    """Upstreams by name, so that policies of one encoder share it."""

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings.upstream
        self._authenticated = settings.api_keys is not None
        self._known: dict[str, Upstream] = {}

    def of(self, given: PolicySettings, protector: Protector) -> Upstream:
        info = protector.encoder_info
        name = given.upstream or self._settings.encoder
        if name is None and info.precision != "native":
            name = info.name
        if name is None:
            raise InvalidInputError.of(_OWNER, "upstream", "given for a protector whose encoder has no name",
                                       "none",
                                       "It was fitted on vectors alone, or with an encoder of your own.",
                                       "Name the encoder or its server: --upstream NAME|URL#MODEL.")  # fmt: skip
        # The precision that the protector was fitted with, where it is one of the package's encoders.
        precision = info.precision if info.precision in ("fp32", "bf16") else "auto"
        at = name if is_endpoint(name) else f"{name} {precision}"
        if at not in self._known:
            self._known[at] = (
                _remote(name, self._settings, self._authenticated)
                if is_endpoint(name)
                else _local(name, precision)
            )
        return self._known[at]


def _local(name: str, precision: str) -> LocalUpstream:
    from vecveil.encoders import load_encoder

    # No cache: it would keep the clean vectors of everything that is asked on disk.
    encoder = load_encoder(name, precision=precision, cache=None, show_progress=False)
    return LocalUpstream(encoder)


def _remote(name: str, settings: UpstreamSettings, authenticated: bool) -> HttpUpstream:
    model: str | None
    url, model = split_endpoint(name if "#" in name else f"{name}#any", owner=_OWNER)
    if "#" not in name:
        model = None
    key, forward = upstream_key(settings.key, authenticated=authenticated, environment=os.environ)
    if forward:
        event("clients' keys are sent to the upstream", upstream=url)
    return HttpUpstream(url, model, settings, key=key, forward_key=forward)


def upstream_key(
    given: str | None, *, authenticated: bool, environment: Mapping[str, str]
) -> tuple[str | None, bool]:
    """Return the server's own key for its upstream, and whether clients' keys are sent on instead.

    Args:
        given: ``forward``, ``none``, ``env:NAME``, a file, or None for the default.
        authenticated: whether clients show a key of this server, which nobody else may see.
        environment: of the process.

    Raises:
        InvalidInputError: keys of this server would be sent on.
        KeyFileError: no key where one was named.
    """
    if given == "forward" and authenticated:
        raise InvalidInputError.of(_OWNER, "upstream.key", "env:NAME, a file or none beside api_keys",
                                   "'forward'",
                                   "Clients show a key of this server; the upstream would get to know it.")  # fmt: skip
    if given == "none":
        return None, False
    if given is None and authenticated:
        key = environment.get(_OPENAI_KEY)
        event("own key for the upstream", level=logging.INFO, found=bool(key), variable=_OPENAI_KEY)
        return key or None, False
    if given is None or given == "forward":
        return None, True
    return read_secret(given, "upstream.key"), False
