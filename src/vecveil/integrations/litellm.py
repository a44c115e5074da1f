"""LiteLLM: a callback for asynchronous embedding calls, and protecting functions for both kinds.

    litellm.callbacks = [ProtectEmbeddings("drug.vecveil")]
    await litellm.aembedding(model="text-embedding-3-small", input=texts)

LiteLLM runs no callback before the synchronous `litellm.embedding` returns, so its vectors stay clean. Call
`ProtectEmbeddings.embedding` instead.
"""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from vecveil.databases.release import PolicyOptions, WrappedEmbedder, open_policy, with_policy
from vecveil.encoders.protocol import checked_vectors
from vecveil.encoders.upstream_verification import UpstreamVerification
from vecveil.errors import InvalidInputError, MissingDependencyError, ReleaseError, VecveilError
from vecveil.protector.policy import ReleasePolicy

try:
    import litellm
    from litellm.exceptions import BadRequestError
    from litellm.integrations.custom_guardrail import CustomGuardrail
    from litellm.types.utils import EmbeddingResponse
except ImportError:
    raise MissingDependencyError("The LiteLLM callback", "litellm", "litellm") from None

if TYPE_CHECKING:
    from vecveil.protector import Protector

__all__ = ["ProtectEmbeddings"]

_OWNER = "ProtectEmbeddings"
_MARK = "vecveil_protected"
_REWRITTEN = "vecveil_rewritten"
_SIDE = "vecveil_side"
# A cached answer would bypass protection, or repeat one release for several calls.
_NO_CACHE = {"no-cache": True, "no-store": True}
# Besides the model's name, these decide which server and account answer, and with which dimension.
_IDENTIFYING_OPTIONS = (
    "custom_llm_provider", "litellm_credential_name", "api_base", "base_url", "api_version", "deployment_id",
    "organization", "region_name", "aws_region_name", "vertex_project", "vertex_location", "dimensions",
)  # fmt: skip
# Arguments of one call in a callback's `kwargs`, which the probe call must not repeat.
_CALL_OPTIONS = frozenset(
    {"input", "user", "metadata", "litellm_metadata", "proxy_server_request", "litellm_call_id",
     "litellm_logging_obj", "fallbacks", "cache", "model"}
)  # fmt: skip
# Providers' options for queries, with their document counterparts: the probe was recorded from documents.
_AS_DOCUMENT = {
    "input_type": {"search_query": "search_document", "query": "document"},
    "task_type": {"RETRIEVAL_QUERY": "RETRIEVAL_DOCUMENT"},
    "task": {"retrieval.query": "retrieval.passage"},
}


class _Bypass:
    """State of one `_bypassing` block."""

    # A flag besides the context variable: tasks started in the block keep a copy of its context after it ends.
    active = True


_bypass: ContextVar[_Bypass | None] = ContextVar("vecveil_bypass", default=None)


@contextmanager
def _bypassing() -> Iterator[None]:
    """Disable the callback for calls in the block, which needs their clean vectors."""
    bypass = _Bypass()
    token = _bypass.set(bypass)
    try:
        yield
    finally:
        bypass.active = False
        _bypass.reset(token)


def _is_bypassed() -> bool:
    bypass = _bypass.get()
    return bypass is not None and bypass.active


