"""How a decoder that reads one kind of vectors is made to read another, before it is trained on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vecveil.attacks.features import InputMap, fit_input_map

__all__ = ["bridge"]

_PENALTY = 1e-3  # of a row's weight: standardised coordinates have variance 1

Array = npt.NDArray[np.floating]


def bridge(inputs: InputMap, clean: Array, released: Array) -> InputMap:
    """Return the map under which released vectors look like what ``inputs`` makes of the clean ones.

    A ridge regression from released vectors to the decoder's inputs; its outputs are scaled to the variance of what
    they stand for, since a regression shrinks. Vectors that are released as they are keep their inputs.

    Args:
        inputs: the decoder's own map.
        clean: (N, n) vectors of the kind that the decoder was trained on.
        released: (N, m) the same texts' vectors as they are released.
    """
    if clean.shape == released.shape and np.array_equal(clean, released):
        return inputs
    target = inputs(clean).astype(np.float64)
    middle = target.mean(axis=0)
    own = fit_input_map(released)
    x = own(released).astype(np.float64)
    gram = x.T @ x + _PENALTY * len(x) * np.eye(x.shape[1])
    weights = np.linalg.solve(gram, x.T @ (target - middle))
    spread = (x @ weights).std(axis=0)
    weights *= target.std(axis=0) / np.where(spread > 0, spread, 1.0)
    weights = own.weights @ weights
    # (y - mean) @ weights must have the mean `middle`; the offset is taken up by the mean.
    offset = np.linalg.lstsq(weights.T, middle, rcond=None)[0]
    return InputMap(own.mean - offset, weights)
