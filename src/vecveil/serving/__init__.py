"""A server that protects: OpenAI's ``POST /v1/embeddings`` in front of any encoder.

    vecveil serve -p drug.vecveil --upstream minilm --port 8080

A program that asks OpenAI's API for embeddings gets protected ones by changing its base URL. Importing this package
loads neither FastAPI nor uvicorn nor aiohttp; `create_app` and `run` do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vecveil.serving.settings import Limits, PolicySettings, ServeSettings, UpstreamSettings

if TYPE_CHECKING:
    from vecveil.serving.app import create_app
    from vecveil.serving.server import run
    from vecveil.serving.service import Service

__all__ = [
    "Limits",
    "PolicySettings",
    "ServeSettings",
    "Service",
    "UpstreamSettings",
    "create_app",
    "run",
]


def __getattr__(name: str) -> Any:
    if name == "create_app":
        from vecveil.serving.app import create_app

        return create_app
    if name == "run":
        from vecveil.serving.server import run

        return run
    if name == "Service":
        from vecveil.serving.service import Service

        return Service
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
