"""Vec2Text: guess a text from its vector, then correct the guess by its own vector."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from vecveil.auditing.attacks.attack import Knowledge, Session, TextVectors
from vecveil.auditing.attacks.reconstruction.base import (
    EncodeTexts,
    Ids,
    Judging,
    ReconstructionAttack,
    TextBatches,
    Tokeniser,
    import_transformers,
    rows_by_length,
)
from vecveil.auditing.attacks.reconstruction.t5 import (
    CORRECTOR,
    HYPOTHESISER,
    Language,
    PublishedCheckpoint,
    T5Shape,
    Writer,
    build,
    read_published,
    sequence_loss,
    t5_config,
)
from vecveil.auditing.attacks.release_model import Denoiser, InputMap, fit_input_map, ridge_path
from vecveil.errors import DataFileError, InvalidInputError, MissingDependencyError, unknown_name
from vecveil.io import checkpoint_error, expanded, write_text
from vecveil.privacy.training import (
    Fit,
    TrainingRecipe,
    TrainingRun,
    fit_model,
    forget_training,
    load_tensors,
    load_weights,
    mean_loss,
    save_tensors,
    weights_of,
)
from vecveil.runtime import import_torch, progress, resolve_device
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_embeddings

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]

Propose = Callable[[Array, Sequence[str], Array], list[list[str]]]
"""``propose(targets, texts, vectors)``: better texts for each text, given its own and the target's vector."""

Place = Callable[[Sequence[str]], Array]
"""Returns the vectors of texts in the space of the targets."""

_PENALTIES = tuple(10.0**e for e in range(-8, 4))  # shares of the largest eigenvalue
_SAME = 0.999  # mean cosine from which two sets of vectors are the same up to rounding
_BLANK = "."  # replaces a blank text, which some encoders refuse


def fit_ridge(X: Array, Y: Array, held_X: Array, held_Y: Array) -> Denoiser:
    """Return the ridge regression of ``Y`` on ``X`` whose penalty has the least error on held-out rows."""
    source, target = X.mean(axis=0, dtype=np.float64), Y.mean(axis=0, dtype=np.float64)
    maps = [
        Denoiser(source, weights, target, penalty)
        for penalty, weights in ridge_path(X - source, Y - target, _PENALTIES)
    ]
    exact = held_X.astype(np.float64)
    return min(maps, key=lambda predict: float(((predict(exact) - held_Y) ** 2).sum()))


def same_space(X: Array, Y: Array) -> bool:
    """Return whether the rows of ``X`` and ``Y`` are the same vectors up to rounding."""
    if X.shape != Y.shape:
        return False
    norms = np.linalg.norm(X, axis=1) * np.linalg.norm(Y, axis=1)
    products = (X.astype(np.float64) * Y).sum(axis=1)
    return bool(_over(products, norms).mean() > _SAME)


def _over(products: FloatArray, norms: Array) -> FloatArray:
    cosines: FloatArray = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    return cosines


def encode_checked(encode: EncodeTexts, texts: Sequence[str], dimension: int | None = None) -> Array:
    """Return the vectors of ``texts``; raise `InvalidInputError` unless they are finite and of ``dimension``."""
    owner = "Vec2TextAttack"
    given = [text if text.strip() else _BLANK for text in texts]
    vectors = check_embeddings(np.asarray(encode(given)), owner=owner, param="encode")
    expected = (len(given), vectors.shape[1] if dimension is None else dimension)
    if vectors.shape != expected:
        raise InvalidInputError(
            f"encode returned shape {vectors.shape} for {len(given)} texts, not {expected}: give the encoder of the "
            "training vectors.",
            code="E-INPUT-SHAPE",
            param="encode",
        )
    return vectors


