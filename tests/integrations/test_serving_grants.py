"""Forced filters of API keys, and the audit log, over HTTP: a client sees an index that has only its own rows."""

from __future__ import annotations

import json
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vecveil
from harness.command_line import command
from harness.errors import raises
from harness.server_process import ServerProcess
from harness.serving import FakeEncoder, served
from vecveil.gateway.server import ServeSettings, Service
from vecveil.gateway.server import service as server_service
from vecveil.gateway.server.requests import ApiKeys
from vecveil.gateway.server.settings import IndexGrant, read_config
from vecveil.gateway.server.upstreams import LocalUpstream
from vecveil.gateway.server.vector_stores import open_index
from vecveil.index import SealedIndex, Sealer
from vecveil.index.audit_log import AuditLog, verify
from vecveil.index.log import FirstOwnerWarning
from vecveil.index.members import Identity
from vecveil.keys import KeyFile
from vecveil.texts.encoders.text_encoder import as_text_encoder

KEY = bytes(range(32))
ACME, ALL, NOBODY = (f"the-key-of-{name}-0123456789" for name in ("acme", "all", "nobody"))
GRANTS = {"acme": [IndexGrant("notes", {"tenant": "acme"})]}
CANARY = "zyxcanary"
OWN = [(f"own-{i}", f"note {i} about nausea", {"tenant": "acme", "year": 2000 + i % 4}) for i in range(12)]
OTHERS = [
    (f"other-{i}", f"letter {i} about {CANARY}", {"tenant": "b", "secret": f"s{i % 2}", "year": f"{i}"})
    for i in range(30)
]


def filled(place: Path, rows: list[Any]) -> Path:
    ids, texts, metadata = map(list, zip(*rows, strict=True))
    with SealedIndex(place, KEY, encoder=FakeEncoder()) as index:
        index.add(texts, ids=ids, metadata=metadata)
    return place


def service(place: Path, log: AuditLog | None = None, upstream: Any = None) -> Service:
    encoder = as_text_encoder(FakeEncoder(), cache=None)
    index = open_index("notes", str(place), Sealer(KEY), upstream or LocalUpstream(encoder), encoder)
    return Service([], sealer=Sealer(KEY), indexes=[index], audit_log=log)


@pytest.fixture(scope="module")
def keys() -> ApiKeys:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLIENT_KEYS", f"{ACME} name:acme,{ALL} search:notes,{NOBODY} name:nobody")
        return ApiKeys("env:CLIENT_KEYS", GRANTS)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("shared") / "notes", OTHERS[:9] + OWN + OTHERS[9:])


@pytest.fixture(scope="module")
def clients(shared: Path, keys: ApiKeys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[httpx.Client]]:
    """Return the client ``acme`` of a server whose index has its rows alone, and of one that has others, too."""
    headers = {"Authorization": f"Bearer {ACME}", "Content-Type": "application/json"}
    place = filled(tmp_path_factory.mktemp("alone") / "notes", OWN)
    with served(service(place), keys=keys) as alone, served(service(shared), keys=keys) as both:
        opened = [httpx.Client(base_url=url, headers=headers, timeout=60) for url in (alone, both)]
        yield opened
        for client in opened:
            client.close()


def answers(clients: list[httpx.Client], method: str, path: str, **given: Any) -> list[Any]:
    def answer(client: httpx.Client) -> Any:
        got = client.request(method, path, **given)
        stated = {name: value for name, value in got.headers.items() if name not in ("x-request-id", "date")}
        content = got.json() if got.content else None
        for store in [content, *((content or {}).get("data") or [])]:
            if isinstance(store, dict):
                store.pop("created_at", None)
        return got.status_code, stated, content

    return [answer(client) for client in clients]


