"""Errors as OpenAI's clients know them: ``{"error": {"message", "type", "param", "code"}}``.

What a client reads here was written by us. No message holds a text, a vector, a key, a header, or a word that an
upstream said.
"""

from __future__ import annotations

import json

from vecveil.errors import (
    EncoderError,
    IncompatibleError,
    LedgerCapError,
    LedgerError,
    VecveilError,
)

__all__ = ["INVALID", "SERVER", "ApiError", "UpstreamError", "api_error_of", "invalid"]

INVALID = "invalid_request_error"
SERVER = "server_error"


class ApiError(Exception):
    """An answer that is an error.

    Args:
        status: of HTTP.
        text: a sentence for people.
        kind: OpenAI's ``type``.
        code: for programs; also the label of the error's count.
        param: the field of the request that is wrong.
        retry_after: seconds after which it may be different.
    """

    def __init__(
        self,
        status: int,
        text: str,
        *,
        kind: str = INVALID,
        code: str,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(text)
        self.status, self.text, self.kind = status, text, kind
        self.code, self.param, self.retry_after = code, param, retry_after

    def body(self) -> bytes:
        """Return the JSON."""
        error = {
            "message": self.text,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }
        return json.dumps({"error": error}).encode()

    def headers(self) -> dict[str, str]:
        """Return the headers that go with it."""
        headers = {"content-type": "application/json"}
        if self.retry_after is not None:
            headers["retry-after"] = str(max(1, round(self.retry_after)))
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return headers


class UpstreamError(ApiError):
    """The upstream did not answer, or not with vectors.

    Args:
        lost: whether the upstream was not there, so that another one may answer next time.
        refused: the status with which it refused the request, if it did.
    """

    def __init__(
        self,
        status: int,
        text: str,
        *,
        code: str,
        kind: str = SERVER,
        retry_after: float | None = None,
        lost: bool = False,
        refused: int | None = None,
    ) -> None:
        super().__init__(status, text, kind=kind, code=code, retry_after=retry_after)
        self.lost, self.refused = lost, refused


def invalid(text: str, *, code: str, param: str | None = None, status: int = 400) -> ApiError:
    """Return the error of a request that cannot be."""
    return ApiError(status, text, code=code, param=param)


def api_error_of(error: BaseException) -> ApiError:
    """Return what a client is told of ``error``: everything unexpected is a 500 without details."""
    match error:
        case ApiError():
            return error
        case LedgerCapError():
            # Not 429: clients repeat that by themselves, and the cap stays.
            return ApiError(
                403,
                f"Releases of {error.items} of the inputs would exceed the cap of the ledger; nothing was released "
                "or counted.",
                kind="permission_error",
                code="release_cap_reached",
            )
        case LedgerError():
            return _server(
                503,
                "The ledger of releases cannot be used; nothing was released.",
                "ledger_unavailable",
            )
        case EncoderError():
            return UpstreamError(502, str(error), code="upstream_invalid")
        case IncompatibleError():
            return _server(
                502,
                "The upstream's vectors are not those of the encoder that the protector was fitted for; nothing was "
                "released.",
                "another_encoder",
            )
        case VecveilError():
            return _server(
                500,
                "The vectors could not be protected; nothing was released.",
                "protection_failed",
            )
        case _:
            return _server(
                500, "Something unexpected failed; nothing was released.", "internal_error"
            )


def _server(status: int, text: str, code: str) -> ApiError:
    return ApiError(status, text, kind=SERVER, code=code)