@dataclass(frozen=True, eq=False)
class Space:
    """Encodes texts, and maps their vectors to the space of the targets.

    With a release oracle it averages ``draws`` releases of clean vectors; without one it applies the ridge map, if the
    training vectors are not the encoder's own.
    """

    encode: EncodeTexts
    knowledge: Knowledge
    ridge: Denoiser | None
    draws: int
    dimension: int  # of the encoder's vectors

    def clean(self, texts: Sequence[str]) -> Array:
        return encode_checked(self.encode, texts, self.dimension)

    def release(self, clean: Array, rng: np.random.Generator) -> Array:
        """Return clean vectors as expected after release, (N, m)."""
        if self.knowledge.adaptive:
            drawn = [self.knowledge.draw(clean, rng) for _ in range(self.draws)]
            total: FloatArray = np.sum(drawn, axis=0, dtype=np.float64)
            return (total / self.draws).astype(np.float32)
        return clean if self.ridge is None else self.ridge(clean).astype(np.float32, copy=False)


@dataclass(eq=False)
class _Pool:
    """The best texts for one target so far, with their scores, best first."""

    scores: dict[str, float] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    corrected: set[str] = field(default_factory=set)


def correct(
    targets: Array, first: Sequence[Sequence[str]], propose: Propose, place: Place, *, rounds: int, beam: int
) -> tuple[list[str], int]:
    """Return for each target the text whose vector has the highest cosine with it, and the number of rounds.

    Each round corrects every kept text not corrected yet, encodes the results, and keeps the ``beam`` best of old and
    new, until no better text appears (Morris et al. 2023, section 3, sequence beam). The first guesses remain
    candidates.

    ``targets`` are (N, m); ``first`` contains the first guesses of each target, at least one.
    """
    pools = [_Pool() for _ in targets]
    vectors: dict[str, Array] = {}
    _add(targets, pools, first, vectors, place, beam)
    # `progress` without a bar: a loop that other threads can stop.
    for done in progress(range(rounds), "correction", show=False):
        pending = [(i, t) for i, p in enumerate(pools) for t in p.scores if t not in p.corrected]
        if not pending:
            return _best(pools), done
        for i, text in pending:
            pools[i].corrected.add(text)
        rows = np.array([i for i, _ in pending])
        texts = [text for _, text in pending]
        proposed = propose(targets[rows], texts, np.stack([vectors[text] for text in texts]))
        new: list[list[str]] = [[] for _ in pools]  # a target may have several pending texts
        for i, some in zip(rows, proposed, strict=True):
            new[i] += some
        _add(targets, pools, new, vectors, place, beam)
    return _best(pools), rounds


def _best(pools: Sequence[_Pool]) -> list[str]:
    return [next(iter(pool.scores)) for pool in pools]


def _add(
    targets: Array,
    pools: Sequence[_Pool],
    new: Sequence[Sequence[str]],
    vectors: dict[str, Array],
    place: Place,
    beam: int,
) -> None:
    fresh = [[t for t in dict.fromkeys(some) if t not in p.seen] for p, some in zip(pools, new, strict=True)]
    unknown = [t for t in dict.fromkeys(t for some in fresh for t in some) if t not in vectors]
    if unknown:
        vectors.update(zip(unknown, place(unknown), strict=True))
    for target, pool, some in zip(targets, pools, fresh, strict=True):
        pool.seen.update(some)
        if some:
            cosines = _cosines(target, np.stack([vectors[t] for t in some]))
            pool.scores.update(zip(some, cosines, strict=True))
            # A stable sort: of two texts with equal scores the earlier stays.
            ranked = sorted(pool.scores.items(), key=lambda item: -item[1])
            pool.scores = dict(ranked[:beam])
    # Only kept texts are corrected, so only their vectors are needed.
    kept = {text for pool in pools for text in pool.scores}
    for text in [text for text in vectors if text not in kept]:
        del vectors[text]


def _cosines(target: Array, vectors: Array) -> list[float]:
    target, vectors = target.astype(np.float64), vectors.astype(np.float64)
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(target)
    return [float(cosine) for cosine in _over(vectors @ target, norms)]


