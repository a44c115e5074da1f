"""Where the training of Vec2Text starts: from scratch, from a T5, from an attack, or from published weights."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.features import InputMap, fit_input_map
from vecveil.attacks.reconstruction.tokenisers import Tokeniser, import_transformers
from vecveil.attacks.reconstruction.vec2text.networks import (
    CORRECTOR,
    HYPOTHESISER,
    Shape,
    build,
    t5_config,
)
from vecveil.attacks.reconstruction.vec2text.presets import Preset
from vecveil.attacks.reconstruction.vec2text.published import PublishedCheckpoint, read_published
from vecveil.attacks.reconstruction.vec2text.state import Vec2TextState
from vecveil.attacks.reconstruction.vec2text.writer import Language, Writer
from vecveil.errors import DataFileError
from vecveil.runtime import import_torch

__all__ = ["begin_from", "corrector_of"]

Array = npt.NDArray[Any]
Start = str | os.PathLike[str] | PublishedCheckpoint | None


def begin_from(
    start: Start, preset: Preset, texts: Sequence[str], released: Array, seed: int
) -> tuple[Writer, Writer | None]:
    """Return the hypothesiser and, if ``start`` has one, the corrector.

    Raises:
        DataFileError: ``start`` was trained for vectors of another dimension.
    """
    dimension = released.shape[1]
    if isinstance(start, PublishedCheckpoint):
        return _published(start, preset, dimension)
    if start is not None:
        state = Vec2TextState.load(start)
        _check_dimension(state.dimension, dimension)
        return state.hypothesiser, state.corrector
    inputs = fit_input_map(released)
    config = None
    if preset.model is None:
        tokeniser = Tokeniser.train(texts, preset.vocabulary)
        pad = tokeniser.size  # one that no text holds
        config = t5_config(
            pad + 1, width=preset.width, layers=preset.layers, heads=preset.heads,
            end=tokeniser.end, pad=pad,
        )  # fmt: skip
    else:
        tokeniser = Tokeniser.pretrained(preset.model)
        pad = int(import_transformers().T5Config.from_pretrained(preset.model).pad_token_id)
    read = inputs.weights.shape[1]
    # As in the published package, but no narrower than the T5 where vectors have few dimensions.
    hidden = max(read, preset.width) if preset.model is None else read
    shape = Shape(HYPOTHESISER, read, preset.repeat, hidden)
    module = build(shape, seed=seed, config=config, model=preset.model)
    language = Language(tokeniser, pad, preset.recipe.max_tokens)
    return Writer(module, shape, language, inputs), None


def corrector_of(first: Writer, preset: Preset, seed: int) -> Writer:
    """Return an untrained corrector for the guesses of ``first``.

    It starts from the hypothesiser's encoder-decoder, which already writes texts of the kind; the published one
    starts from T5 again.
    """
    shape = Shape(CORRECTOR, first.shape.inputs, first.shape.repeat, first.shape.hidden)
    t5 = first.module["encoder_decoder"]
    module = build(shape, seed=seed, config=t5.config)
    with import_torch().no_grad():
        module["encoder_decoder"].load_state_dict(t5.state_dict())
        module["embedding_transform_1"].load_state_dict(
            first.module["embedding_transform"].state_dict()
        )
    return Writer(module, shape, first.language, first.inputs)


def _published(
    start: PublishedCheckpoint, preset: Preset, dimension: int
) -> tuple[Writer, Writer | None]:
    tokeniser, networks = read_published(start)
    identity = InputMap(np.zeros(dimension), np.eye(dimension))  # they read vectors as they are
    found: dict[str, Writer] = {}
    for kind, (module, shape) in networks.items():
        _check_dimension(shape.inputs, dimension)
        pad = int(module["encoder_decoder"].config.pad_token_id)
        language = Language(tokeniser, pad, preset.recipe.max_tokens)
        found[kind] = Writer(module, shape, language, identity)
    return found[HYPOTHESISER], found.get(CORRECTOR)


def _check_dimension(got: int, wanted: int) -> None:
    if got != wanted:
        raise DataFileError.of("Vec2TextAttack", "start_from", f"one for vectors of dimension {wanted}",
                               f"one for dimension {got}",
                               "The projections of its networks have that many inputs.",
                               "Give one of the same encoder and output, or none.")  # fmt: skip
