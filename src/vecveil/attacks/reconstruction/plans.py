"""What is trained to write texts from vectors, and how: presets, and the training itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vecveil.attacks.features import fit_input_map
from vecveil.attacks.reconstruction.bridge import bridge
from vecveil.attacks.reconstruction.decoder import Decoder, Shape, TextBatches, decoder_loss
from vecveil.attacks.reconstruction.fitting import fit_model
from vecveil.attacks.reconstruction.models import mean_loss
from vecveil.attacks.reconstruction.recipe import Recipe
from vecveil.attacks.reconstruction.tokenisers import Ids, Tokeniser
from vecveil.attacks.reconstruction.words import start_from_words
from vecveil.errors import DataFileError, InvalidInputError
from vecveil.types import Embeddings
from vecveil.validation import check_count

__all__ = ["PRESETS", "DecoderPlan", "open_decoder", "plan", "train_decoder"]

Draw = Callable[[Embeddings, np.random.Generator], Embeddings]

_VALIDATION_ROWS = 2000


@dataclass(frozen=True)
class DecoderPlan:
    """Everything that decides a decoder beside the data.

    Attributes:
        shape: Sizes; those of GPT-2 are not used if ``model`` is given.
        recipe: Training.
        vocabulary: Most tokens of an own tokeniser.
        model: A pretrained GPT-2: a hub's name or a folder. None trains from scratch.
    """

    shape: Shape
    recipe: Recipe
    vocabulary: int
    model: str | None = None


PRESETS: Mapping[str, DecoderPlan] = {
    "small": DecoderPlan(
        Shape(layers=4, width=192, heads=4, prefix=4, hidden=384, hint=True, max_tokens=48),
        Recipe(epochs=20, batch=32, learning_rate=1.5e-3, max_tokens=48),
        vocabulary=6000,
    ),
    "medium": DecoderPlan(
        Shape(layers=8, width=512, heads=8, prefix=8, hidden=1024, hint=True, max_tokens=64),
        Recipe(epochs=20, batch=128, learning_rate=6e-4, max_tokens=64),
        vocabulary=16000,
    ),
    "paper": DecoderPlan(
        Shape(layers=12, width=768, heads=12, prefix=1, hidden=768, hint=False, max_tokens=64),
        Recipe(epochs=30, batch=16, learning_rate=3e-5, patience=30, max_tokens=64),
        vocabulary=50257,
        model="gpt2",
    ),
}
"""``small`` for a core, ``medium`` for a GPU, both from scratch; ``paper`` as published."""


def plan(preset: str, options: Mapping[str, Any], *, owner: str) -> DecoderPlan:
    """Return a preset with some of its values changed; None changes nothing.

    Raises:
        InvalidInputError: there is no such preset, or a value is out of range.
    """
    if preset not in PRESETS:
        raise InvalidInputError.of(
            owner, "preset", f"one of {', '.join(PRESETS)}", repr(str(preset))[:40]
        )
    given = {key: value for key, value in options.items() if value is not None}
    for key in ("layers", "width", "heads", "prefix", "hidden", "max_tokens"):
        if key in given:
            check_count(given[key], owner=owner, param=key)
    base = PRESETS[preset]
    own = {key: given.pop(key) for key in ("vocabulary", "model") if key in given}
    unknown = sorted(set(given) - {*Shape.__slots__, *Recipe.__slots__} | {"device"} & set(given))
    if unknown:
        raise InvalidInputError.of(owner, unknown[0], "no argument", "one of this name")
    shape = {key: value for key, value in given.items() if key in Shape.__slots__}
    recipe = {key: value for key, value in given.items() if key in Recipe.__slots__}
    made = replace(
        base, shape=replace(base.shape, **shape), recipe=replace(base.recipe, **recipe), **own
    )
    check_count(made.vocabulary, owner=owner, param="vocabulary", minimum=257)
    if made.shape.width % made.shape.heads:
        raise InvalidInputError.of(
            owner, "heads", "a divisor of `width`", f"{made.shape.heads} of {made.shape.width}"
        )
    return made


def train_decoder(
    plan: DecoderPlan,
    X: Embeddings,
    texts: Sequence[str],
    held_out: tuple[Embeddings, Sequence[str]],
    draw: Draw,
    rng: np.random.Generator,
    *,
    owner: str,
    device: str = "auto",
    start: Path | None = None,
    folder: Path | None = None,
    show_progress: bool | None = None,
) -> Decoder:
    """Return a decoder that writes ``texts`` from ``draw(X)``, drawn afresh every epoch.

    Args:
        held_out: Vectors and texts of the validation part, of which 2,000 at most are used.
        draw: ``draw(X, rng)`` returns released vectors.
        start: Folder of a decoder to go on from, whose sizes then count, or None.
        folder: Where an interrupted training is kept.
    """
    recipe = plan.recipe
    if start is None:
        decoder, ids = _fresh(plan, X, texts, draw, rng, owner=owner)
    else:
        decoder = open_decoder(start, X.shape[1], owner=owner)
        decoder.inputs = bridge(decoder.inputs, X, draw(X, rng))
        ids = decoder.tokeniser.encode(texts, decoder.shape.max_tokens)
    inputs, tokeniser, limit = decoder.inputs, decoder.tokeniser, decoder.shape.max_tokens
    held_X, held_texts = held_out[0][:_VALIDATION_ROWS], held_out[1][:_VALIDATION_ROWS]
    held_x, held_ids = inputs(draw(held_X, rng)), tokeniser.encode(held_texts, limit)
    validation = TextBatches.shuffled(held_x, held_ids, recipe.batch, rng)

    def batches(epoch: int, rng: np.random.Generator) -> TextBatches:
        return TextBatches.shuffled(inputs(draw(X, rng)), ids, recipe.batch, rng)

    fit = fit_model(
        decoder.module,
        batches,
        decoder_loss,
        lambda module: mean_loss(module, validation, decoder_loss),
        replace(recipe, device=device),
        rng=rng,
        folder=folder,
        name="decoder",
        show_progress=show_progress,
    )
    decoder.details.update(
        parameters=decoder.parameters,
        vocabulary=tokeniser.size,
        texts=len(texts),
        epoch=fit.best_epoch,
        epochs=len(fit.history),
        loss=fit.loss,
        steps=fit.steps,
        tokens=fit.tokens,
        training_seconds=fit.seconds,
        processor_seconds=fit.processor_seconds,
    )
    return decoder


def open_decoder(folder: Path, dimension: int, *, owner: str) -> Decoder:
    """Return the decoder in ``folder``.

    Raises:
        DataFileError: there is none, it is damaged, or it reads vectors of another dimension.
    """
    try:
        decoder = Decoder.load(folder)
    except Exception as error:  # safetensors, tokenizers and torch raise their own
        raise DataFileError.of(owner, "decoder", "a folder that `GEIAAttack` has written",
                               "one that cannot be read as such") from error  # fmt: skip
    if len(decoder.inputs.mean) != dimension:
        raise DataFileError.of(owner, "decoder", f"for vectors of dimension {dimension}, as the attacker's own",
                               f"dimension {len(decoder.inputs.mean)}")  # fmt: skip
    return decoder


def _fresh(
    plan: DecoderPlan,
    X: Embeddings,
    texts: Sequence[str],
    draw: Draw,
    rng: np.random.Generator,
    *,
    owner: str,
) -> tuple[Decoder, list[Ids]]:
    """Return an untrained decoder for ``draw(X)`` and the tokens of the texts."""
    inputs = fit_input_map(draw(X, rng))
    seed = int(rng.integers(2**31))
    if plan.model is None:
        tokeniser = Tokeniser.train(texts, plan.vocabulary)
        decoder = Decoder.build(tokeniser, inputs, plan.shape, seed=seed)
    else:
        tokeniser = _read(Tokeniser.pretrained, plan.model, owner=owner)

        def build(model: str) -> Decoder:
            return Decoder.build(tokeniser, inputs, plan.shape, seed=seed, model=model)

        decoder = _read(build, plan.model, owner=owner)
    ids = tokeniser.encode(texts, plan.shape.max_tokens)
    if plan.shape.hint:
        start_from_words(decoder, inputs(draw(X, rng)), ids)
    return decoder, ids


def _read(read: Callable[[str], Any], model: str, *, owner: str) -> Any:
    try:
        return read(model)
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise DataFileError.of(owner, "model", "a GPT-2 of the hub, or a folder with one", repr(model)[:80],
                               fix="Check the name, the network and HF_HUB_OFFLINE.") from error  # fmt: skip
