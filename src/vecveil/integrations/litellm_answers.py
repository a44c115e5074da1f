"""What LiteLLM is asked and answers with: names of inputs, vectors in order, in the writing that was asked for."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from vecveil.errors import InvalidInputError

__all__ = ["input_names", "items_in_order", "vectors_of", "written_like"]

_OWNER = "ProtectEmbeddings"


def input_names(given: Any) -> list[str] | None:
    """Return a name for each input: a text itself, or token ids as words."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not given:
        return None
    if all(isinstance(one, int) for one in given):
        given = [given]
    return [one if isinstance(one, str) else " ".join(str(token) for token in one) for one in given]


def items_in_order(response: Any) -> list[Any]:
    """Return the items of an answer in the order of the inputs.

    Raises:
        InvalidInputError: they are not numbered from 0 on.
    """
    items = list(response.data)
    numbers = [item.get("index") for item in items]
    numbers = [i if number is None else number for i, number in enumerate(numbers)]
    if sorted(numbers) != list(range(len(items))):
        raise InvalidInputError.of(
            _OWNER, "response", "an answer with one vector for each input", "other numbers"
        )
    return [items[numbers.index(i)] for i in range(len(items))]


def vectors_of(items: list[Any]) -> list[Any]:
    """Return the vectors of an answer's items, which may be lists or base64 of float32."""
    return [
        np.frombuffer(base64.b64decode(item["embedding"], validate=True), dtype="<f4")
        if isinstance(item["embedding"], str)
        else item["embedding"]
        for item in items
    ]


def written_like(row: Any, embedding: Any) -> Any:
    """Return a released row in the writing of the one that came."""
    if isinstance(embedding, str):
        return base64.b64encode(row.astype("<f4").tobytes()).decode()
    return row.tolist()
