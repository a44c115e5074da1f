"""Tokenisers: a byte-level BPE trained on the attacker's own texts, or an existing one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, optional_import
from vecveil.io import write_bytes
from vecveil.validation import check_count

END = "<|endoftext|>"
Ids = npt.NDArray[np.int64]


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
        # All bytes are tokens, so that any text can be encoded and decoding restores it exactly.
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
            constraint = "a model with a fast tokeniser and an end token"
            raise InvalidInputError.of("Tokeniser", "model", constraint, "another")
        return cls(fast.backend_tokenizer, fast.eos_token_id)

    @property
    def size(self) -> int:
        """Return the number of tokens."""
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
        """Write ``tokenizer.json``, readable by its owner only: it holds words of the texts."""
        write_bytes(folder / "tokenizer.json", self._backend.to_str().encode())

    @classmethod
    def load(cls, folder: Path, end: int) -> Tokeniser:
        """Return the tokeniser of ``tokenizer.json``."""
        text = (folder / "tokenizer.json").read_text(encoding="utf-8")
        return cls(_import_tokenizers().Tokenizer.from_str(text), end)


def import_transformers() -> Any:
    """Return transformers, or raise the error that names the extra to install."""
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
