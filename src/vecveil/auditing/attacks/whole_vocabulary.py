"""Whole-vocabulary inference: score every word of the attacker's texts, listed or not, from a released vector."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.auditing.attacks.attack import Attack, AttackFinding, Knowledge, Session, TextVectors
from vecveil.auditing.attacks.release_model import InputMap, fit_input_map
from vecveil.errors import InvalidInputError
from vecveil.privacy.training import Batch, TrainingRecipe, TrainingRun, fit_model
from vecveil.privacy.utility.estimates import Estimate, group_index, share_estimate
from vecveil.privacy.utility.ranking import top_credit
from vecveil.runtime import import_torch, one_thread, resolve_device
from vecveil.texts.folding import canonical
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_positive

Array = npt.NDArray[Any]

LEAST, MOST = 2, 20_000  # training texts that a word must be in; words of the vocabulary
RARE = 0.01  # of the training texts: a word in more of them says little about any one text
FEWEST_RARE = 10  # texts: of few training texts a hundredth would leave no word
UNLISTED, EVERY = "R-precision of words on no list", "R-precision of every word"
_BATCH, _STEPS, _EPOCHS = 256, {"cpu": 500, "cuda": 20_000}, (5, 60)
_BLOCK = 500  # texts whose scores of all words are held at once


@dataclass(frozen=True, eq=False)
class _LogLinear:
    """The fitted model: logits are ``inputs(y) @ weights + bias``; ``rates`` are shares of the training texts."""

    inputs: InputMap
    weights: Array
    bias: Array
    rates: Array
    words: tuple[str, ...]
    epochs: int

    def __call__(self, Y: Embeddings) -> Array:
        logits: Array = self.inputs(Y) @ self.weights + self.bias
        return logits


class WholeVocabularyAttack(Attack[TextVectors, TextVectors]):
    """A log-linear model of the words of a text, over all words of the training texts.

    p(word | y) = softmax(b + W y), fitted by maximum likelihood to the words of each training text, with fresh releases
    in every epoch if possible. Validation texts choose the epoch. The paper factors W = A B, with A (V, rank); on the
    vectors measured here the whole matrix recovers more.

    Estimates: ``r_precision`` (the main one) of the words on no list that at most 1 % of the training texts contain:
    of the k such words of a text, the share among the k best scored; and ``every``, the same share for all words, as
    in the paper. Both ignore words that fewer than two training texts contain.
    """

    family = "whole-vocabulary"
    name = "log-linear"
    description = "Log-linear model of every word of the attacker's texts, listed or not."
    cost = "seconds to a minute on one core; texts of the kind"
    source = "FLiP (Kesiraju et al. 2026, arXiv:2604.18109), on standardised vectors and fresh releases."
    state_type = _LogLinear

    def __init__(
        self,
        rank: int | None = None,
        *,
        listed: Collection[str] = (),
        split: Callable[[str], Sequence[str]] = str.split,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.01,
        device: str = "auto",
    ) -> None:
        """Set the rank of W, None for the whole matrix, and the ``listed`` words, which the main figure leaves out.

        ``split`` returns the words of a canonical text.
        """
        owner = type(self).__name__
        self.rank = None if rank is None else check_count(rank, owner=owner, param="rank")
        self.learning_rate = check_positive(learning_rate, owner=owner, param="learning_rate")
        self.weight_decay = check_positive(weight_decay, owner=owner, param="weight_decay", allow_zero=True)
        self._listed, self._split, self._device = frozenset(listed), split, device

    def _check(self, train: TextVectors, test: TextVectors, knowledge: Knowledge) -> None:
        if not self.scorable(train.texts, test.texts):
            raise InvalidInputError(
                f"No rare word of test is in {LEAST} texts of train.", code="E-INPUT-CLASSES", param="test"
            )

    def scorable(self, train: Sequence[str], test: Sequence[str]) -> bool:
        """Return whether a test text contains a word of the main figure."""
        most = _most_rare(len(train))
        rare = {word for word, count in self._vocabulary(train) if count <= most} - self._listed
        return any(not rare.isdisjoint(bag) for bag in self._bags(test))

    def _fit(self, train: TextVectors, validation: TextVectors, session: Session) -> _LogLinear:
        torch = import_torch()
        # Words of the validation texts count too: their number decides what is scored, not the weights.
        counted = self._vocabulary([*train.texts, *validation.texts])
        names = tuple(word for word, _ in counted)
        rates = np.array([count for _, count in counted]) / (len(train) + len(validation))
        ids, counts = _padded(self._bags(train.texts), names)
        held_ids, held_counts = _padded(self._bags(validation.texts), names)
        inputs = fit_input_map(session.draw(train.X))
        held = inputs(session.draw(validation.X))
        device = resolve_device(self._device, owner=type(self).__name__)
        steps = _STEPS["cpu" if device == "cpu" else "cuda"]
        epochs = int(np.clip(steps * _BATCH // len(train), *_EPOCHS))
        recipe = TrainingRecipe(
            epochs,
            _BATCH,
            self.learning_rate,
            warmup_share=0.0,
            decay="cosine",
            patience=epochs,
            clip=None,
            weight_decay=self.weight_decay,
            device=device,
        )
        # The logarithm of a word that only validation texts contain would be -inf.
        totals = 1 + np.bincount(ids.ravel(), counts.ravel(), minlength=len(names))
        model = self._model(torch, inputs.weights.shape[1], np.log(totals / totals.sum()), session.rng)

        def epoch_batches(epoch: int, rng: np.random.Generator) -> list[Batch]:
            Y = inputs(session.knowledge.draw(train.X, rng))
            order = rng.permutation(len(Y))
            parts = (order[i : i + _BATCH] for i in range(0, len(order), _BATCH))
            return [{"inputs": Y[rows], "ids": ids[rows], "counts": counts[rows]} for rows in parts]

        def loss_of(module: Any, part: Mapping[str, Any]) -> tuple[Any, Any]:
            chances = torch.log_softmax(module(part["inputs"]), dim=1).gather(1, part["ids"])
            return -(chances * part["counts"]).sum(), part["counts"].sum()

        def validate(module: Any) -> float:
            whole = {"inputs": held, "ids": held_ids, "counts": held_counts}
            pieces = (
                {k: torch.from_numpy(a[i : i + _BLOCK]).to(device) for k, a in whole.items()} for i in _starts(held)
            )
            losses = [loss_of(module, each) for each in pieces]
            return float(sum(loss for loss, _ in losses) / max(float(sum(count for _, count in losses)), 1.0))

        with one_thread():
            fit = fit_model(
                model,
                epoch_batches,
                loss_of,
                validate,
                recipe,
                TrainingRun(session.rng, self.name, session.show_progress),
            )
        arrays = [p.detach().cpu().numpy().astype(np.float64) for p in model.parameters()]
        # The factors are one matrix once they are trained.
        weights = arrays[-2].T if self.rank is None else (arrays[-2] @ arrays[0]).T
        return _LogLinear(
            inputs, weights.astype(np.float32), arrays[-1].astype(np.float32), rates, names, fit.best_epoch
        )

    def _model(self, torch: Any, width: int, logs: Array, rng: np.random.Generator) -> Any:
        """Return the module; before training its output is about the frequency of each word for every vector."""
        make = functools.partial(torch.nn.utils.skip_init, torch.nn.Linear)
        last = make(self.rank or width, len(logs))
        layers = [last] if self.rank is None else [make(width, self.rank, bias=False), last]
        with torch.no_grad():
            for layer in layers:
                start = rng.standard_normal(tuple(layer.weight.shape)) / np.sqrt(layer.weight.shape[1])
                layer.weight.copy_(torch.from_numpy(start))
            last.weight.mul_(0.01)
            last.bias.copy_(torch.from_numpy(logs))
        return torch.nn.Sequential(*layers)

    def _judge(self, state: _LogLinear, train: TextVectors, test: TextVectors, session: Session) -> AttackFinding:
        listed = np.array([word in self._listed for word in state.words])
        rare = np.rint(state.rates * len(train)) <= _most_rare(len(train))
        ids, counts = _padded(self._bags(test.texts), state.words)
        index, _ = group_index(test.groups, len(test), owner=type(self).__name__)
        seed = int(session.rng.integers(2**31))
        estimates: dict[str, Estimate] = {}
        for key, metric, columns in (("r_precision", UNLISTED, rare & ~listed), ("every", EVERY, rare | ~rare)):
            hits, held, guesses = _hits(state, test.X, ids, counts, columns)
            chance = float(guesses.sum() / held.sum())
            estimates[key] = share_estimate(metric, hits, held, index, chance=chance, seed=seed)
        details = {"words": len(rare), "rare": int((rare & ~listed).sum()), "epochs": state.epochs}
        return AttackFinding(estimates, details={"rank": self.rank, **details})

    def _bags(self, texts: Sequence[str]) -> list[Counter[str]]:
        return [Counter(self._split(canonical(text))) for text in texts]

    def _vocabulary(self, texts: Sequence[str]) -> list[tuple[str, int]]:
        """Return the words in at least two texts with their number of texts, the most frequent first."""
        counts = Counter(word for bag in self._bags(texts) for word in bag)
        return [(word, count) for word, count in counts.most_common(MOST) if count >= LEAST]

    def _settings(self) -> Mapping[str, Any]:
        return {**super()._settings(), "words": sorted(self._listed)}


def _hits(state: _LogLinear, X: Embeddings, ids: Array, counts: Array, columns: Array) -> tuple[Array, Array, Array]:
    """Return of each text the words of ``columns`` among its k best, their number k, and hits by frequency."""
    sums = np.zeros((3, len(X)))
    for start in _starts(X):
        block = slice(start, start + _BLOCK)
        true = np.zeros((len(ids[block]), len(state.words) + 1), dtype=bool)
        np.put_along_axis(true, np.where(counts[block] > 0, ids[block], len(state.words)), True, axis=1)
        true = true[:, :-1][:, columns]
        k = true.sum(axis=1)
        scores = state(X[block])[:, columns].astype(np.float64)
        for row, ranked in ((0, scores), (2, np.broadcast_to(state.rates[columns], scores.shape))):
            sums[row, block] = np.where(true, top_credit(ranked, k), 0.0).sum(axis=1)
        sums[1, block] = k
    return sums[0], sums[1], sums[2]


def _most_rare(texts: int) -> int:
    return max(FEWEST_RARE, int(RARE * texts))


def _starts(rows: Sequence[Any] | Array) -> range:
    return range(0, len(rows), _BLOCK)


def _padded(bags: Sequence[Counter[str]], names: Sequence[str]) -> tuple[Array, Array]:
    """Return the columns of the words of each text (N, K) and how often each occurs; 0 times is padding."""
    column = {word: j for j, word in enumerate(names)}
    known = [[(column[word], count) for word, count in bag.items() if word in column] for bag in bags]
    width = max(1, *map(len, known))
    ids, counts = np.zeros((len(bags), width), dtype=np.int64), np.zeros((len(bags), width), dtype=np.float32)
    for i, bag in enumerate(known):
        for j, pair in enumerate(bag):
            ids[i, j], counts[i, j] = pair
    return ids, counts
