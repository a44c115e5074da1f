"""An embedding of LlamaIndex; importing LlamaIndex takes a second."""

from __future__ import annotations

from typing import Any

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

from harness.integration_checks import minilm

__all__ = ["Inner", "minilm"]


class Inner(BaseEmbedding):
    """MiniLM as a LlamaIndex embedding, which writes down what it is asked; other vectors on demand."""

    _asked: list[str] = PrivateAttr(default_factory=list)
    _vectors: Any = PrivateAttr(default=None)

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self._asked.extend(texts)
        found = (self._vectors or minilm)(texts)
        return found.tolist() if isinstance(found, np.ndarray) else found

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    _get_query_embedding = _get_text_embedding

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._get_text_embeddings(texts)
