"""What every mechanism and every method keeps: one suite over everything that protects vectors."""

from __future__ import annotations

import contextlib
import re
import tracemalloc
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.token_data import token_data
from vecveil.errors import IncompatibleError, InvalidInputError, ReleaseError
from vecveil.privacy.mechanisms import (
    MECHANISMS,
    Gaussian,
    Laplace,
    LdpGaussian,
    Mahalanobis,
    ProjectedLaplace,
    Purkayastha,
    Shuffle,
    TruncatedLaplace,
    random_permutation,
)
from vecveil.privacy.protector import METHODS, Protector
from vecveil.privacy.sensitivity import NoiseShape

N_DIM = 12
FULL = np.cov(np.random.default_rng(0).standard_normal((40, N_DIM)).T)


@cache
def fitted(method: str, **options: Any) -> Protector:
    data = token_data(60, N_DIM)
    scales = {
        "gaussian": {"sigma": 0.1},
        "ldp-gaussian": {"epsilon": 30.0, "delta": 1e-6},
        "shuffle": {},
        "textcrafter": {"radius": 0.8},
        "textcrafter-subspace": {"radius": 0.8},
    }
    scale = scales.get(method, {"epsilon": 30.0})
    return vecveil.fit_pairs(*data.arguments(), method=method, **scale, **options)


SUBSPACE = {"rank": 2, "kept": 6, "flattening": 0.3, "pairs": True}
MAKERS: dict[str, Callable[[], Any]] = {
    "Laplace": lambda: Laplace(N_DIM, 30.0),
    "Mahalanobis diagonal": lambda: Mahalanobis(NoiseShape.from_diagonal(np.arange(N_DIM), floor=0.1), 30.0),
    "Mahalanobis full": lambda: Mahalanobis(NoiseShape.from_matrix(FULL), 30.0),
    "Mahalanobis low rank": lambda: Mahalanobis(
        NoiseShape.from_low_rank(np.eye(N_DIM)[:, :2], np.array([3.0, 1.0]), floor=0.1), 30.0
    ),
    "ProjectedLaplace": lambda: ProjectedLaplace(np.linalg.qr(FULL)[0][:, :7], 30.0),
    "Laplace split": lambda: Laplace(N_DIM, 30.0, splits=3),
    "Gaussian": lambda: Gaussian(NoiseShape.isotropic(N_DIM), 0.1),
    "Gaussian diagonal": lambda: Gaussian(NoiseShape.from_diagonal(np.arange(N_DIM), floor=0.1), 0.1),
    "Gaussian full": lambda: Gaussian(NoiseShape.from_matrix(FULL), 0.1),
    "LdpGaussian": lambda: LdpGaussian(N_DIM, 30.0, 1e-6),
    "Purkayastha": lambda: Purkayastha(N_DIM, 30.0),
    "Shuffle": lambda: Shuffle(random_permutation(N_DIM)),
    "TruncatedLaplace": lambda: TruncatedLaplace(np.arange(N_DIM) / N_DIM, 30.0),
    "laplace": lambda: fitted("laplace"),
    "laplace wiener": lambda: fitted("laplace", postprocess="wiener"),
    "sparse": lambda: fitted("sparse", epochs=2),
    "sparse as learnt": lambda: fitted("sparse", epochs=2, normalise=False),
    "sparse truncated": lambda: fitted("sparse", epochs=2, release="truncated", kept=5),
    "sparse reduced": lambda: fitted("sparse", epochs=2, release="truncated", kept=5, output="reduced", splits=2),
    "covariance": lambda: fitted("covariance"),
    "covariance none": lambda: fitted("covariance", postprocess="none"),
    "subspace": lambda: fitted("subspace", **SUBSPACE),
    "subspace reduced": lambda: fitted("subspace", output="reduced", **SUBSPACE),
    "subspace searched": lambda: fitted("subspace"),
    "subspace none": lambda: fitted("subspace", postprocess="none"),
    "subspace steps": lambda: fitted("subspace", postprocess="normalise,int8", **SUBSPACE),
    "laplace steps": lambda: fitted("laplace", postprocess="wiener,truncate:5,float16"),
    "laplace binary": lambda: fitted("laplace", postprocess="binary", before="clip:0.9"),
    "covariance low rank": lambda: fitted("covariance", shape="low-rank", rank=3),
    "covariance labels": lambda: fitted("covariance", shape="labels"),
    "covariance diagonal": lambda: fitted("covariance", shape="diagonal"),
    "covariance differences": lambda: fitted("covariance", shape="differences"),
    "sparse-whitebox": lambda: fitted("sparse-whitebox", epochs=1, steps=4),
    "purkayastha": lambda: fitted("purkayastha"),
    "gaussian": lambda: fitted("gaussian", splits=2),
    "ldp-gaussian": lambda: fitted("ldp-gaussian"),
    "shuffle": lambda: fitted("shuffle"),
    "textcrafter": lambda: fitted("textcrafter", epochs=1),
    "textcrafter-subspace": lambda: fitted("textcrafter-subspace", epochs=1, rank=3),
    "textcrafter tokens": lambda: fitted("textcrafter", epochs=1, tokens=3, postprocess="float16"),
}
PROTECTORS = [name for name in MAKERS if name[0].islower()]
every = pytest.mark.parametrize("name", MAKERS)
every_protector = pytest.mark.parametrize("name", PROTECTORS)


