"""Search sealed indexes by OpenAI's API (``POST /v1/vector_stores/NAME/search``), with threads for slow storage."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from vecveil.errors import IncompatibleError, InvalidInputError, StoreError, VecveilError
from vecveil.gateway.server.errors import SERVER, ApiError, ClientGone
from vecveil.gateway.server.monitoring import Metrics, event
from vecveil.gateway.server.requests import ApiClient, invalid, is_integer, is_unicode, parse_object
from vecveil.gateway.server.upstreams import LocalUpstream, Upstream
from vecveil.index.audit_log import AuditEntry, AuditLog
from vecveil.types import Embeddings

if TYPE_CHECKING:
    from vecveil.index import Sealer
    from vecveil.index.sealed_index import Hit, SealedIndex

T = TypeVar("T")

_MOST_RESULTS, _RESULTS = 50, 10  # OpenAI's
_MOST_QUERIES = 32
_RANKERS = ("none", "auto", "default-2024-11-15")  # OpenAI's; the ranking is always exact here
_ORDERS = ("gt", "gte", "lt", "lte")
_COMPARISONS = ("eq", "ne", *_ORDERS, "in", "nin")
_DEEPEST, _MOST_VALUES = 16, 1000  # of filters: each value costs a pass over all rows
_LARGEST = 1.7e308
_RESULTS_OF: dict[type[BaseException], str] = {ClientGone: "client_gone", asyncio.CancelledError: "stopping"}


@dataclass(frozen=True, eq=False)
class ServedIndex:
    """A sealed index, and the upstream that encodes its queries."""

    name: str
    index: SealedIndex
    upstream: Upstream


@dataclass(frozen=True, repr=False)
class SearchRequest:
    """A parsed search request; without ``alpha``, the weight of the vectors against the words, only vectors count."""

    queries: list[str]
    where: dict[str, Any] | None
    top: int
    threshold: float
    alpha: float | None


def parse_search(body: bytes) -> SearchRequest:
    """Return the parsed request; an unknown field is an error, because it may narrow the search."""
    content = _known(parse_object(body), "query", "filters", "max_num_results", "ranking_options", "rewrite_query")
    query, filters, top = content.get("query"), content.get("filters"), content.get("max_num_results", _RESULTS)
    queries: list[Any] = query if isinstance(query, list) else [query]
    if not 0 < len(queries) <= _MOST_QUERIES or not all(map(_is_text, queries)):
        raise invalid("query", f"must be a text that is not empty, or a list of 1 to {_MOST_QUERIES} of them.")
    if not is_integer(top) or not 0 < top <= _MOST_RESULTS:
        raise invalid("max_num_results", f"must be 1 to {_MOST_RESULTS}.")
    if content.get("rewrite_query", False) is not False:
        raise invalid("rewrite_query", "must be false or left out: this server rewrites no query.", "unsupported_field")
    threshold, alpha = _ranking_options(content.get("ranking_options", {}))
    where, values = (None, 0) if filters is None else _where(filters)
    if values > _MOST_VALUES:
        raise invalid("filters", f"must compare with at most {_MOST_VALUES:,} values.")
    return SearchRequest(queries, where, top, threshold, alpha)


def _known(given: Any, *names: str, param: str | None = None) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise invalid(param or "body", "must be an object.")
    if not given.keys() <= set(names):
        # The unknown name is not shown: it is the client's.
        within = "The request" if param is None else f"`{param}`"
        text = f"{within} has a field that this server does not take. It takes {', '.join(names)}."
        raise ApiError(400, text, code="unsupported_field", param=param)
    return {name: value for name, value in given.items() if value is not None}


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and is_unicode(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _ranking_options(given: Any) -> tuple[float, float | None]:
    """Return the minimum score, and the weight of the vectors if words count."""
    param = "ranking_options"
    options = _known(given, "ranker", "score_threshold", "hybrid_search", param=param)
    if options.get("ranker", "auto") not in _RANKERS:
        raise invalid(param, f"must have a `ranker` of {', '.join(_RANKERS)}, which all rank exactly here.")
    threshold = options.get("score_threshold", 0)
    if not _is_number(threshold) or not 0 <= threshold <= 1:
        raise invalid(param, "must have a `score_threshold` of 0 to 1.")
    if "hybrid_search" not in options:
        return float(threshold), None
    weights = _known(options["hybrid_search"], "embedding_weight", "text_weight", param=param)
    vectors, words = (weights.get(name, 0) for name in ("embedding_weight", "text_weight"))
    if not _is_number(vectors) or not _is_number(words) or min(vectors, words) < 0 or not max(vectors, words):
        raise invalid(param, "must have a `hybrid_search` with two weights of at least 0, not both 0.")
    # Divide first: the sum of two large numbers may overflow.
    largest = max(vectors, words)
    return float(threshold), vectors / largest / (vectors / largest + words / largest) if words else None


def _where(given: Any, depth: int = 0) -> tuple[dict[str, Any], int]:
    """Return OpenAI's filters as conditions of a sealed index, and the number of values to compare."""
    kind = given.get("type") if isinstance(given, dict) and depth < _DEEPEST else None
    if kind in ("and", "or") and given.keys() == {"type", "filters"}:
        if isinstance(given["filters"], list) and given["filters"]:
            parts = [_where(part, depth + 1) for part in given["filters"]]
            return {f"${kind}": [part for part, _ in parts]}, sum(count for _, count in parts)
    elif kind in _COMPARISONS and given.keys() == {"type", "key", "value"}:
        key, value = given["key"], given["value"]
        values = value if kind in ("in", "nin") else [value]
        # A name with a dollar sign would be an operator of the index.
        named = isinstance(key, str) and key and is_unicode(key) and not key.startswith("$")
        if named and isinstance(values, list) and all(_is_value(each, ordered=kind in _ORDERS) for each in values):
            return {key: {kind: value}}, len(values)
    text = (
        f"must be comparisons {{type, key, value}} of the types {', '.join(_COMPARISONS)}, joined by "
        f"{{type: and | or, filters: [...]}}, at most {_DEEPEST} deep. A value is a text, a number, true or false; "
        "of in and nin a list of them; of gt, gte, lt and lte a text or a number."
    )
    raise invalid("filters", text)


