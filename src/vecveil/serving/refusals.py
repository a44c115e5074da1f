"""What a client is told when an upstream answers with a status that is not 200."""

from __future__ import annotations

import json

from vecveil.serving.errors import INVALID, UpstreamError

__all__ = ["refusal"]

_KNOWN_CODES = frozenset(
    {"context_length_exceeded", "model_not_found", "insufficient_quota", "invalid_api_key"}
)


def refusal(status: int, content: bytes, wait: str | None) -> UpstreamError:
    """Return what a client is told of an answer that is not 200: the status, and a code if it is one that we know."""
    code = _known_code(content)
    named = f" ({code})" if code else ""
    if status == 429:
        return UpstreamError(
            429,
            f"The upstream takes no more requests at the moment{named}.",
            code="upstream_rate_limited",
            kind="rate_limit_error",
            retry_after=_seconds(wait),
            refused=status,
        )
    if status in (401, 403):
        return UpstreamError(
            401,
            f"The upstream refused the key{named}.",
            code="upstream_authentication",
            kind=INVALID,
            refused=status,
        )
    if status in (400, 404, 413, 422):
        return UpstreamError(
            404 if status == 404 else 400,
            f"The upstream refused the request with HTTP {status}{named}: is a text too long for it, or does it not "
            "know the model?",
            code="upstream_refused",
            kind=INVALID,
            refused=status,
        )
    return UpstreamError(
        502,
        f"The upstream answered with HTTP {status}.",
        code="upstream_failed",
        retry_after=_seconds(wait) if wait else None,
        refused=status,
    )


def _known_code(content: bytes) -> str | None:
    try:
        code = json.loads(content)["error"]["code"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return code if isinstance(code, str) and code in _KNOWN_CODES else None


def _seconds(wait: str | None) -> float:
    try:
        return min(3600.0, max(0.0, float(wait or 1.0)))
    except ValueError:  # a date
        return 1.0
