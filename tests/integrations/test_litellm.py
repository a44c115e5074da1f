"""LiteLLM against a server on localhost: what its callback and its functions let through."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.http_encoder import answer_with, embedding_server, hashed_vectors
from harness.integration_checks import assert_no_secret, run_example, same_direction
from vecveil.encoders.protocol import PROBE_SENTENCES
from vecveil.errors import (
    IncompatibleError,
    InvalidInputError,
    KeyFileError,
    LedgerCapError,
    ReleaseError,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:litellm"),
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),  # of base64
    pytest.mark.filterwarnings("ignore:Item .* on TypedDict class:UserWarning:pydantic"),
]
TEXTS = ["She takes amoxicillin for her asthma.", "The train leaves at noon.", "A new roof."]
_encoder: list[Any] = []


_loop: list[asyncio.Runner] = []


def wait(coroutine: Any) -> Any:
    """Return what ``coroutine`` gives, in one event loop: LiteLLM keeps connections from call to call."""
    return _loop[0].run(coroutine)


@pytest.fixture(scope="module", autouse=True)
def _imports() -> None:
    """Import LiteLLM only in the process that runs this file; every process collects it."""
    pytest.importorskip("litellm")
    global CredentialItem, CustomLogger, EmbeddingResponse, ProtectEmbeddings, litellm
    import litellm
    from litellm.integrations.custom_logger import CustomLogger
    from litellm.types.utils import CredentialItem, EmbeddingResponse

    from vecveil.integrations.litellm import ProtectEmbeddings


@pytest.fixture(scope="module", autouse=True)
def _one_loop() -> Iterator[None]:
    with asyncio.Runner() as runner:
        _loop[:] = [runner]
        yield


def minilm(texts: Any) -> np.ndarray:
    """Return the vectors of a list, or of the one text that a request may hold."""
    if not _encoder:
        _encoder.append(vecveil.load_encoder("minilm", precision="fp32"))
    listed = [texts] if isinstance(texts, str) else texts
    return _encoder[0].encode(listed, show_progress=False)


@pytest.fixture
def server() -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yield the arguments of a call to a server of MiniLM's vectors, and what it was asked."""
    minilm(TEXTS)  # here, where an error of loading is seen
    with embedding_server(encode=minilm) as (url, seen):
        yield called(url), seen


@pytest.fixture(autouse=True)
def _callbacks() -> Iterator[None]:
    yield
    litellm.callbacks = []
    litellm.cache = None


def called(url: str) -> dict[str, Any]:
    return {"model": "openai/minilm", "api_base": url, "api_key": "none", "num_retries": 0}


def vectors(answer: Any) -> np.ndarray:
    return np.array([item["embedding"] for item in answer.data])


def use(protector: Any, **options: Any) -> ProtectEmbeddings:
    callback = ProtectEmbeddings(protector, **options)
    litellm.callbacks = [callback]
    return callback


async def ask(call: dict[str, Any], texts: Any = TEXTS, **options: Any) -> Any:
    return await litellm.aembedding(**call, input=texts, **options)


def test_the_callback_protects_documents_and_queries(protector, server):
    """The control: without the callback the answer is clean."""
    call, _ = server
    clean = vectors(wait(ask(call)))
    assert same_direction(clean, minilm(TEXTS)).min() > 0.999
    use(protector, query_protection="map-only")
    mapped = protector.protect(minilm(TEXTS), noise=False)
    assert same_direction(vectors(wait(ask(call))), mapped).max() < 0.998
    query = wait(ask(call, metadata={"vecveil_side": "query"}))
    assert same_direction(vectors(query), mapped).min() > 0.999
    one = wait(ask(call, TEXTS[0]))
    assert isinstance(one, EmbeddingResponse)
    assert vectors(one).shape == (1, protector.released_dimension)


def test_the_router_of_the_proxy_is_protected(protector, server):
    call, _ = server
    router = litellm.Router([{"model_name": "any", "litellm_params": call}], num_retries=0)
    use(protector)
    answer = wait(router.aembedding(model="any", input=TEXTS))
    assert same_direction(vectors(answer), minilm(TEXTS)).max() < 0.998


def test_a_synchronous_call_is_not_the_callbacks_and_has_its_own_function(protector, server):
    call, seen = server
    callback = use(protector)
    assert (
        same_direction(vectors(litellm.embedding(**call, input=TEXTS)), minilm(TEXTS)).min() > 0.999
    )
    mapped = protector.protect(minilm(TEXTS), noise=False)
    for _ in range(2):
        released = vectors(callback.embedding(**call, input=TEXTS))
        assert same_direction(released, mapped).max() < 0.998
    released = vectors(wait(callback.aembedding(**call, input=TEXTS)))
    assert (
        same_direction(released, mapped).max() < 0.998
    )  # protected once, and not by the callback again
    assert [len(request["input"]) for request in seen] == [3, 12, 3, 3, 3]


