"""What a Chroma collection keeps of a protected embedding function: names of files, variables and encoders."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from vecveil.errors import InvalidInputError
from vecveil.protector.policy import QUERY_PROTECTIONS

__all__ = ["NAMED", "check_config", "encoder_config", "encoder_from", "files_stamp"]

NAMED = ("protector", "key", "ledger")
"""Arguments that are kept if they are names, and given again by whoever opens the collection if they are objects."""


def check_config(config: Any, owner: str) -> None:
    """Raise InvalidInputError for a configuration that no `ProtectedEmbeddingFunction` wrote."""
    known = isinstance(config, Mapping) and (
        config.get("query_protection") in QUERY_PROTECTIONS
        and isinstance(config.get("query_noise"), int | float)
        and isinstance(config.get("fingerprint"), str)
        and isinstance(config.get("give_again"), list)
        and all(isinstance(config.get(name, ""), str) for name in NAMED)
        and ("protector" in config or "protector" in config["give_again"])
    )
    if not known:
        raise InvalidInputError.of(owner, "config", "what get_config returned", "something else")


def encoder_config(encoder: Any) -> tuple[dict[str, Any], list[str]]:
    """Return what can be kept of an encoder, and ``["encoder"]`` if that is nothing."""
    if encoder is None:
        return {}, []
    if isinstance(encoder, str):
        return {"encoder": encoder}, []
    if hasattr(encoder, "is_legacy") and not encoder.is_legacy():
        kept = {"name": encoder.name(), "config": encoder.get_config()}
        return {"encoder": kept}, []
    return {}, ["encoder"]


def encoder_from(kept: Any, owner: str) -> Any:
    """Return the encoder that `encoder_config` kept."""
    if not isinstance(kept, Mapping):
        return kept
    from chromadb.utils.embedding_functions import known_embedding_functions

    if kept["name"] not in known_embedding_functions:
        raise InvalidInputError.of(owner, "encoder", "an embedding function that Chroma knows", "another",
                                   fix="Import the module that registers it.")  # fmt: skip
    return known_embedding_functions[kept["name"]].build_from_config(dict(kept["config"]))


def files_stamp(config: Mapping[str, Any]) -> str:
    """Return what changes when a file or variable that the configuration names does; no secret."""
    parts: list[Any] = []
    for name in NAMED[:2]:
        value = str(config.get(name, ""))
        if value.startswith("env:"):
            parts.append(os.environ.get(value.removeprefix("env:")))
        elif value and os.path.exists(value):
            state = os.stat(value)
            parts.append((state.st_mtime_ns, state.st_size))
    return hashlib.sha256(repr(parts).encode()).hexdigest()
