"""Run models of the sentence-transformers library, on any device: batches and precision.

In fp32 the vectors equal the library's ``encode`` to rounding. Batching makes the difference in speed: a whole
chunk is tokenised at once and run in batches of texts with the same number of tokens, without padding and
attention masks; on a CPU in fp32 matrix products then take nearly all the time.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError
from vecveil.runtime import in_chunks, one_thread, thread_count
from vecveil.texts.encoders.fingerprint import EncodingSettings, ModelOptions, fingerprint_folder, fingerprint_model
from vecveil.validation import check_count, checked_vectors


def plan_batches(
    lengths: npt.NDArray[np.int64], *, max_tokens: int, max_texts: int, min_tokens: int
) -> list[npt.NDArray[np.int64]]:
    """Return the rows of each batch, longest texts first; every row is in exactly one batch.

    A batch contains texts of one length, without padding and attention mask, unless it would have fewer
    than ``min_tokens``: then shorter texts join.

    Args:
        lengths: (N,) tokens per text.
        max_tokens: limit of rows times the longest length of a batch (one text always fits).
        max_texts: limit of texts in a batch.
        min_tokens: smaller batches are filled up. 0 never pads; larger pads more and calls the model
            less often.
    """
    order = np.argsort(-lengths, kind="stable").astype(np.int64)
    batches = []
    start = 0
    while start < len(order):
        longest = max(int(lengths[order[start]]), 1)
        room = start + max(1, min(max_texts, max_tokens // longest))
        end = start + 1
        while end < min(room, len(order)):
            if lengths[order[end]] != longest and (end - start) * longest >= min_tokens:
                break
            end += 1
        batches.append(order[start:end])
        start = end
    return batches


Vectors = npt.NDArray[np.float32]
Mode = Callable[[], contextlib.AbstractContextManager[None]]

OWNER = "load_encoder"
# Measured with MiniLM on a CPU: 2048 to 8192 tokens perform alike, 512 is slow.
_CPU_TOKENS, _CPU_MIN_TOKENS = 4096, 256
# Not measured: a GPU gains more from large batches than it loses by padding.
_GPU_TOKENS, _GPU_MIN_TOKENS = 32768, 8192
_FEW_CHARACTERS = 2048
TOKENISED_AT_A_TIME = 256
SPECIAL_TOKENS = 8
# A tokeniser takes a hundred bytes of memory per character of a batch, also of the end that the model does not read.
CHARACTERS_AT_A_TIME = 1 << 22


def check_precision(precision: str) -> None:
    """Raise for an unknown precision."""
    if precision not in ("auto", "fp32", "bf16"):
        raise InvalidInputError(f"`precision` must be 'auto', 'fp32' or 'bf16', not {precision!r}.", param="precision")


class SentenceTransformerBackend:
    """One loaded model with its device, precision and fingerprint.

    Args:
        model: a ``sentence_transformers.SentenceTransformer``. Weights that are not float32 stay as
            they are; the precision is then ``"native"``.
        folder: origin of the model, whose files give the fingerprint. None for an object in memory.
        precision: ``"fp32"``, ``"bf16"`` (matrix products in bfloat16; residual stream, normalisation and pooling in
            float32), or ``"auto"``: the precision of the weights.
        batch_size: largest number of texts in a batch. Smaller takes less memory and more time.
        prompt: prefix of every text; None takes the model's own prompts, for documents and for queries.
        query_prompt: prefix of queries, in place of ``prompt``.
        normalize: scale vectors to unit length even if the model does not.
        fingerprint: replaces the computed one.
    """

    def __init__(
        self,
        model: Any,
        *,
        name: str,
        folder: Path | None = None,
        precision: str = "auto",
        batch_size: int = 256,
        **options: Unpack[ModelOptions],
    ) -> None:
        check_precision(precision)
        self.name = name
        self._batch_size = check_count(batch_size, owner=OWNER, param="batch_size")
        self._model = model.eval()
        settings = EncodingSettings.of(
            model.prompts or {},
            model.default_prompt_name,
            options,
            max_seq_length=getattr(model, "max_seq_length", None),
            truncate_dim=getattr(model, "truncate_dim", None),
        )
        self._prompt, self._query_prompt = settings.prompt, settings.query_prompt
        self._normalize = settings.normalize
        # A model with a router has a network for queries and one for documents.
        routed = any(type(module).__name__ in ("Router", "Asym") for module in model.children())
        self._task = "document" if routed else None
        self.precision = self._choose(precision)
        if (fingerprint := options.get("fingerprint")) is not None:
            self.model_fingerprint = fingerprint
        elif folder is not None:
            self.model_fingerprint = fingerprint_folder(folder, settings.to_record())
        else:
            self.model_fingerprint = fingerprint_model(model, settings.to_record())
        self.fingerprint = f"{self.model_fingerprint}:{self.precision}"
        get_dimension = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
        self.dimension: int | None = get_dimension()

    @property
    def keeps_accents(self) -> bool | None:
        """True if the tokenizer distinguishes letters with and without accents; None without a tokenizer."""
        tokenizer = getattr(self._model, "tokenizer", None)
        if tokenizer is None or not callable(tokenizer):
            return None
        return bool(tokenizer("é ü")["input_ids"] != tokenizer("e u")["input_ids"])

    def for_queries(self) -> SentenceTransformerBackend | None:
        """Return this model with the prompt and the network of queries; None if documents have the same."""
        if self._query_prompt == self._prompt and self._task != "document":
            return None
        queries = copy.copy(self)
        queries._prompt, queries._task = self._query_prompt, self._task and "query"
        queries.fingerprint = f"{self.fingerprint}:query"
        return queries

    def read_lengths(self, texts: Sequence[str]) -> list[int]:
        """Return how many leading characters of each text fit into the window with the prompt."""
        lengths = [len(text) for text in texts]
        tokenizer: Any = getattr(self._model, "tokenizer", None)
        most = getattr(self._model, "max_seq_length", None)
        if not getattr(tokenizer, "is_fast", False) or most is None:
            return lengths
        # A token covers a byte at least, and each text has a few special tokens.
        prompt = self._prompt or ""
        rows = [i for i, text in enumerate(texts) if len((prompt + text).encode()) + SPECIAL_TOKENS > most]
        while rows:
            # A tokeniser reads a text to its end, which may be far: the beginning is nearly always enough.
            longest = CHARACTERS_AT_A_TIME // TOKENISED_AT_A_TIME
            part, rows = rows[:TOKENISED_AT_A_TIME], rows[TOKENISED_AT_A_TIME:]
            given = [prompt + texts[i][:longest] for i in part]
            tokens = tokenizer(given, truncation=True, max_length=most, return_offsets_mapping=True)
            for i, offsets in zip(part, tokens["offset_mapping"], strict=True):
                if len(offsets) >= most:
                    lengths[i] = max(0, max(end for _, end in offsets) - len(prompt))
                elif len(texts[i]) > longest:
                    lengths[i] = longest
        return lengths

    def _choose(self, precision: str) -> str:
        import torch

        weights = [value for value in self._model.parameters() if value.is_floating_point()]
        if not {value.dtype for value in weights} <= {torch.float32}:
            if precision == "auto":
                return "native"
            raise InvalidInputError(
                f"`precision` {precision!r} needs float32 weights, and the model has others. Convert it with "
                "model.float() first.",
                param="precision",
            )
        return "fp32" if precision == "auto" else precision

    def run(self, texts: list[str], advance: Callable[[int], None]) -> Vectors:
        """Return the vectors of ``texts``, float32 of shape (N, n)."""
        if not texts:
            return np.empty((0, self.dimension or 0), np.float32)
        # The threads of a query's small products mostly wait for each other: five times the processor time.
        few = self._model.device.type == "cpu" and sum(map(len, texts)) <= _FEW_CHARACTERS
        with one_thread() if few else contextlib.nullcontext():
            vectors = self._vectors(texts, advance)
        if self._normalize:
            norms = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = vectors / np.maximum(norms, np.float32(1e-12))
        return vectors

    def _vectors(self, texts: list[str], advance: Callable[[int], None]) -> Vectors:
        import torch

        @contextlib.contextmanager
        def mode() -> Iterator[None]:  # torch keeps both for the thread that enters them
            cast: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
            if self.precision == "bf16":
                cast = torch.autocast(self._model.device.type, torch.bfloat16)
            with torch.inference_mode(), cast:
                yield

        # A prompt, truncation or router needs steps of the library that the direct forward pass omits.
        direct = self._prompt is None and self._task is None and getattr(self._model, "truncate_dim", None) is None
        vectors = self._in_equal_lengths(texts, advance, mode) if direct else None
        if vectors is None:
            with mode():
                vectors = self._by_the_library(texts, advance)
        return vectors

    def _in_equal_lengths(self, texts: list[str], advance: Callable[[int], None], mode: Mode) -> Vectors | None:
        """Return the vectors, or None if the features are not plain (texts, tokens) tensors."""
        import torch

        blocks = self._tokenised(texts)
        if blocks is None:
            return None
        device = self._model.device
        cpu = device.type == "cpu"
        positions = np.concatenate([rows for rows, _ in blocks])
        lengths = np.concatenate([features["attention_mask"].sum(1).numpy() for _, features in blocks])
        starts = np.cumsum([0] + [len(rows) for rows, _ in blocks])
        batches = plan_batches(
            lengths,
            max_tokens=_CPU_TOKENS if cpu else _GPU_TOKENS,
            min_tokens=_CPU_MIN_TOKENS if cpu else _GPU_MIN_TOKENS,
            max_texts=self._batch_size,
        )

        def encode(batch: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], Vectors]:
            parts = []
            batch = np.sort(batch)  # makes the rows of one block contiguous
            for index in np.unique(np.searchsorted(starts, batch, side="right") - 1):
                inside = batch[(batch >= starts[index]) & (batch < starts[index + 1])] - starts[index]
                parts.append((blocks[index][1], torch.from_numpy(inside)))
            features = _joined(parts, int(lengths[batch].max()))
            features = {
                key: value.to(device) if isinstance(value, torch.Tensor) else value for key, value in features.items()
            }
            with mode():
                return batch, self._model(features)["sentence_embedding"].float().cpu().numpy()

        first, vectors = encode(batches[0])  # gives the dimension
        out = np.empty((len(texts), vectors.shape[1]), np.float32)
        out[positions[first]] = vectors
        advance(len(first))
        advancing = threading.Lock()

        def work(start: int, stop: int) -> None:
            for batch in batches[1 + start : 1 + stop]:
                batch, vectors = encode(batch)
                out[positions[batch]] = vectors
                with advancing:
                    advance(len(batch))

        def alone(start: int, stop: int) -> None:
            with one_thread():
                work(start, stop)

        rest = len(batches) - 1
        if cpu and 1 < thread_count() <= rest:
            # One batch per thread: threads that share the small products of one batch wait for each other, and
            # where other programs use the cores too they wait several times as long as they compute.
            in_chunks(rest, 1, alone)
        else:
            work(0, rest)
        return out

    def _tokenised(self, texts: list[str]) -> list[tuple[npt.NDArray[np.int64], dict[str, Any]]] | None:
        """Return blocks of (rows of ``texts``, features) from the library's tokeniser, or None."""
        import torch

        tokenise = getattr(self._model, "preprocess", None) or self._model.tokenize
        # Sorted by characters, a proxy for tokens, so that a block pads little.
        order = np.argsort([-len(text) for text in texts], kind="stable")
        blocks: list[tuple[npt.NDArray[np.int64], dict[str, Any]]] = []
        start = 0
        while start < len(order):
            longest = max(1, len(texts[order[start]]))
            rows = order[start : start + max(1, min(TOKENISED_AT_A_TIME, CHARACTERS_AT_A_TIME // longest))]
            start += len(rows)
            features = dict(tokenise([texts[i] for i in rows]))
            mask = features.get("attention_mask")
            if not isinstance(mask, torch.Tensor) or mask.ndim != 2 or len(mask) != len(rows):
                return None
            tensors = [value for value in features.values() if isinstance(value, torch.Tensor)]
            # Only padding on the right can be cut off by slicing.
            aligned = bool((mask[:, :1] == 1).all()) and bool((mask[:, 1:] <= mask[:, :-1]).all())
            if not aligned or any(tensor.shape != mask.shape for tensor in tensors):
                return None
            blocks.append((rows, features))
        return blocks

    def _by_the_library(self, texts: list[str], advance: Callable[[int], None]) -> Vectors:
        """Return the vectors of the library's ``encode``, which sorts by length too."""
        vectors = self._model.encode(
            texts,
            batch_size=min(self._batch_size, 32),
            prompt=self._prompt,
            show_progress_bar=False,
            convert_to_tensor=True,
            **({} if self._task is None else {"task": self._task}),
        )
        advance(len(texts))
        return checked_vectors(vectors, rows=len(texts), owner=self.name)


def _joined(parts: list[tuple[dict[str, Any], Any]], width: int) -> dict[str, Any]:
    """Return the features of selected rows of several blocks, cut or padded to ``width`` tokens."""
    import torch

    joined: dict[str, Any] = {}
    for key, first in parts[0][0].items():
        if not isinstance(first, torch.Tensor):
            joined[key] = first
            continue
        pieces = [features[key][rows, :width] for features, rows in parts]
        # A narrower block holds shorter texts; the zero of the mask hides the padding.
        joined[key] = torch.cat([torch.nn.functional.pad(piece, (0, width - piece.shape[1])) for piece in pieces])
    return joined