VALUES = st.sampled_from(["acme", "b", "s0", CANARY, 2001, "5", True, 0.5, "pc.field('tenant') == 'b'", None])
FIELDS = st.sampled_from(["tenant", "year", "secret", "absent", "$or", "$not", "", "tenant.x"])
KINDS = st.sampled_from(["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "not", "contains", "exists"])
LEAVES = st.fixed_dictionaries({"type": KINDS, "key": FIELDS, "value": VALUES | st.lists(VALUES, max_size=3)})
FILTERS = st.recursive(
    LEAVES,
    lambda inner: (
        st.fixed_dictionaries(
            {"type": st.sampled_from(["and", "or", "not"]), "filters": st.lists(inner, max_size=3) | inner}
        )
        | st.dictionaries(st.sampled_from(["$or", "$and", "tenant"]), st.lists(inner, max_size=2), max_size=2)
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(
    filters=st.none() | FILTERS,
    query=st.sampled_from(["nausea", CANARY, f"letter 3 about {CANARY}", "note 4 about nausea"]),
    hybrid=st.booleans(),
    top=st.integers(1, 50),
    threshold=st.sampled_from([0, 0.3]),
    further=st.sampled_from([{}, {"where": None}, {"where": {}}, {"tenant": "b"}, {"after": "other-1"}]),
)
def test_no_request_shows_rows_of_others(
    clients: list[httpx.Client], filters: Any, query: str, hybrid: bool, top: int, threshold: float, further: Any
) -> None:
    weights = {"hybrid_search": {"embedding_weight": 0.3, "text_weight": 0.7}} if hybrid else {}
    body = {"query": query, "max_num_results": top, "ranking_options": {"score_threshold": threshold, **weights}}
    if filters is not None:
        body["filters"] = filters
    alone, both = answers(clients, "POST", "/v1/vector_stores/notes/search?where=&filters=", json={**body, **further})
    assert both == alone
    assert both[0] in (200, 400)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/vector_stores",
        "/v1/vector_stores/notes",
        "/v1/vector_stores/notes/files",
        "/v1/vector_stores/notes/files/own-1",
        "/v1/vector_stores/notes/files/other-1",
        "/v1/vector_stores/notes/files/nobody",
        "/v1/vector_stores/absent",
        "/metrics",
        "/v1/models",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT", "PATCH"])
def test_no_path_shows_or_changes_rows_of_others(clients: list[httpx.Client], path: str, method: str) -> None:
    alone, both = answers(clients, method, path, content=b"{}" if method != "GET" else None)
    assert both == alone
    assert method == "GET" or both[0] in (404, 405)  # nothing is written over HTTP


def test_counts_are_of_its_own_rows(clients: list[httpx.Client], shared: Path, keys: ApiKeys) -> None:
    assert clients[1].get("/v1/vector_stores/notes").json()["file_counts"]["total"] == len(OWN)
    assert clients[1].get("/v1/vector_stores").json()["data"][0]["file_counts"]["total"] == len(OWN)
    assert clients[1].get("/metrics").status_code == 404  # totals and times of all clients
    with served(service(shared), keys=keys) as url:
        whole = httpx.get(f"{url}/v1/vector_stores/notes", headers={"Authorization": f"Bearer {ALL}"}).json()
        assert whole["file_counts"]["total"] == len(OWN) + len(OTHERS)
        assert httpx.get(f"{url}/metrics", headers={"Authorization": f"Bearer {ALL}"}).status_code == 200


# The log ----------------------------------------------------------------------------------------


def search(url: str, key: str, name: str = "notes", **further: Any) -> httpx.Response:
    body = {"query": f"about {CANARY}", "max_num_results": 3, **further}
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.post(f"{url}/v1/vector_stores/{name}/search", json=body, headers=headers, timeout=60)


def test_each_operation_is_logged_without_content(shared: Path, keys: ApiKeys, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with served(service(shared, AuditLog(path)), keys=keys) as url:
        search(url, ACME, filters={"type": "eq", "key": "year", "value": 2001})
        search(url, ACME, filters={"type": "eq", "key": "secret", "value": CANARY})
        search(url, ALL, filters={"type": "eq", "key": CANARY, "value": CANARY})
        search(url, NOBODY)
        search(url, ALL, name=CANARY)
        search(url, ALL, filters={"type": CANARY})
        httpx.get(f"{url}/v1/vector_stores", headers={"Authorization": f"Bearer {ACME}"})
        httpx.get(f"{url}/v1/vector_stores/notes", headers={"Authorization": f"Bearer {NOBODY}"})
        httpx.get(f"{url}/ready")
    assert CANARY not in path.read_text()
    named = ("principal", "index", "operation", "rows", "fields", "result")
    assert [tuple(json.loads(line)[name] for name in named) for line in path.read_text().splitlines()] == [
        ("acme", "notes", "search", 3, ["year"], "ok"),
        ("acme", "notes", "search", 0, ["?"], "ok"),  # only others have the field
        ("key 2", "notes", "search", 0, ["?"], "ok"),
        ("nobody", "notes", "search", None, [], "vector_store_not_found"),
        ("key 2", "", "search", None, [], "vector_store_not_found"),
        ("key 2", "notes", "search", None, [], "invalid_filters"),
        ("acme", "notes", "count", len(OWN), [], "ok"),
        ("nobody", "notes", "count", None, [], "vector_store_not_found"),
    ]
    assert not verify([path]).broken


def test_what_cannot_be_logged_is_not_answered(shared: Path, keys: ApiKeys) -> None:
    class Full(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError(28, "full")

    with served(service(shared, AuditLog(Full())), keys=keys) as url:
        for answer in (
            search(url, ACME),
            search(url, NOBODY),
            httpx.get(f"{url}/v1/vector_stores", headers={"Authorization": f"Bearer {ACME}"}),
        ):
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "audit_log_unavailable")
        assert httpx.get(f"{url}/ready").status_code == 200


def test_a_client_that_goes_away_is_logged(shared: Path, keys: ApiKeys, tmp_path: Path) -> None:
    class Slow(LocalUpstream):
        async def embed(self, *given: Any, **named: Any) -> Any:
            import asyncio

            await asyncio.sleep(30)

    path = tmp_path / "audit.jsonl"
    upstream = Slow(as_text_encoder(FakeEncoder(), cache=None))
    with served(service(shared, AuditLog(path), upstream), keys=keys) as url:
        host, port = url.removeprefix("http://").split(":")
        body = b'{"query": "a"}'
        with socket.create_connection((host, int(port))) as client:
            head = f"POST /v1/vector_stores/notes/search HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {ACME}\r\n"
            client.sendall(
                f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
            )
            time.sleep(0.5)
        due = time.monotonic() + 30
        while not path.exists() and time.monotonic() < due:
            time.sleep(0.05)
        assert json.loads(path.read_text())["result"] == "client_gone"


# Settings ---------------------------------------------------------------------------------------


def test_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"
    text = "api_keys: env:KEYS\nseal_key: search.keys\nindexes: {notes: notes, minutes: minutes}\n"
    path.write_text(
        f"{text}audit_log: audit.jsonl\n"
        "grants:\n  acme: {index: notes, where: {tenant: acme, year: {gte: 2020}}}\n"
        "  boss: [notes, {index: minutes, where: {$not: {draft: true}}}]\n"
    )
    read = read_config(path)
    assert read.audit_log == str(tmp_path / "audit.jsonl")
    assert read.grants == {
        "acme": [IndexGrant("notes", {"tenant": "acme", "year": {"gte": 2020}})],
        "boss": [IndexGrant("notes"), IndexGrant("minutes", {"$not": {"draft": True}})],
    }
    path.write_text(f"{text}audit_log: syslog\n")
    assert read_config(path).audit_log == "syslog"
    for wrong in ("{index: notes, were: {}}", "{where: {a: 1}}", "{index: notes, where: tenant}", "3"):
        path.write_text(f"{text}grants: {{acme: {wrong}}}\n")
        with pytest.raises(ValueError, match="grants"):
            read_config(path)


GIVEN: dict[str, Any] = {"policies": {}, "indexes": {"notes": "notes"}, "seal_key": "k", "api_keys": "env:KEYS"}


@pytest.mark.parametrize(
    "grants",
    [
        {"acme": [IndexGrant("absent")]},
        {"acme": [IndexGrant("notes"), IndexGrant("notes", {"tenant": "a"})]},
        {"acme": [IndexGrant("notes", {})]},
        {"acme": [IndexGrant("notes", {"tenant": {}})]},
        {"acme": [IndexGrant("notes", {"$or": [{"tenant": "a"}, {}]})]},
    ],
)
def test_grants_that_say_too_little_or_too_much(grants: Any) -> None:
    with raises("E-INPUT", "grants"):
        ServeSettings(**GIVEN, grants=grants)


def test_a_wrong_filter_is_refused_at_the_start() -> None:
    with raises("E-INPUT", "where"):
        ServeSettings(**GIVEN, grants={"acme": [IndexGrant("notes", {"tenant": {"like": "a"}})]})
    for none in (None, [None, "a"], {"ne": None}, {"nin": ["a", None]}, {"eq": None}):
        for where in ({"tenant": none}, {"$or": [{"$not": {"tenant": none}}, {"a": 1}]}):
            with raises("E-INPUT", "where"):
                ServeSettings(**GIVEN, grants={"acme": [IndexGrant("notes", where)]})
    with raises("E-INPUT", "grants"):
        ServeSettings(**{**GIVEN, "api_keys": None}, grants=GRANTS)
    with raises("E-INPUT", "audit_log"):
        ServeSettings({"drug": "drug.vecveil"}, audit_log="audit.jsonl")  # type: ignore[dict-item]
    with raises("E-INPUT", "audit_log"):
        ServeSettings(**GIVEN, audit_log=logging.StreamHandler(), workers=2)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (f"{ACME} name:acme search:notes", raises("E-INPUT", "grants")),  # the line would grant the whole index
        (f"{ACME}", raises("E-INPUT", "grants")),  # nobody has the name
        (f"{ACME} name:acme name:b", raises("E-KEY-FILE", "api_keys")),
        (f"{ACME} name:", raises("E-KEY-FILE", "api_keys")),
        (f"{ACME} name:a%20b", raises("E-KEY-FILE", "api_keys")),
    ],
)
def test_names_of_keys(monkeypatch: pytest.MonkeyPatch, source: str, expected: Any) -> None:
    monkeypatch.setenv("KEYS", source)
    with expected:
        ApiKeys("env:KEYS", GRANTS)


def test_a_name_may_have_two_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYS", f"{ACME} name:acme rank:minutes,{ALL} name:acme")
    keys: Callable[[str], Any] = lambda key: ApiKeys("env:KEYS", GRANTS).client(f"Bearer {key}".encode())  # noqa: E731
    assert [keys(key).filters for key in (ACME, ALL)] == [{"notes": {"tenant": "acme"}}] * 2
    assert [keys(key).may("search", "notes") for key in (ACME, ALL)] == [True, True]
    assert [keys(key).may("rank", "minutes") for key in (ACME, ALL)] == [True, False]


def test_the_command_with_two_workers_writes_one_chain(tmp_path: Path) -> None:
    KeyFile.create(tmp_path / "search.keys", "one")
    with SealedIndex(tmp_path / "notes", str(tmp_path / "search.keys"), encoder="minilm") as index:
        index.add(
            ["She felt sick after dinner.", f"The invoice {CANARY} is overdue."],
            ids=["a", "b"],
            metadata=[{"tenant": "acme"}, {"tenant": "b"}],
        )
    (tmp_path / "clients.keys").write_text(f"{ACME} name:acme\n")
    (tmp_path / "clients.keys").chmod(0o600)
    config = tmp_path / "serve.yaml"
    config.write_text(
        "port: 0\nworkers: 2\nseal_key: search.keys\napi_keys: clients.keys\naudit_log: audit.jsonl\n"
        "indexes: {notes: notes}\ngrants: {acme: {index: notes, where: {tenant: acme}}}\n"
    )
    server = ServerProcess(command("serve", "--config", config, "--json"), "stderr")
    try:
        for _ in range(10):
            answer = search(f"http://127.0.0.1:{server.port}", ACME)
            assert [hit["file_id"] for hit in answer.json()["data"]] == ["a"]
    finally:
        server.end(signal.SIGTERM)
    log = tmp_path / "audit.jsonl"
    said = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["principal"] for line in said if line["operation"] == "search"] == ["acme"] * 10
    assert said[0]["operation"] == "start"
    check = verify([log])
    assert len(check.chains) == 1
    assert not check.broken
    assert CANARY not in log.read_text() + "".join(server.lines)


@pytest.mark.parametrize("destination", ["absent/audit.jsonl", "syslog"])
def test_a_log_that_cannot_be_written_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, destination: str
) -> None:
    place = filled(tmp_path / "notes", OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(server_service, "check_index", lambda *given, **named: None)
    monkeypatch.setattr(server_service, "_index_upstream", lambda *given: (None, None))
    monkeypatch.setattr(server_service, "open_index", lambda *given: None)
    monkeypatch.setattr(server_service, "SysLogHandler", _no_syslog)
    KeyFile.create(tmp_path / "search.keys", "one")
    given = ServeSettings({}, indexes={"notes": str(place)}, seal_key="search.keys", audit_log=destination)
    with pytest.raises(vecveil.VecveilError) as caught:
        server_service.open_service(given)
    assert caught.value.param == "audit_log"


def _no_syslog(address: str) -> Any:
    raise FileNotFoundError(2, "absent")


def test_a_server_searches_with_the_key_file_of_a_reader(tmp_path: Path) -> None:
    owner, reader = (KeyFile.create(tmp_path / f"{name}.key", "1") for name in ("owner", "reader"))
    assert reader.identity is not None
    assert owner.identity != reader.identity
    encoder = as_text_encoder(FakeEncoder(), cache=None)
    with SealedIndex(tmp_path / "notes", tmp_path / "owner.key", encoder=FakeEncoder()) as index:
        index.add(["nausea"], ids=["a"])
        index.share(Identity(reader.identity).public, "reader")
        sealer = Sealer(tmp_path / "reader.key")
        with pytest.warns(FirstOwnerWarning):
            opened = open_index("notes", str(tmp_path / "notes"), sealer, LocalUpstream(encoder), encoder)
        with served(Service([], sealer=sealer, indexes=[opened])) as url, httpx.Client(base_url=url) as client:
            found = client.post("/v1/vector_stores/notes/search", json={"query": "nausea"})
            assert [row["file_id"] for row in found.json()["data"]] == ["a"]
            index.remove(Identity(reader.identity).public)
            time.sleep(2.5)  # longer than an index may be out of date
            assert client.post("/v1/vector_stores/notes/search", json={"query": "nausea"}).status_code == 503
