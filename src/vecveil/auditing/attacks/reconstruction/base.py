"""Reconstruction attacks, which write the text of a released vector: their base class, tokens and batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, final

import numpy as np
import numpy.typing as npt

from vecveil.auditing.attacks.attack import Attack, AttackFinding, Knowledge, Session, TextVectors
from vecveil.auditing.metrics.text_similarity import reconstruction_leakage, text_similarity, token_f1
from vecveil.errors import InvalidInputError, optional_import
from vecveil.io import write_bytes
from vecveil.privacy.training import Batch
from vecveil.privacy.utility.tasks import embedding_cosine
from vecveil.types import Embeddings
from vecveil.validation import check_count

EncodeTexts = Callable[[Sequence[str]], npt.NDArray[Any]]
"""The attacker's encoder: N texts in, (N, n) vectors out."""

WordsOf = Callable[[Sequence[str]], Sequence[set[str]]]
"""Returns the concept's words that each text contains."""

EXAMPLES = 20  # pairs of texts kept for a report
_KEYS = {
    "token_f1": "token F1",
    "bleu": "BLEU",
    "rouge_l": "ROUGE-L",
    "exact_match": "exact match",
    "sentence_bleu": "sentence BLEU",
}


class Judging(TypedDict, total=False):
    """Options of every reconstruction attack.

    Attributes:
        judge_encoder: Encodes originals and reconstructions for their cosine; the attacker's own or another.
        words_of: The concept's words in a text, for Leakage (SPARSE Eq. 13).
        judged: Maximum number of test texts to reconstruct: decoding is slow.
    """

    judge_encoder: EncodeTexts | None
    words_of: WordsOf | None
    judged: int


class ReconstructionAttack(Attack[TextVectors, TextVectors]):
    """An attack that writes texts; subclasses implement `_fit` and `_reconstruct`.

    Estimates: ``token_f1`` (the main one), ``bleu``, ``rouge_l``, ``exact_match``, ``sentence_bleu``; ``leakage`` with
    `words_of`; ``cosine`` with `judge_encoder`; ``token_f1_of_NAME`` for each further variant of the attack, whose
    metric names its knowledge (``token F1 with 10 pairs``). Chance is the same figure for reconstructions assigned to
    other texts.
    """

    family = "reconstruction"

    judge_encoder: EncodeTexts | None = None
    words_of: WordsOf | None = None
    judged: int = 500

    def _set_judge(self, options: dict[str, Any]) -> None:
        """Set the `Judging` among ``options``, and remove it from them."""
        for name in Judging.__annotations__.keys() & options:
            setattr(self, name, options.pop(name))
        check_count(self.judged, owner=type(self).__name__, param="judged")

    @abstractmethod
    def _reconstruct(self, state: Any, X: Embeddings, knowledge: Knowledge) -> list[str]:
        """Return a text for each released vector of ``X``."""

    def _variants(self, state: Any, X: Embeddings, knowledge: Knowledge) -> Iterator[tuple[str, str, list[str]]]:
        """Yield name, suffix of the metric's name (``with 10 pairs``) and texts of each further variant."""
        yield from ()

    def _settings(self) -> Mapping[str, Any]:
        # Scoring options change no fitted state, so a checkpoint ignores them.
        own = {"judge_encoder", "words_of", "judged"}
        return {key: value for key, value in super()._settings().items() if key not in own}

    @final
    def _judge(self, state: Any, train: TextVectors, test: TextVectors, session: Session) -> AttackFinding:
        if len(test) > self.judged:
            # A fixed seed: every state is scored on the same texts.
            some = np.random.default_rng(0).choice(len(test), self.judged, replace=False)
            test = test.take(np.sort(some))
        guesses = self._reconstruct(state, test.X, session.knowledge)
        seed = int(session.rng.integers(2**31))
        groups = test.groups
        measured = text_similarity(test.texts, guesses, groups, seed=seed)
        estimates = {key: measured[metric] for key, metric in _KEYS.items()}
        if self.words_of is not None:
            held = self.words_of(test.texts)
            # Leakage is a share of the concept's words and undefined where no text contains any.
            if any(held):
                written = self.words_of(guesses)
                estimates["leakage"] = reconstruction_leakage(held, written, groups, seed=seed)
        if self.judge_encoder is not None:
            X, Y = self.judge_encoder(test.texts), self.judge_encoder(guesses)
            estimates["cosine"] = embedding_cosine(X, Y, groups, seed=seed)
        for name, words, texts in self._variants(state, test.X, session.knowledge):
            f1 = token_f1(test.texts, texts, groups, seed=seed)
            estimates[f"token_f1_of_{name}"] = replace(f1, metric=f"{f1.metric} {words}")
        examples = tuple(zip(test.texts, guesses, strict=True))[:EXAMPLES]
        return AttackFinding(estimates, details=self._details(state), examples=examples)


END = "<|endoftext|>"
Ids = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]