Start = str | os.PathLike[str] | PublishedCheckpoint | None

SCHEMA = "vecveil.vec2text/1"
_FILE = "vec2text.json"
# Training texts that are encoded to check whether their vectors are the encoder's own.
_CHECKED = 64
_RIDGE_ROWS = 20_000  # training texts that a ridge is fitted on


@dataclass(frozen=True, slots=True)
class Preset:
    """Sizes, training and search of Vec2Text.

    Attributes:
        model: Name at a hub, or folder, of the T5 to start from; None trains one from scratch.
        repeat: Pseudo tokens that a vector is projected to.
        width: Width of a T5 trained from scratch; its heads are 64 wide, or one.
        layers: Layers of its encoder and of its decoder.
        vocabulary: Maximum number of tokens of its trained byte-pair encoding.
        beam: Texts kept for each target, and proposed for each of them.
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
        return max(1, self.width // 64)


PRESETS = {
    "small": Preset(TrainingRecipe(epochs=40, batch=64, learning_rate=1e-3, max_tokens=40), repeat=8, rounds=5, beam=4),
    # Fine-tuning on protected vectors as in SPARSE's appendix; search as in Morris et al. 2023.
    "paper": Preset(
        TrainingRecipe(epochs=50, batch=32, learning_rate=5e-5, max_tokens=32, weight_decay=0.0),
        model="t5-base",
        repeat=16,
        rounds=20,
        beam=8,
    ),
}


@dataclass(frozen=True, eq=False)
class Guesses:
    """The hypothesiser's guess for each text: its tokens, and the (N, n) clean vectors of the guesses."""

    ids: list[Ids]
    clean: Array


def train_writer(
    writer: Writer,
    inputs_of: Callable[[np.random.Generator], Mapping[str, Array]],
    texts: tuple[Sequence[Ids], Sequence[Ids]],
    held: Mapping[str, Array],
    recipe: TrainingRecipe,
    session: Session,
    *,
    guesses: tuple[Guesses, Guesses] | None = None,
) -> Fit:
    """Train the writer's network in place; ``inputs_of`` returns the inputs of an epoch, ``held`` of validation."""
    own = others = None
    if guesses is not None:
        own, others = ((each.ids, writer.language.pad) for each in guesses)

    def epoch_batches(epoch: int, rng: np.random.Generator) -> TextBatches:
        inputs = inputs_of(rng)
        return TextBatches(rows_by_length(texts[0], recipe.batch, rng), texts[0], inputs, own)

    # Validation batches and inputs are fixed, so that losses of epochs are comparable.
    rows = np.split(np.arange(len(texts[1])), range(recipe.batch, len(texts[1]), recipe.batch))
    validation = TextBatches(rows, texts[1], held, others)
    return fit_model(
        writer.module,
        epoch_batches,
        sequence_loss,
        lambda module: mean_loss(module, validation, sequence_loss),
        recipe,
        TrainingRun(session.rng, writer.shape.kind, session.show_progress, session.folder),
    )


def write_guesses(writer: Writer, targets: Array, space: Space) -> Guesses:
    # Greedy decoding: the corrector learns from one guess for each text.
    texts = [guess[0] for guess in writer.guess(targets)]
    return Guesses(writer.language.guess_ids(texts), space.clean(texts))