def test_keyed_answers_repeat(protector, key_file, server):
    call, _ = server
    callback = use(protector, key=key_file)
    first = vectors(wait(ask(call)))
    assert np.array_equal(first, vectors(wait(ask(call, TEXTS[::-1])))[::-1])
    assert np.array_equal(first, vectors(callback.embedding(**call, input=TEXTS)))
    coded = wait(ask(call, encoding_format="base64"))
    got = [
        np.frombuffer(base64.b64decode(item["embedding"]), "<f4")
        if isinstance(item["embedding"], str)
        else item["embedding"]
        for item in coded.data
    ]
    assert np.array_equal(first, np.array(got))
    with raises("E-INPUT", "input"):
        wait(
            litellm.aembedding(
                "openai/minilm", TEXTS, **{k: v for k, v in call.items() if k != "model"}
            )
        )


def test_a_ledger_refuses_and_the_call_fails(protector, server, tmp_path: Path):
    call, _ = server
    use(protector, ledger=vecveil.Ledger(tmp_path / "ledger", cap=1))
    wait(ask(call, TEXTS[:1]))
    with pytest.raises(LedgerCapError):
        wait(ask(call))
    wait(ask(call, TEXTS[1:]))  # nothing was counted of what was refused


def test_texts_are_rewritten_before_they_are_sent(redactor, server):
    call, seen = server
    callback = use(redactor)
    answers = [wait(ask(call)), callback.embedding(**call, input=TEXTS)]
    answers.append(wait(callback.aembedding(**call, input=TEXTS[0])))
    sent = [text for request in seen for text in request["input"]]
    assert not any("amoxicillin" in text or "asthma" in text for text in sent)
    assert sum("*" in text for text in sent) == 3
    for answer in answers[:2]:
        assert same_direction(vectors(answer), minilm(redactor.rewrite(TEXTS))).min() > 0.999
    with raises("E-INPUT", "input"):
        wait(ask(call, [[101, 102]]))


def bad(X: Any) -> Any:
    return lambda request, number: answer_with(
        np.array(X(request["input"]), dtype=np.float32), request
    )


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (bad(hashed_vectors), IncompatibleError),
        (bad(lambda texts: np.full((len(texts), 384), np.nan)), Exception),
        (bad(lambda texts: minilm(texts)[:-1]), InvalidInputError),
        (lambda *_: (200, {"Content-Type": "text/html"}, b"<html>"), Exception),
        (lambda *_: (500, {}, b"{}"), Exception),
        (
            lambda *_: (
                200,
                {"Content-Type": "application/json"},
                json.dumps({"data": []}).encode(),
            ),
            Exception,
        ),
    ],
    ids=["other dimension", "NaN", "too few", "HTML", "error", "none"],
)
@pytest.mark.parametrize("good", [0, 1], ids=["at once", "once the model is known"])
def test_an_answer_that_does_not_fit_releases_nothing(protector, answer, error, good):
    callback = use(protector)
    well = bad(minilm)

    def later(request: dict[str, Any], number: int) -> Any:
        return (answer if number >= good else well)(request, number)

    with embedding_server(later) as (url, _):
        call = {**called(url), "max_retries": 0}
        with pytest.raises(error):
            wait(ask(call))
        with pytest.raises(Exception):  # noqa: B017 - the library's own for some
            callback.embedding(**call, input=TEXTS)


def test_another_model_is_refused_by_the_functions(protector):
    callback = ProtectEmbeddings(protector)
    with embedding_server(encode=lambda texts: hashed_vectors(texts, 384)) as (url, seen):
        with raises("E-INCOMPATIBLE-ENCODER", "encoder"):
            callback.embedding(**called(url), input=TEXTS)
        assert len(seen) == 1  # the caller's texts were never sent


def test_another_model_is_refused_by_the_callback_and_asked_once(protector):
    use(protector)
    with embedding_server(encode=lambda texts: hashed_vectors(texts, 384)) as (url, seen):
        named = {k: v for k, v in called(url).items() if k != "model"}
        router = litellm.Router(
            [{"model_name": "any", "litellm_params": called(url), "model_info": {"id": "one"}}],
            num_retries=2,
        )
        calls = [
            lambda: litellm.aembedding(**called(url), input=TEXTS),
            lambda: litellm.aembedding("openai/minilm", **named, input=TEXTS),
            lambda: router.aembedding(model="any", input=TEXTS),
        ]
        for call in (*calls, *calls):
            with pytest.raises(Exception, match="the one that the protector was fitted for"):  # LiteLLM may wrap it
                wait(call())
        # Once for the first two, once for the Router's deployment, whatever is tried again.
        assert [request["input"] for request in seen] == 2 * [list(PROBE_SENTENCES)]


