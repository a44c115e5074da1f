"""LiteLLM: a callback that protects the answers of asynchronous embedding calls, and functions for both kinds.

    litellm.callbacks = [ProtectEmbeddings("drug.vecveil")]
    await litellm.aembedding(model="text-embedding-3-small", input=texts)

LiteLLM asks no callback before `litellm.embedding`, the synchronous function, returns: it stays clean. Call
`ProtectEmbeddings.embedding` in its place.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Any

from vecveil.encoders.protocol import checked_vectors
from vecveil.errors import (
    InvalidInputError,
    MissingDependencyError,
    ReleaseError,
    VecveilError,
)
from vecveil.integrations.litellm_answers import (
    input_names,
    items_in_order,
    vectors_of,
    written_like,
)
from vecveil.integrations.litellm_models import KnownModels, directly, is_direct
from vecveil.integrations.opening import KeySource, open_policy
from vecveil.integrations.wrapped import WrappedEmbedder
from vecveil.release_policy import STRONGER, QueryProtection, ReleasePolicy

try:
    import litellm
    from litellm.integrations.custom_guardrail import CustomGuardrail
    from litellm.types.utils import EmbeddingResponse
except ImportError:
    raise MissingDependencyError("The LiteLLM callback", "litellm", "litellm") from None

if TYPE_CHECKING:
    from vecveil.accounting import Ledger
    from vecveil.protector import Protector

__all__ = ["ProtectEmbeddings"]

_OWNER = "ProtectEmbeddings"
_MARK = "vecveil_protected"
_REWRITTEN = "vecveil_rewritten"
_SIDE = "vecveil_side"
_NO_CACHE = {"no-cache": True, "no-store": True}


class ProtectEmbeddings(CustomGuardrail):  # type: ignore[misc, unused-ignore]
    """A callback of ``litellm.aembedding``, the Router and the proxy; `embedding` and `aembedding` need no callback.

    LiteLLM swallows what a plain ``CustomLogger`` raises and answers as if it had not been there; it lets errors of a
    guardrail, which is such a logger, through. So a call whose answer cannot be protected fails, and the answer is
    emptied before, for a version that goes on.

    A call is a query with ``metadata={"vecveil_side": "query"}`` or an ``input_type`` that names one; every other is a
    document. Whoever may call a proxy may say so: use ``map-only`` only where all callers are trusted.

    Args:
        protector: or the path of its file; of the one model that is called.
        query_protection: ``same``, ``stronger`` or ``map-only``; see `vecveil.release_policy`.
        query_noise: times the documents' noise, for ``stronger``.
        key: keys, the path of a key file, or ``env:NAME``. Items are named by their inputs.
        ledger: or the path of its file.
    """

    def __init__(
        self,
        protector: Protector | str | os.PathLike[str],
        *,
        query_protection: QueryProtection = "same",
        query_noise: float = STRONGER,
        key: KeySource = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
    ) -> None:
        self._policy = open_policy(
            protector, query_protection=query_protection, query_noise=query_noise, key=key, ledger=ledger
        )  # fmt: skip
        self._models = KnownModels(self._policy, owner=_OWNER)
        self._mark = secrets.token_hex(
            8
        )  # of this object: another's protection is not taken for it
        super().__init__(guardrail_name="vecveil", default_on=True)

    def __repr__(self) -> str:
        return f"ProtectEmbeddings({self._policy.protector.method!r})"

    @property
    def policy(self) -> ReleasePolicy:
        """How documents and queries are released."""
        return self._policy

    # What LiteLLM calls ------------------------------------------------------------------------

    def should_run_guardrail(self, data: Any, event_type: Any) -> bool:
        """Return True after a call: no request switches protection off."""
        return str(getattr(event_type, "value", event_type)) == "post_call"

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """Return ``kwargs`` with rewritten input where the method rewrites texts; see that the model is the one.

        Raises:
            IncompatibleError: the protector was fitted for another model. No text of the caller has left.
        """
        if is_direct() or not _is_embedding(call_type):
            return None
        model = kwargs.get("model") or getattr(kwargs.get("litellm_logging_obj"), "model", None)
        if not isinstance(model, str):
            raise ReleaseError(f"{_OWNER}: the call names no model, so nothing was sent.")
        await self._models.ensure_async(model, kwargs)
        if not self._policy.rewrites_texts:
            return None
        marked = {**(kwargs.get("metadata") or {}), _REWRITTEN: self._mark}
        return {**kwargs, "input": self._sent(kwargs.get("input")), "metadata": marked}

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: Any
    ) -> Any:
        """Return ``response`` with protected vectors.

        Raises:
            InvalidInputError, IncompatibleError, LedgerCapError: what `ReleasePolicy` raises; the vectors are gone.
            ReleaseError: everything else that went wrong.
        """
        if is_direct() or not (_is_embedding(call_type) or isinstance(response, EmbeddingResponse)):
            return None
        rewritten = (request_data.get("metadata") or {}).get(_REWRITTEN) == self._mark
        return self._answer(response, request_data, rewritten=rewritten)

    async def async_post_call_success_hook(
        self, data: dict[str, Any], user_api_key_dict: Any, response: Any
    ) -> Any:
        """Refuse an answer of the proxy that did not pass this callback, such as one from a cache."""
        if isinstance(response, EmbeddingResponse) and not self._is_marked(response):
            response.data = []
            raise ReleaseError(
                f"{_OWNER}: the answer did not come from a protected call, so nothing was released. "
                "Switch caching off for embeddings."
            )
        return response

    # What callers call -------------------------------------------------------------------------

    def embedding(self, model: str, input: Any, **options: Any) -> Any:
        """Return what ``litellm.embedding`` answers, protected; ``options`` are its arguments.

        Before the first call of a model it embeds a dozen fixed sentences, to see that the protector was fitted for
        it. LiteLLM's cache is left out.
        """
        options["cache"] = _NO_CACHE
        self._models.ensure(model, options)
        with directly():
            answer = litellm.embedding(model=model, input=self._sent(input), **options)
        return self._answer(answer, {**options, "input": input}, rewritten=True)

    async def aembedding(self, model: str, input: Any, **options: Any) -> Any:
        """Return what ``litellm.aembedding`` answers, protected; see `embedding`."""
        options["cache"] = _NO_CACHE
        await self._models.ensure_async(model, options)
        with directly():
            answer = await litellm.aembedding(model=model, input=self._sent(input), **options)
        return self._answer(answer, {**options, "input": input}, rewritten=True)

    def _sent(self, given: Any) -> Any:
        """Return what may be sent of the caller's input."""
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
            items = items_in_order(response)
            released = self._released(vectors_of(items), request, rewritten=rewritten)
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
            {"object": "embedding", "index": i, "embedding": written_like(row, item["embedding"])}
            for i, (row, item) in enumerate(zip(released, items, strict=True))
        ]
        response._hidden_params[_MARK] = self._mark
        return response

    def _released(self, vectors: list[Any], request: dict[str, Any], *, rewritten: bool) -> Any:
        names = input_names(request.get("input"))
        if names is None and (self._policy.key is not None or self._policy.ledger is not None):
            raise InvalidInputError.of(_OWNER, "input", "given by name, as in aembedding(model=..., input=...)",
                                       "another call", "A key and a ledger name items by it.")  # fmt: skip
        rows = len(vectors) if names is None else len(names)
        wrapped = WrappedEmbedder(self._policy, owner=_OWNER)
        if self._policy.rewrites_texts:
            if not rewritten:
                raise ReleaseError(
                    f"{_OWNER}: the texts were not rewritten before they were embedded."
                )
            return wrapped.documents(vectors, [""] * rows)
        X = checked_vectors(vectors, rows=rows, owner=_OWNER)
        return (self._policy.queries if _is_query(request) else self._policy.documents)(
            X, texts=names
        )


def _is_embedding(call_type: Any) -> bool:
    return str(getattr(call_type, "value", call_type)) in ("embedding", "aembedding")


def _is_query(request: dict[str, Any]) -> bool:
    metadata = request.get("metadata") or {}
    return metadata.get(_SIDE) == "query" or request.get("input_type") in ("query", "search_query")
