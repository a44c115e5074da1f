"""Zero-shot reconstruction: a language model proposes continuations, and the encoder's vectors select among them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Unpack

import numpy as np
import numpy.typing as npt

from vecveil.auditing.attacks.attack import Knowledge, Session, TextVectors
from vecveil.auditing.attacks.reconstruction.base import EncodeTexts, Judging, ReconstructionAttack, import_transformers
from vecveil.errors import DataFileError, InvalidInputError
from vecveil.privacy.utility.tasks import unit_rows
from vecveil.runtime import import_torch, resolve_device
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_texts

FloatArray = npt.NDArray[np.float64]
Ids = tuple[int, ...]

_TOKEN = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
_NO_SPACE_BEFORE = re.compile(r" (?=[.,;:!?%)\]}])")
_WEIGHTS = (0.05, 0.25, 0.7)  # of unigram, bigram and trigram
_RIDGE = 1e-2  # of the mean square of an input, for each query
_DECAY = 0.9  # share of the queries of a step that the next one makes
_FLOOR = 1e-2  # added to the variances of the noise, as a share of their mean
_PATIENCE = 4  # steps without a nearer text after which a search ends
_GUIDANCE = 2.0  # weight of the cosine relative to the language model
_BATCH = 64


class LanguageModel(Protocol):
    """A model of text that proposes the next token; tokens are integers from 0.

    Attributes:
        name: Appears in the record of every figure that the model made.
    """

    name: str

    def propose(self, prefixes: Sequence[Ids], count: int) -> tuple[npt.NDArray[np.int64], FloatArray]:
        """Return the ``count`` likeliest next tokens of each prefix and their log-probabilities, (P, count) each."""
        ...

    def text(self, ids: Ids) -> str:
        """Return the text of the tokens."""
        ...


class NgramLanguageModel:
    """An interpolated trigram model over words, for use without a pretrained model.

    Args:
        texts: Training texts, of any kind; a word needs ``least`` occurrences.
    """

    def __init__(self, texts: Sequence[str], *, least: int = 2, most: int = 8000) -> None:
        texts = check_texts(texts, owner="NgramLanguageModel")
        rows = [_TOKEN.findall(text) for text in texts]
        counts = Counter(word for row in rows for word in row)
        common = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]
        self._words = [word for word, count in common if count >= least]
        if not self._words:
            raise InvalidInputError(f"No word occurs {least} times in texts.", param="texts")
        place = {word: i for i, word in enumerate(self._words)}
        self.name = f"trigram model of {len(rows):,} texts, {len(self._words):,} words"
        self._after: dict[Ids, Counter[int]] = defaultdict(Counter)
        for row in rows:
            ids = [place.get(word, -1) for word in row]
            for i, word in enumerate(ids):
                if word >= 0:
                    for length in range(min(2, i) + 1):
                        self._after[tuple(ids[i - length : i])][word] += 1
                    if i < 2:  # the start of a text is a context too
                        self._after[(-2, *ids[:i])][word] += 1
        total = sum(self._after[()].values())
        self._base = np.array([self._after[()][i] for i in range(len(self._words))]) / total

    def propose(self, prefixes: Sequence[Ids], count: int) -> tuple[npt.NDArray[np.int64], FloatArray]:
        count = min(count, len(self._words))
        ids, scores = np.empty((len(prefixes), count), np.int64), np.empty((len(prefixes), count))
        for row, prefix in enumerate(prefixes):
            chance = _WEIGHTS[0] * self._base
            for length in (1, 2):
                context = prefix[-length:] if len(prefix) >= length else (-2, *prefix)
                after = self._after.get(context)
                if after:
                    places = np.fromiter(after.keys(), np.int64, len(after))
                    seen = np.fromiter(after.values(), np.float64, len(after))
                    chance[places] += _WEIGHTS[length] * seen / seen.sum()
            best = np.argpartition(-chance, count - 1)[:count]
            ids[row] = best[np.argsort(-chance[best], kind="stable")]
            scores[row] = np.log(chance[ids[row]])
        return ids, scores

    def text(self, ids: Ids) -> str:
        """Return the words, separated by spaces except before punctuation."""
        return _NO_SPACE_BEFORE.sub("", " ".join(self._words[i] for i in ids))


class CausalLanguageModel:
    """A causal language model of transformers in a local folder; nothing is downloaded.

    Args:
        folder: Contains the model and its tokeniser, as `save_pretrained` writes them.
    """

    def __init__(self, folder: str | Path, *, device: str = "auto") -> None:
        transformers = import_transformers()
        try:
            self._tokeniser = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
            model = transformers.AutoModelForCausalLM.from_pretrained(str(folder), local_files_only=True)
        except (OSError, ValueError) as error:
            raise DataFileError(
                f"transformers cannot load a causal language model with its tokeniser from {Path(folder).name}.",
                param="folder",
            ) from error
        self._device = resolve_device(device, owner="CausalLanguageModel")
        self._model = model.float().eval().to(self._device)
        start = self._tokeniser.bos_token_id
        self._start = self._tokeniser.eos_token_id if start is None else start
        if self._start is None:
            raise InvalidInputError(
                "The tokeniser of the model has no token that starts or ends texts.", param="folder"
            )
        self._special = sorted(set(self._tokeniser.all_special_ids))
        size = sum(int(p.numel()) for p in model.parameters())
        self.name = f"{Path(folder).name} ({model.config.model_type}, {size / 1e6:,.1f} million parameters)"

    def propose(self, prefixes: Sequence[Ids], count: int) -> tuple[npt.NDArray[np.int64], FloatArray]:
        torch = import_torch()
        ids, scores = [], []
        with torch.no_grad():
            for start in range(0, len(prefixes), _BATCH):
                part = prefixes[start : start + _BATCH]
                length = 1 + max(map(len, part))
                rows = torch.full((len(part), length), self._start, dtype=torch.long)
                for row, prefix in zip(rows, part, strict=True):
                    row[1 : 1 + len(prefix)] = torch.tensor(prefix, dtype=torch.long)
                # Padding is on the right, where a causal model ignores it.
                logits = self._model(rows.to(self._device)).logits
                last = torch.tensor([len(prefix) for prefix in part], device=logits.device)
                final = logits[torch.arange(len(part), device=logits.device), last].float()
                final[:, self._special] = -torch.inf
                top = final.log_softmax(dim=-1).topk(min(count, final.shape[1] - len(self._special)))
                ids.append(top.indices.cpu().numpy())
                scores.append(top.values.double().cpu().numpy())
        return np.concatenate(ids), np.concatenate(scores)

    def text(self, ids: Ids) -> str:
        return str(self._tokeniser.decode(list(ids))).strip()


class _Ridge:
    """Ridge regression from running sums, updated with parts of the pairs."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self._gram, self._cross = np.zeros((inputs, inputs)), np.zeros((inputs, outputs))
        self._rows = 0

    def add(self, A: FloatArray, B: FloatArray) -> None:
        self._gram += A.T @ A
        self._cross += A.T @ B
        self._rows += len(A)

    def solve(self) -> FloatArray:
        """Return W (a, b), the least-squares map of the pairs so far with a penalty."""
        size = len(self._gram)
        penalty = _RIDGE * max(float(np.trace(self._gram)) / size, 1e-12)
        return np.asarray(np.linalg.solve(self._gram + penalty * np.eye(size), self._cross), np.float64)


