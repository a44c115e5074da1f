"""Whole-vocabulary inference: score every word of the attacker's texts, listed or not, from a released vector."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from vecveil.auditing.attacks.attack import Attack, AttackFinding, Knowledge, Session, TextVectors
from vecveil.auditing.attacks.release_model import InputMap, fit_input_map
from vecveil.errors import InvalidInputError
from vecveil.privacy.utility.estimates import Estimate, group_index, share_estimate
from vecveil.privacy.utility.ranking import top_credit
from vecveil.texts.folding import canonical
from vecveil.types import Embeddings
from vecveil.validation import check_count

Array = npt.NDArray[Any]

LEAST, MOST = 2, 20_000  # training texts that a word must be in; words of the vocabulary
RARE = 0.01  # of the training texts: a word in more of them says little about any one text
FEWEST_RARE = 10  # texts: of few training texts a hundredth would leave no word
UNLISTED, EVERY = "R-precision of words on no list", "R-precision of every word"
_DRAWS = 16  # releases of each training text that moments are estimated from
_HELD = 1000  # releases of validation texts that a penalty is chosen on
_PENALTIES = (100.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.01)  # of inputs that have unit variance; of equals the first
_BLOCK = 500  # texts whose scores of all words are held at once


@dataclass(frozen=True, eq=False)
class LogLinearModel:
    """The fitted model: logits are ``inputs(y) @ weights + bias``; ``rates`` are shares of the training texts."""

    inputs: InputMap
    weights: Array
    bias: Array
    rates: Array
    words: tuple[str, ...]
    penalty: float

    def __call__(self, Y: Embeddings) -> Array:
        logits: Array = self.inputs(Y) @ self.weights + self.bias
        return logits


class WholeVocabularyAttack(Attack[TextVectors, TextVectors]):
    """A log-linear model of the words of a text, over all words of the training texts.

    p(word | y) = softmax(b + W y), with W and b of a linear discriminant whose classes are the words: the mean release
    of the texts that contain a word, over the covariance of all releases. With an oracle the moments are averages over
    fresh releases. Validation texts choose a ridge penalty. The paper trains W = A B, with A (V, rank); here a rank
    below the full one truncates the discriminant.

    Estimates: ``r_precision`` (the main one) of the words on no list that at most 1 % of the training texts contain:
    of the k such words of a text, the share among the k best scored; and ``every``, the same share for all words, as
    in the paper. Both ignore words that fewer than two training texts contain.
    """

    family = "whole-vocabulary"
    name = "log-linear"
    description = "Log-linear model of every word of the attacker's texts, listed or not."
    cost = "seconds on one core; texts of the kind"
    source = "FLiP (Kesiraju et al. 2026, arXiv:2604.18109), with the weights of a linear discriminant (Fisher 1936)."
    state_type = LogLinearModel

    def __init__(
        self,
        rank: int | None = None,
        *,
        listed: Collection[str] = (),
        split: Callable[[str], Sequence[str]] = str.split,
    ) -> None:
        """Set the rank of W, None for the whole matrix, and the ``listed`` words, which the main figure leaves out.

        ``split`` returns the words of a canonical text.
        """
        self.rank = None if rank is None else check_count(rank, owner=type(self).__name__, param="rank")
        self._listed, self._split = frozenset(listed), split

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

    def _fit(self, train: TextVectors, validation: TextVectors, session: Session) -> LogLinearModel:
        # Words of the validation texts count too: their number decides what is scored, not the weights.
        counted = self._vocabulary([*train.texts, *validation.texts])
        names = tuple(word for word, _ in counted)
        rates = np.array([count for _, count in counted]) / (len(train) + len(validation))
        inputs = fit_input_map(session.draw(train.X))
        draws = 1 if session.knowledge.repeats(train.X, session.rng) else _DRAWS

        def moments(part: TextVectors) -> tuple[Array, Array, Array]:
            """Return the sums of y yᵀ and, for each word, of the releases and the number of its texts."""
            average, squares = np.zeros((len(part), inputs.weights.shape[1])), np.zeros(1)
            for _ in range(draws):
                Y = inputs(session.draw(part.X)).astype(np.float64)
                average, squares = average + Y / draws, squares + Y.T @ Y / draws
            holds = self._marked(part.texts, names)
            return squares, holds.T @ average, holds.sum(axis=0)

        def models(
            parts: Sequence[tuple[Array, Array, Array]], texts: int, penalties: Iterable[float]
        ) -> Iterator[LogLinearModel]:
            squares, sums, counts = (np.sum(each, axis=0) for each in zip(*parts, strict=True))
            values, axes = np.linalg.eigh(squares / texts)
            # The mean of a word that no text of these contains stays 0: its score is its frequency.
            means = (sums / np.maximum(counts, 1)[:, None]) @ axes
            for penalty in penalties:
                scale = 1 / np.sqrt(np.maximum(values, 0) + penalty)
                white = means * scale
                if self.rank is not None:
                    main = np.linalg.eigh((white * rates[:, None]).T @ white)[1][:, -self.rank :]
                    white = white @ main @ main.T
                bias = np.log(rates) - (white**2).sum(axis=1) / 2
                weights = ((axes * scale) @ white.T).astype(np.float32)
                yield LogLinearModel(inputs, weights, bias.astype(np.float32), rates, names, penalty)

        learnt = moments(train)
        # Few validation texts are released several times: the choice is then less noisy.
        held = [session.draw(validation.X) for _ in range(min(draws, -(-_HELD // len(validation))))]
        marked, scored = self._marked(validation.texts, names), self._scored(names, rates, len(train))

        def found(model: LogLinearModel) -> float:
            """Return the sum of both figures of the validation texts, times their number of releases."""
            shares = [
                _hits(model, Y, marked, each).sum() / max(1, marked[:, each].sum()) for Y in held for each in scored
            ]
            return float(sum(shares))

        best = max(models([learnt], len(train), _PENALTIES), key=found).penalty
        return next(models([learnt, moments(validation)], len(train) + len(validation), [best]))

    def _judge(self, state: LogLinearModel, train: TextVectors, test: TextVectors, session: Session) -> AttackFinding:
        marked, scored = self._marked(test.texts, state.words), self._scored(state.words, state.rates, len(train))
        index, _ = group_index(test.groups, len(test), owner=type(self).__name__)
        seed = int(session.rng.integers(2**31))
        estimates: dict[str, Estimate] = {}
        for key, metric, columns in zip(("r_precision", "every"), (UNLISTED, EVERY), scored, strict=True):
            hits = _hits(state, test.X, marked, columns)
            guesses = _hits(lambda Y: np.tile(state.rates, (len(Y), 1)), test.X, marked, columns)
            counts = marked[:, columns].sum(axis=1)
            chance = float(guesses.sum() / counts.sum())
            estimates[key] = share_estimate(metric, hits, counts, index, chance=chance, seed=seed)
        setting = {"rank": self.rank, "penalty": state.penalty}
        return AttackFinding(estimates, details={"words": len(state.words), "rare": len(scored[0]), **setting})

    def _scored(self, names: Sequence[str], rates: Array, texts: int) -> tuple[Array, Array]:
        """Return the columns of the rare words on no list, and those of every word."""
        listed = np.array([word in self._listed for word in names])
        return np.flatnonzero((np.rint(rates * texts) <= _most_rare(texts)) & ~listed), np.arange(len(names))

    def _marked(self, texts: Sequence[str], names: Sequence[str]) -> Any:
        """Return which words each text contains, a sparse boolean matrix (N, V)."""
        column = {word: j for j, word in enumerate(names)}
        places = [(i, column[word]) for i, bag in enumerate(self._bags(texts)) for word in bag if word in column]
        rows, columns = np.array(places, dtype=np.intp).reshape(-1, 2).T
        return csr_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(len(texts), len(names)))

    def _bags(self, texts: Sequence[str]) -> list[set[str]]:
        return [set(self._split(canonical(text))) for text in texts]

    def _vocabulary(self, texts: Sequence[str]) -> list[tuple[str, int]]:
        """Return the words in at least two texts with their number of texts, the most frequent first."""
        counts = Counter(word for bag in self._bags(texts) for word in bag)
        return [(word, count) for word, count in counts.most_common(MOST) if count >= LEAST]

    def _settings(self) -> Mapping[str, Any]:
        return {**super()._settings(), "words": sorted(self._listed)}


def _hits(score: Callable[[Embeddings], Array], X: Embeddings, marked: Any, columns: Array) -> Array:
    """Return how many of the k words of ``columns`` that each text contains are among the k best scored, (N,)."""
    hits = np.zeros(len(X))
    for start in range(0, len(X), _BLOCK):
        block = slice(start, start + _BLOCK)
        true = marked[block][:, columns].toarray()
        credit = top_credit(score(X[block])[:, columns], true.sum(axis=1))
        hits[block] = np.where(true, credit, 0.0).sum(axis=1)
    return hits


def _most_rare(texts: int) -> int:
    return max(FEWEST_RARE, int(RARE * texts))
