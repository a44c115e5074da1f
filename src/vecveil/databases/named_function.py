"""The name that a Chroma collection keeps of our embedding function, without the function: no file or key is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vecveil.errors import IncompatibleError, StoreError

__all__ = ["named_function"]

_NAME = "vecveil"
"""Under which Chroma finds `vecveil.integrations.chroma.ProtectedEmbeddingFunction`."""


def _check_update(former: Mapping[str, Any], now: Mapping[str, Any], *, owner: str) -> None:
    """Refuse another protector or encoder for the same collection; queries, key and ledger may change.

    Raises:
        IncompatibleError: it is another.
    """
    for name in ("fingerprint", "encoder"):
        if former.get(name) != now.get(name):
            raise IncompatibleError.of(owner, name, "that of the collection", "another",
                                       "Vectors of two protectors or encoders cannot be compared.",
                                       "Make a new collection.")  # fmt: skip


def named_function(config: Mapping[str, Any]) -> Any:
    """Return an embedding function for `create_collection` that has the name and ``config`` and embeds nothing.

    Chroma builds functions from what a collection names, too: in this process it gets another one of this kind.
    """
    from chromadb.utils.embedding_functions import (
        EmbeddingFunction,
        register_embedding_function,
    )

    class Named(EmbeddingFunction[Any]):
        def __init__(self, own: Mapping[str, Any]) -> None:
            self._own = dict(own)

        def __call__(self, input: Any) -> Any:
            raise StoreError.of("ChromaStore", "embedding function", "left alone", "a call")

        @staticmethod
        def name() -> str:
            return _NAME

        def get_config(self) -> dict[str, Any]:
            return self._own

        @staticmethod
        def build_from_config(config: dict[str, Any]) -> Named:
            return Named(config)

        def default_space(self) -> Any:
            return "cosine"

        def supported_spaces(self) -> Any:
            return ["cosine", "l2", "ip"]

        def validate_config_update(
            self, old_config: dict[str, Any], new_config: dict[str, Any]
        ) -> None:
            _check_update(old_config, new_config, owner="ChromaStore")

    register_embedding_function(Named)  # type: ignore[no-untyped-call, unused-ignore]
    return Named(config)
