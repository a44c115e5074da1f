"""The ``sparse-whitebox`` method: noise in the dimensions that a known token classifier relies on.

SPARSE-WB: integrated gradients of the published multi-label classifier's output for each concept word of a text
replace the learnt mask. Only this method uses an attack in its defence; an audit trains another attacker.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vecveil.protector.data import Data
from vecveil.protector.method import Aim, Candidate, Method
from vecveil.sensitivity.integrated_gradients import white_box_sensitivity, white_box_shape
from vecveil.validation import check_count, check_positive


@dataclass(frozen=True, kw_only=True)
class WhiteboxOptions:
    """Options of ``sparse-whitebox``: floor of the noise, steps of the gradients, epochs of the classifier."""

    floor: float = 1e-6
    steps: int = 50
    epochs: int | None = None

    def __post_init__(self) -> None:
        check_positive(self.floor, owner="fit", param="floor")
        check_count(self.steps, owner="fit", param="steps")
        if self.epochs is not None:
            check_count(self.epochs, owner="fit", param="epochs")


def whitebox_candidate(data: Data, options: WhiteboxOptions, aim: Aim) -> Candidate:
    """Return diagonal Mahalanobis noise shaped by integrated gradients."""
    from vecveil.attacks.networks import (
        PUBLISHED,
        train_network,  # loads torch
    )

    floor, steps, epochs = options.floor, options.steps, options.epochs or PUBLISHED.epochs
    X = data.positive.astype(np.float32)
    L = data.token_labels
    if L is None:  # without words, classify D+ against D-
        _, negative = data.sides("method", "sparse-whitebox")
        X = np.concatenate([X, negative.astype(np.float32)])
        L = np.repeat([1, 0], len(data.positive))[:, None].astype(np.uint8)
    labels = np.asarray(L)
    # The classifier of the paper; `epochs` alone can be changed.
    schedule = replace(PUBLISHED, epochs=epochs)
    sizes, rng = (X.shape[1], labels.shape[1]), np.random.default_rng(aim.seed)
    network, _ = train_network(
        lambda rng: (X, labels), sizes, schedule, rng, "Training the classifier", show_progress=aim.show_progress
    )
    weights = white_box_sensitivity(network.module.eval(), X, labels, steps=steps, show_progress=aim.show_progress)
    shape = white_box_shape(weights, floor=floor)
    return Candidate(shape, parameters={"floor": floor, "steps": steps, "epochs": epochs})


SPARSE_WHITEBOX = Method(
    "sparse-whitebox",
    "SPARSE-WB: integrated gradients of a token classifier shape diagonal Mahalanobis noise",
    whitebox_candidate,
    option_type=WhiteboxOptions,
    metric="Mahalanobis",
)
