"""What the page asks for: a job's JSON, checked against limits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from vecveil.serving.errors import invalid
from vecveil.validation import check_count

__all__ = ["JobRequest", "PageLimits", "parse_job"]


@dataclass(frozen=True)
class PageLimits:
    """What the page may ask for.

    Attributes:
        texts: of one job, and characters of one text.
        words: to guess, and characters of one of them.
        file_bytes: of a protector.
        files: loaded protectors that are held in memory.
    """

    texts: int = 20
    text_characters: int = 2000
    words: int = 200
    word_characters: int = 60
    file_bytes: int = 64 * 2**20
    files: int = 4

    def __post_init__(self) -> None:
        for param in (
            "texts",
            "text_characters",
            "words",
            "word_characters",
            "file_bytes",
            "files",
        ):
            check_count(getattr(self, param), owner="page limits", param=param)

    @property
    def job_bytes(self) -> int:
        """The largest body of a job: each character at its longest in JSON."""
        return 12 * (self.texts * self.text_characters + self.words * self.word_characters) + 4096


@dataclass(frozen=True, repr=False)
class JobRequest:
    """A protector, texts to guess, and words to guess from."""

    protector: str
    texts: tuple[str, ...]
    words: tuple[str, ...]


def parse_job(body: bytes, limits: PageLimits) -> JobRequest:
    """Return the job in a body.

    Raises:
        ApiError: 400, with what is wrong in words.
    """
    wrong = False
    given: Any = None
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        wrong = True
    if wrong or not isinstance(given, dict):
        raise invalid("The body must be a JSON object.", code="invalid_json")
    protector = given.get("protector")
    if not isinstance(protector, str) or not 0 < len(protector) <= 200:
        raise invalid("Choose a protector.", code="no_protector", param="protector")
    texts = _strings(given, "texts", 1, limits.texts, limits.text_characters)
    words = _strings(given, "words", 2, limits.words, limits.word_characters)
    return JobRequest(protector, texts, words)


def _strings(
    given: dict[str, Any], name: str, fewest: int, most: int, longest: int
) -> tuple[str, ...]:
    listed = given.get(name)
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise invalid(f"`{name}` must be a list of strings.", code="invalid_" + name, param=name)
    kept = tuple(one.strip() for one in listed if one.strip())
    if not fewest <= len(kept) <= most:
        text = f"Give {fewest} to {most} {name}, one a line; there are {len(kept)}."
        raise invalid(text, code="invalid_" + name, param=name)
    for i, one in enumerate(kept):
        if len(one) > longest:
            text = f"Line {i + 1} of the {name} has {len(one)} characters; {longest} are the most."
            raise invalid(text, code="invalid_" + name, param=name)
        if any(0xD800 <= ord(c) < 0xE000 for c in one):
            raise invalid(
                f"Line {i + 1} of the {name} is no valid Unicode.",
                code="invalid_" + name,
                param=name,
            )
    return kept
