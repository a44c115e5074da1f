"""The gate: nothing but what a policy returned is written, and a policy that fails lets nothing out."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

import vecveil
from vecveil.errors import ReleaseError, VecveilError
from vecveil.gateway.server.released import Released, release
from vecveil.privacy.protector.policy import ReleasePolicy

rng = np.random.default_rng(0)
CLEAN = rng.standard_normal((3, 8)).astype(np.float32)
TEXTS = ["a", "b", "c"]
POSITIVE = rng.standard_normal((200, 8)) + 1.0
NEGATIVE = rng.standard_normal((200, 8))


def policy(method: str = "laplace", **given: Any) -> ReleasePolicy:
    protector = vecveil.fit_pairs(POSITIVE, NEGATIVE, method=method, noise_to_signal=0.5)
    return ReleasePolicy(protector, **given)


def out(released: Released) -> np.ndarray:
    answer = json.loads(released.to_json(model="m", as_base64=True, tokens=0))
    rows = [np.frombuffer(base64.b64decode(row["embedding"]), "<f4") for row in answer["data"]]
    return np.array(rows)


def test_nobody_else_makes_one() -> None:
    with pytest.raises(TypeError, match="release"):
        Released(CLEAN)
    with pytest.raises(TypeError, match="release"):
        Released(CLEAN, object())


def test_it_shows_no_value() -> None:
    released = release(policy(), CLEAN, side="document", texts=TEXTS)
    assert repr(released) == "Released(3, 8)"
    assert not hasattr(released, "__dict__")


class Broken:
    """A policy whose ``documents`` returns what it is told to."""

    def __init__(self, vectors: Any) -> None:
        good = policy()
        self.protector, self.query_noise = good.protector, good.query_noise
        self.rewrites_texts = False
        self._vectors = vectors

    def documents(self, X: np.ndarray, **_: Any) -> Any:
        return self._vectors

    queries = documents


@pytest.mark.parametrize(
    "vectors",
    [
        CLEAN,
        CLEAN.astype(np.float64),
        np.vstack([CLEAN[:1], CLEAN[1:] + 1]),
        CLEAN[:2] + 1,
        CLEAN[:, :4] + 1,
        np.full((3, 8), np.nan),
        np.full((3, 8), 1e300),
        None,
        CLEAN.tolist(),
    ],
    ids=["clean", "clean64", "one clean row", "rows", "columns", "nan", "overflow", "none", "list"],
)
@pytest.mark.parametrize("side", ["document", "query"])
def test_a_policy_that_fails_lets_nothing_out(vectors: Any, side: Any) -> None:
    with pytest.raises(ReleaseError):
        release(Broken(vectors), CLEAN, side=side, texts=TEXTS)  # type: ignore[arg-type]


def test_control_the_broken_policy_would_be_let_out() -> None:
    assert len(release(Broken(CLEAN + 1), CLEAN, side="query", texts=TEXTS)) == 3  # type: ignore[arg-type]


def test_map_only_queries_may_be_what_they_were() -> None:
    one = policy(query_noise=0)
    assert one.gives_clean_queries
    np.testing.assert_array_equal(out(release(one, CLEAN, side="query", texts=TEXTS)), CLEAN)
    documents = out(release(one, CLEAN, side="document", texts=TEXTS))
    assert (documents != CLEAN).any(axis=1).all()
    assert not policy("subspace", query_noise=0).gives_clean_queries
    assert not policy().gives_clean_queries


def test_vectors_of_another_dimension_are_refused() -> None:
    with pytest.raises(VecveilError):
        release(policy(), CLEAN[:, :5], side="document", texts=TEXTS)