def made(name: str) -> Any:
    return MAKERS[name]()


def mechanism_of(one: Any) -> Any:
    return one.mechanism if isinstance(one, Protector) else one


def width(one: Any) -> int:
    return getattr(one, "released_dimension", N_DIM)


def rows(count: int = 30, dtype: Any = np.float32) -> np.ndarray:
    X = np.random.default_rng(5).standard_normal((count, N_DIM))
    return (X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9)).astype(dtype)


def test_every_registered_method_is_in_the_suite() -> None:
    assert set(METHODS) <= set(MAKERS)
    assert {mechanism_of(made(name)).name for name in MAKERS} == set(MECHANISMS)


@every
def test_dtype_and_shape_are_kept(name: str) -> None:
    one = made(name)
    for dtype, count in product((np.float32, np.float64), (0, 1, 2, 30)):
        Y = one.protect(rows(count, dtype), rng=0)
        assert (Y.dtype, Y.shape) == (dtype, (count, width(one)))
        assert np.isfinite(Y).all(), (dtype, count)


@every
def test_layout_and_read_only_input_do_not_matter(name: str) -> None:
    one, X = made(name), rows()
    expected = one.protect(X, rng=0)
    wide = np.zeros((60, 2 * N_DIM), dtype=X.dtype)
    wide[::2, ::2] = X
    frozen = X.copy()
    frozen.flags.writeable = False
    for form in (wide[::2, ::2], np.asfortranarray(X), X[::-1].copy()[::-1], frozen):
        np.testing.assert_allclose(one.protect(form, rng=0), expected, rtol=1e-6, atol=1e-6)


@every
def test_input_is_not_modified_and_not_shared(name: str) -> None:
    one, X = made(name), rows()
    before = X.copy()
    Y = one.protect(X, rng=0)
    np.testing.assert_array_equal(X, before)
    assert not np.shares_memory(X, Y)


