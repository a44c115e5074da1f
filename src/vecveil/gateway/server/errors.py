"""API errors in OpenAI's shape: ``{"error": {"message", "type", "param", "code"}}``.

No message contains a text, a vector, a key, a header, or a word of an upstream's answer.
"""

from __future__ import annotations

import json
from typing import Any

from vecveil.errors import EncoderError, IncompatibleError, KeyFileError, LedgerCapError, LedgerError, VecveilError
from vecveil.texts.encoders.openai_compatible import seconds_of

INVALID = "invalid_request_error"
SERVER = "server_error"
RATE_LIMIT = "rate_limit_error"
# Upstream codes passed on to clients; any other string could quote the request.
_UPSTREAM_CODES = frozenset({"context_length_exceeded", "model_not_found", "insufficient_quota", "invalid_api_key"})


class ClientGone(Exception):
    """Raised when the client disconnects before the answer is ready."""


class ApiError(Exception):
    """Error that is sent to the client, with OpenAI's ``type`` as ``kind``.

    ``code`` is stable and labels the metric ``vecveil_errors``; ``param`` is the invalid field of the request; a retry
    may succeed after ``retry_after`` seconds.
    """

    def __init__(
        self,
        status: int,
        text: str,
        *,
        code: str,
        kind: str = INVALID,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(text)
        self.status, self.text, self.kind = status, text, kind
        self.code, self.param, self.retry_after = code, param, retry_after

    def body(self, **further: str) -> bytes:
        error = {"message": self.text, "type": self.kind, "param": self.param, "code": self.code}
        return json.dumps({"error": error, **further}).encode()

    def headers(self) -> list[tuple[bytes, bytes]]:
        headers = [(b"content-type", b"application/json")]
        if self.retry_after is not None:
            # At least 1: HTTP has whole seconds, and 0 invites a busy loop.
            headers.append((b"retry-after", str(max(1, round(self.retry_after))).encode()))
        if self.status == 401:  # required by RFC 9110, section 15.5.2
            headers.append((b"www-authenticate", b"Bearer"))
        return headers


class UpstreamError(ApiError):
    """Raised when the upstream does not answer, or not with vectors.

    ``lost``: the connection failed, and another server may answer the next request. ``refused``: HTTP status of the
    upstream's refusal.
    """

    def __init__(
        self, status: int, text: str, *, lost: bool = False, refused: int | None = None, **options: Any
    ) -> None:
        super().__init__(status, text, **{"kind": SERVER, **options})
        self.lost, self.refused = lost, refused


def api_error_of(error: Exception) -> ApiError:
    """Return the answer for ``error``: a 500 without details for unexpected exceptions."""
    # Subclasses first: LedgerCapError is a LedgerError, and every class here but ApiError a VecveilError.
    match error:
        case ApiError():
            return error
        case LedgerCapError():
            # Not 429: clients retry it automatically, and the cap does not recover.
            text = f"Releases of {error.items} of the inputs would exceed the cap of the ledger; nothing was released."
            return ApiError(403, text, kind="permission_error", code="release_cap_reached")
        case LedgerError():
            text = "The ledger of releases cannot be used; nothing was released."
            return ApiError(503, text, kind=SERVER, code="ledger_unavailable")
        case KeyFileError(code="E-SEAL-COLLECTION"):
            return not_granted()
        case KeyFileError(code="E-KEY-FILE-LOCKED"):
            text = "Another program is changing the key store; nothing was released. Try again."
            return ApiError(503, text, kind=SERVER, code="key_store_busy", retry_after=1.0)
        case KeyFileError():
            text = "The key store cannot be used; nothing was released."
            return ApiError(503, text, kind=SERVER, code="key_store_unavailable")
        case EncoderError():
            return UpstreamError(502, str(error), code="upstream_invalid")
        case IncompatibleError(code="E-INCOMPATIBLE-PROTECTOR" | "E-INCOMPATIBLE-REPROTECT"):
            text = "The collection contains vectors of a different protector; nothing was released."
            return ApiError(409, text, code="another_protector")
        case IncompatibleError():
            text = "The upstream is not the encoder that the protector was fitted for; nothing was released."
            return ApiError(502, text, kind=SERVER, code="another_encoder")
        case VecveilError(param="filter_fields"):
            text = "`filter_fields` must be distinct names of letters, digits and _; nothing was released."
            return ApiError(400, text, code="invalid_filter_fields", param="filter_fields")
        case VecveilError(code="E-SEAL-METADATA" | "E-SEAL-FILTER"):
            text = "`metadata` must be JSON objects, not nested too deep, with single values in filter fields."
            return ApiError(400, text, code="invalid_metadata", param="metadata")
        case VecveilError():
            text = "The vectors could not be protected; nothing was released."
            return ApiError(500, text, kind=SERVER, code="protection_failed")
        case _:
            text = "Something unexpected failed; nothing was released."
            return ApiError(500, text, kind=SERVER, code="internal_error")


def not_granted(param: str | None = None) -> ApiError:
    """Return the error for a missing grant, which is also that for a missing collection."""
    text = "The API key has no grant for this, or there is no such collection."
    return ApiError(403, text, kind="permission_error", code="not_granted", param=param)


def upstream_refusal(status: int, content: bytes, retry_after: str | None) -> UpstreamError:
    """Return the error for an upstream's answer that is not 200.

    The error shows the status and a known code, nothing else of ``content``, which may be truncated.
    """
    code = _upstream_code(content)
    named = f" ({code})" if code else ""
    if status == 429:
        text = f"The upstream accepts no more requests at the moment{named}."
        return UpstreamError(
            429, text, code="upstream_rate_limited", kind=RATE_LIMIT, retry_after=_seconds(retry_after), refused=status
        )
    # Always 401: OpenAI's clients map it to AuthenticationError.
    if status in (401, 403):
        text = f"The upstream refused the key{named}."
        return UpstreamError(401, text, code="upstream_authentication", kind=INVALID, refused=status)
    if status in (400, 404, 413, 422):
        text = (
            f"The upstream refused the request with HTTP {status}{named}: is a text too long for it, or does it "
            "not know the model?"
        )
        return UpstreamError(404 if status == 404 else 400, text, code="upstream_refused", kind=INVALID, refused=status)
    # What remains is the upstream's own failure, a gateway error for our client.
    wait = _seconds(retry_after) if retry_after else None
    text = f"The upstream answered with HTTP {status}."
    return UpstreamError(502, text, code="upstream_failed", retry_after=wait, refused=status)


def _upstream_code(content: bytes) -> str | None:
    try:
        code = json.loads(content)["error"]["code"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return code if isinstance(code, str) and code in _UPSTREAM_CODES else None


def _seconds(retry_after: str | None) -> float:
    seconds = seconds_of(retry_after)
    # Bounded: the header comes from the upstream and reaches the client.
    return 1.0 if seconds is None else min(3600.0, seconds)