@dataclass(eq=False)
class Vec2TextState:
    """A fitted attack, saved as safetensors, JSON and ``tokenizer.json``.

    ``ridge`` maps the encoder's vectors, of dimension ``clean``, to released ones if there was no oracle.
    """

    hypothesiser: Writer
    corrector: Writer | None
    ridge: Denoiser | None
    clean: int
    seed: int
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def dimension(self) -> int:
        return len(self.hypothesiser.inputs.mean)

    def writers(self) -> Mapping[str, Writer]:
        first = {HYPOTHESISER: self.hypothesiser}
        return first if self.corrector is None else {**first, CORRECTOR: self.corrector}

    def save(self, folder: Path) -> None:
        """Write the files, then remove the checkpoints of the training."""
        torch = import_torch()
        language = self.hypothesiser.language
        record: dict[str, Any] = {
            "schema": SCHEMA,
            "clean": self.clean,
            "seed": self.seed,
            "details": self.details,
            "end": language.tokeniser.end,
            "pad": language.pad,
            "max_tokens": language.max_tokens,
            "networks": {},
        }
        inputs, ridge = self.hypothesiser.inputs, self.ridge
        maps = {"inputs/mean": inputs.mean, "inputs/weights": inputs.weights}
        if ridge is not None:
            maps |= {"ridge/weights": ridge.weights, "ridge/source": ridge.mean, "ridge/target": ridge.centre}
        tensors = {key: torch.from_numpy(a.copy()).contiguous() for key, a in maps.items()}
        save_tensors(folder / "maps.safetensors", tensors)
        for kind, writer in self.writers().items():
            save_tensors(folder / f"{kind}.safetensors", weights_of(writer.module))
            config = writer.module["encoder_decoder"].config.to_dict()
            record["networks"][kind] = {"shape": asdict(writer.shape), "t5": config}
        language.tokeniser.save(folder)
        # Write the record last: only a complete state may replace the files of the training.
        write_text(folder / _FILE, json.dumps(record, indent=1) + "\n")
        for kind in (HYPOTHESISER, CORRECTOR):
            forget_training(folder, kind)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Vec2TextState:
        """Return the state that `save` wrote; raise `DataFileError` if the folder contains none."""
        folder = expanded(folder)
        try:
            record = json.loads((folder / _FILE).read_text(encoding="utf-8"))
            if record["schema"] != SCHEMA:
                raise ValueError("a different schema")
            return cls._of(record, folder)
        except MissingDependencyError:
            raise
        except Exception as error:  # torch and others raise their own types
            raise checkpoint_error(
                f"{folder.name} is damaged, or this attack did not write it. For weights of the vec2text package give "
                "a PublishedCheckpoint."
            ) from error

    @classmethod
    def _of(cls, record: Mapping[str, Any], folder: Path) -> Vec2TextState:
        maps = {k: t.numpy() for k, t in load_tensors(folder / "maps.safetensors").items()}
        inputs = InputMap(maps["inputs/mean"], maps["inputs/weights"])
        ridge = None
        if "ridge/weights" in maps:
            ridge = Denoiser(maps["ridge/source"], maps["ridge/weights"], maps["ridge/target"], 0.0)
        tokeniser = Tokeniser.load(folder, record["end"])
        language = Language(tokeniser, record["pad"], record["max_tokens"])
        writers: dict[str, Writer] = {}
        for kind, network in record["networks"].items():
            shape = T5Shape(**network["shape"])
            config = dict(network["t5"])
            if config.get("scale_decoder_outputs") is False:
                # transformers 5 reads the scaling off this value.
                config["tie_word_embeddings"] = False
            # The weights follow from the file, so the seed of the first ones is irrelevant.
            config = import_transformers().T5Config.from_dict(config)
            module = build(shape, seed=0, config=config)
            load_weights(module, load_tensors(folder / f"{kind}.safetensors"))
            writers[kind] = Writer(module.eval(), shape, language, inputs)
        return cls(
            writers[HYPOTHESISER], writers.get(CORRECTOR), ridge, record["clean"], record["seed"], record["details"]
        )


class Vec2TextOptions(Judging, total=False):
    """Further options of `Vec2TextAttack`; the first three override the preset.

    Attributes:
        rounds: Maximum rounds of correction; 0 is the hypothesiser alone, without a corrector. More rounds recover a
            little more and take longer.
        beam: Guesses kept for each vector, and written for each guess.
    """

    rounds: int | None
    beam: int | None
    device: str | None