def test_a_model_under_one_name_on_another_server_is_asked_too(protector, server):
    call, seen = server
    use(protector)
    wait(ask(call))
    litellm.credential_list = [
        CredentialItem(
            credential_name=name,
            credential_info={},
            credential_values={"api_base": url, "api_key": "k"},
        )
        for name, url in (("a", call["api_base"]), ("b", "http://127.0.0.1:9/v1"))
    ]
    try:
        for name in "ab":
            given = {"model": "openai/minilm", "litellm_credential_name": name, "num_retries": 0}
            with nullcontext() if name == "a" else pytest.raises(litellm.InternalServerError):
                wait(ask({**given, "max_retries": 0}))
    finally:
        litellm.credential_list = []
    wait(ask({**call, "model": "openai/another-name"}))
    assert [len(request["input"]) for request in seen] == [12, 3, 12, 3, 12, 3]


def test_a_model_is_asked_as_it_is_for_documents(protector, server):
    call, seen = server
    use(protector)
    for _ in range(2):
        wait(ask(call, input_type="search_query", allowed_openai_params=["input_type"], user="u"))
    assert [request.get("input_type") for request in seen] == [
        "search_document", "search_query", "search_query",
    ]  # fmt: skip
    assert [request.get("user") for request in seen] == [None, "u", "u"]
    assert all(request["headers"]["authorization"] == "Bearer none" for request in seen)


def test_calls_at_once_share_one_question(protector, server):
    call, seen = server
    use(protector)

    async def together() -> list[Any]:
        return await asyncio.gather(*(ask(call, TEXTS[:1]) for _ in range(8)))

    assert len(wait(together())) == 8
    assert sorted(len(request["input"]) for request in seen) == [1] * 8 + [12]


def test_a_server_that_takes_one_text_at_a_time(protector):
    callback = use(protector)

    def answer(request: dict[str, Any], number: int) -> Any:
        if len(request["input"]) > 1:
            return 400, {"Content-Type": "application/json"}, b'{"error": {"message": "one"}}'
        return answer_with(np.array(minilm(request["input"]), dtype=np.float32), request)

    with embedding_server(answer) as (url, seen):
        assert len(wait(ask(called(url), TEXTS[:1])).data) == 1
        assert len(seen) == 14
        assert len(callback.embedding(**called(url), input=TEXTS[:1]).data) == 1
        assert len(seen) == 15


def test_an_answer_of_litellm_itself_is_no_model(protector):
    use(protector)
    made = [0.01] * protector.dimension
    answer = wait(litellm.aembedding("openai/x", input=["a"], mock_response=made))
    assert not np.array_equal(vectors(answer)[0], made)  # and is protected like any


def test_what_goes_on_behind_a_direct_call_is_protected(protector, server):
    """A task that another callback starts in one, such as a queue of log lines, keeps its context."""
    call, _ = server
    callback = use(protector)
    later: list[asyncio.Task[Any]] = []
    gate = asyncio.Event()

    class Starter(CustomLogger):
        async def async_pre_call_deployment_hook(self, kwargs: Any, call_type: Any) -> None:
            async def afterwards() -> Any:
                await gate.wait()
                return await ask(call)

            if not later:
                later.append(asyncio.create_task(afterwards()))

    litellm.callbacks = [Starter(), callback]

    async def both() -> Any:
        await callback.aembedding(**call, input=TEXTS)
        gate.set()
        return await later[0]

    assert same_direction(vectors(wait(both())), minilm(TEXTS)).max() < 0.998


def test_a_failing_callback_leaves_no_vector_even_if_its_error_is_swallowed(protector):
    callback = ProtectEmbeddings(protector)
    answer = EmbeddingResponse(data=[{"object": "embedding", "index": 0, "embedding": [0.1] * 16}])
    with pytest.raises(IncompatibleError):
        wait(
            callback.async_post_call_success_deployment_hook({"input": ["x"]}, answer, "aembedding")
        )
    assert answer.data == []


def test_the_proxy_refuses_what_did_not_pass_the_callback(protector, server):
    """Such as an answer from a cache that was filled before, which is clean."""
    call, _ = server
    clean = wait(ask(call))
    callback = use(protector)

    async def through(answer: Any) -> Any:
        assert callback.should_run_guardrail(data={}, event_type="post_call")
        return await callback.async_post_call_success_hook(
            data={"input": TEXTS}, user_api_key_dict=None, response=answer
        )

    protected = wait(ask(call))
    before = vectors(protected)
    assert np.array_equal(vectors(wait(through(protected))), before)  # protected once
    with pytest.raises(ReleaseError, match="caching"):
        wait(through(clean))
    assert clean.data == []


def test_no_key_in_what_is_shown(protector, key_file, tmp_path: Path):
    callback = ProtectEmbeddings(protector, key=key_file)
    (tmp_path / "shown").write_text(repr(callback) + str(vars(callback)))
    assert_no_secret(tmp_path, key_file)
    with pytest.raises(KeyFileError):
        ProtectEmbeddings(protector, key=tmp_path / "none.key")
    with raises("E-INPUT-NAME", "query_protection"):
        ProtectEmbeddings(protector, query_protection="none")


def test_the_example(collection_folder, protector_file):
    clean, protected = run_example("litellm", collection_folder, protector_file)
    assert min(clean, protected) > 0.5  # about 0.85 either way, give or take 0.03 by the noise
