"""The ``sparse-whitebox`` method: noise in the dimensions that a known token classifier relies on.

SPARSE-WB: integrated gradients of the published multi-label classifier's output for each concept word of a text
replace the learnt mask. Only this method uses an attack in its defence; an audit trains another attacker.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vecveil.protector.method import Candidate, FitData, Method
from vecveil.runtime import progress
from vecveil.sensitivity.integrated_gradients import white_box_shape
from vecveil.validation import check_count, check_positive


def whitebox_candidate(data: FitData, options: dict[str, Any]) -> Candidate:
    """Return diagonal Mahalanobis noise shaped by integrated gradients."""
    from vecveil.attacks.token_inference.perceptrons import PUBLISHED  # loads torch
    from vecveil.attacks.training import train_network

    floor = check_positive(options.pop("floor", 1e-6), owner="fit", param="floor")
    steps = check_count(options.pop("steps", 50), owner="fit", param="steps")
    epochs = check_count(options.pop("epochs", PUBLISHED.epochs), owner="fit", param="epochs")
    X = data.positive.astype(np.float32)
    L = data.token_labels
    if L is None:  # without words, classify D+ against D-
        _, negative = data.pairs("method", "sparse-whitebox")
        X = np.concatenate([X, negative.astype(np.float32)])
        L = np.repeat([1, 0], len(data.positive))[:, None].astype(np.uint8)
    labels = np.asarray(L)
    # The classifier of the paper; `epochs` alone can be changed.
    schedule = replace(PUBLISHED, epochs=epochs)
    training = train_network(lambda: (X, labels), schedule, np.random.default_rng(data.seed))
    *_, network = progress(training, "Training the classifier", total=epochs, show=data.show_progress, unit="epoch")
    shape = white_box_shape(network.module, X, labels, floor=floor, steps=steps, show_progress=data.show_progress)
    return Candidate(shape, parameters={"floor": floor, "steps": steps, "epochs": epochs})


SPARSE_WHITEBOX = Method(
    "sparse-whitebox",
    "SPARSE-WB: integrated gradients of a token classifier shape diagonal Mahalanobis noise",
    whitebox_candidate,
    options=("floor", "steps", "epochs"),
    metric="Mahalanobis",
)