@dataclass(frozen=True)
class _Search:
    """State of an attack that learns nothing beforehand: the seed of its releases."""

    seed: int


@dataclass
class _Beam:
    target: FloatArray
    budget: int
    prefixes: list[tuple[Ids, float]]  # with their log-probabilities
    text: str = ""
    cosine: float = -np.inf
    waited: int = 0


class ZeroShotAttack(ReconstructionAttack):
    """A beam search over the continuations of a language model, guided by the vectors of the proposed texts.

    In each step the language model proposes tokens for every kept prefix. A ridge regression from the vectors of prefix
    and token to the vector of the joined text, learnt online from the attacker's own queries, predicts which joined
    texts are near the target; the most promising are encoded. With a release oracle a second regression, from the
    encoder's vectors to their releases, aligns the two spaces, and a declared noise covariance whitens them. The answer
    is the encoded text nearest to the target. The attack needs no pair of a text and its released vector.

    The first step encodes every proposed token once for all vectors; these queries are counted separately.
    """

    name = "zero-shot"
    description = "Continuations proposed by a language model, chosen by the encoder's vectors of them."
    cost = "a language model, and hundreds of encoder queries for each vector"
    source = "After Kim et al. (2026), Zero2Text: zero-training cross-domain inversion attacks on textual embeddings."
    state_type = _Search

    def __init__(
        self,
        encode: EncodeTexts,
        language_model: LanguageModel,
        *,
        queries: int = 600,
        beam: int = 6,
        proposals: int = 1000,
        max_tokens: int = 24,
        **judging: Unpack[Judging],
    ) -> None:
        """Set the options.

        Args:
            queries: Texts encoded for each released vector; more recover more.
            beam: Prefixes kept for each vector.
            proposals: Tokens that the language model proposes for each prefix.
            max_tokens: Maximum length of a text.
            **judging: As for every reconstruction attack; ``judged`` is 100.
        """
        owner = "ZeroShotAttack"
        self.queries = check_count(queries, owner=owner, param="queries")
        self.beam = check_count(beam, owner=owner, param="beam")
        self.proposals = check_count(proposals, owner=owner, param="proposals")
        self.max_tokens = check_count(max_tokens, owner=owner, param="max_tokens")
        self.language_model = language_model.name
        # The description is part of an audit's record, so every figure names its language model.
        self.description = (
            f"Continuations proposed by a {language_model.name}, chosen by the encoder's vectors of {self.queries} "
            "texts for each vector; no text of the store is known."
        )
        self._encode, self._lm = encode, language_model
        self._counts: dict[str, float] = {}
        self._set_judge({"judged": 100, **judging})

    def _check(self, train: TextVectors, test: TextVectors, knowledge: Knowledge) -> None:
        if not knowledge.adaptive:
            size = np.asarray(self._encode(["text"])).shape[1]
            if size != test.dimension:
                raise InvalidInputError(
                    f"The released vectors have dimension {test.dimension} and the encoder's {size}. Without a release "
                    "oracle the attack compares them as they are.",
                    code="E-INPUT-SHAPE",
                    param="test",
                )

    def _fit(self, train: TextVectors, validation: TextVectors, session: Session) -> _Search:
        return _Search(int(session.rng.integers(2**31)))

    def _reconstruct(self, state: _Search, X: Embeddings, knowledge: Knowledge) -> list[str]:
        queries = _Queries(self._encode, knowledge, np.random.default_rng(state.seed))
        aim = queries.aim(X)
        beams = [_Beam(target, self.queries, [((), 0.0)]) for target in aim]
        joined: _Ridge | None = None
        weights: FloatArray | None = None
        confidence, probes = 0.5, 0
        shares = _DECAY ** np.arange(self.max_tokens)
        for step in range(self.max_tokens):
            running = [beam for beam in beams if beam.budget > 0 and beam.waited < _PATIENCE]
            if not running:
                break
            rows = [prefix for beam in running for prefix, _ in beam.prefixes]
            before = np.array([p for beam in running for _, p in beam.prefixes])
            owner = np.repeat(np.arange(len(running)), [len(beam.prefixes) for beam in running])
            ids, logs = self._lm.propose(rows, self.proposals)
            # Encode single tokens once for all vectors.
            tokens, places = np.unique(ids, return_inverse=True)
            places = places.reshape(ids.shape)
            known = len(queries)
            single = queries.vectors([self._lm.text((int(token),)) for token in tokens])
            probes += len(queries) - known
            heads = queries.vectors([self._lm.text(row) for row in rows])
            if joined is None:
                joined = _Ridge(2 * heads.shape[1] + 1, heads.shape[1])
            # Before the first pairs a text is predicted at the mean of its parts.
            first, second = (heads / 2, single / 2) if weights is None else _parts(weights, heads, single)
            align = queries.alignment()
            cosines = _cosines(first @ align, second @ align, aim_of(running)[owner], places)
            share = max(1, round(self.queries * shares[step] / shares.sum()))
            texts: list[str] = []
            drawn: list[tuple[int, int, int]] = []  # of a running beam, a row and a proposal
            for i, beam in enumerate(running):
                own = np.flatnonzero(owner == i)
                score = _z(logs[own]) + _GUIDANCE * confidence * _z(cosines[own])
                count = min(share, beam.budget, score.size)
                for flat in np.argpartition(-score, count - 1, axis=None)[:count]:
                    row, place = divmod(int(flat), score.shape[1])
                    drawn.append((i, int(own[row]), place))
                    texts.append(self._lm.text((*rows[own[row]], int(ids[own[row], place]))))
                beam.budget -= count
            if not texts:
                break
            encoded = queries.vectors(texts)
            of, row_of, place_of = np.array(drawn).T
            inputs = _features(heads[row_of], single[places[row_of, place_of]])
            joined.add(inputs, encoded)
            weights = joined.solve()
            exact = unit_rows(encoded @ queries.alignment())
            confidence = float((unit_rows((inputs @ weights) @ queries.alignment()) * exact).sum(axis=1).mean())
            near = (exact * unit_rows(aim_of(running))[of]).sum(axis=1)
            likely = before[row_of] + logs[row_of, place_of]
            for i, beam in enumerate(running):
                own = np.flatnonzero(of == i)
                best = own[int(near[own].argmax())]
                beam.waited += 1
                if near[best] > beam.cosine:
                    beam.text, beam.cosine, beam.waited = texts[best], float(near[best]), 0
                score = _z(likely[own]) + _GUIDANCE * confidence * _z(near[own])
                order = own[np.argsort(-score, kind="stable")[: self.beam]]
                beam.prefixes = [
                    ((*rows[row_of[j]], int(ids[row_of[j], place_of[j]])), float(likely[j])) for j in order
                ]
        self._counts = {
            "encoder_queries_a_vector": round((len(queries) - probes) / len(X), 1),
            "encoder_queries_of_single_tokens": probes,
            "confidence": round(confidence, 4),
        }
        return [beam.text for beam in beams]

    def _details(self, state: _Search) -> Mapping[str, Any]:
        return {
            "language_model": self.language_model,
            "queries": self.queries,
            "beam": self.beam,
            "proposals": self.proposals,
            **self._counts,
        }


