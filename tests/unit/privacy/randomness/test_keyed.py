"""Keyed noise: the same item gets the same release, and nothing else shares its noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.token_data import token_data
from vecveil.errors import KeyFileError
from vecveil.keys import KeyFile, NoiseKey
from vecveil.privacy.protector import METHODS, EncoderInfo, Protector
from vecveil.privacy.randomness import keyed_stream, row_digests
from vecveil.validation import check_ids

KEY = NoiseKey("k", bytes(range(100, 132)))
N = 12
X = np.random.default_rng(0).standard_normal((40, N))
X /= np.linalg.norm(X, axis=1, keepdims=True)
IDS = [f"item-{i}" for i in range(40)]


def fitted(method: str = "laplace", **options: Any) -> Protector:
    scale = {
        "gaussian": {"sigma": 0.1},
        "ldp-gaussian": {"epsilon": 9.0, "delta": 1e-5},
        "shuffle": {},
        "textcrafter": {"radius": 0.7},
        "textcrafter-subspace": {"radius": 0.7},
    }.get(method, {"epsilon": 30.0})
    return vecveil.fit_pairs(*token_data(60, N).arguments(), method=method, **({**scale, **options}))


def noise(protector: Protector, rows: np.ndarray, ids: list[Any], **options: Any) -> np.ndarray:
    return protector.protect(rows, ids=ids, key=KEY, **options) - rows


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_item_always_gets_the_same_release(method: str, dtype: Any) -> None:
    options: dict[str, Any] = {
        "sparse": {"epochs": 2},
        "sparse-whitebox": {"epochs": 1, "steps": 2},
        "textcrafter": {"epochs": 1},
        "textcrafter-subspace": {"epochs": 1},
    }.get(method, {})
    one, rows = fitted(method, **options), X.astype(dtype)
    whole = one.protect(rows, ids=IDS, key=KEY)
    np.testing.assert_array_equal(one.protect(rows, ids=IDS, key=KEY), whole)
    order = np.random.default_rng(1).permutation(40)
    shuffled = one.protect(rows[order], ids=[IDS[i] for i in order], key=KEY)
    single = np.concatenate([one.protect(rows[i : i + 1], ids=IDS[i : i + 1], key=KEY) for i in range(40)])
    # Products with a full matrix, two networks among them: the last bits depend on the library.
    if method in ("covariance", "textcrafter", "textcrafter-subspace"):
        np.testing.assert_allclose(shuffled, whole[order], atol=1e-5)
        np.testing.assert_allclose(single, whole, atol=1e-5)
    else:
        np.testing.assert_array_equal(shuffled, whole[order])
        np.testing.assert_array_equal(single, whole)
    averaged = np.mean([one.protect(rows, ids=IDS, key=KEY) for _ in range(5)], axis=0)
    np.testing.assert_allclose(averaged, whole, rtol=1e-5, atol=1e-6)  # averaging gains nothing


def test_two_time_pad_changed_text_under_one_id_gives_no_difference() -> None:
    """If the content were left out of the HMAC, y1 − y2 would be x1 − x2."""
    one = fitted()
    other = X[::-1].copy()
    y1, y2 = one.protect(X, ids=IDS, key=KEY), one.protect(other, ids=IDS, key=KEY)
    assert np.abs((y1 - y2) - (X - other)).max() > 0.05
    same = noise(one, X, IDS) - noise(one, other, IDS)
    assert (np.abs(same).max(axis=1) > 0.01).all()
    # Control: the attack works on a pad that leaves the content out.
    stream = keyed_stream(KEY, check_ids(IDS, 40, owner="t"), [b"same"] * 40, one.fingerprint)
    z1, z2 = one.mechanism.protect(X, rng=stream), one.mechanism.protect(other, rng=stream)
    np.testing.assert_allclose(z1 - z2, X - other, atol=3 * one.mechanism.step)


def test_two_time_pad_at_two_scales_gives_no_vector() -> None:
    """If the parameters were left out, y at ε and at 2ε would give x = 2 y(2ε) − y(ε)."""
    one, two = fitted(epsilon=30.0), fitted(epsilon=60.0)
    y1, y2 = one.protect(X, ids=IDS, key=KEY), two.protect(X, ids=IDS, key=KEY)
    assert np.abs(2 * y2 - y1 - X).max() > 0.05
    # Control: the attack works on a pad that leaves the parameters out.
    stream = keyed_stream(KEY, check_ids(IDS, 40, owner="t"), row_digests(X), "")
    z1 = one.mechanism.protect(X, rng=stream)
    z2 = two.mechanism.protect(X, rng=stream)
    np.testing.assert_allclose(2 * z2 - z1, X, atol=5 * one.mechanism.step)


@pytest.mark.parametrize(
    "change", ["id", "content", "last bit", "key", "key id", "epsilon", "map", "output", "before", "after"]
)
def test_everything_that_decides_a_release_changes_the_noise(change: str) -> None:
    base = {"rank": 2, "kept": 6, "flattening": 0.3, "pairs": True}
    changes = {
        "epsilon": {"epsilon": 31.0},
        "map": {"kept": 5},
        "output": {"output": "reduced"},
        "before": {"before": "clip:3"},
        "after": {"postprocess": "float16"},
    }
    one = fitted("subspace", **base)
    two = fitted("subspace", **(base | changes.get(change, {})))
    rows, ids, key = X.copy(), list(IDS), KEY
    if change == "id":
        ids = [f"{i}!" for i in IDS]
    elif change == "content":
        rows = X[::-1].copy()
    elif change == "last bit":
        rows[:, 0] = np.nextafter(rows[:, 0], 2)
    elif change == "key":
        key = NoiseKey("k", bytes(range(132, 164)))
    elif change == "key id":
        key = NoiseKey("l", bytes(range(100, 132)))
    first = stream_of(one, X, IDS, KEY)
    second = stream_of(two, rows, ids, key)
    assert not (first == second).any()


def stream_of(protector: Protector, rows: np.ndarray, ids: list[Any], key: NoiseKey) -> np.ndarray:
    return protector._keyed_stream(rows, ids, key, None).words(4)


def test_dtype_and_negative_zero_do_not_change_the_words() -> None:
    one = fitted()
    rows = X.astype(np.float32)
    first = stream_of(one, rows, IDS, KEY)
    np.testing.assert_array_equal(stream_of(one, rows.astype(np.float64), IDS, KEY), first)
    zero, negative = np.zeros((1, N)), -np.zeros((1, N))
    np.testing.assert_array_equal(stream_of(one, zero, ["a"], KEY), stream_of(one, negative, ["a"], KEY))


def test_ids_of_different_types_and_framing_do_not_collide() -> None:
    ids: list[Any] = ["1", 1, b"1", "", b"", "i1", np.int64(2), "\ud800", 10**40]
    encoded = check_ids(ids, len(ids), owner="t")
    assert len(set(encoded)) == len(ids)
    assert check_ids(np.array([1, 2]), 2, owner="t") == check_ids([1, 2], 2, owner="t")
    # A digest that continues an id must not be the same as a longer id.
    first = keyed_stream(KEY, [b"ab"], [b"c" + bytes(31)], "f").words(1)
    second = keyed_stream(KEY, [b"abc"], [bytes(32)], "f").words(1)
    assert (first != second).all()


def test_texts_stand_for_rows_whose_last_bits_vary() -> None:
    one = fitted()
    object.__setattr__(one, "encoder_info", EncoderInfo("own", "abc", "fp32"))
    texts = [f"text {i}" for i in range(40)]
    jitter = X + 1e-9
    first = one.protect(X, ids=IDS, key=KEY, texts=texts)
    np.testing.assert_allclose(one.protect(jitter, ids=IDS, key=KEY, texts=texts), first, atol=2 * one.mechanism.step)
    assert (one.protect(X, ids=IDS, key=KEY, texts=texts[::-1]) != first).any(axis=1).all()
    object.__setattr__(one, "encoder_info", EncoderInfo("other", "abd", "fp32"))
    assert (one.protect(X, ids=IDS, key=KEY, texts=texts) != first).any(axis=1).all()
    with raises("E-INPUT", "texts"):
        fitted().protect(X, ids=IDS, key=KEY, texts=texts)


def test_different_items_have_independent_noise() -> None:
    """Null: keyed noise has the law of fresh noise. False failure: 1e-6. Control: repeated ids fail."""
    from harness.statistics import threshold
    from statistical.white_noise import laplace_p

    one, rows = fitted(), np.zeros((4000, N))
    rows[:, 0] = np.arange(4000) * 1e-12
    Z = one.protect(rows, ids=list(range(4000)), key=KEY)
    assert min(laplace_p(30.0 * Z).values()) > threshold(10)
    assert laplace_p(27.0 * Z)["scale"] < threshold(10)
    assert len(np.unique(Z, axis=0)) == 4000
    repeated = one.protect(np.zeros((50, N)), ids=["a"] * 50, key=KEY)
    assert len(np.unique(repeated, axis=0)) == 1


def test_bad_arguments_are_refused_by_name() -> None:
    one = fitted()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"key": KEY}, "ids"),
        ({"key": KEY, "ids": IDS[:3]}, "ids"),
        ({"key": KEY, "ids": "abc"}, "ids"),
        ({"key": KEY, "ids": [1.5] * 40}, "ids"),
        ({"key": KEY, "ids": [None] * 40}, "ids"),
        ({"key": KEY, "ids": [True] * 40}, "ids"),
        ({"key": KEY, "ids": IDS, "rng": 0}, "rng"),
        ({"key": KEY, "ids": IDS, "noise": False}, "key"),
        ({"key": "sesame-secret", "ids": IDS}, "key"),
        ({"key": b"sesame-secret" * 4, "ids": IDS}, "key"),
        ({"texts": ["a"] * 40}, "texts"),
        ({"ids": IDS}, "ids"),
        ({"key": KEY, "ids": IDS, "texts": ["a"]}, "texts"),
        ({"ledger": "x", "ids": IDS}, "ledger"),
    ]
    for options, param in cases:
        with raises("E-INPUT", param) as caught:
            one.protect(X, **options)
        assert "sesame" not in str(caught.value)


def test_rotation_by_key_id() -> None:
    keys = KeyFile("new", {"new": NoiseKey("new", bytes(range(40, 80))), "k": KEY})
    one = fitted()
    current = one.protect(X, ids=IDS, key=keys)
    np.testing.assert_array_equal(current, one.protect(X, ids=IDS, key=keys.key("new")))
    np.testing.assert_array_equal(one.protect(X, ids=IDS, key=keys.key("k")), one.protect(X, ids=IDS, key=KEY))
    assert (current != one.protect(X, ids=IDS, key=KEY)).any(axis=1).all()
    with pytest.raises(KeyFileError):
        keys.key("gone")


def test_whoever_has_the_key_removes_the_noise() -> None:
    """What a leaked key means, as the documentation says it."""
    one = fitted()
    y = one.protect(X, ids=IDS, key=KEY)
    stream = keyed_stream(KEY, check_ids(IDS, 40, owner="t"), row_digests(X), one.fingerprint)
    z = one.mechanism.protect(np.zeros_like(X), rng=stream)
    np.testing.assert_allclose(y - z, X, atol=2 * one.mechanism.step)


def test_the_guarantee_says_what_keyed_noise_costs() -> None:
    text = str(fitted().guarantee.with_keyed_noise())
    for words in ("averages nothing", "seen to be equal", "removes the noise", "computational"):
        assert words in text
