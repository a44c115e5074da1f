"""Models of the sentence-transformers library, by folder, hub name or object.

In fp32 the vectors equal the library's own ``encode`` to rounding. What is faster is the batching:
a whole chunk is tokenised at once and run in batches of texts with the same number of tokens, so
that nothing is spent on padding and attention masks; on a CPU in fp32 what remains is matrix
products.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.encoders.batching import plan_batches
from vecveil.encoders.fingerprint import fingerprint_folder, fingerprint_model
from vecveil.encoders.precision import PrecisionChoice, cpu_has_bf16, verify_bf16
from vecveil.encoders.protocol import Advance, checked_vectors
from vecveil.errors import InvalidInputError
from vecveil.validation import check_count

__all__ = ["SentenceTransformerBackend"]

Vectors = npt.NDArray[np.float32]

_OWNER = "load_encoder"
# Measured with MiniLM on a CPU: 2048 to 8192 tokens are alike, 512 is slow.
_CPU_TOKENS, _CPU_MIN_TOKENS = 4096, 256
# Not measured: larger batches, and rather padded than many small ones.
_GPU_TOKENS, _GPU_MIN_TOKENS = 32768, 8192
_TOKENISED_AT_A_TIME = 256


class SentenceTransformerBackend:
    """One loaded model with its device, precision and fingerprint.

    Args:
        model: a ``sentence_transformers.SentenceTransformer``. One whose weights are not float32 is
            run as it is, and its precision called ``"native"``.
        name: for people and records.
        folder: where it was loaded from; its files are the fingerprint. None for an object in
            memory.
        precision: ``"fp32"``, ``"bf16"``, or ``"auto"``: bf16 on a CPU that has it in hardware, if
            the vectors of built-in sentences keep a cosine of .9999 and time is gained; else fp32.
        batch_size: at most so many texts in a batch. Smaller takes less memory and more time.
        prompt: put before every text; None takes the model's own default prompt.
        normalize: scale vectors to unit length also where the model does not.
        fingerprint: the user's own, instead of the computed one.
    """

    def __init__(
        self,
        model: Any,
        *,
        name: str,
        folder: Path | None = None,
        precision: str = "auto",
        batch_size: int = 256,
        prompt: str | None = None,
        normalize: bool = False,
        fingerprint: str | None = None,
    ) -> None:
        if precision not in ("auto", "fp32", "bf16"):
            raise InvalidInputError.of(
                _OWNER, "precision", "'auto', 'fp32' or 'bf16'", repr(precision)
            )
        self.name = name
        self._batch_size = check_count(batch_size, owner=_OWNER, param="batch_size")
        self._model = model.eval()
        if prompt is None:
            prompt = (
                model.prompts.get(model.default_prompt_name) if model.default_prompt_name else None
            )
        self._prompt = prompt or None
        self._normalize = normalize
        self._sliceable = self._prompt is None and getattr(model, "truncate_dim", None) is None
        self.precision_choice = self._choose(precision)
        self.precision = self.precision_choice.precision
        settings = {
            "max_seq_length": getattr(model, "max_seq_length", None),
            "normalize": normalize,
            "prompt": self._prompt,
            "truncate_dim": getattr(model, "truncate_dim", None),
        }
        if fingerprint is not None:
            self.model_fingerprint = fingerprint
        elif folder is not None:
            self.model_fingerprint = fingerprint_folder(folder, settings)
        else:
            self.model_fingerprint = fingerprint_model(model, settings)
        self.fingerprint = f"{self.model_fingerprint}:{self.precision}"
        get_dimension = (
            getattr(model, "get_embedding_dimension", None)
            or model.get_sentence_embedding_dimension
        )
        self.dimension: int | None = get_dimension()

    def run(self, texts: list[str], advance: Advance) -> Vectors:
        """Return the vectors of ``texts``, float32 of shape (N, n)."""
        return self._run(texts, self.precision, advance)

    def _choose(self, precision: str) -> PrecisionChoice:
        import torch

        weights = {value.dtype for value in self._model.parameters() if value.is_floating_point()}
        if not weights <= {torch.float32}:
            if precision == "auto":
                return PrecisionChoice("native", "the weights of this object are not float32")
            got = f"{precision!r} for a model of other weights"
            fix = "Convert it with model.float() first."
            raise InvalidInputError.of(_OWNER, "precision", "'auto'", got, fix=fix)
        if precision != "auto":
            return PrecisionChoice(precision, "asked for")
        if self._model.device.type != "cpu":
            return PrecisionChoice("fp32", "bf16 is chosen by itself on CPUs only")
        if not cpu_has_bf16():
            return PrecisionChoice("fp32", "this CPU has no bf16 in hardware")
        return verify_bf16(lambda texts, name: self._run(texts, name, lambda _: None))

    def _run(self, texts: list[str], precision: str, advance: Advance) -> Vectors:
        import torch

        if not texts:
            return np.empty((0, self.dimension or 0), np.float32)
        cast: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if precision == "bf16":
            cast = torch.autocast(self._model.device.type, torch.bfloat16)
        with torch.inference_mode(), cast:
            vectors = self._in_equal_lengths(texts, advance) if self._sliceable else None
            if vectors is None:
                vectors = self._by_the_library(texts, advance)
        if self._normalize:
            norms = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = vectors / np.maximum(norms, np.float32(1e-12))
        return vectors

    def _in_equal_lengths(self, texts: list[str], advance: Advance) -> Vectors | None:
        """Return the vectors, or None if the features are no plain (texts, tokens) tensors."""
        import torch

        blocks = self._tokenised(texts)
        if blocks is None:
            return None
        device = self._model.device
        cpu = device.type == "cpu"
        positions = np.concatenate([rows for rows, _ in blocks])
        lengths = np.concatenate(
            [features["attention_mask"].sum(1).numpy() for _, features in blocks]
        )
        starts = np.cumsum([0] + [len(rows) for rows, _ in blocks])
        out: Vectors | None = None
        for batch in plan_batches(
            lengths,
            max_tokens=_CPU_TOKENS if cpu else _GPU_TOKENS,
            min_tokens=_CPU_MIN_TOKENS if cpu else _GPU_MIN_TOKENS,
            max_texts=self._batch_size,
        ):
            parts = []
            batch = np.sort(batch)  # so that rows of one block stand together
            for index in np.unique(np.searchsorted(starts, batch, side="right") - 1):
                inside = (
                    batch[(batch >= starts[index]) & (batch < starts[index + 1])] - starts[index]
                )
                parts.append((blocks[index][1], torch.from_numpy(inside)))
            features = _joined(parts, int(lengths[batch].max()))
            features = {
                key: value.to(device) if isinstance(value, torch.Tensor) else value
                for key, value in features.items()
            }
            vectors = self._model(features)["sentence_embedding"].float().cpu().numpy()
            if out is None:
                out = np.empty((len(texts), vectors.shape[1]), np.float32)
            out[positions[batch]] = vectors
            advance(len(batch))
        return out

    def _tokenised(
        self, texts: list[str]
    ) -> list[tuple[npt.NDArray[np.int64], dict[str, Any]]] | None:
        """Return blocks of (rows of ``texts``, features), tokenised by the library, or None."""
        import torch

        tokenise = getattr(self._model, "preprocess", None) or self._model.tokenize
        order = np.argsort([-len(text) for text in texts], kind="stable")
        blocks = []
        for start in range(0, len(order), _TOKENISED_AT_A_TIME):
            rows = order[start : start + _TOKENISED_AT_A_TIME]
            features = dict(tokenise([texts[i] for i in rows]))
            mask = features.get("attention_mask")
            if not isinstance(mask, torch.Tensor) or mask.ndim != 2 or len(mask) != len(rows):
                return None
            tensors = [value for value in features.values() if isinstance(value, torch.Tensor)]
            # Padding must stand on the right, where it can be cut off.
            aligned = bool((mask[:, :1] == 1).all()) and bool((mask[:, 1:] <= mask[:, :-1]).all())
            if not aligned or any(tensor.shape != mask.shape for tensor in tensors):
                return None
            blocks.append((rows, features))
        return blocks

    def _by_the_library(self, texts: list[str], advance: Advance) -> Vectors:
        """Return what the library's own ``encode`` gives; it sorts by length too."""
        vectors = self._model.encode(
            texts,
            batch_size=min(self._batch_size, 32),
            prompt=self._prompt,
            show_progress_bar=False,
            convert_to_tensor=True,
        )
        advance(len(texts))
        return checked_vectors(vectors, rows=len(texts), owner=self.name)


def _joined(parts: list[tuple[dict[str, Any], Any]], width: int) -> dict[str, Any]:
    """Return the features of chosen rows of several blocks, cut or padded to ``width`` tokens."""
    import torch

    joined: dict[str, Any] = {}
    for key, first in parts[0][0].items():
        if not isinstance(first, torch.Tensor):
            joined[key] = first
            continue
        pieces = [features[key][rows, :width] for features, rows in parts]
        # A narrower block holds shorter texts; the mask covers what the padding says.
        joined[key] = torch.cat(
            [torch.nn.functional.pad(piece, (0, width - piece.shape[1])) for piece in pieces]
        )
    return joined
