"""Turn random words into noise with NumPy.

The arithmetic is +, −, ·, / and square roots of IEEE doubles in a fixed order: equal words give equal variates on every
machine and with every version of NumPy, so keyed noise keeps its meaning. (A full or low-rank shape multiplies by a
matrix, and the angle of the Purkayastha mechanism uses NumPy's logarithms and sines: those agree up to their last
bits.) `_kernel.c` computes the same bits several times faster.

Precision: uniforms have 64 bits, (word + 1/2)/2⁶⁴, so a normal variate has a range of ±9.49 and the tail beyond it has
probability 2⁻⁶⁴ a pair; logarithm, sine and cosine have a relative error of 2·10⁻¹⁶.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from vecveil.types import Embeddings, Vector

Words = npt.NDArray[np.uint64]

_ONE = np.uint64(0x3FF0000000000000)  # the bits of 1.0
_EXPONENT = np.uint64(0xFFF0000000000000)  # the mask of sign and exponent
_ROOT_HALF = np.uint64(0x3FE6A09E667F3BCD)  # the bits of √½
_BIAS = np.uint64(128 << 52)
# log 2 in two parts (as in fdlibm): k · high is exact for the k here, low holds the rest.
_LOG2_HIGH, _LOG2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
# Taylor coefficients, highest power first: atanh(s)/s − 1, sine and cosine, in the square.
_ATANH = [1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3]
_SINE = [
    1.0 / 355687428096000.0,
    -1.0 / 1307674368000.0,
    1.0 / 6227020800.0,
    -1.0 / 39916800.0,
    1.0 / 362880.0,
    -1.0 / 5040.0,
    1.0 / 120.0,
    -1.0 / 6.0,
]
_COSINE = [
    1.0 / 20922789888000.0,
    -1.0 / 87178291200.0,
    1.0 / 479001600.0,
    -1.0 / 3628800.0,
    1.0 / 40320.0,
    -1.0 / 720.0,
    1.0 / 24.0,
    -0.5,
]


class NoiseKind(IntEnum):
    """Formula by which `release` computes y from x, words (or noise) and a factor."""

    ADD = 0
    """y = x + factor · root · N, N standard normal"""
    ADD_DIRECTION = 1
    """y = x + factor · root · N/‖N‖"""
    TURN = 2
    """y = factor₀ · x/‖x‖ + factor₁ · u, u the unit vector along the part of N orthogonal to x"""
    ADD_GIVEN = 3
    """y = x + factor · noise, the noise given in place of the words"""


def _polynomial(x: Vector, coefficients: list[float]) -> Vector:
    p = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        p = p * x + c
    return p


def negative_log(x: Vector) -> Vector:
    """Return −log x for x = 2ᵏz in [2⁻¹²⁷, 2¹²⁷], z in [√½, √2): log z = 2 atanh((z − 1)/(z + 1)) by its series."""
    bits = np.ascontiguousarray(x, dtype=np.float64).view(np.uint64)
    # Integer arithmetic on the bits: subtracting √½ first makes the exponent field hold k.
    shifted = bits - _ROOT_HALF + _BIAS
    # The bits of 2⁵² + (k + bias): an integer becomes a double without a conversion.
    k = (np.uint64(0x4330000000000000) | (shifted >> np.uint64(52))).view(np.float64)
    k = k - (4503599627370496.0 + 128.0)
    z = (bits - ((shifted & _EXPONENT) - _BIAS)).view(np.float64)
    f = z - 1.0
    s = f / (f + 2.0)
    s2 = s * s
    p = _polynomial(s2, _ATANH) * s2
    twice = 2.0 * s
    # Small terms are added first, the exact k · high last.
    logarithm: Vector = -(k * _LOG2_HIGH + (twice + (twice * p + k * _LOG2_LOW)))
    return logarithm


def _mantissa(words: Words) -> Vector:
    """Return 52 bits as doubles in [1, 2): a fixed exponent over a random mantissa."""
    return (_ONE | words).view(np.float64)


def exponentials(words: Words) -> Vector:
    """Return one Exponential(1) variate per word: −log of (word + 1/2)/2⁶⁴."""
    high = _mantissa(words >> np.uint64(12)) - 1.0  # the upper 52 bits, exactly
    low = _mantissa(words & np.uint64(0xFFF)) - 1.0
    # The half unit keeps the argument above 0.
    return negative_log(high + (low + 2.0**-53) * 2.0**-12)


def normals(words: Words, pairs: int) -> Embeddings:
    """Return (rows, 2·pairs) standard normals from the first 2·pairs words of each row (Box–Muller).

    The first half of the words are radii, the second half angles: 52 bits in a quarter circle, two for the quarter.
    """
    r = np.sqrt(2.0 * exponentials(words[:, :pairs]))
    angle = words[:, pairs : 2 * pairs]
    # An angle in (−π/4, π/4), where the series converge fast.
    a = (_mantissa(angle >> np.uint64(12)) - 1.5 + 2.0**-53) * 1.57079632679489661923
    b = a * a
    sine = a + a * (b * _polynomial(b, _SINE))
    cosine = 1.0 + b * _polynomial(b, _COSINE)
    # Bit 1 flips the sign of the cosine, bit 0 swaps cosine and sine: all four quarters, no branch.
    c = cosine.view(np.uint64) ^ ((angle & np.uint64(2)) << np.uint64(62))
    s = sine.view(np.uint64)
    swap = (np.uint64(0) - (angle & np.uint64(1))) & (c ^ s)
    return np.concatenate([r * (c ^ swap).view(np.float64), r * (s ^ swap).view(np.float64)], axis=1)


def gammas(words: Words, first: int, tries: int, shape: float) -> Vector:
    """Return one Gamma(shape, 1) variate per row, shape ≥ 1; 0 if every try was rejected.

    Marsaglia and Tsang (2000), exact: a try takes three words, from word ``first`` on.
    """
    d = shape - 1.0 / 3
    c = 1.0 / (3.0 * np.sqrt(d))
    drawn = np.zeros(len(words))
    for t in range(tries):
        at = first + 3 * t
        x = normals(np.ascontiguousarray(words[:, at : at + 2]), 1)[:, 0]
        v = 1.0 + c * x
        v = v * v * v
        # v ≤ 0 is outside the density's support; 1e-30 also keeps the logarithm in its range.
        possible = v > 1e-30
        v = np.where(possible, v, 1.0)
        bound = 0.5 * x * x + d * (1.0 - v - negative_log(v))
        # log U < bound, with −Exponential for log U.
        accepted = possible & (-exponentials(words[:, at + 2]) < bound)
        # The first accepted try counts; later ones are computed and ignored, without a branch.
        drawn = np.where((drawn == 0.0) & accepted, d * v, drawn)
    return drawn


def row_dots(X: Embeddings, Y: Embeddings) -> Vector:
    """Return the inner products of rows, summed in eight interleaved lanes and then pairwise."""
    rows, n = X.shape
    # The lanes and their order match the C kernel's vector registers: equal bits.
    products = np.zeros((rows, -(-n // 8) * 8))
    np.multiply(X, Y, out=products[:, :n])
    lane = np.zeros((rows, 8))
    for start in range(0, n, 8):
        lane += products[:, start : start + 8]
    a = (lane[:, 0] + lane[:, 4]) + (lane[:, 2] + lane[:, 6])
    b = (lane[:, 1] + lane[:, 5]) + (lane[:, 3] + lane[:, 7])
    total: Vector = a + b
    return total


def release(
    kind: NoiseKind, X: Embeddings, words: Words | Embeddings, factors: Vector, root: Vector | None, step: float
) -> tuple[Embeddings, bool]:
    """Return the noisy rows, rounded to multiples of ``step`` (a power of two), and whether all are valid.

    Valid rows are finite in the dtype of ``X``, and small enough for it to hold the noise.
    """
    x = X.astype(np.float64)
    n = X.shape[1]
    with np.errstate(all="ignore"):
        noise = words if kind == NoiseKind.ADD_GIVEN else normals(words, (n + 1) // 2)[:, :n]
        factor = factors
        if kind == NoiseKind.TURN:
            x = (1.0 / np.sqrt(row_dots(x, x)))[:, None] * x
            # u: the part of N orthogonal to x, normalised through the factor below.
            noise = noise - row_dots(noise, x)[:, None] * x
            length = np.sqrt(row_dots(noise, noise))
            x = factors[:, :1] * x
            factor = factors[:, 1] / length
        elif kind == NoiseKind.ADD_DIRECTION:
            factor = factor / np.sqrt(row_dots(noise, noise))
        scaled = factor[:, None] * noise
        if root is not None:
            scaled = scaled * root
        # Rounding last, to the grid: the low-order bits of a sum of doubles would reveal x (Mironov 2012).
        y = np.rint((x + scaled) * (1.0 / step)) * step
        released = y.astype(X.dtype)
        # The grid is 2⁻¹⁶ of the noise: beyond 2⁵² steps the spacing of doubles exceeds the grid, and beyond 2⁴⁰
        # the rounding of floats exceeds the noise itself.
        limit = min(float(np.finfo(X.dtype).max), 2.0 ** (52 if X.dtype == np.float64 else 40) * step)
        finite = bool((np.abs(y) <= limit).all())
    return released, finite


def counters(starts: Words, blocks: int, first: int) -> Words:
    """Return (rows, blocks, 2) counter blocks (high, low + first + j) of each row's start (high, low)."""
    out = np.empty((len(starts), blocks, 2), dtype=np.uint64)
    out[:, :, 0] = starts[:, :1]
    # The low word wraps: keyed starts are random 64-bit numbers.
    with np.errstate(over="ignore"):
        out[:, :, 1] = starts[:, 1:] + (np.uint64(first) + np.arange(blocks, dtype=np.uint64))
    return out
