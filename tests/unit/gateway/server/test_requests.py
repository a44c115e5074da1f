"""What a request may look like, and that nothing of it is repeated in an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vecveil.gateway.server.errors import ApiError
from vecveil.gateway.server.requests import EmbeddingRequest, parse_request, split_side

CANARY = "zyxcanary"


def parsed(headers: dict[str, str] | None = None, *, ids: bool = False, **body: Any) -> EmbeddingRequest:
    content = {"model": "drug", "input": "a text", **body}
    return parse_request(json.dumps(content).encode(), headers or {}, max_inputs=4, client_ids=ids)


def refused(body: bytes | None = None, headers: dict[str, str] | None = None, **fields: Any) -> ApiError:
    sent = json.dumps({"model": "drug", "input": "a text", **fields}).encode()
    with pytest.raises(ApiError) as caught:
        parse_request(sent if body is None else body, headers or {}, max_inputs=4)
    assert caught.value.status == 400
    assert CANARY not in caught.value.body().decode()
    return caught.value


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "invalid_input"),
        ("", "invalid_input"),
        ([], "invalid_input"),
        ([""], "invalid_input"),
        ([CANARY, ""], "invalid_input"),
        ({"a": CANARY}, "invalid_input"),
        (7, "invalid_input"),
        (True, "invalid_input"),
        ([True], "invalid_input"),
        ([None], "invalid_input"),
        ([[]], "invalid_input"),
        ([["a"]], "invalid_input"),
        ([CANARY + "\ud800"], "invalid_input"),
        ([1, 2, 3], "token_ids_not_supported"),
        ([[1, 2], [3]], "token_ids_not_supported"),
        ([CANARY, [1]], "token_ids_not_supported"),
        ([CANARY] * 5, "too_many_inputs"),
    ],
)
def test_inputs_that_are_no_texts(value: Any, code: str) -> None:
    error = refused(input=value)
    assert (error.code, error.param) == (code, "input")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"a"',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"input": ' + b"9" * 5000 + b"}",
        b'{"model": "m", "input": "\xff"}',
        b'{"model": "m", "input": "a", "input": "b"}',
        b'{"model": "m", "input": "a", "metadata": [{"a": {"b": 1, "b": 2}}]}',
        json.dumps({"model": "m", "input": "a"}).encode("utf-16"),
        json.dumps({"model": "m", "input": "a"}).encode("utf-32-le"),
    ],
)
def test_bodies_that_are_no_json_object(body: bytes) -> None:
    assert refused(body).code == "invalid_json"


@pytest.mark.parametrize("model", [None, "", 7, "m" * 257, "\ud800", ["drug"]])
def test_models_that_are_no_names(model: Any) -> None:
    assert refused(model=model).param == "model"


@pytest.mark.parametrize("value", [0, -1, 1.5, "16", True])
def test_dimensions_that_are_no_count(value: Any) -> None:
    assert refused(dimensions=value).param == "dimensions"


@pytest.mark.parametrize("value", ["int8", CANARY, 1, ["float"]])
def test_formats_that_are_not_known(value: Any) -> None:
    assert refused(encoding_format=value).param == "encoding_format"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("drug:query", ("drug", "query")),
        ("drug:document", ("drug", "document")),
        ("drug", ("drug", None)),
        ("nomic-embed-text:latest", ("nomic-embed-text:latest", None)),
        ("a:b:query", ("a:b", "query")),
        (":query", (":query", None)),
        ("query", ("query", None)),
    ],
)
def test_a_suffix_chooses_the_side(name: str, expected: tuple[str, str | None]) -> None:
    assert split_side(name) == expected


def test_suffix_header_and_field_choose_the_side() -> None:
    assert parsed(model="drug:query").side == "query"
    assert parsed({"x-vecveil-input": "query"}).side == "query"
    assert parsed(input_type="search_query").side == "query"
    assert parsed(input_type="passage").side == "document"
    agreed = parsed({"x-vecveil-input": "query"}, model="drug:query", input_type="query")
    assert (agreed.side, agreed.model, agreed.named) == ("query", "drug", "drug:query")


def test_a_contradiction_is_refused() -> None:
    # A query that is taken for a document gets other noise; the other way round it may get none.
    assert refused(headers={"x-vecveil-input": "document"}, model="drug:query").code == "invalid_side"
    assert refused(model="drug:document", input_type="query").code == "invalid_side"
    assert refused(headers={"x-vecveil-input": CANARY}).code == "invalid_side"
    assert refused(input_type=CANARY).code == "invalid_side"


def test_ids_are_refused_unless_they_are_switched_on() -> None:
    assert refused(vecveil_ids=["a"]).code == "ids_not_allowed"
    assert parsed(ids=True, vecveil_ids=["a"]).ids == ["a"]


@pytest.mark.parametrize("ids", [[], ["a", "b"], "a", [""], [1], ["\ud800"], ["x" * 513]])
def test_ids_must_fit_the_texts(ids: Any) -> None:
    with pytest.raises(ApiError) as caught:
        parsed(ids=True, vecveil_ids=ids)
    assert caught.value.code == "invalid_ids"
