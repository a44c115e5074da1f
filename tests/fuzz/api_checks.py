"""What must hold of every answer, beyond its schema: no clean vector, and nothing repeated in an error."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import schemathesis

from harness.serving import clean_vectors


@schemathesis.check
def protected(ctx: Any, response: Any, case: Any) -> None:
    if "traceback" in response.text.lower():
        raise AssertionError("an answer shows a traceback")
    if case.path != "/v1/embeddings" or case.method.upper() != "POST" or response.status_code != 200:
        return
    texts = case.body["input"]
    texts = [texts] if isinstance(texts, str) else texts
    rows = [one["embedding"] for one in response.json()["data"]]
    vectors = [np.frombuffer(base64.b64decode(row), "<f4") if isinstance(row, str) else np.float32(row) for row in rows]
    clean = clean_vectors(texts)
    assert len(vectors) == len(clean)
    assert (np.abs(np.array(vectors) - clean) > 1e-5).any(axis=1).all(), "a clean vector"