def _is_value(value: Any, *, ordered: bool) -> bool:
    if isinstance(value, str):
        return is_unicode(value)
    return _is_number(value) or (isinstance(value, bool) and not ordered)


class VectorStores:
    """Sealed indexes that clients search, with distinct names.

    ``threads`` search and wait for the storage; ``created`` is the time in seconds that clients see.
    """

    def __init__(
        self,
        indexes: Sequence[ServedIndex],
        metrics: Metrics,
        threads: FileThreads,
        *,
        created: int,
        audit_log: AuditLog | None = None,
    ) -> None:
        self._indexes = {served.name: served for served in indexes}
        self._audit_log = audit_log
        self._restricted: dict[tuple[str, str], ServedIndex] = {}  # by name and client
        self._metrics, self._threads, self._created = metrics, threads, created
        self._reading: asyncio.Task[ApiError | None] | None = None

    def __len__(self) -> int:
        return len(self._indexes)

    async def aclose(self) -> None:
        for served in self._indexes.values():
            await served.upstream.aclose()
            with suppress(ApiError):  # waits for the storage
                await self._threads.run(served.index.close)

    def of(self, name: str, client: ApiClient) -> ServedIndex:
        """Return an index that the client may search; raise `ApiError` 404, also for a missing index."""
        if name not in self._indexes or not client.may("search", name):
            text = "There is no such vector store, or the API key has no grant to search it."
            raise ApiError(404, text, code="vector_store_not_found", param="vector_store_id")
        served = self._indexes[name]
        if (where := client.filters.get(name)) is None:
            return served
        if (name, client.name) not in self._restricted:
            self._restricted[name, client.name] = replace(served, index=served.index.restricted(where))
        return self._restricted[name, client.name]

    async def logged(
        self, operation: str, name: str, client: ApiClient, work: Callable[[AuditEntry], Awaitable[T]]
    ) -> T:
        """Return the result of ``work`` once the audit log has its line.

        Raises:
            ApiError: 503 if the line cannot be written.
        """
        entry = AuditEntry()
        try:
            return await work(entry)
        except BaseException as error:
            entry.result = error.code if isinstance(error, ApiError) else _RESULTS_OF.get(type(error), "internal_error")
            raise
        finally:
            if self._audit_log is not None:
                known = name if name in self._indexes else ""  # an unknown name is the client's text
                write = partial(self._audit_log.write, operation, index=known, principal=client.name)
                # Shielded: a client that goes away must not be able to keep its search out of the log.
                await asyncio.shield(asyncio.ensure_future(self._threads.run(partial(_written, write, entry))))

    async def listed(self, client: ApiClient) -> dict[str, Any]:
        """Return the answer to ``GET /v1/vector_stores``: the indexes that the client may search."""
        names = [name for name in self._indexes if client.may("search", name)]
        data = [await self.described(name, client) for name in names]
        ends = {"first_id": names[0], "last_id": names[-1]} if names else {"first_id": None, "last_id": None}
        return {"object": "list", "data": data, **ends, "has_more": False}

    async def check(self) -> None:
        """Raise `ApiError` 503 unless the storage of every index answers and its key opens what is there."""
        # One check at a time: anyone may request it, and the threads of a storage that hangs are few.
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self._read())
        if error := await asyncio.shield(self._reading):
            raise error

    async def _read(self) -> ApiError | None:
        try:
            for served in self._indexes.values():
                await self._threads.run(partial(self._counted, served))
        except ApiError as error:
            return error
        return None

    async def described(self, name: str, client: ApiClient) -> dict[str, Any]:
        """Return OpenAI's object for an index; each row counts as a file, and bytes are not counted."""

        async def count(entry: AuditEntry) -> int:
            entry.rows = rows = await self._threads.run(partial(self._counted, self.of(name, client)))
            return rows

        rows = await self.logged("count", name, client, count)
        counts = dict.fromkeys(("in_progress", "failed", "cancelled"), 0) | {"completed": rows, "total": rows}
        return {
            "id": name,
            "object": "vector_store",
            "created_at": self._created,
            "name": name,
            "usage_bytes": 0,
            "file_counts": counts,
            "status": "completed",
            "expires_after": None,
            "expires_at": None,
            "last_active_at": None,
            "metadata": {},
        }

    async def search(
        self, served: ServedIndex, request: SearchRequest, headers: Mapping[str, str], entry: AuditEntry
    ) -> bytes:
        """Return the JSON answer to a request, and complete its entry in the audit log.

        Raises:
            ApiError: 400 for a query whose vector is zero, 502 for the encoder, 503 for the storage.
        """
        embed = partial(served.upstream.embed, model="", dimension=None, headers=headers, query=True)
        with self._metrics.search.labels("encode").time():
            vectors = (await embed(request.queries)).vectors
        entry.fields = partial(served.index.logged_fields, request.where)
        return await self._threads.run(partial(self._answer, served, request, vectors, entry))

    def _counted(self, served: ServedIndex) -> int:
        with _reported(served.name):
            return served.index.count()

    def _answer(self, served: ServedIndex, request: SearchRequest, vectors: Embeddings, entry: AuditEntry) -> bytes:
        mode: Any = "vectors" if request.alpha is None else "hybrid"
        alpha = request.alpha or 0.0  # unused by mode vectors
        with _reported(served.name):
            with self._metrics.search.labels("search").time():
                find = partial(served.index.find, top=request.top, where=request.where, mode=mode, alpha=alpha)
                found = [find(x, words=query) for x, query in zip(vectors, request.queries, strict=True)]
                hits = _merged(found, by_score=request.alpha is None)
                hits = [hit for hit in hits if _score(hit[0]) >= request.threshold][: request.top]
            with self._metrics.search.labels("texts").time():
                ranking = served.index.read(hits)
        entry.rows = len(ranking.ids)
        columns = zip(ranking.ids, ranking.scores, ranking.texts, ranking.metadata, strict=True)
        page = {"search_query": request.queries, "data": [_result(*row) for row in columns]}
        whole = {"object": "vector_store.search_results.page", **page, "has_more": False, "next_page": None}
        return json.dumps(whole).encode()


