"""Vec2Text: reconstruct a text by guessing it and correcting the guess."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.attack import Session
from vecveil.attacks.evidence import Knowledge, TextVectors
from vecveil.attacks.reconstruction.base import EncodeTexts, ReconstructionAttack, WordsOf
from vecveil.attacks.reconstruction.tokenisers import Tokeniser, import_transformers
from vecveil.attacks.reconstruction.vec2text.correction import (
    RidgeMap,
    Space,
    correct,
    encode_checked,
    fit_ridge,
    same_space,
)
from vecveil.attacks.reconstruction.vec2text.networks import (
    CORRECTOR,
    HYPOTHESISER,
    Language,
    T5Shape,
    Writer,
    build,
    t5_config,
)
from vecveil.attacks.reconstruction.vec2text.published import PublishedCheckpoint, read_published
from vecveil.attacks.reconstruction.vec2text.training import (
    Vec2TextState,
    begin,
    train_writer,
    write_guesses,
)
from vecveil.attacks.release_model import InputMap, fit_input_map
from vecveil.attacks.training import Fit, TrainingRecipe
from vecveil.errors import DataFileError, InvalidInputError
from vecveil.runtime import import_torch, resolve_device
from vecveil.types import Embeddings
from vecveil.validation import check_count

__all__ = ["PRESETS", "Preset", "Vec2TextAttack", "begin_from", "corrector_of"]


@dataclass(frozen=True, slots=True)
class Preset:
    """A preset.

    Attributes:
        recipe: How both networks are trained.
        model: Name at a hub, or folder, of the T5 to start from; None trains one from scratch.
        repeat: Pseudo tokens that a vector is projected to.
        width: Width of a T5 trained from scratch; its heads are 64 wide, or one.
        layers: Layers of its encoder and of its decoder.
        vocabulary: Tokens of the byte-pair encoding trained with it, at most.
        rounds: Rounds of correction.
        beam: Texts that are kept for each target, and that are proposed for each of them.
    """

    recipe: TrainingRecipe
    model: str | None = None
    repeat: int = 16
    width: int = 256
    layers: int = 3
    vocabulary: int = 8000
    rounds: int = 5
    beam: int = 4

    def __post_init__(self) -> None:
        for name in ("repeat", "width", "layers", "beam"):
            check_count(getattr(self, name), owner="Preset", param=name)
        check_count(self.vocabulary, owner="Preset", param="vocabulary", minimum=257)
        check_count(self.rounds, owner="Preset", param="rounds", minimum=0)

    @property
    def heads(self) -> int:
        """Attention heads of a T5 trained from scratch."""
        return max(1, self.width // 64)


PRESETS = {
    "small": Preset(
        TrainingRecipe(epochs=40, batch=64, learning_rate=1e-3, max_tokens=40), repeat=8, rounds=5, beam=4
    ),
    # Fine-tuning on protected vectors as in SPARSE's appendix; search as in Morris et al. 2023.
    "paper": Preset(
        TrainingRecipe(epochs=50, batch=32, learning_rate=5e-5, max_tokens=32, weight_decay=0.0),
        model="t5-base", repeat=16, rounds=20, beam=8,
    ),
}  # fmt: skip


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
    shape = T5Shape(HYPOTHESISER, read, preset.repeat, hidden)
    module = build(shape, seed=seed, config=config, model=preset.model)
    language = Language(tokeniser, pad, preset.recipe.max_tokens)
    return Writer(module, shape, language, inputs), None


def corrector_of(first: Writer, preset: Preset, seed: int) -> Writer:
    """Return an untrained corrector for the guesses of ``first``.

    It starts from the hypothesiser's encoder-decoder, which already writes texts of the kind; the published one
    starts from T5 again.
    """
    shape = T5Shape(CORRECTOR, first.shape.inputs, first.shape.repeat, first.shape.hidden)
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


_CHECKED = 64  # training texts that are encoded to see whether their vectors are the encoder's own
_RIDGE_ROWS = 20_000  # training texts that a ridge is fitted on


class Vec2TextAttack(ReconstructionAttack):
    """Writes a first guess from the vector, encodes it, and corrects it by what lies between the two.

    Two encoder-decoders in the manner of T5. The hypothesiser reads the vector, projected to a few pseudo tokens.
    The corrector reads the vector, that of the current guess, their difference and the guess itself. Both are
    trained for the training texts' tokens; the corrector on guesses that the hypothesiser wrote once it
    was trained. While attacking, several guesses are kept for each vector, and those whose own vectors
    have the highest cosine with it survive.

    A guess's vector must be where the target is. With a release oracle it is released, ``draws`` times, and the
    mean taken. Without one, the training vectors are released ones and nothing can be released: a ridge
    regression from the encoder's vectors of the training texts to their released vectors then stands for
    the release (``align="ridge"``), unless the encoder's vectors and the training vectors are the same.

    Further estimates: ``token_f1_of_hypothesis``, the first guess alone.
    """

    description = "Encoder-decoder that guesses the text and corrects the guess by its own vector."
    source = 'Morris et al. (2023), "Text Embeddings Reveal (Almost) As Much As Text".'
    state_type = Vec2TextState

    def __init__(
        self,
        encode: EncodeTexts | None,
        preset: str | Preset = "small",
        *,
        rounds: int | None = None,
        beam: int | None = None,
        draws: int = 4,
        align: str = "auto",
        start_from: str | os.PathLike[str] | PublishedCheckpoint | None = None,
        fine_tune: bool = True,
        device: str | None = None,
        judge_encoder: EncodeTexts | None = None,
        words_of: WordsOf | None = None,
        judged: int = 500,
    ) -> None:
        """Keep how the attack is made.

        Args:
            encode: The encoder that made the vectors: N texts in, (N, n) array out. None for ``rounds=0``.
            preset: ``"small"`` (trained from scratch), ``"paper"`` (T5-base), or a `Preset` of one's own.
            rounds: Rounds of correction at most; 0 is the hypothesiser alone, without a corrector. None
                takes the preset's. More rounds find a little more and take longer.
            beam: Guesses kept for each vector, and written for each guess; None takes the preset's.
            draws: Releases of a guess that are averaged; more make the comparison less noisy.
            align: ``"auto"``, ``"ridge"`` or ``"none"``: what stands for the release where there is no oracle.
            start_from: Folder of a finished attack (its checkpoint), or published weights. The
                networks go on from there, with its tokens, inputs and sizes in place of the preset's.
            fine_tune: False uses ``start_from`` as it is, and trains only what it does not have.
            device: Overrides the device of the preset's recipe.
            judge_encoder: See `ReconstructionAttack`.
            words_of: See `ReconstructionAttack`.
            judged: See `ReconstructionAttack`.
        """
        owner = "Vec2TextAttack"
        if isinstance(preset, str):
            if preset not in PRESETS:
                wanted = f"one of {', '.join(PRESETS)}, or a Preset"
                raise InvalidInputError.of(owner, "preset", wanted, repr(preset)[:40])
            preset = PRESETS[preset]
        if align not in ("auto", "ridge", "none"):
            wanted = "'auto', 'ridge' or 'none'"
            raise InvalidInputError.of(owner, "align", wanted, repr(align)[:40])
        given = replace(
            preset,
            rounds=preset.rounds if rounds is None else rounds,
            beam=preset.beam if beam is None else beam,
        )
        if device is not None:
            given = replace(given, recipe=replace(given.recipe, device=device))
        if given.rounds and encode is None:
            raise InvalidInputError.of(owner, "encode", "an encoder, for correction compares vectors", "None",
                                       fix="Give the encoder, or rounds=0 for the hypothesiser alone.")  # fmt: skip
        if start_from is None and not fine_tune:
            raise InvalidInputError.of(owner, "fine_tune", "True without `start_from`", "False",
                                       "There would be nothing to use.")  # fmt: skip
        self.name = "vec2text" if given.rounds else "vec2text-hypothesiser"
        self.cost = (
            "hours on a GPU, and a pretrained T5"
            if given.model
            else "hours on one core for 10,000 texts; a GPU is advised"
        )
        self.encode, self.preset, self.align = encode, given, align
        self.draws = check_count(draws, owner=owner, param="draws")
        self.start_from, self.fine_tune = start_from, bool(fine_tune)
        self.judge_encoder, self.words_of = judge_encoder, words_of
        self.judged = check_count(judged, owner=owner, param="judged")

    def _settings(self) -> Mapping[str, Any]:
        own = dict(super()._settings())
        for key in ("encode", "preset", "cost"):
            own.pop(key, None)
        preset = asdict(self.preset)
        del preset["beam"], preset["rounds"]  # they say how to search, not what was learnt
        for key in ("device", "save_seconds", "seconds"):
            del preset["recipe"][key]
        return own | {"preset": preset, "corrects": self.preset.rounds > 0}

    def _check(self, train: TextVectors, test: TextVectors, knowledge: Knowledge) -> None:
        resolve_device(self.preset.recipe.device, owner="Vec2TextAttack")
        if self.preset.rounds:
            self._space(train, train, knowledge, only_check=True)

    def _space(
        self,
        train: TextVectors,
        held: TextVectors,
        knowledge: Knowledge,
        *,
        only_check: bool = False,
    ) -> Space:
        """Return where guesses are compared; the encoder is refused if its vectors do not fit."""
        encode = self.encode
        assert encode is not None  # there are rounds
        if knowledge.adaptive:
            encode_checked(encode, train.texts[:1], train.dimension)
            return Space(encode, knowledge, None, self.draws, train.dimension)
        found = encode_checked(encode, train.texts[:_CHECKED])
        same = self.align != "ridge" and same_space(found, train.X[: len(found)])
        if only_check or same or self.align == "none":
            if self.align == "none":
                encode_checked(encode, train.texts[:1], knowledge.dimension)
            return Space(encode, knowledge, None, self.draws, found.shape[1])
        X = encode_checked(encode, train.texts[:_RIDGE_ROWS])
        held_X = encode_checked(encode, held.texts[:_RIDGE_ROWS])
        ridge = fit_ridge(X, train.X[: len(X)], held_X, held.X[: len(held_X)])
        return Space(encode, knowledge, ridge, self.draws, found.shape[1])

    def _fit(
        self, train: TextVectors, validation: TextVectors, knowledge: Knowledge, session: Session
    ) -> Vec2TextState:
        seeds = [int(seed) for seed in session.rng.integers(2**62, size=8)]
        space = self._space(train, validation, knowledge) if self.preset.rounds else None
        released = knowledge.draw(train.X, np.random.default_rng(seeds[0]))
        held = knowledge.draw(validation.X, np.random.default_rng(seeds[1]))
        first, second = begin_from(
            self.start_from, self.preset, train.texts, released, seeds[2]
        )
        language, inputs = first.language, first.inputs
        texts = language.ids(train.texts), language.ids(validation.texts)
        folder = None if session.checkpoint is None else session.checkpoint.make()
        if folder is not None:
            begin(folder, seeds[0], texts[0])
        fits: dict[str, Fit] = {}
        if self.fine_tune:
            fits["hypothesiser"] = train_writer(
                first,
                lambda rng: (inputs(knowledge.draw(train.X, rng)), None),
                texts,
                (inputs(held), None),
                self.preset.recipe,
                seed=seeds[3],
                folder=folder,
                show_progress=session.show_progress,
            )
        first.module.to(self._device()).eval()
        if space is None:
            second = None
        elif second is None or self.fine_tune:
            # The targets stay those that the guesses were written for: a guess knows its target's noise.
            second, fits["corrector"] = self._fit_corrector(
                first, second, space, (released, held), texts, seeds, folder, session.show_progress
            )
        clean = train.dimension if space is None else space.dimension
        ridge: RidgeMap | None = None if space is None else space.ridge
        return Vec2TextState(first, second, ridge, clean, seeds[7], _numbers(fits, first, second))

    def _fit_corrector(
        self,
        first: Writer,
        second: Writer | None,
        space: Space,
        targets: tuple[Array, Array],
        texts: tuple[Sequence[Array], Sequence[Array]],
        seeds: Sequence[int],
        folder: Path | None,
        show: bool | None,
    ) -> tuple[Writer, Fit]:
        inputs = first.inputs
        ours, others = (
            write_guesses(first, some, space, folder=folder, name=name, show_progress=show)
            for name, some in zip(("training", "validation"), targets, strict=True)
        )
        if second is None:
            second = corrector_of(first, self.preset, seeds[4])
        read, held = inputs(targets[0]), inputs(targets[1])
        placed = inputs(space.release(others.clean, np.random.default_rng(seeds[5])))
        fit = train_writer(
            second,
            lambda rng: (read, inputs(space.release(ours.clean, rng))),
            texts,
            (held, placed),
            self.preset.recipe,
            guesses=(ours, others),
            seed=seeds[6],
            folder=folder,
            show_progress=show,
        )
        return second, fit

    def _device(self) -> str:
        return resolve_device(self.preset.recipe.device, owner="Vec2TextAttack")

    def _reconstruct(self, state: Vec2TextState, X: Embeddings, knowledge: Knowledge) -> list[str]:
        for writer in state.writers().values():
            writer.module.to(self._device())
        beam, second = self.preset.beam, state.corrector
        guesses = state.hypothesiser.guess(X, beam=beam)
        if second is None or not self.preset.rounds or self.encode is None:
            return [some[0] for some in guesses]
        space = Space(self.encode, knowledge, state.ridge, self.draws, state.clean)
        rng = np.random.default_rng(state.seed)
        found, rounds = correct(
            X,
            guesses,
            lambda targets, texts, vectors: second.propose(targets, texts, vectors, beam=beam),
            lambda texts: space.release(space.clean(texts), rng),
            rounds=self.preset.rounds,
            beam=beam,
        )
        state.details["rounds"] = rounds
        return found

    def _variants(
        self, state: Vec2TextState, X: Embeddings, knowledge: Knowledge
    ) -> Iterator[tuple[str, str, list[str]]]:
        if state.corrector is not None:
            yield (
                "hypothesis",
                "of the hypothesis",
                [some[0] for some in state.hypothesiser.guess(X, beam=self.preset.beam)],
            )

    def _details(self, state: Vec2TextState) -> Mapping[str, Any]:
        return {**state.details, "beam": self.preset.beam, "aligned": state.ridge is not None}


def _numbers(fits: Mapping[str, Fit], *writers: Writer | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind, fit in fits.items():
        found |= {f"{kind}_epoch": fit.best_epoch, f"{kind}_loss": fit.loss}
        found[f"{kind}_seconds"] = fit.seconds
    for writer in writers:
        if writer is not None:
            size = sum(int(p.numel()) for p in writer.module.parameters())
            found[f"{writer.shape.kind}_parameters"] = size
    return found
