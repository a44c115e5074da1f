"""The ``shuffle`` method: one secret permutation of the coordinates."""

from vecveil.mechanisms import Mechanism, Shuffle, random_permutation
from vecveil.protector.method import Family, Method, isotropic
from vecveil.sensitivity.shapes import NoiseShape

__all__ = ["SHUFFLE"]


class NoNoise(Family):
    """A permutation of the coordinates."""

    scales = ()

    def mechanism(
        self, shape: NoiseShape, noise: float, rms_norm: float, *, splits: int = 1
    ) -> Mechanism:
        """Return a new secret permutation."""
        return Shuffle(random_permutation(shape.dimension))

    def noise_of(self, name: str, value: float, rms_norm: float, dimension: int) -> float:
        """Return 0."""
        return 0.0


SHUFFLE = Method(
    "shuffle",
    "one secret permutation of the coordinates",
    isotropic,
    kind="obfuscation",
    metric="none",
    family=lambda _: NoNoise(),
)