class ProtectEmbeddings(CustomGuardrail):  # type: ignore[misc, unused-ignore]
    """Callback for ``litellm.aembedding``, the Router and the proxy; `embedding` and `aembedding` work without it.

    A call whose answer cannot be protected fails, with its vectors removed.

    A call with ``metadata={"vecveil_side": "query"}`` or an ``input_type`` of queries is a query, any other a document.
    Every caller of a proxy may choose the side: use ``map-only`` only where all callers are trusted.

    Args:
        protector: protector, path of its file, or a `ReleasePolicy`; all calls must use its model.
        policy: keywords of `PolicyOptions`; item ids are the inputs.
    """

    # A guardrail, because LiteLLM swallows the exceptions of a plain CustomLogger.

    @with_policy
    def __init__(
        self,
        protector: Protector | ReleasePolicy | str | os.PathLike[str],
        **policy: Unpack[PolicyOptions],
    ) -> None:
        self._policy = open_policy(protector, **policy)
        self._verification = UpstreamVerification(uses=100)
        # Random: neither a caller nor another callback can mark an answer or a request as ours.
        self._mark = secrets.token_hex(8)
        super().__init__(guardrail_name="vecveil", default_on=True)

    def __repr__(self) -> str:
        return f"ProtectEmbeddings({self._policy.protector.method!r})"

    @property
    def policy(self) -> ReleasePolicy:
        """Release policy."""
        return self._policy

    def should_run_guardrail(self, data: Any, event_type: Any) -> bool:
        """Return True for ``post_call``, whatever the request says."""
        # The base class lets a request disable guardrails.
        return str(getattr(event_type, "value", event_type)) == "post_call"

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """Verify the model; for a text-level method return ``kwargs`` with rewritten input.

        Raises:
            IncompatibleError: the protector was fitted for another model. No text was sent to it.
        """
        if _is_bypassed() or not _is_embedding(call_type):
            return None
        # The Router passes the model in the logging object only.
        model = kwargs.get("model") or getattr(kwargs.get("litellm_logging_obj"), "model", None)
        if not isinstance(model, str):
            raise ReleaseError(f"{_OWNER}: the call names no model, so nothing was sent.")
        await self._verify_async(model, kwargs)
        if not self._policy.rewrites_texts:
            return None
        # The answer's hook releases vectors of a text-level method only with this mark.
        marked = {**(kwargs.get("metadata") or {}), _REWRITTEN: self._mark}
        return {**kwargs, "input": self._sent(kwargs.get("input")), "metadata": marked}

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: Any
    ) -> Any:
        """Return ``response`` with protected vectors.

        Raises:
            InvalidInputError, IncompatibleError, LedgerCapError: raised by `ReleasePolicy`; the vectors are dropped.
            ReleaseError: any other failure.
        """
        # Versions of LiteLLM differ in the call type they pass: the type of the answer decides as well.
        if _is_bypassed() or not (
            _is_embedding(call_type) or isinstance(response, EmbeddingResponse)
        ):
            return None
        rewritten = (request_data.get("metadata") or {}).get(_REWRITTEN) == self._mark
        return self._answer(response, request_data, rewritten=rewritten)

    async def async_post_call_success_hook(
        self, data: dict[str, Any], user_api_key_dict: Any, response: Any
    ) -> Any:
        """Raise `ReleaseError` for a proxy answer that did not pass this callback, such as a cached one."""
        if isinstance(response, EmbeddingResponse) and not self._is_marked(response):
            response.data = []
            raise ReleaseError(
                f"{_OWNER}: the answer did not come from a protected call, so nothing was released. "
                "Switch caching off for embeddings."
            )
        return response

    def embedding(self, model: str, input: Any, **options: Any) -> Any:
        """Return the protected answer of ``litellm.embedding``; ``options`` are its arguments.

        The first call of a model embeds a dozen fixed sentences to verify it. LiteLLM's cache is not used.
        """
        options["cache"] = _NO_CACHE
        self._verify(model, options)
        with _bypassing():
            answer = litellm.embedding(model=model, input=self._sent(input), **options)
        return self._answer(answer, {**options, "input": input}, rewritten=True)

    async def aembedding(self, model: str, input: Any, **options: Any) -> Any:
        """Return the protected answer of ``litellm.aembedding``; see `embedding`."""
        options["cache"] = _NO_CACHE
        await self._verify_async(model, options)
        with _bypassing():
            answer = await litellm.aembedding(model=model, input=self._sent(input), **options)
        return self._answer(answer, {**options, "input": input}, rewritten=True)

    def _verify(self, model: str, options: dict[str, Any]) -> None:
        """Verify that ``model``, called with ``options``, is the protector's encoder.

        Raises:
            IncompatibleError: it is another encoder.
            Exception: raised by LiteLLM if the model does not answer.
        """
        wrapped = WrappedEmbedder(self._policy, owner=_OWNER)
        sentences = wrapped.probe()
        sent = _probe_options(model, options)

        def embed(texts: list[str]) -> list[Any]:
            return _vectors(_ordered(litellm.embedding(model=model, input=texts, **sent)))

        def verify() -> None:
            with _bypassing():
                try:
                    vectors = embed(sentences)
                except BadRequestError:  # some servers accept one text per request
                    vectors = [vector for text in sentences for vector in embed([text])]
            wrapped.compare(vectors)

        # LiteLLM itself makes a mocked answer: there is no model to verify.
        if sentences and options.get("mock_response") is None:
            self._verification.ensure(_identity(model, options), verify)

    async def _verify_async(self, model: str, options: dict[str, Any]) -> None:
        """Asynchronous `_verify`; concurrent calls share one verification."""
        wrapped = WrappedEmbedder(self._policy, owner=_OWNER)
        sentences = wrapped.probe()
        sent = _probe_options(model, options)

        async def embed(texts: list[str]) -> list[Any]:
            return _vectors(_ordered(await litellm.aembedding(model=model, input=texts, **sent)))

        async def verify() -> None:
            with _bypassing():
                try:
                    vectors = await embed(sentences)
                except BadRequestError:
                    vectors = [vector for text in sentences for vector in await embed([text])]
            wrapped.compare(vectors)

        if sentences and options.get("mock_response") is None:
            credential = str(options.get("api_key"))
            identity = _identity(model, options)
            await self._verification.ensure_async(identity, verify, credential=credential)

    def _sent(self, given: Any) -> Any:
        """Return the input to send: rewritten texts for a text-level method."""
        if not self._policy.rewrites_texts:
            return given
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InvalidInputError.of(_OWNER, "input",
                                       "texts, given by name, for a method that rewrites texts",
                                       type(given).__name__)  # fmt: skip
        return self._policy.protector.rewrite(texts)

    def _is_marked(self, response: Any) -> bool:
        return (getattr(response, "_hidden_params", None) or {}).get(_MARK) == self._mark

    def _answer(self, response: Any, request: dict[str, Any], *, rewritten: bool) -> Any:
        if self._is_marked(response):
            return response
        items, released = [], None
        try:
            items = _ordered(response)
            released = self._released(_vectors(items), request, rewritten=rewritten)
        except VecveilError:
            raise
        except Exception as error:
            raise ReleaseError(
                f"{_OWNER}: {type(error).__name__} while an answer was protected, so nothing was released."
            ) from None
        finally:
            # Emptied first: a version of LiteLLM may go on with it whatever is raised here.
            if hasattr(response, "data"):
                response.data = []
        response.data = [
            {"object": "embedding", "index": i, "embedding": _encoded_like(row, item["embedding"])}
            for i, (row, item) in enumerate(zip(released, items, strict=True))
        ]
        response._hidden_params[_MARK] = self._mark
        return response

    def _released(self, vectors: list[Any], request: dict[str, Any], *, rewritten: bool) -> Any:
        # LiteLLM passes positional arguments to no callback: then the inputs, and so the item ids, are unknown.
        names = _input_names(request.get("input"))
        if names is None and (self._policy.key is not None or self._policy.ledger is not None):
            raise InvalidInputError.of(_OWNER, "input", "given by name, as in aembedding(model=..., input=...)",
                                       "another call", "A key and a ledger name items by it.")  # fmt: skip
        rows = len(vectors) if names is None else len(names)
        if self._policy.rewrites_texts and not rewritten:
            raise ReleaseError(f"{_OWNER}: the texts were not rewritten before they were embedded.")
        X = checked_vectors(vectors, rows=rows, owner=_OWNER)
        return (self._policy.queries if _is_query(request) else self._policy.documents)(
            X, texts=names, rewritten=rewritten
        )


