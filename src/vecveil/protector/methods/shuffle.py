"""The ``shuffle`` method: one secret permutation of the coordinates."""

from vecveil.mechanisms import Shuffle, random_permutation
from vecveil.protector.method import Method, isotropic
from vecveil.protector.scale import NoiseFamily

_FAMILY = NoiseFamily(
    mechanism=lambda shape, noise, rms_norm, splits: Shuffle(random_permutation(shape.dimension)),
    ratio=lambda value, rms_norm, n: 0.0,
    scales=(),
)

SHUFFLE = Method(
    "shuffle",
    "one secret permutation of the coordinates",
    isotropic,
    kind="obfuscation",
    metric="none",
    family=lambda _: _FAMILY,
)