class Vec2TextAttack(ReconstructionAttack):
    """Writes a first guess from the vector, encodes it, and corrects it by the difference of the two.

    The attack trains two encoder-decoders like T5. The hypothesiser takes the vector, projected to a few pseudo tokens.
    The corrector takes the vector, the vector of the current guess, their difference and the guess; it learns from
    guesses of the trained hypothesiser. The attack keeps the guesses whose vectors have the highest cosine with the
    target.

    With a release oracle a guess's vector is released ``draws`` times and averaged, to lie in the target's space.
    Without one, a ridge regression from the encoder's vectors of the training texts to their released vectors replaces
    the release (``align="ridge"``), unless the two are the same.

    Further estimates: ``token_f1_of_hypothesis``, the first guess alone.
    """

    description = "Encoder-decoder that guesses the text and corrects the guess by its own vector."
    source = 'Morris et al. (2023), "Text Embeddings Reveal (Almost) As Much As Text".'
    state_type = Vec2TextState
    trains_long = True

    def __init__(
        self,
        encode: EncodeTexts | None,
        preset: str | Preset = "small",
        *,
        draws: int = 4,
        align: str = "auto",
        start_from: Start = None,
        fine_tune: bool = True,
        **options: Unpack[Vec2TextOptions],
    ) -> None:
        """Set the options.

        Args:
            encode: The encoder that made the vectors: N texts in, (N, n) array out. None for ``rounds=0``.
            preset: ``"small"`` (trained from scratch), ``"paper"`` (T5-base), or your own `Preset`.
            draws: Releases of a guess that are averaged; more make the comparison less noisy.
            align: ``"auto"``, ``"ridge"`` or ``"none"``: the replacement of the release without an oracle.
            start_from: Folder of a finished attack (its checkpoint), or published weights. The networks continue from
                there, with its tokens, inputs and sizes in place of the preset's.
            fine_tune: False uses ``start_from`` unchanged, and trains only a missing corrector.
            **options: As in `Vec2TextOptions`.
        """
        owner = "Vec2TextAttack"
        if isinstance(preset, str):
            if preset not in PRESETS:
                raise unknown_name(owner, "preset", [*PRESETS, "or a Preset"], preset)
            preset = PRESETS[preset]
        if align not in ("auto", "ridge", "none"):
            raise unknown_name(owner, "align", ("auto", "ridge", "none"), align)
        rest: dict[str, Any] = dict(options)
        self._set_judge(rest)
        device = rest.pop("device", None) or preset.recipe.device
        own = {name: value for name, value in rest.items() if value is not None}
        given = replace(preset, **own, recipe=replace(preset.recipe, device=device))
        if given.rounds and encode is None:
            raise InvalidInputError(
                "Correction compares vectors: pass encode, or rounds=0 for the hypothesiser alone.", param="encode"
            )
        if start_from is None and not fine_tune:
            raise InvalidInputError("fine_tune=False needs start_from.", param="fine_tune")
        self.name = "vec2text" if given.rounds else "vec2text-hypothesiser"
        self.cost = (
            "hours on a GPU, and a pretrained T5"
            if given.model
            else "hours on one core for 10,000 texts; a GPU is advised"
        )
        self.encode, self.preset, self.align = encode, given, align
        self.draws = check_count(draws, owner=owner, param="draws")
        self.start_from, self.fine_tune = start_from, bool(fine_tune)

    def _settings(self) -> Mapping[str, Any]:
        # A callable cannot be compared between runs.
        own = {k: v for k, v in super()._settings().items() if k not in ("encode", "cost")}
        # Beam and rounds are settings of the search: the training does not depend on them.
        preset = replace(self.preset, beam=1, rounds=0)
        return own | {"preset": preset, "corrects": self.preset.rounds > 0}

    def _check(self, train: TextVectors, test: TextVectors, knowledge: Knowledge) -> None:
        self._device()
        if self.preset.rounds:
            self._space(train, train, knowledge, only_check=True)

    def _space(self, train: TextVectors, held: TextVectors, knowledge: Knowledge, *, only_check: bool = False) -> Space:
        """Return the space in which guesses are compared; raise for an encoder with other vectors."""
        encode = self.encode
        assert encode is not None  # there are rounds
        if knowledge.adaptive:
            encode_checked(encode, train.texts[:1], train.dimension)
            return Space(encode, knowledge, None, self.draws, train.dimension)
        some = encode_checked(encode, train.texts[:_CHECKED])
        dimension = some.shape[1]
        if self.align == "none":
            encode_checked(encode, train.texts[:1], knowledge.dimension)
        same = self.align != "ridge" and same_space(some, train.X[: len(some)])
        if only_check or same or self.align == "none":
            return Space(encode, knowledge, None, self.draws, dimension)
        X = encode_checked(encode, train.texts[:_RIDGE_ROWS])
        held_X = encode_checked(encode, held.texts[:_RIDGE_ROWS])
        ridge = fit_ridge(X, train.X[: len(X)], held_X, held.X[: len(held_X)])
        return Space(encode, knowledge, ridge, self.draws, dimension)

    def _fit(self, train: TextVectors, validation: TextVectors, session: Session) -> Vec2TextState:
        knowledge = session.knowledge
        # Draw all seeds at once: omitting a step does not change the others.
        seeds = [int(seed) for seed in session.rng.integers(2**62, size=8)]
        space = self._space(train, validation, knowledge) if self.preset.rounds else None
        released = knowledge.draw(train.X, np.random.default_rng(seeds[0]))
        held = knowledge.draw(validation.X, np.random.default_rng(seeds[1]))
        first, second = _begin_from(self.start_from, self.preset, train.texts, released, seeds[2])
        language, inputs = first.language, first.inputs
        texts = language.ids(train.texts), language.ids(validation.texts)
        fits: dict[str, Fit] = {}
        if self.fine_tune:
            fits["hypothesiser"] = train_writer(
                first,
                lambda rng: {"target": inputs(knowledge.draw(train.X, rng))},
                texts,
                {"target": inputs(held)},
                self.preset.recipe,
                replace(session, rng=np.random.default_rng(seeds[3])),
            )
        first.module.to(self._device()).eval()
        if space is None:
            second = None
        elif second is None or self.fine_tune:
            # Keep the targets of the guesses: a guess contains its target's noise.
            second, fits["corrector"] = self._fit_corrector(
                first, second, space, (released, held), texts, seeds, session
            )
        clean = train.dimension if space is None else space.dimension
        ridge = None if space is None else space.ridge
        return Vec2TextState(first, second, ridge, clean, seeds[7], _numbers(fits, first, second))

    def _fit_corrector(
        self,
        first: Writer,
        second: Writer | None,
        space: Space,
        targets: tuple[Array, Array],
        texts: tuple[Sequence[Array], Sequence[Array]],
        seeds: Sequence[int],
        session: Session,
    ) -> tuple[Writer, Fit]:
        inputs = first.inputs
        own, others = (write_guesses(first, some, space) for some in targets)
        if second is None:
            second = _corrector_of(first, seeds[4])
        read, held = inputs(targets[0]), inputs(targets[1])
        placed = inputs(space.release(others.clean, np.random.default_rng(seeds[5])))
        fit = train_writer(
            second,
            lambda rng: {"target": read, "guess": inputs(space.release(own.clean, rng))},
            texts,
            {"target": held, "guess": placed},
            self.preset.recipe,
            replace(session, rng=np.random.default_rng(seeds[6])),
            guesses=(own, others),
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
        # The same seed each time: scoring a fitted state twice gives the same texts.
        rng = np.random.default_rng(state.seed)
        texts, rounds = correct(
            X,
            guesses,
            lambda targets, texts, vectors: second.propose(targets, texts, vectors, beam=beam),
            lambda texts: space.release(space.clean(texts), rng),
            rounds=self.preset.rounds,
            beam=beam,
        )
        state.details["rounds"] = rounds
        return texts

    def _variants(
        self, state: Vec2TextState, X: Embeddings, knowledge: Knowledge
    ) -> Iterator[tuple[str, str, list[str]]]:
        if state.corrector is not None:
            guesses = state.hypothesiser.guess(X, beam=self.preset.beam)
            yield "hypothesis", "of the hypothesis", [some[0] for some in guesses]

    def _details(self, state: Vec2TextState) -> Mapping[str, Any]:
        return {**state.details, "beam": self.preset.beam, "aligned": state.ridge is not None}


def _numbers(fits: Mapping[str, Fit], *writers: Writer | None) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for kind, fit in fits.items():
        numbers |= {f"{kind}_epoch": fit.best_epoch, f"{kind}_loss": fit.loss}
        numbers[f"{kind}_seconds"] = fit.seconds
    for writer in writers:
        if writer is not None:
            size = sum(int(p.numel()) for p in writer.module.parameters())
            numbers[f"{writer.shape.kind}_parameters"] = size
    return numbers


def _begin_from(
    start: Start, preset: Preset, texts: Sequence[str], released: Array, seed: int
) -> tuple[Writer, Writer | None]:
    dimension, limit = released.shape[1], preset.recipe.max_tokens
    if isinstance(start, PublishedCheckpoint):
        tokeniser, networks = read_published(start)
        identity = InputMap(np.zeros(dimension), np.eye(dimension))  # they read vectors unchanged
        writers: dict[str, Writer] = {}
        for kind, (module, shape) in networks.items():
            _check_dimension(shape.inputs, dimension)
            pad = int(module["encoder_decoder"].config.pad_token_id)
            writers[kind] = Writer(module, shape, Language(tokeniser, pad, limit), identity)
        return writers[HYPOTHESISER], writers.get(CORRECTOR)
    if start is not None:
        state = Vec2TextState.load(start)
        _check_dimension(state.dimension, dimension)
        return state.hypothesiser, state.corrector
    inputs = fit_input_map(released)
    config = None
    if preset.model is None:
        tokeniser = Tokeniser.train(texts, preset.vocabulary)
        pad = tokeniser.size  # an id that no text contains
        config = t5_config(
            pad + 1, width=preset.width, layers=preset.layers, heads=preset.heads, end=tokeniser.end, pad=pad
        )
    else:
        tokeniser = Tokeniser.pretrained(preset.model)
        pad = int(import_transformers().T5Config.from_pretrained(preset.model).pad_token_id)
    read = inputs.weights.shape[1]
    # As in the published package, but no narrower than the T5 where vectors have few dimensions.
    hidden = max(read, preset.width) if preset.model is None else read
    shape = T5Shape(HYPOTHESISER, read, preset.repeat, hidden)
    module = build(shape, seed=seed, config=config, model=preset.model)
    return Writer(module, shape, Language(tokeniser, pad, limit), inputs), None


def _corrector_of(first: Writer, seed: int) -> Writer:
    """Return an untrained corrector that starts from ``first``; the published corrector starts from T5 again."""
    shape = replace(first.shape, kind=CORRECTOR)
    t5 = first.module["encoder_decoder"]
    module = build(shape, seed=seed, config=t5.config)
    projection = first.module["embedding_transform"].state_dict()
    with import_torch().no_grad():
        module["encoder_decoder"].load_state_dict(t5.state_dict())
        module["embedding_transform_1"].load_state_dict(projection)
    return Writer(module, shape, first.language, first.inputs)


def _check_dimension(got: int, expected: int) -> None:
    if got != expected:
        raise DataFileError(
            f"start_from was trained on vectors of dimension {got}; these have {expected}.", param="start_from"
        )
