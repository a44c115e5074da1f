"""HTML elements as strings; a plain string that becomes a child or attribute is always escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

__all__ = ["Child", "Safe", "clean_text", "in_code", "join", "prose", "tag"]

_VOID = frozenset({"br", "hr", "link", "meta"})
# Control characters, overrides of the writing direction and lone surrogates: they break a file or a
# terminal line, or make it read as something else.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


_CODE = re.compile("`([^`\\n]+)`")


class Safe(str):
    """Markup that was built by :func:`tag` or :func:`join` and must not be escaped again."""

    __slots__ = ()


Child = str | None


def clean_text(text: str) -> str:
    """Return ``text`` with characters that must not be printed replaced by U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", text)


def _escaped(text: str) -> str:
    return text if isinstance(text, Safe) else html.escape(clean_text(text), quote=True)


def join(children: Iterable[Child], separator: str = "") -> Safe:
    """Return the children as one piece of markup; ``None`` is left out."""
    return Safe(
        _escaped(separator).join(_escaped(child) for child in children if child is not None)
    )


def tag(name: str, /, *children: Child, **attributes: str | int | None) -> Safe:
    """Return one element.

    In attribute names a trailing ``_`` is dropped and other ``_`` become ``-`` (``class_``,
    ``aria_label``). An attribute that is ``None`` is left out.
    """
    listed = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(clean_text(str(value)), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Safe(f"<{name}{listed}>")
    return Safe(f"<{name}{listed}>{join(children)}</{name}>")


def in_code(text: str) -> list[tuple[str, bool]]:
    """Return the parts of a sentence, each with whether it stood between backticks."""
    parts = _CODE.split(text)
    return [(part, i % 2 == 1) for i, part in enumerate(parts) if part]


def prose(text: str) -> Safe:
    """Return a sentence in which `names between backticks` are set as code."""
    return join(tag("code", part) if code else part for part, code in in_code(text))
