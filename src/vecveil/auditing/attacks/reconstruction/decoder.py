"""Decoders: a causal language model writes a text from a projected vector (GEIA), or from an aligned one (ALGEN)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.special import logsumexp

from vecveil.auditing.attacks.attack import Knowledge, Session, TextVectors, normalise_text, split_groups
from vecveil.auditing.attacks.reconstruction.base import (
    EncodeTexts,
    Ids,
    ReconstructionAttack,
    TextBatches,
    Tokeniser,
    import_transformers,
    rows_by_length,
)
from vecveil.auditing.attacks.release_model import InputMap, fit_input_map
from vecveil.errors import DataFileError, InvalidInputError, optional_import, unknown_name
from vecveil.io import atomic_path, write_text
from vecveil.privacy.training import (
    TrainingRecipe,
    TrainingRun,
    fit_model,
    forget_training,
    load_tensors,
    load_weights,
    mean_loss,
    save_tensors,
    seeded,
    weights_of,
)
from vecveil.runtime import Batches, import_torch, resolve_device
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_texts

Array = npt.NDArray[Any]
Draw = Callable[[Embeddings, np.random.Generator], Embeddings]

SCHEMA = "vecveil.decoder/1"
_VALIDATION_ROWS = 2000
_PENALTY = 1e-3  # of a row's weight: standardised coordinates have variance 1
# Added to the variances, which are about 1: dead directions must not be amplified.
_VARIANCE_FLOOR = 0.02
_SHRINK = 10.0  # texts that a token's mean is shrunk to zero with
_STEADY = 200.0  # texts from which a token has full weight when directions are chosen
_NORM = 0.3  # mean norm of a token's row, as in a fresh embedding
_GAINS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
_JUDGED = 1000  # texts that the gain is chosen on


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """Sizes of a decoder.

    Attributes:
        heads: Attention heads; must divide the width.
        prefix: Input tokens that the vector is projected to.
        hidden: Units between the two layers of the projection.
        hint: Whether a linear map of the vector is added to the last hidden state at every position.
        max_tokens: Maximum length of a text, in tokens.
    """

    layers: int
    width: int
    heads: int
    prefix: int
    hidden: int
    hint: bool
    max_tokens: int

    def __post_init__(self) -> None:
        owner = "DecoderShape"
        for name in ("layers", "width", "heads", "prefix", "hidden", "max_tokens"):
            check_count(getattr(self, name), owner=owner, param=name)
        if self.width % self.heads:
            raise InvalidInputError(f"{self.heads} heads do not divide the width {self.width}.", param="heads")


class Decoder:
    """A decoder with its tokeniser and the map from released vectors to its inputs.

    Its module contains ``projection`` (two layers), ``hint`` (one linear layer, if any) and ``lm``, a GPT-2 or any
    causal language model of transformers.
    """

    def __init__(
        self, module: Any, tokeniser: Tokeniser, inputs: InputMap, shape: DecoderShape, details: Mapping[str, Any]
    ) -> None:
        self.module, self.tokeniser, self.inputs, self.shape = module, tokeniser, inputs, shape
        self.details = dict(details)

    @classmethod
    def build(
        cls,
        tokeniser: Tokeniser,
        inputs: InputMap,
        shape: DecoderShape,
        *,
        seed: int,
        model: str | None = None,
        config: Any = None,
    ) -> Decoder:
        """Return an untrained decoder, or one around the language model ``model`` (a hub's name, or a folder)."""
        transformers, nn = import_transformers(), import_torch().nn
        with seeded(seed):
            if model is None:
                config = config or transformers.GPT2Config(**_config(tokeniser, shape))
                lm = transformers.AutoModelForCausalLM.from_config(config)
            else:
                lm = transformers.AutoModelForCausalLM.from_pretrained(model).float()
            width, read = lm.config.hidden_size, inputs.weights.shape[1]
            first, second = (nn.Linear(read, shape.hidden), nn.Linear(shape.hidden, shape.prefix * width))
            parts = {"projection": nn.Sequential(first, nn.GELU(), second), "lm": lm}
            if shape.hint:
                parts["hint"] = nn.Linear(read, width)
                # Zero at first: the hint must not disturb before it has learnt.
                nn.init.zeros_(parts["hint"].weight)
                nn.init.zeros_(parts["hint"].bias)
        return cls(nn.ModuleDict(parts), tokeniser, inputs, shape, {})

    @property
    def parameters(self) -> int:
        return sum(int(p.numel()) for p in self.module.parameters())

    def write(self, Y: Embeddings, *, beams: int = 1, samples: int = 0, batch: int = 128) -> list[str]:
        """Return a text for each released vector: greedy with one beam, else beam search; or ``samples`` texts of each.

        Samples are drawn from torch's global generator.
        """
        torch = import_torch()
        x, end = self.inputs(Y), self.tokeniser.end
        settings = import_transformers().GenerationConfig(
            max_new_tokens=self.shape.max_tokens,
            **({"do_sample": True, "top_k": 0} if samples else {"do_sample": False}),
            num_beams=beams,
            num_return_sequences=max(samples, 1),
            bos_token_id=end,
            eos_token_id=end,
            pad_token_id=end,
        )
        lm = self.module["lm"]
        device = next(self.module.parameters()).device
        self.module.eval()

        def work(start: int, stop: int) -> list[str]:
            given = torch.from_numpy(np.ascontiguousarray(x[start:stop])).to(device)
            prefix = _prefix(self.module, given)
            mask = torch.ones(prefix.shape[:2], dtype=torch.long, device=device)
            processors = []
            # lm_head is linear: a hint in the hidden state is an addend of the logits.
            if "hint" in self.module:
                processors.append(_adding(lm.lm_head(self.module["hint"](given)), max(beams, samples)))
            ids = lm.generate(
                inputs_embeds=prefix, attention_mask=mask, generation_config=settings, logits_processor=processors
            )
            return self.tokeniser.decode(ids.tolist())

        with torch.no_grad():
            parts = Batches(batch).run(len(x), work)
        return [text for part in parts for text in part]

    def save(self, folder: Path) -> None:
        """Write ``decoder.safetensors``, ``tokenizer.json`` and, last, ``decoder.json``."""
        torch = import_torch()
        tensors = weights_of(self.module)
        tensors["inputs/mean"] = torch.from_numpy(self.inputs.mean)
        tensors["inputs/weights"] = torch.from_numpy(self.inputs.weights).contiguous()
        save_tensors(folder / "decoder.safetensors", tensors)
        self.tokeniser.save(folder)
        record = {
            "schema": SCHEMA,
            "shape": asdict(self.shape),
            "end": self.tokeniser.end,
            "language_model": self.module["lm"].config.to_dict(),
            "details": self.details,
        }
        write_text(folder / "decoder.json", json.dumps(record, indent=1) + "\n")
        forget_training(folder, "decoder")

    @classmethod
    def load(cls, folder: Path) -> Decoder:
        record = json.loads((folder / "decoder.json").read_text(encoding="utf-8"))
        if record["schema"] != SCHEMA:
            raise ValueError("the decoder is of a different schema")
        tensors = load_tensors(folder / "decoder.safetensors")
        inputs = InputMap(*(tensors.pop(f"inputs/{key}").numpy() for key in ("mean", "weights")))
        tokeniser = Tokeniser.load(folder, record["end"])
        config = import_transformers().AutoConfig.for_model(**record["language_model"])
        decoder = cls.build(tokeniser, inputs, DecoderShape(**record["shape"]), seed=0, config=config)
        load_weights(decoder.module, tensors)
        decoder.module.eval()
        decoder.details = record["details"]
        return decoder


def decoder_loss(module: Any, part: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the summed cross-entropy of the texts' tokens, ends included, and their number."""
    torch = import_torch()
    lm, ids = module["lm"], part["ids"]
    prefix = _prefix(module, part["inputs"])
    tokens = lm.get_input_embeddings()(ids[:, :-1])
    read = torch.cat([prefix, tokens], dim=1)
    # Texts are padded on the right, so the causal mask alone hides the padding.
    hidden = lm.base_model(inputs_embeds=read, use_cache=False).last_hidden_state
    hidden = hidden[:, prefix.shape[1] - 1 :]
    real = torch.arange(ids.shape[1], device=ids.device) < part["lengths"][:, None]
    if "hint" in module:
        hidden = hidden + module["hint"](part["inputs"])[:, None]
    logits = lm.lm_head(hidden[real])
    loss = torch.nn.functional.cross_entropy(logits.float(), ids[real], reduction="sum")
    return loss, part["lengths"].sum()


def _config(tokeniser: Tokeniser, shape: DecoderShape) -> dict[str, Any]:
    return {
        "vocab_size": tokeniser.size,
        "n_positions": shape.prefix + shape.max_tokens,
        "n_embd": shape.width,
        "n_layer": shape.layers,
        "n_head": shape.heads,
        "activation_function": "gelu_pytorch_tanh",  # gelu_new as one operation
        "bos_token_id": tokeniser.end,
        "eos_token_id": tokeniser.end,
        # No dropout: with an oracle the fresh releases of every epoch regularise.
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    }


def _prefix(module: Any, x: Any) -> Any:
    return module["projection"](x).view(len(x), -1, module["lm"].config.hidden_size)


def _adding(extra: Any, beams: int) -> Callable[[Any, Any], Any]:
    repeated = extra.repeat_interleave(beams, dim=0)

    def add(ids: Any, scores: Any) -> Any:
        # Beam search passes log probabilities, which must stay normalised.
        return (scores + repeated).log_softmax(dim=-1)

    return add


def bridge(inputs: InputMap, clean: Array, released: Array) -> InputMap:
    """Return the map under which released vectors resemble what ``inputs`` computes from the clean ones.

    It is a ridge regression from ``released``, (N, m), to the inputs of the ``clean`` vectors, (N, n), of the same
    texts. Its outputs are scaled to the variance of their targets, since a regression shrinks.
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
    # (y - mean) @ weights must have the mean `middle`; an offset of `mean` achieves it.
    offset = np.linalg.lstsq(weights.T, middle, rcond=None)[0]
    return InputMap(own.mean - offset, weights)


def start_from_words(decoder: Decoder, x: Array, ids: Sequence[Ids]) -> None:
    """Initialise the token embeddings and the hint from the mean vector of each token's texts.

    With whitened inputs z and the mean c_v of z over the texts that contain token v, c_v · z is the linear discriminant
    of v (equal covariances). The leading directions of the c_v are added to the token embeddings, and the hint is set
    such that their product is the discriminant times the gain that maximises the words' likelihood.
    """
    torch = import_torch()
    lm = decoder.module["lm"]
    covariance = x.T.astype(np.float64) @ x / len(x) + _VARIANCE_FLOOR * np.eye(x.shape[1])
    values, vectors = np.linalg.eigh(covariance)
    whiten = (vectors / np.sqrt(values)) @ vectors.T
    held = [np.unique(row) for row in ids]
    bounds = np.concatenate([[0], np.cumsum([len(row) for row in held])])
    tokens = np.concatenate(held)
    size = (len(ids), decoder.tokeniser.size)
    holds = csr_array((np.ones(len(tokens), np.float32), tokens, bounds), shape=size)
    counts = np.asarray(holds.sum(axis=0)).reshape(-1)
    means = (holds.T @ (x @ whiten.astype(np.float32))) / (counts + _SHRINK)[:, None]
    # Rare tokens have noisy means, which must not choose the directions.
    weight = np.sqrt(np.minimum(counts, _STEADY))[:, None]
    axes = np.linalg.svd(means * weight, full_matrices=False)[2][: lm.config.hidden_size].T
    rows = np.zeros((size[1], lm.config.hidden_size))
    rows[:, : axes.shape[1]] = means @ axes
    seen = counts > 0
    scale = _NORM / max(float(np.linalg.norm(rows[seen], axis=1).mean()), 1e-12)
    hint = np.zeros((lm.config.hidden_size, x.shape[1]))
    hint[: axes.shape[1]] = (whiten @ axes).T
    part = slice(0, _JUDGED)
    scores = (x[part] @ hint.T.astype(np.float32)) @ rows.T.astype(np.float32)
    gain = _best_gain(scores, np.log(counts + 1.0), holds[part])
    with torch.no_grad():
        table = lm.get_input_embeddings().weight
        # Half of the random start remains, or tokens without a discriminant would be equal.
        table.mul_(0.5).add_(torch.from_numpy((scale * rows).astype(np.float32)))
        start = torch.from_numpy((gain / scale * hint).astype(np.float32))
        decoder.module["hint"].weight.copy_(start)


def _best_gain(scores: Array, prior: Array, holds: Any) -> float:
    """Return the gain with the least cross-entropy of the held words under softmax(prior + gain * scores)."""
    losses = []
    for gain in _GAINS:
        logits = prior + gain * scores
        logits -= logsumexp(logits, axis=1, keepdims=True)
        losses.append(-float((holds * logits).sum()))
    return _GAINS[int(np.argmin(losses))]


@dataclass(frozen=True)
class DecoderPlan:
    """Sizes and training of a decoder; ``model`` names a pretrained causal language model, None trains a GPT-2."""

    shape: DecoderShape
    recipe: TrainingRecipe
    vocabulary: int
    model: str | None = None


PRESETS: Mapping[str, DecoderPlan] = {
    "small": DecoderPlan(
        DecoderShape(layers=4, width=192, heads=4, prefix=4, hidden=384, hint=True, max_tokens=48),
        TrainingRecipe(epochs=20, batch=32, learning_rate=1.5e-3, max_tokens=48),
        vocabulary=6000,
    ),
    "medium": DecoderPlan(
        DecoderShape(layers=8, width=512, heads=8, prefix=8, hidden=1024, hint=True, max_tokens=64),
        TrainingRecipe(epochs=20, batch=128, learning_rate=6e-4, max_tokens=64),
        vocabulary=16000,
    ),
    "paper": DecoderPlan(
        DecoderShape(layers=12, width=768, heads=12, prefix=1, hidden=768, hint=False, max_tokens=64),
        TrainingRecipe(epochs=30, batch=16, learning_rate=3e-5, patience=30, max_tokens=64),
        vocabulary=50257,
        model="gpt2",
    ),
}
"""``small`` for a CPU core, ``medium`` for a GPU, both from scratch; ``paper`` as published."""


def plan(preset: str, options: Mapping[str, Any], *, owner: str) -> DecoderPlan:
    """Return a preset with the values of ``options``; a value None changes nothing."""
    if preset not in PRESETS:
        raise unknown_name(owner, "preset", PRESETS, preset)
    given = {key: value for key, value in options.items() if value is not None}
    base = PRESETS[preset]
    # What remains must be a field of the shape or of the recipe.
    own = {key: given.pop(key) for key in ("vocabulary", "model") if key in given}
    sizes = {key: value for key, value in given.items() if key in DecoderShape.__slots__}
    training = {key: value for key, value in given.items() if key in TrainingRecipe.__slots__}
    unknown = sorted(given.keys() - {*sizes, *training} | {"device"} & given.keys())
    if unknown:
        raise InvalidInputError(f"{owner} has no argument {unknown[0]}.", code="E-INPUT-NAME", param=unknown[0])
    shape, recipe = replace(base.shape, **sizes), replace(base.recipe, **training)
    changed = replace(base, shape=shape, recipe=recipe, **own)
    check_count(changed.vocabulary, owner=owner, param="vocabulary", minimum=257)
    return changed


def open_decoder(folder: Path, dimension: int, *, owner: str) -> Decoder:
    """Return the decoder in ``folder``; raise `DataFileError` if it contains none for this dimension."""
    try:
        decoder = Decoder.load(folder)
    except Exception as error:  # safetensors, tokenizers and torch raise their own exception types
        raise DataFileError(f"The folder {folder.name} has no decoder of GEIAAttack.", param="decoder") from error
    got = len(decoder.inputs.mean)
    if got != dimension:
        raise DataFileError(
            f"The decoder was trained on vectors of dimension {got}; the attacker's own have {dimension}.",
            param="decoder",
        )
    return decoder


def _fresh(
    plan: DecoderPlan, X: Embeddings, texts: Sequence[str], draw: Draw, rng: np.random.Generator, *, owner: str
) -> tuple[Decoder, list[Ids]]:
    inputs = fit_input_map(draw(X, rng))
    seed = int(rng.integers(2**31))
    if plan.model is None:
        tokeniser = Tokeniser.train(texts, plan.vocabulary)
        decoder = Decoder.build(tokeniser, inputs, plan.shape, seed=seed)
    else:
        try:
            tokeniser = Tokeniser.pretrained(plan.model)
            decoder = Decoder.build(tokeniser, inputs, plan.shape, seed=seed, model=plan.model)
        except InvalidInputError:
            raise
        except (OSError, ValueError) as error:
            raise DataFileError(
                f"Loading the language model {str(plan.model)[:80]} failed. Check the name, the network and "
                "HF_HUB_OFFLINE.",
                param="model",
            ) from error
    ids = tokeniser.encode(texts, plan.shape.max_tokens)
    if plan.shape.hint:
        start_from_words(decoder, inputs(draw(X, rng)), ids)
    return decoder, ids


class DecoderAttack(ReconstructionAttack):
    """Base class of the attacks that train a `Decoder`: preset, further texts, decoding.

    Args:
        preset: ``"small"``, ``"medium"`` or ``"paper"``.
        options: ``device`` (``"auto"`` takes CUDA if available, else the CPU), the options of `Judging`, and any value
            of the preset: ``layers``, ``width``, ``heads``, ``prefix``, ``hidden``, ``hint``, ``max_tokens``,
            ``vocabulary``, ``model``, ``epochs``, ``batch``, ``learning_rate``, ``warmup_share``, ``patience``,
            ``clip``, ``weight_decay``, ``precision``, ``seconds``, ``save_seconds``.
        corpus: Further texts to learn from, none of them a test text; ``encode`` encodes them.
        beams: Texts that decoding keeps at once; 1 is greedy. More recover a little more and take longer.
    """

    trains_long = True

    def __init__(
        self,
        preset: str,
        corpus: Sequence[str] | None,
        encode: EncodeTexts | None,
        beams: int,
        options: Mapping[str, Any],
    ) -> None:
        owner, rest = type(self).__name__, dict(options)
        self._set_judge(rest)
        self._device = rest.pop("device", "auto")
        self.plan = plan(preset, rest, owner=owner)
        if corpus is not None and encode is None:
            raise InvalidInputError(
                "The corpus must be encoded like the training texts: pass encode with it.", param="encode"
            )
        # A checkpoint belongs to one corpus, which is part of the training but not of the evidence.
        self.corpus_digest = None
        if corpus is not None:
            given = check_texts(corpus, owner=owner, param="corpus")
            text = repr(list(given)).encode("utf-8", "surrogatepass")
            self.corpus_digest = hashlib.sha256(text).hexdigest()[:32]
        self._corpus, self._encode = corpus, encode
        self._beams = check_count(beams, owner=owner, param="beams")

    def _check(self, train: TextVectors, test: TextVectors, knowledge: Knowledge) -> None:
        if self._corpus is None:
            return
        tested = {normalise_text(text) or text for text in test.texts}
        shared = sum((normalise_text(text) or text) in tested for text in self._corpus)
        if shared:
            raise InvalidInputError(
                f"{shared} texts of the corpus are also in test. The decoder would memorise them: take them out.",
                param="corpus",
            )

    def _train(
        self,
        X: Embeddings,
        texts: Sequence[str],
        held_out: tuple[Embeddings, Sequence[str]],
        draw: Draw,
        session: Session,
        start: Path | None = None,
    ) -> Decoder:
        """Return a decoder that writes ``texts`` from ``draw(X)``, drawn afresh every epoch.

        ``held_out`` are vectors and texts of the validation part, ``start`` the folder of a decoder to continue from.
        """
        owner, rng = type(self).__name__, session.rng
        if start is None:
            decoder, ids = _fresh(self.plan, X, texts, draw, rng, owner=owner)
        else:
            decoder = open_decoder(start, X.shape[1], owner=owner)
            decoder.inputs = bridge(decoder.inputs, X, draw(X, rng))
            ids = decoder.tokeniser.encode(texts, decoder.shape.max_tokens)
        inputs, tokeniser, limit = decoder.inputs, decoder.tokeniser, decoder.shape.max_tokens

        def shuffled(x: Array, ids: Sequence[Ids], rng: np.random.Generator) -> TextBatches:
            return TextBatches(rows_by_length(ids, self.plan.recipe.batch, rng), ids, {"inputs": x})

        # Release the validation vectors once, so that losses of epochs are comparable.
        held_X, held_texts = held_out[0][:_VALIDATION_ROWS], held_out[1][:_VALIDATION_ROWS]
        held_x, held_ids = inputs(draw(held_X, rng)), tokeniser.encode(held_texts, limit)
        validation = shuffled(held_x, held_ids, rng)
        fit = fit_model(
            decoder.module,
            lambda epoch, rng: shuffled(inputs(draw(X, rng)), ids, rng),
            decoder_loss,
            lambda module: mean_loss(module, validation, decoder_loss),
            replace(self.plan.recipe, device=self._device),
            TrainingRun(rng, "decoder", session.show_progress, session.folder),
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

    def _decode(self, decoder: Decoder, X: Embeddings) -> list[str]:
        decoder.module.to(resolve_device(self._device, owner=type(self).__name__))
        return decoder.write(X, beams=self._beams)


class GEIAAttack(DecoderAttack):
    """A GPT-2 with the projected vector as its prefix, trained on freshly released vectors.

    The preset ``paper`` fine-tunes a pretrained GPT-2 as published. ``small`` and ``medium`` train one from scratch on
    the attacker's texts; there a linear map of the vector also enters the output at every position and starts from the
    words' mean vectors, because few texts and little time do not suffice to learn the prefix.
    """

    description = "Generative decoder (GPT-2) with the released vector as its prefix."
    cost = "half an hour on one core (small), hours on a GPU (paper)"
    source = "Li, Xu and Song (2023), Sentence Embedding Leaks More Information than You Expect: GEIA."
    state_type = Decoder

    def __init__(
        self,
        preset: str = "small",
        *,
        start_from: str | Path | None = None,
        corpus: Sequence[str] | None = None,
        encode: EncodeTexts | None = None,
        beams: int = 1,
        **options: Any,
    ) -> None:
        """Set the options; `DecoderAttack` describes the others.

        Args:
            start_from: Checkpoint folder of a finished attack, such as one on clean vectors of a large corpus, from
                whose decoder training continues. Without a release oracle both must learn from the same kind of
                vectors.
            corpus: Further texts to learn from, none of them a test text. Without a release oracle their vectors count
                as released: that fits an attack on clean vectors only.
        """
        self.name = "geia" if preset == "small" else f"geia-{preset}"
        super().__init__(preset, corpus, encode, beams, options)
        self.start_from = None if start_from is None else str(start_from)

    def _fit(self, train: TextVectors, validation: TextVectors, session: Session) -> Decoder:
        X, texts = train.X, list(train.texts)
        # With an oracle `draw` releases the corpus together with the training texts.
        if self._corpus is not None and self._encode is not None:
            further = np.asarray(self._encode(self._corpus), dtype=X.dtype)
            X, texts = np.concatenate([X, further]), [*texts, *self._corpus]
        # Without the corpus: the epoch is chosen on texts like the attacked ones.
        held_out = (validation.X, validation.texts)
        start = None if self.start_from is None else Path(self.start_from)
        return self._train(X, texts, held_out, session.knowledge.draw, session, start)

    def _reconstruct(self, state: Decoder, X: Embeddings, knowledge: Knowledge) -> list[str]:
        return self._decode(state, X)

    def _details(self, state: Decoder) -> Mapping[str, Any]:
        return {**state.details, "beams": self._beams}


_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)  # of the mean squared norm of a released vector


@dataclass(frozen=True, eq=False)
class _Aligned:
    decoder: Decoder
    maps: Mapping[int, Array]  # by number of pairs
    norm: float

    def save(self, folder: Path) -> None:
        from safetensors.numpy import save_file

        self.decoder.save(folder)
        arrays = {f"map/{k}": np.ascontiguousarray(W) for k, W in self.maps.items()}
        arrays["norm"] = np.array([self.norm])
        with atomic_path(folder / "alignment.safetensors") as temporary:
            save_file(arrays, str(temporary))

    @classmethod
    def load(cls, folder: Path) -> _Aligned:
        from safetensors.numpy import load_file

        arrays = load_file(str(folder / "alignment.safetensors"))
        norm = float(arrays.pop("norm")[0])
        maps = {int(key.removeprefix("map/")): W for key, W in arrays.items()}
        return cls(Decoder.load(folder), dict(sorted(maps.items())), norm)


class ALGENAttack(DecoderAttack):
    """A decoder of the attacker's own encoder, and a linear map onto its space from k leaked pairs.

    The decoder is a checkpoint of `GEIAAttack` (its folder), or is trained now on clean vectors of ``corpus``, or else
    of the training texts. The main figures use the most pairs, ``token_f1_of_K`` uses K.
    """

    name = "algen"
    description = "Decoder of the attacker's own embedding space, reached by a linear map from a few leaked pairs."
    cost = "k leaked pairs of text and vector, and a decoder trained beforehand"
    source = "Chen, Xu and Bjerva (2025), ALGEN: few-shot inversion by cross-model alignment."
    state_type = _Aligned

    def __init__(
        self,
        decoder: str | Path | None = None,
        *,
        pairs: Sequence[int] = (1, 10, 100, 1000),
        preset: str = "small",
        corpus: Sequence[str] | None = None,
        encode: EncodeTexts | None = None,
        beams: int = 1,
        **options: Any,
    ) -> None:
        """Set the options; `DecoderAttack` describes the others.

        Args:
            decoder: Folder of a decoder (a checkpoint of `GEIAAttack` on clean vectors), or None to train one.
            pairs: Numbers of leaked pairs to try, capped at the number of training texts.
            preset: Of the decoder that is trained.
            corpus: Texts to train it on, none of them a test text; None takes the training texts.
            encode: The attacker's own encoder, any dimension. None: the clean training vectors are its own, which needs
                a release oracle.
        """
        owner = "ALGENAttack"
        self.decoder = None if decoder is None else str(decoder)
        self.pairs = tuple(sorted({check_count(k, owner=owner, param="pairs") for k in pairs}))
        if not self.pairs:
            raise InvalidInputError("pairs must name at least one number of leaked pairs.", param="pairs")
        super().__init__(preset, corpus, encode, beams, options)

    def _check(self, train: TextVectors, test: TextVectors, knowledge: Knowledge) -> None:
        super()._check(train, test, knowledge)
        if self._encode is None and not knowledge.adaptive:
            raise InvalidInputError(
                "Without a release oracle no clean vectors are left to align with: pass the attacker's own encoder as "
                "encode.",
                param="encode",
            )

    def _fit(self, train: TextVectors, validation: TextVectors, session: Session) -> _Aligned:
        rng = session.rng
        leaked = rng.permutation(len(train))[: self.pairs[-1]]
        own = self._own(train.take(leaked))
        if self.decoder is None:  # the leaked pairs are drawn first: the same with any decoder
            decoder = self._trained(train, validation, session)
        else:
            decoder = open_decoder(Path(self.decoder), own.shape[1], owner="ALGENAttack")
        released = session.draw(train.X[leaked])
        counts = sorted({min(k, len(leaked)) for k in self.pairs})
        maps = {k: align(released[:k], own[:k]) for k in counts}
        return _Aligned(decoder, maps, float(np.linalg.norm(own, axis=1).mean()))

    def _own(self, data: TextVectors) -> Array:
        return data.X if self._encode is None else np.asarray(self._encode(data.texts))

    def _trained(self, train: TextVectors, validation: TextVectors, session: Session) -> Decoder:
        texts, held = train.texts, (self._own(validation), validation.texts)
        if self._corpus is not None and self._encode is not None:
            seed = int(session.rng.integers(2**31))
            # The corpus replaces the training texts, so a part of it measures the losses.
            rows = split_groups(np.arange(len(self._corpus)), (0.95, 0.05), seed=seed)
            texts, held_texts = ([self._corpus[i] for i in part] for part in rows)
            X = np.asarray(self._encode(texts))
            held = np.asarray(self._encode(held_texts)), held_texts
        else:
            X = self._own(train)
        return self._train(X, texts, held, lambda X, rng: X, session)

    def _reconstruct(self, state: _Aligned, X: Embeddings, knowledge: Knowledge) -> list[str]:
        return self._write(state, X, max(state.maps))

    def _variants(self, state: _Aligned, X: Embeddings, knowledge: Knowledge) -> Iterator[tuple[str, str, list[str]]]:
        for k in sorted(state.maps)[:-1]:
            yield str(k), f"with {k} pair{'s' * (k > 1)}", self._write(state, X, k)

    def _write(self, state: _Aligned, X: Embeddings, pairs: int) -> list[str]:
        mapped = X.astype(np.float64) @ state.maps[pairs]
        norms = np.linalg.norm(mapped, axis=1, keepdims=True)
        mapped *= state.norm / np.maximum(norms, 1e-12)  # ridge regression has shrunk them
        return self._decode(state.decoder, mapped)

    def _details(self, state: _Aligned) -> Mapping[str, Any]:
        return {**state.decoder.details, "pairs": max(state.maps), "beams": self._beams}


def align(released: Array, own: Array) -> Array:
    """Return the map W (m, n) with ``released @ W`` near ``own``: ridge least squares from k pairs.

    The ridge shrinks W to zero or, between spaces of equal dimension, possibly to the identity. The leave-one-out error
    chooses the point and the penalty; a single pair gets the smallest penalty, and zero.

    Formula: W = P + Yᵀ (Y Yᵀ + λ I)⁻¹ (A - Y P), Y (k, m) released, A (k, n) own, P the point shrunk to.
    """
    with optional_import("The alignment of vectors", "scikit-learn", "attacks"):
        from sklearn.linear_model import Ridge, RidgeCV

    Y, A = released.astype(np.float64), own.astype(np.float64)
    k, m = Y.shape
    penalties = (float((Y**2).sum()) / k or 1.0) * np.array(_PENALTIES)
    points = [np.zeros((m, A.shape[1]))]
    if k == 1:
        return np.asarray(Ridge(penalties[0], fit_intercept=False).fit(Y, A).coef_.T)
    if m == A.shape[1]:
        points.append(np.eye(m))
    models = [RidgeCV(penalties, fit_intercept=False).fit(Y, A - Y @ P) for P in points]
    # Ties by rounding go to the first point.
    best = max(range(len(points)), key=lambda i: models[i].best_score_ * (1 + 1e-9 * (i > 0)))
    return np.asarray(points[best] + models[best].coef_.T)
