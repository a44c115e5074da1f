"""Which models a protector may be used with behind LiteLLM: each is asked for fixed sentences before its first call."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from vecveil.errors import IncompatibleError, MissingDependencyError
from vecveil.integrations.litellm_answers import items_in_order, vectors_of
from vecveil.integrations.wrapped import WrappedEmbedder
from vecveil.release_policy import ReleasePolicy

try:
    import litellm
    from litellm.exceptions import BadRequestError
except ImportError:
    raise MissingDependencyError("The LiteLLM callback", "litellm", "litellm") from None

__all__ = ["KnownModels", "directly", "is_direct"]

_NAMED_BY = (
    "custom_llm_provider", "litellm_credential_name", "api_base", "base_url", "api_version", "deployment_id",
    "organization", "region_name", "aws_region_name", "vertex_project", "vertex_location", "dimensions",
)  # fmt: skip
"""Under one name another server, account or width may give other vectors."""
_OF_ONE_CALL = frozenset(
    {"input", "user", "metadata", "litellm_metadata", "proxy_server_request", "litellm_call_id",
     "litellm_logging_obj", "fallbacks", "cache", "model"}
)  # fmt: skip
"""Arguments that LiteLLM hands to a callback and that belong to one call alone."""
_AS_DOCUMENT = {
    "input_type": {"search_query": "search_document", "query": "document"},
    "task_type": {"RETRIEVAL_QUERY": "RETRIEVAL_DOCUMENT"},
    "task": {"retrieval.query": "retrieval.passage"},
}
"""How providers write that a text is a query, and what a document is there: the sentences of a fit were documents."""
_NO_CACHE = {"no-cache": True, "no-store": True}
_MODELS = 64
_REFUSED_SECONDS = 30.0


class _Direct:
    def __init__(self) -> None:
        self.lasts = True


_direct: ContextVar[_Direct | None] = ContextVar("vecveil_direct", default=None)


@contextmanager
def directly() -> Iterator[None]:
    """Keep the callback away from calls in the block: their caller protects the answers, or needs them clean."""
    one = _Direct()
    token = _direct.set(one)
    try:
        yield
    finally:
        one.lasts = False  # also for tasks that were started in the block and go on behind it
        _direct.reset(token)


def is_direct() -> bool:
    """Return whether `directly` is under way around this."""
    one = _direct.get()
    return one is not None and one.lasts


class KnownModels:
    """The models that have shown to be the protector's encoder, and those that have shown not to be.

    Args:
        policy: whose protector it is; one that was fitted on vectors alone knows no sentences, and takes every model.
        owner: named in errors.
    """

    def __init__(self, policy: ReleasePolicy, *, owner: str) -> None:
        self._policy, self._owner = policy, owner
        self._passed: OrderedDict[Any, None] = OrderedDict()
        self._refused: OrderedDict[Any, tuple[float, str]] = OrderedDict()
        self._running: dict[Any, asyncio.Task[None]] = {}

    def ensure(self, model: str, options: dict[str, Any]) -> None:
        """Return once ``model``, called with ``options``, is known to be the encoder.

        Raises:
            IncompatibleError: it is another one.
            Exception: what LiteLLM raises where it cannot be asked.
        """
        name = _name(model, options)
        if (sentences := self._sentences(name)) and options.get("mock_response") is None:
            sent = _sent(model, options)
            with directly():
                try:
                    answers = [litellm.embedding(model=model, input=sentences, **sent)]
                except BadRequestError:  # some take one text at a time
                    answers = [
                        litellm.embedding(model=model, input=[one], **sent) for one in sentences
                    ]
            self._judge(name, answers)

    async def ensure_async(self, model: str, options: dict[str, Any]) -> None:
        """Do as `ensure`; calls that wait for the same answer share one question."""
        name = _name(model, options)
        sentences = self._sentences(name)
        if not sentences or options.get("mock_response") is not None:
            return
        loop = asyncio.get_running_loop()
        asked = (loop, name, str(options.get("api_key")))  # one caller's wrong key is not another's
        task = self._running.get(asked)
        if task is None:
            task = loop.create_task(self._ask(name, sentences, model, dict(options)))
            self._running[asked] = task
            task.add_done_callback(lambda done: self._done(asked, done))
        await asyncio.shield(task)  # a caller that gives up does not end it for the others

    def _done(self, asked: Any, task: asyncio.Task[None]) -> None:
        del self._running[asked]
        if not task.cancelled():
            task.exception()  # seen, though everybody who asked may be gone

    async def _ask(
        self, name: Any, sentences: list[str], model: str, options: dict[str, Any]
    ) -> None:
        sent = _sent(model, options)
        with directly():
            try:
                answers = [await litellm.aembedding(model=model, input=sentences, **sent)]
            except BadRequestError:
                answers = [
                    await litellm.aembedding(model=model, input=[one], **sent) for one in sentences
                ]
        self._judge(name, answers)

    def _sentences(self, name: Any) -> list[str]:
        """Return what the model must be asked; nothing where it is known to be the one.

        Raises:
            IncompatibleError: it was found to be another a moment ago.
        """
        if name in self._passed:
            return []
        until, said = self._refused.get(name, (0.0, ""))
        if time.monotonic() < until:
            raise IncompatibleError(said)
        return WrappedEmbedder(self._policy, owner=self._owner).probe()

    def _judge(self, name: Any, answers: list[Any]) -> None:
        vectors = [vector for answer in answers for vector in vectors_of(items_in_order(answer))]
        try:
            WrappedEmbedder(self._policy, owner=self._owner).compare(vectors)
        except IncompatibleError as error:
            self._refused[name] = time.monotonic() + _REFUSED_SECONDS, str(error)
            _shorten(self._refused)
            raise
        self._passed[name] = None
        _shorten(self._passed)


def _name(model: str, options: dict[str, Any]) -> tuple[str, ...]:
    deployment = (options.get("model_info") or {}).get("id")  # of a Router
    return (model, str(deployment), *(str(options.get(name)) for name in _NAMED_BY))


def _sent(model: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call of ``model`` for the sentences."""
    sent = {name: value for name, value in options.items() if name not in _OF_ONE_CALL}
    nvidia = model.startswith("nvidia_nim/") or sent.get("custom_llm_provider") == "nvidia_nim"
    for name, documents in _AS_DOCUMENT.items():
        if (kind := sent.get(name)) in documents:
            sent[name] = "passage" if nvidia and kind == "query" else documents[kind]
    return {**sent, "cache": _NO_CACHE}


def _shorten(kept: OrderedDict[Any, Any]) -> None:
    while len(kept) > _MODELS:
        kept.popitem(last=False)
