"""MiniLM as embeddings of LangChain; importing LangChain takes a second."""

from __future__ import annotations

from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings

from harness.integration_checks import minilm

__all__ = ["Inner"]


class Inner(Embeddings):
    """MiniLM as LangChain embeddings, which write down what they are asked; other vectors on demand."""

    def __init__(self, vectors: Any = None) -> None:
        self._asked: list[str] = []
        self._vectors = vectors

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self._asked.extend(texts)
        found = (self._vectors or minilm)(texts)
        return found.tolist() if isinstance(found, np.ndarray) else found

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]
