"""A web page whose name is made to point at this machine does not reach a server that asks for no key."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from harness.serving import FakeEncoder, fake_protector, served
from vecveil.gateway.server.server import _host_names
from vecveil.gateway.server.service import ServedPolicy, Service
from vecveil.gateway.server.settings import ServedPolicySettings, ServeSettings
from vecveil.gateway.server.upstreams import LocalUpstream
from vecveil.privacy.protector.policy import ReleasePolicy


def settings(**given: Any) -> ServeSettings:
    return ServeSettings({"a": ServedPolicySettings("a.vecveil")}, **given)


def test_a_server_for_this_machine_goes_by_its_names_alone() -> None:
    own = {"127.0.0.1", "localhost", "[::1]"}
    assert _host_names(settings()) == own
    assert _host_names(settings(host="127.0.0.2")) == {*own, "127.0.0.2"}
    assert _host_names(settings(host_names="Inner.example, b")) == {*own, "inner.example", "b"}


def test_with_keys_or_for_other_machines_any_name_will_do() -> None:
    assert _host_names(settings(api_keys="keys")) is None
    assert _host_names(settings(host="0.0.0.0")) is None


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/v1/embeddings"])
def test_another_name_is_refused(path: str) -> None:
    hosts = frozenset({"127.0.0.1", "localhost"})
    ask = httpx.post if path == "/v1/embeddings" else httpx.get
    policy = ServedPolicy("a", ReleasePolicy(fake_protector()), LocalUpstream(FakeEncoder()))
    with served(Service([policy]), hosts=hosts) as url:
        for name in ("evil.example", "evil.example:80", "localhost.evil.example", ""):
            answer = ask(url + path, headers={"Host": name})
            assert answer.status_code in (400, 421), name
            if answer.status_code == 421:
                assert answer.json()["error"]["code"] == "another_host"
        assert ask(url + path, headers={"Host": "LOCALHOST:1"}).status_code != 421
        assert ask(url + path).status_code != 421