def _written(write: Callable[..., None], entry: AuditEntry) -> None:
    try:
        write(rows=entry.rows, fields=entry.fields(), result=entry.result)
    except (VecveilError, OSError) as error:
        event("audit log not written", level=logging.ERROR, message=str(error))
        text = "The server cannot log the operation and returns no answer. Try again."
        raise ApiError(503, text, kind=SERVER, code="audit_log_unavailable", retry_after=1.0) from None


def _merged(rankings: Sequence[Sequence[Hit]], *, by_score: bool) -> list[Hit]:
    """Return each row once, in the order of its best score, or of its best place."""
    best: dict[str, tuple[float, Hit]] = {}
    for ranking in rankings:
        for place, hit in enumerate(ranking):
            score, part, row = hit
            order = -score if by_score else place
            # A compaction meanwhile gives the row another segment.
            name = part.segment.strings("id", np.array([row]))[0].as_py()
            if name not in best or order < best[name][0]:
                best[name] = order, hit
    return [hit for _, hit in sorted(best.values(), key=lambda pair: pair[0])]


def _score(cosine: float) -> float:
    return min(1.0, max(0.0, float(cosine)))  # OpenAI's scores are 0 to 1


def _result(name: str, cosine: float, text: str | None, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    from vecveil.index.filters import metadata_fields  # needs pyarrow

    # OpenAI's attributes are flat: values inside objects get the name that filters use.
    attributes = {key: value for key, value in metadata_fields(metadata or {}) if isinstance(value, str | int | float)}
    filename = attributes.get("filename")
    return {
        "file_id": name,
        "filename": filename if isinstance(filename, str) else name,
        "score": _score(cosine),
        "attributes": attributes,
        "content": [] if text is None else [{"type": "text", "text": text}],
    }


@contextmanager
def _reported(name: str) -> Iterator[None]:
    """Convert an error of an index to one that shows clients nothing of the storage."""
    try:
        yield
    except InvalidInputError as error:
        failure = invalid("filters" if error.param == "where" else "query", "cannot be used with this index.")
    except IncompatibleError:
        text = "The upstream is not the encoder of the index."
        failure = ApiError(502, text, kind=SERVER, code="another_encoder")
    except (VecveilError, OSError) as error:
        # Messages of VecveilError hold no text, vector or key.
        shown = str(error) if isinstance(error, VecveilError) else type(error).__name__
        event("index unavailable", level=logging.ERROR, index=name, message=shown)
        text = "The index cannot be read: its storage or its key is not available. Try again."
        failure = ApiError(503, text, kind=SERVER, code="index_unavailable", retry_after=1.0)
    else:
        return
    raise failure


def check_index(name: str, location: str, sealer: Sealer, *, named: bool) -> None:
    """Verify that an index exists, that the key opens it, and that the index or the configuration names its encoder."""
    from vecveil.index.sealed_index import SealedIndex

    with SealedIndex(location, sealer, create=False) as index:
        if not index.exists():
            raise StoreError(
                f"serve: there is no sealed index for {name!r}. Make it with `vecveil migrate SOURCE "
                "sealed:LOCATION --seal-key FILE`, or check its path.",
                code="E-INDEX-MISSING",
                param="indexes",
            )
        if index.noted_encoder is None and not named:
            raise InvalidInputError(
                f"serve: the index {name!r} does not record its encoder. Name it as `upstream`.",
                code="E-INPUT",
                param="upstream",
            )


def open_index(name: str, location: str, sealer: Sealer, upstream: Upstream, encoder: Any) -> ServedIndex:
    """Return the index at ``location`` with its filter metadata loaded; see `check_index`.

    Raises:
        IncompatibleError: ``encoder``, the one behind ``upstream``, did not make the index.
    """
    from vecveil.index.sealed_index import SealedIndex

    index = SealedIndex(location, sealer, create=False, encoder=encoder)
    try:
        index.refresh()
        if isinstance(upstream, LocalUpstream):  # an index without an encoder record still has a dimension
            index.find(np.ones(encoder.dimension), top=1)
        index.ids({"": {"exists": True}})  # loads the metadata now, not with the first filter
    except BaseException as error:
        index.close()
        if isinstance(error, IncompatibleError):
            raise IncompatibleError(
                f"serve: index {name!r}: {error} Name it as `upstream`.",
                code="E-INCOMPATIBLE-ENCODER",
                param="upstream",
            ) from error
        raise
    return ServedIndex(name, index, upstream)


class FileThreads:
    """A bounded pool of daemon threads for blocking work: key store, key provider, ledger and storage.

    If they hang, they delay neither other requests nor the end of the server. ``threads`` is their maximum number;
    further work waits. ``seconds`` limits waiting and working.
    """

    def __init__(self, threads: int, seconds: float) -> None:
        self._free, self._seconds = asyncio.Semaphore(threads), seconds

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of ``work``, or raise `ApiError` 503 after the time limit without interrupting it."""
        try:
            async with asyncio.timeout(self._seconds):
                await self._free.acquire()
                return await self._started(work)
        except TimeoutError:
            text = "Key store, ledger or storage does not answer in time; nothing was released. Try again."
            raise ApiError(503, text, kind=SERVER, code="files_busy", retry_after=1.0) from None

    def _started(self, work: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def finish(pass_on: Callable[[Any], None], outcome: Any) -> None:
            self._free.release()
            if not result.done():
                pass_on(outcome)

        def job() -> None:
            outcome: tuple[Callable[[Any], None], Any]
            try:
                outcome = result.set_result, work()
            except Exception as error:
                outcome = result.set_exception, error
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(finish, *outcome)

        try:
            threading.Thread(target=job, name="vecveil-files", daemon=True).start()
        except BaseException:
            self._free.release()
            raise
        return result
