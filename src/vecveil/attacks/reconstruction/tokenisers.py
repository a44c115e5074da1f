"""Texts as tokens: a byte-level BPE trained on the attacker's own texts, or an existing tokeniser."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, MissingDependencyError
from vecveil.io import write_bytes
from vecveil.validation import check_count

__all__ = ["Tokeniser", "import_transformers", "padded"]

END = "<|endoftext|>"
Ids = npt.NDArray[np.int64]


class Tokeniser:
    """A tokeniser of the `tokenizers` library, with the id of the token that ends a text.

    Attributes:
        end: Id of that token.
    """

    def __init__(self, backend: Any, end: int) -> None:
        """Keep the library's object."""
        self._backend = backend
        self._backend.no_padding()
        self._backend.no_truncation()
        self.end = end

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> Tokeniser:
        """Return a byte-level BPE of at most ``size`` tokens; any text is given back exactly.

        Args:
            texts: What pairs are counted in. The same texts give the same tokeniser.
            size: Largest vocabulary, from 257: the bytes and the end. More tokens make shorter texts and a
                larger output layer.
        """
        tokenizers = _import_tokenizers()
        check_count(size, owner="Tokeniser", param="size", minimum=257)
        backend = tokenizers.Tokenizer(tokenizers.models.BPE())
        backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=[END],
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        backend.train_from_iterator(texts, trainer)
        return cls(backend, backend.token_to_id(END))

    @classmethod
    def pretrained(cls, model: str) -> Tokeniser:
        """Return the tokeniser of a model of the Hugging Face hub, or of a folder.

        Raises:
            InvalidInputError: it has no token that ends a text.
        """
        found = import_transformers().AutoTokenizer.from_pretrained(model)
        if getattr(found, "backend_tokenizer", None) is None or found.eos_token_id is None:
            raise InvalidInputError.of(
                "Tokeniser", "model", "a model with a fast tokeniser and an end token", "another"
            )
        return cls(found.backend_tokenizer, found.eos_token_id)

    @property
    def size(self) -> int:
        """Number of tokens."""
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    def encode(self, texts: Sequence[str], max_tokens: int) -> list[Ids]:
        """Return the ids of each text, at most ``max_tokens``, the end included where it fits."""
        found = self._backend.encode_batch(list(texts), add_special_tokens=False)
        return [np.array([*one.ids, self.end][:max_tokens], dtype=np.int64) for one in found]

    def decode(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Return the text of each row, up to its first end."""
        rows = []
        for row in ids:
            given = [int(i) for i in row]
            rows.append(given[: given.index(self.end)] if self.end in given else given)
        return [str(text) for text in self._backend.decode_batch(rows, skip_special_tokens=True)]

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.json``, for its owner only: it holds words of the texts."""
        write_bytes(folder / "tokenizer.json", self._backend.to_str().encode(), mode=0o600)

    @classmethod
    def load(cls, folder: Path, end: int) -> Tokeniser:
        """Return the tokeniser of ``tokenizer.json``."""
        text = (folder / "tokenizer.json").read_text(encoding="utf-8")
        return cls(_import_tokenizers().Tokenizer.from_str(text), end)


def padded(rows: Sequence[Ids], fill: int) -> tuple[Ids, Ids]:
    """Return the ids as one array, short rows filled up, and the lengths."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    ids = np.full((len(rows), int(lengths.max(initial=1))), fill, dtype=np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return ids, lengths


def import_transformers() -> Any:
    """Return transformers, or raise the error that says how to install it."""
    try:
        import transformers
    except ImportError as error:
        raise MissingDependencyError("A reconstruction", "transformers", "attacks") from error
    return transformers


def _import_tokenizers() -> Any:
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError as error:
        raise MissingDependencyError("A reconstruction", "tokenizers", "attacks") from error
    return tokenizers