class _Queries:
    """The attacker's queries: texts encoded once each, and their releases from the oracle, if any."""

    def __init__(self, encode: Callable[[Sequence[str]], Any], knowledge: Knowledge, rng: np.random.Generator) -> None:
        self._encode, self._knowledge, self._rng = encode, knowledge, rng
        self._known: dict[str, FloatArray] = {}
        self._released: _Ridge | None = None
        self._whiten: FloatArray | None = None
        if knowledge.noise_covariance is not None and np.any(knowledge.noise_covariance):
            values, axes = np.linalg.eigh(np.asarray(knowledge.noise_covariance, dtype=np.float64))
            values = np.maximum(values, 0.0)
            self._whiten = (axes / np.sqrt(values + _FLOOR * values.mean())) @ axes.T

    def __len__(self) -> int:
        return len(self._known)

    def aim(self, X: Embeddings) -> FloatArray:
        """Return the targets in the space in which cosines are taken."""
        exact = X.astype(np.float64)
        return exact if self._whiten is None else exact @ self._whiten

    def vectors(self, texts: Sequence[str]) -> FloatArray:
        """Return the encoder's vectors; repeated texts and the empty text cost no query."""
        new = [text for text in dict.fromkeys(texts) if text and text not in self._known]
        if new:
            encoded = np.asarray(self._encode(new))
            self._known.update(zip(new, encoded.astype(np.float64), strict=True))
            if self._knowledge.adaptive:
                released = self._knowledge.draw(encoded, self._rng).astype(np.float64)
                if self._released is None:
                    self._released = _Ridge(encoded.shape[1], released.shape[1])
                self._released.add(encoded.astype(np.float64), released)
        size = len(next(iter(self._known.values())))
        return np.stack([self._known[text] if text else np.zeros(size) for text in texts])

    def alignment(self) -> FloatArray:
        """Return the map (n, m) from the encoder's vectors to the space of the targets."""
        size = len(next(iter(self._known.values())))
        weights = np.eye(size) if self._released is None else self._released.solve()
        return weights if self._whiten is None else weights @ self._whiten


