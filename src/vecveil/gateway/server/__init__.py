"""Serve OpenAI's ``POST /v1/embeddings`` with protected vectors, in front of any encoder.

    vecveil serve -p drug.vecveil --upstream minilm --port 8080

A client of OpenAI's API gets protected embeddings by changing its base URL.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vecveil.gateway.server.settings import IndexGrant, Limits, ServedPolicySettings, ServeSettings, UpstreamSettings

if TYPE_CHECKING:
    from vecveil.gateway.server.app import create_app
    from vecveil.gateway.server.server import run
    from vecveil.gateway.server.service import Service

__all__ = [
    "IndexGrant",
    "Limits",
    "ServeSettings",
    "ServedPolicySettings",
    "Service",
    "UpstreamSettings",
    "create_app",
    "run",
]

# Loaded on first use: the settings alone need neither Starlette nor uvicorn nor httpx.
_MODULES = {"create_app": "app", "run": "server", "Service": "service"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"vecveil.gateway.server.{_MODULES[name]}"), name)