def _is_embedding(call_type: Any) -> bool:
    return str(getattr(call_type, "value", call_type)) in ("embedding", "aembedding")


def _is_query(request: dict[str, Any]) -> bool:
    metadata = request.get("metadata") or {}
    return metadata.get(_SIDE) == "query" or request.get("input_type") in ("query", "search_query")


def _identity(model: str, options: dict[str, Any]) -> tuple[str, ...]:
    deployment = (options.get("model_info") or {}).get("id")  # of a Router
    return (model, str(deployment), *(str(options.get(name)) for name in _IDENTIFYING_OPTIONS))


def _probe_options(model: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the probe call: ``options`` for documents, without cache."""
    sent = {name: value for name, value in options.items() if name not in _CALL_OPTIONS}
    # NVIDIA writes "passage" where others write "document".
    nvidia = model.startswith("nvidia_nim/") or sent.get("custom_llm_provider") == "nvidia_nim"
    for name, documents in _AS_DOCUMENT.items():
        if (kind := sent.get(name)) in documents:
            sent[name] = "passage" if nvidia and kind == "query" else documents[kind]
    return {**sent, "cache": _NO_CACHE}


def _input_names(given: Any) -> list[str] | None:
    """Return an item id per input, the text or its token ids; None if the inputs are unknown."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not given:
        return None
    if all(isinstance(item, int) for item in given):  # the token ids of one input
        given = [given]
    return [item if isinstance(item, str) else " ".join(map(str, item)) for item in given]


def _ordered(response: Any) -> list[Any]:
    """Return the items of an answer in the order of the inputs.

    Raises:
        InvalidInputError: the indices are not 0 to N - 1.
    """
    # Noise is keyed by the input: a vector in another place would get the noise of another item.
    items = list(response.data)
    numbers = [item.get("index") for item in items]
    numbers = [i if number is None else number for i, number in enumerate(numbers)]
    if sorted(numbers) != list(range(len(items))):
        raise InvalidInputError.of(
            _OWNER, "response", "an answer with one vector for each input", "other numbers"
        )
    return [items[numbers.index(i)] for i in range(len(items))]


def _vectors(items: list[Any]) -> list[Any]:
    """Return the items' vectors, given as lists or as base64 of float32."""
    return [
        np.frombuffer(base64.b64decode(item["embedding"], validate=True), dtype="<f4")
        if isinstance(item["embedding"], str)
        else item["embedding"]
        for item in items
    ]


def _encoded_like(row: Any, embedding: Any) -> Any:
    """Return a released row in the encoding of the clean vector."""
    if isinstance(embedding, str):
        return base64.b64encode(row.astype("<f4").tobytes()).decode()
    return row.tolist()