class Tokeniser:
    """A tokeniser of the `tokenizers` library; ``end`` is the id of the token that ends a text."""

    def __init__(self, backend: Any, end: int) -> None:
        self._backend = backend
        # A pretrained tokeniser may carry limits that would cut or pad rows silently.
        self._backend.no_padding()
        self._backend.no_truncation()
        self.end = end

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> Tokeniser:
        """Return a byte-level BPE of at most ``size`` tokens; the same texts give the same tokeniser.

        ``size`` is at least 257: the bytes and the end. More tokens make shorter texts and a larger output layer.
        """
        tokenizers = _import_tokenizers()
        check_count(size, owner="Tokeniser", param="size", minimum=257)
        backend = tokenizers.Tokenizer(tokenizers.models.BPE())
        backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = tokenizers.decoders.ByteLevel()
        # All bytes are tokens, so any text can be encoded and decoded exactly.
        alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
        )
        backend.train_from_iterator(texts, trainer)
        return cls(backend, backend.token_to_id(END))

    @classmethod
    def pretrained(cls, model: str) -> Tokeniser:
        """Return the tokeniser of a model of the Hugging Face hub, or of a folder; it must have an end token."""
        fast = import_transformers().AutoTokenizer.from_pretrained(model)
        if getattr(fast, "backend_tokenizer", None) is None or fast.eos_token_id is None:
            raise InvalidInputError(
                f"The model {str(model)[-80:]} has no fast tokeniser with an end token.", param="model"
            )
        return cls(fast.backend_tokenizer, fast.eos_token_id)

    @property
    def size(self) -> int:
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    def encode(self, texts: Sequence[str], max_tokens: int) -> list[Ids]:
        """Return the ids of each text, at most ``max_tokens``, the end included where it fits."""
        # The end is added here: special tokens differ from tokeniser to tokeniser.
        rows = self._backend.encode_batch(list(texts), add_special_tokens=False)
        return [np.array([*row.ids, self.end][:max_tokens], dtype=np.int64) for row in rows]

    def decode(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Return the text of each row, up to its first end."""
        rows = []
        for row in ids:
            # Rows of a batch run on behind their end until the longest text is written.
            given = [int(i) for i in row]
            rows.append(given[: given.index(self.end)] if self.end in given else given)
        return [str(text) for text in self._backend.decode_batch(rows, skip_special_tokens=True)]

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.json``, readable by its owner only: it contains words of the texts."""
        write_bytes(folder / "tokenizer.json", self._backend.to_str().encode())

    @classmethod
    def load(cls, folder: Path, end: int) -> Tokeniser:
        text = (folder / "tokenizer.json").read_text(encoding="utf-8")
        return cls(_import_tokenizers().Tokenizer.from_str(text), end)


class TextBatches(Sequence[Batch]):
    """The batches of an epoch, built on access, with ``rows`` of each batch.

    A batch contains the texts' ``ids``, padded with 0, their ``lengths``, rows of the ``arrays``, and for ``guesses``
    the padded ``guess_ids``.
    """

    def __init__(
        self,
        rows: Sequence[Rows],
        ids: Sequence[Ids],
        arrays: Mapping[str, npt.NDArray[Any]],
        guesses: tuple[Sequence[Ids], int] | None = None,
    ) -> None:
        self.rows, self.ids, self.arrays, self.guesses = rows, ids, arrays, guesses

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        rows = self.rows[index]
        batch = {name: values[rows] for name, values in self.arrays.items()}
        batch["ids"], batch["lengths"] = padded([self.ids[i] for i in rows], fill=0)
        if self.guesses is not None:
            ids, pad = self.guesses
            batch["guess_ids"], _ = padded([ids[i] for i in rows], fill=pad)
        return batch


def padded(rows: Sequence[Ids], fill: int) -> tuple[Ids, Ids]:
    """Return token ids as one array, short rows padded with ``fill``, and the lengths."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    ids = np.full((len(rows), int(lengths.max(initial=1))), fill, dtype=np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return ids, lengths


def rows_by_length(ids: Sequence[Ids], batch: int, rng: np.random.Generator, *, pool: int = 50) -> list[Rows]:
    """Return the rows of each batch: texts of similar length together, otherwise in random order."""
    lengths = np.array([len(row) for row in ids])
    order = rng.permutation(len(lengths))
    batches = []
    # Sorting within pools of batches saves padding and keeps most of the randomness.
    for i in range(0, len(order), pool * batch):
        part = order[i : i + pool * batch]
        part = part[np.argsort(lengths[part], kind="stable")]
        batches += [part[j : j + batch] for j in range(0, len(part), batch)]
    return [batches[i] for i in rng.permutation(len(batches))]


def import_transformers() -> Any:
    with optional_import("A reconstruction", "transformers", "attacks"):
        import transformers
    return transformers


def _import_tokenizers() -> Any:
    with optional_import("A reconstruction", "tokenizers", "attacks"):
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    return tokenizers
