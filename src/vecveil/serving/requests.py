"""What a client asks for: the body and headers of ``POST /v1/embeddings``, checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from vecveil.serving.errors import ApiError, invalid

__all__ = [
    "POLICY_HEADER",
    "SIDE_HEADER",
    "EmbeddingRequest",
    "Side",
    "parse_request",
    "split_side",
]

Side = Literal["document", "query"]
POLICY_HEADER = "x-vecveil-policy"
SIDE_HEADER = "x-vecveil-input"
ID_FIELD = "vecveil_ids"

_LONGEST_NAME = 256
_LONGEST_ID = 512
_INPUT_TYPES: dict[str, Side] = {
    "query": "query",
    "search_query": "query",
    "document": "document",
    "search_document": "document",
    "passage": "document",
}
_TOKENS = (
    "`input` holds token ids. A proxy that rewrites or checks texts needs the texts. Send strings; in LangChain: "
    "OpenAIEmbeddings(check_embedding_ctx_length=False)."
)


@dataclass(frozen=True, repr=False)
class EmbeddingRequest:
    """One request for embeddings.

    Attributes:
        texts: at least one, none empty.
        model: as the client named it, without the suffix of the side.
        named: as the client named it.
        policy: asked for by header, or None.
        side: ``document`` or ``query``.
        base64: vectors as base64 of little-endian float32, else as lists of numbers.
        dimensions: that the vectors must have, or None.
        ids: one for each text, or None.
    """

    texts: list[str]
    model: str
    named: str
    policy: str | None
    side: Side
    base64: bool
    dimensions: int | None
    ids: list[str] | None


def split_side(model: str) -> tuple[str, Side | None]:
    """Return the model's name without ``:query`` or ``:document``, and which it was."""
    name, mark, suffix = model.rpartition(":")
    if mark and name and suffix in ("query", "document"):
        return name, cast(Side, suffix)
    return model, None


def parse_request(
    body: bytes, headers: Mapping[str, str], *, max_inputs: int, client_ids: bool = False
) -> EmbeddingRequest:
    """Return the request; fields that are not known are ignored, as OpenAI does with most.

    Args:
        client_ids: whether the clients may name the items (field ``vecveil_ids``).

    Raises:
        ApiError: 400, with the field that is wrong and nothing of what was sent.
    """
    content = _json(body)
    named = content.get("model")
    if not isinstance(named, str) or not 0 < len(named) <= _LONGEST_NAME or not _encodable(named):
        raise invalid(
            f"`model` must be a string of 1 to {_LONGEST_NAME} characters.",
            code="invalid_model",
            param="model",
        )
    model, suffix = split_side(named)
    texts = _texts(content.get("input"), max_inputs)
    return EmbeddingRequest(
        texts=texts,
        model=model,
        named=named,
        policy=headers.get(POLICY_HEADER),
        side=_side(suffix, headers.get(SIDE_HEADER), content.get("input_type")),
        base64=_is_base64(content.get("encoding_format")),
        dimensions=_dimensions(content.get("dimensions")),
        ids=_ids(content.get(ID_FIELD), len(texts), allowed=client_ids),
    )


def _json(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (
        ValueError,
        RecursionError,
    ):  # ValueError: also not UTF-8, and numbers of too many digits
        raise invalid("The body must be JSON in UTF-8.", code="invalid_json") from None
    if not isinstance(content, dict):
        raise invalid("The body must be a JSON object.", code="invalid_json")
    return content


def _encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _texts(value: Any, most: int) -> list[str]:
    def refuse(text: str, code: str = "invalid_input") -> ApiError:
        return invalid(text, code=code, param="input")

    if value is None:
        raise refuse("`input` must be given: a string or a list of strings.")
    texts: Sequence[Any] = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise refuse("`input` must be a string or a list of strings.")
    if not texts:
        raise refuse("`input` must not be an empty list.")
    if len(texts) > most:
        raise refuse(f"`input` must hold at most {most:,} texts.", "too_many_inputs")
    for i, text in enumerate(texts):
        if isinstance(text, str):
            if not text:
                raise refuse(f"`input` must not hold an empty string; the one at {i} is.")
            if not _encodable(text):
                raise refuse(f"`input` must be Unicode; the text at {i} has a lone surrogate.")
        elif _is_token(text) or (isinstance(text, list) and text and all(map(_is_token, text))):
            raise refuse(_TOKENS, "token_ids_not_supported")
        else:
            raise refuse(
                f"`input` must be a string or a list of strings; at {i} is something else."
            )
    return texts


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _side(suffix: Side | None, header: str | None, field: Any) -> Side:
    found = set() if suffix is None else {suffix}
    if header is not None:
        if header not in ("query", "document"):
            raise invalid(
                "The header X-Vecveil-Input must be query or document.", code="invalid_side"
            )
        found.add(cast(Side, header))
    if field is not None:
        if not isinstance(field, str) or field not in _INPUT_TYPES:
            known = ", ".join(_INPUT_TYPES)
            raise invalid(
                f"`input_type` must be one of {known}.", code="invalid_side", param="input_type"
            )
        found.add(_INPUT_TYPES[field])
    if len(found) > 1:
        raise invalid(
            "The model's suffix, the header X-Vecveil-Input and `input_type` must not contradict each other.",
            code="invalid_side",
        )
    return found.pop() if found else "document"


def _is_base64(value: Any) -> bool:
    if value is None:
        return False
    if value not in ("float", "base64"):
        raise invalid(
            "`encoding_format` must be float or base64.",
            code="invalid_encoding_format",
            param="encoding_format",
        )
    return bool(value == "base64")


def _dimensions(value: Any) -> int | None:
    if value is None:
        return None
    if not _is_token(value) or value < 1:
        raise invalid(
            "`dimensions` must be a positive integer.",
            code="invalid_dimensions",
            param="dimensions",
        )
    return int(value)


def _ids(value: Any, rows: int, *, allowed: bool) -> list[str] | None:
    if value is None:
        return None
    if not allowed:
        # A client that names items as it likes gets fresh noise for one text as often as it likes.
        raise invalid(
            f"`{ID_FIELD}` is switched off (client_ids): items are named by their texts.",
            code="ids_not_allowed",
            param=ID_FIELD,
        )
    if (
        not isinstance(value, list)
        or len(value) != rows
        or not all(isinstance(each, str) and 0 < len(each) <= _LONGEST_ID for each in value)
        or not all(map(_encodable, value))
    ):
        raise invalid(
            f"`{ID_FIELD}` must be a list of one string for each input.",
            code="invalid_ids",
            param=ID_FIELD,
        )
    return value