def aim_of(beams: Sequence[_Beam]) -> FloatArray:
    return np.stack([beam.target for beam in beams])


def _features(heads: FloatArray, single: FloatArray) -> FloatArray:
    return np.hstack([heads, single, np.ones((len(heads), 1))])


def _parts(weights: FloatArray, heads: FloatArray, single: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return what prefix and token contribute to the predicted vector of the joined text."""
    n = heads.shape[1]
    return heads @ weights[:n] + weights[-1], single @ weights[n : 2 * n]


def _cosines(first: FloatArray, second: FloatArray, targets: FloatArray, places: npt.NDArray[Any]) -> FloatArray:
    """Return the cosines of ``targets`` (R, m) with first_r + second_p, for the proposals p of each row r."""
    products = (targets * first).sum(axis=1)[:, None] + np.take_along_axis(targets @ second.T, places, axis=1)
    cross = np.take_along_axis(first @ second.T, places, axis=1)
    squares = (first**2).sum(axis=1)[:, None] + 2 * cross + (second**2).sum(axis=1)[places]
    lengths = np.sqrt(np.maximum(squares, 1e-24)) * np.linalg.norm(targets, axis=1)[:, None]
    result: FloatArray = products / np.maximum(lengths, 1e-24)
    return result


def _z(scores: FloatArray) -> FloatArray:
    spread = scores.std()
    result: FloatArray = (scores - scores.mean()) / (spread if spread > 0 else 1.0)
    return result