@every_protector
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_without_noise_it_is_deterministic_and_a_copy(name: str, dtype: Any) -> None:
    one, X = made(name), rows(dtype=dtype)
    Y = one.protect(X, noise=False)
    np.testing.assert_array_equal(Y, one.protect(X, noise=False))
    assert not np.shares_memory(X, Y)
    if one.map is None and not one.after and one.method != "shuffle":
        np.testing.assert_allclose(X, Y, atol=1e-6)


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "NaN": (np.full((3, N_DIM), np.nan, "f4"), InvalidInputError, "finite"),
    "infinite": (np.full((3, N_DIM), -np.inf), InvalidInputError, "finite"),
    "both infinities": (np.array([[np.inf, -np.inf] * 6]), InvalidInputError, "finite"),
    "masked NaN": (np.ma.masked_invalid(np.full((3, N_DIM), np.nan)), InvalidInputError, "masked"),
    "masked": (np.ma.masked_equal(np.ones((3, N_DIM)), 1.0), InvalidInputError, "masked"),
    "dimension": (np.zeros((3, N_DIM + 1), "f4"), IncompatibleError, "dimension"),
    "no dimension": (np.zeros((3, 0), "f4"), InvalidInputError, "shape"),
    "one vector": (np.zeros(N_DIM, "f4"), InvalidInputError, r"vector\[None, :\]"),
    "three axes": (np.zeros((2, 3, N_DIM), "f4"), InvalidInputError, "shape"),
    "scalar": (np.float32(1.0), InvalidInputError, "array"),
    "integers": (np.zeros((3, N_DIM), int), InvalidInputError, "float32"),
    "half": (np.zeros((3, N_DIM), "f2"), InvalidInputError, "float32"),
    "complex": (np.zeros((3, N_DIM), complex), InvalidInputError, "float32"),
    "objects": (np.zeros((3, N_DIM), object), InvalidInputError, "float32"),
    "strings": (np.full((3, N_DIM), "7.25"), InvalidInputError, "float32"),
    "list": ([[0.0] * N_DIM], InvalidInputError, "NumPy array"),
    "None": (None, InvalidInputError, "NumPy array"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_refused_by_name(kind: str) -> None:
    value, error, match = BAD[kind]
    for name in MAKERS:
        with pytest.raises(error, match=match) as caught:
            made(name).protect(value)
        assert "`X`" in str(caught.value), name


@every
def test_bad_random_sources_are_refused(name: str) -> None:
    for rng in (-1, 1.5, "0", True, np.random.RandomState(0)):
        with raises("E-INPUT-TYPE", "rng"):
            made(name).protect(rows(), rng=rng)


@every
def test_same_seed_same_output_and_otherwise_fresh_noise(name: str) -> None:
    one, X = made(name), rows()
    np.testing.assert_array_equal(one.protect(X, rng=7), one.protect(X, rng=7))
    generator = np.random.default_rng(7)
    np.testing.assert_array_equal(one.protect(X, rng=7), one.protect(X, rng=generator))
    if not mechanism_of(one).is_random:
        np.testing.assert_array_equal(one.protect(X), one.protect(X, rng=7))
        return
    if name == "laplace binary":  # two rows of signs may agree by chance
        assert (one.protect(X) != one.protect(X)).any()
        return
    assert (one.protect(X, rng=generator) != one.protect(X, rng=7)).any(axis=1).all()
    assert (one.protect(X, rng=7) != one.protect(X, rng=8)).any(axis=1).all()
    assert (one.protect(X) != one.protect(X)).any(axis=1).all()
    Y = one.protect(np.repeat(X[:1], 50, axis=0))
    assert len(np.unique(Y.round(12), axis=0)) == 50  # rows of one call differ


@every
def test_noise_that_leaves_the_dtype_releases_nothing(name: str) -> None:
    one = made(name)
    X = np.full((3, N_DIM), 3.3e38, dtype=np.float32)
    X[:, 1::2] *= -1
    longer = {"lengths": False} if isinstance(one, Protector) else {}  # else refused before
    with contextlib.suppress(ReleaseError, InvalidInputError):  # a map may lead out of the range: no value then
        assert np.isfinite(one.protect(X, rng=0, **longer)).all()


def test_values_beside_which_a_number_holds_no_noise_are_refused() -> None:
    huge = np.full((3, N_DIM), 1e308)  # beside such values a double has no place for the noise
    with raises("E-RELEASE"):
        made("Laplace").protect(huge, rng=0)
    with raises("E-RELEASE"):
        Laplace(N_DIM, 1e-38).protect(rows(), rng=0)


@every
def test_memory_is_bounded_by_blocks(name: str) -> None:
    """Beside input and output, no more than a few blocks of 8,192 rows are held."""
    one = made(name)
    textcrafter = mechanism_of(one).name == "textcrafter"
    size = N_DIM**-0.5 if textcrafter else 0.2  # it takes unit rows

    def peak(count: int) -> int:
        X = np.full((count, N_DIM), size, dtype=np.float32)
        tracemalloc.start()
        try:
            Y = one.protect(X, rng=0)
            return tracemalloc.get_traced_memory()[1] - Y.nbytes
        finally:
            tracemalloc.stop()

    one.protect(np.full((10, N_DIM), size, dtype=np.float32), rng=0)
    if textcrafter:  # slow, in blocks of 2,048 rows: twice the rows take no more memory
        assert peak(24_576) < 1.05 * peak(12_288)
    else:
        assert peak(120_000) < 6 * 8192 * N_DIM * 8 < 120_000 * N_DIM * 4


@every_protector
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_loaded_protector_protects_alike(name: str, dtype: Any, tmp_path: Any) -> None:
    one, path = made(name), tmp_path / "one.vecveil"
    one.save(path)
    again = vecveil.load(path)
    X = rows(50, dtype)
    np.testing.assert_array_equal(one.protect(X, 3), again.protect(X, 3))
    np.testing.assert_array_equal(one.protect(X, noise=False), again.protect(X, noise=False))
    assert again.fingerprint == one.fingerprint
    assert again.guarantee == one.guarantee
    assert again.report == one.report
    np.testing.assert_array_equal(again.released_noise_covariance(), one.released_noise_covariance())


@every
def test_the_guarantee_prints_itself(name: str) -> None:
    one = made(name)
    guarantee = one.guarantee if isinstance(one, Protector) else one.guarantee()
    text = str(guarantee)
    assert "\nGuaranteed:" in text
    assert "\nNot guaranteed:" in text
    worst, best = guarantee.epsilon_euclidean_worst, guarantee.epsilon_euclidean_best
    if mechanism_of(one).name == "shuffle":
        assert guarantee.kind == "obfuscation"
        assert guarantee.epsilon is None
    elif mechanism_of(one).name == "textcrafter":
        assert guarantee.kind == "empirical"
        assert "empirical, no formal privacy guarantee" in text
        assert guarantee.epsilon is worst is best is None
    elif isinstance(mechanism_of(one), Gaussian | Purkayastha):
        assert (guarantee.mu or guarantee.epsilon) > 0
        assert worst is None
    else:
        assert worst >= best > 0
    if isinstance(one, Protector):
        assert guarantee.kind == METHODS[one.method].kind
    assert guarantee.to_record()["kind"] == guarantee.kind


@every
def test_no_vector_value_in_repr_or_errors(name: str) -> None:
    one = made(name)
    X = np.full((3, N_DIM), 0.123456789)
    X[1, 2] = np.nan
    with pytest.raises(InvalidInputError) as caught:
        one.protect(X)
    guarantee = one.guarantee if isinstance(one, Protector) else one.guarantee()
    said = [repr(one), str(one), str(caught.value), str(guarantee), repr(guarantee)]
    assert not [text for text in said if "0.1234" in text or "array(" in text]
    numbers = re.findall(r"\d+\.\d+", repr(one))
    assert len(numbers) <= 2  # a scale or two, no vector


# Noise below the spacing of the dtype ---------------------------------------------------------------

FORMAL = [name for name, method in METHODS.items() if method.kind == "formal"]
TINY: dict[str, dict[str, float]] = {
    "gaussian": {"sigma": 1e-8},
    "ldp-gaussian": {"epsilon": 1e14, "delta": 1e-6},
    "purkayastha": {"epsilon": 1e9},
}
QUICK: dict[str, dict[str, Any]] = {
    "sparse": {"epochs": 1, "stability_seeds": 1},
    "sparse-whitebox": {"epochs": 1, "steps": 2},
    "subspace": SUBSPACE,
}


@pytest.mark.parametrize("method", FORMAL)
def test_a_fit_refuses_noise_that_float32_rounds_away(method: str) -> None:
    data = token_data(60, N_DIM)
    scale = TINY.get(method, {"noise_to_signal": 1e-8})
    name, value = next(iter(scale.items()))

    def fit(value: float) -> Protector:
        given = {**scale, name: value, **QUICK.get(method, {})}
        return vecveil.fit_pairs(*data.arguments(), method=method, **given)

    with raises("E-INPUT-RANGE", name) as caught:
        fit(value)
    bound = re.search(r"at (least|most) (\S+) for these vectors", str(caught.value))
    assert bound is not None
    least = float(bound[2])
    with raises("E-INPUT-RANGE", name):
        fit(least * 0.95 if bound[1] == "least" else least * (1.25 if method == "ldp-gaussian" else 1.05))
    # Control: at the bound the fit succeeds, and few values come back as they were.
    mechanism = fit(least).mechanism
    X = np.concatenate(data.arguments()[:2])
    X = X / np.linalg.norm(X, axis=1, keepdims=True) if method in TINY else X
    X = np.ascontiguousarray(X, dtype=np.float32)
    assert (mechanism.protect(X, rng=0) == X).mean() < 0.04


@pytest.mark.parametrize(
    "name", ["Laplace", "ProjectedLaplace", "Mahalanobis diagonal", "Mahalanobis full", "Laplace split", "Gaussian"]
)
def test_a_release_fails_where_float32_holds_no_noise(name: str) -> None:
    made = MAKERS[name]()
    # The spacing of float32 there is 2 to 4 times the noise's least deviation.
    long = np.full((3, N_DIM), 2.0**25 * made.least_deviation, dtype=np.float32)
    for protect in (made.protect, Protector.from_bytes(Protector("laplace", made).to_bytes()).protect):
        with raises("E-RELEASE"):
            protect(long)
        protect(long / 16)
        protect(long.astype(np.float64))


@pytest.mark.parametrize("make", [lambda s: Purkayastha(N_DIM, N_DIM / s), lambda s: Laplace(N_DIM, 1 / s)])
def test_a_release_of_unit_vectors_fails_where_float32_holds_no_noise(make: Callable[[float], Any]) -> None:
    X = np.zeros((3, N_DIM), dtype=np.float32)
    X[:, 0] = 1.0
    with raises("E-RELEASE"):
        make(1e-9).protect(X)
    assert (make(1e-5).protect(X) != X)[:, 1:].all()  # the sphere is flat along x
    assert (make(1e-9).protect(X.astype(np.float64)) != X).any()
