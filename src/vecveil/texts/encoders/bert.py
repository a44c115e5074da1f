"""Run BERT models in NumPy: the forward pass of MiniLM, SBERT, BGE, E5 and GTE from a folder's safetensors.

The vectors equal those of sentence-transformers within 1e-5. The tokenizer and the weights are read when a text is
first encoded; the weights are mapped, not copied, and shared by all encoders and threads of the process.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import json
import math
import mmap
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, MissingDependencyError, out_of_range
from vecveil.runtime import in_chunks, one_blas_thread
from vecveil.texts.encoders.fingerprint import EncodingSettings, ModelOptions, fingerprint_folder
from vecveil.texts.encoders.sentence_transformer import (
    CHARACTERS_AT_A_TIME,
    OWNER,
    SPECIAL_TOKENS,
    TOKENISED_AT_A_TIME,
    SentenceTransformerBackend,
    plan_batches,
)
from vecveil.validation import check_count

Vectors = npt.NDArray[np.float32]
Weights = Mapping[str, Vectors]

MANY_TEXTS = 2000
"""Texts of one call from which on a GPU is worth the import of torch, which takes five seconds."""
WEIGHTS = "model.safetensors"
_BATCH_TOKENS = 1024
_GPU_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA, AMD, and either under WSL
_LIBRARY_KEYS = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
_CONFIG: dict[str, tuple[Any, ...]] = {
    "model_type": ("bert",),
    "hidden_act": ("gelu",),
    "position_embedding_type": (None, "absolute"),
    "is_decoder": (None, False),
    "auto_map": (None,),
    "quantization_config": (None,),
}
_TOKENIZER_KEYS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
_POOLING: dict[str, Callable[[Vectors], Vectors]] = {
    "cls": lambda tokens: tokens[:, 0],
    "mean": lambda tokens: tokens.mean(axis=1),
    "max": lambda tokens: tokens.max(axis=1),
    "lasttoken": lambda tokens: tokens[:, -1],
}
_POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "lasttoken",
}
_DTYPES: dict[str, type[np.floating[Any]]] = {"F32": np.float32, "F16": np.float16}


class _OtherModelError(Exception):
    """Raised for a folder with what `BertModel` does not compute."""


@dataclass(frozen=True)
class BertFolder:
    """A folder whose model `BertModel` runs."""

    folder: Path
    transformer: Path
    layers: int
    width: int
    heads: int
    epsilon: float
    pooling: str
    normalized: bool
    lower_case: bool
    dimension: int
    limit: int
    settings: EncodingSettings


def read_bert(
    folder: Path, options: ModelOptions, *, max_seq_length: int | None, truncate_dim: int | None
) -> BertFolder | None:
    """Return the model in ``folder``, or None if it needs sentence-transformers or cannot be read."""
    try:
        places = _module_places(folder)
        config = _read_config(places[0])
        width, positions = int(config["hidden_size"]), int(config["max_position_embeddings"])
        normalized = len(places) == 3 and _is_plain_normalize(places[2])
        own = _optional_json(places[0] / "sentence_bert_config.json")
        own_limit, lower_case = own.pop("max_seq_length", None), own.pop("do_lower_case", False)
        _require(all(_LIBRARY_KEYS.get(key) == value for key, value in own.items()))
        tokenizer = _read_tokenizer(places[0])
        if own_limit is None:
            own_limit = min(tokenizer.get("model_max_length", positions), positions)
        _require(3 <= own_limit <= positions)
        limit = int(own_limit) if max_seq_length is None else max_seq_length
        library = _optional_json(folder / "config_sentence_transformers.json")
        _require(library.get("model_type", "SentenceTransformer") == "SentenceTransformer")
        settings = EncodingSettings.of(
            library.get("prompts") or {},
            library.get("default_prompt_name"),
            options,
            max_seq_length=limit,
            truncate_dim=library.get("truncate_dim") if truncate_dim is None else truncate_dim,
        )
        model = BertFolder(
            folder=folder,
            transformer=places[0],
            layers=int(config["num_hidden_layers"]),
            width=width,
            heads=int(config["num_attention_heads"]),
            epsilon=float(config["layer_norm_eps"]),
            pooling=_read_pooling(places[1]),
            normalized=normalized,
            lower_case=bool(lower_case),
            dimension=min(width, settings.truncate_dim or width),
            limit=limit,
            settings=settings,
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, _OtherModelError):
        return None
    if max_seq_length is not None and not 3 <= max_seq_length <= positions:
        raise out_of_range(OWNER, "max_seq_length", f"3 to {positions}, which this model reads", max_seq_length)
    return model


def _require(true: bool) -> None:
    if not true:
        raise _OtherModelError


def _json(path: Path) -> dict[str, Any]:
    record = json.loads(path.read_text(encoding="utf-8"))
    _require(isinstance(record, dict))
    return dict(record)


def _optional_json(path: Path) -> dict[str, Any]:
    return _json(path) if path.is_file() else {}


def _module_places(folder: Path) -> list[Path]:
    """Return the folders of the Transformer, the Pooling and perhaps the Normalize module."""
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    kinds = [str(module["type"]).split(".") for module in modules]
    _require(all(kind[0] == "sentence_transformers" for kind in kinds))
    names = [kind[-1] for kind in kinds]
    _require(names in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]))
    places = [folder / str(module["path"]) for module in modules]
    _require(all(place.resolve().is_relative_to(folder.resolve()) for place in places))
    return places


def _read_config(place: Path) -> dict[str, Any]:
    """Return the configuration of a BERT whose weights are complete."""
    config = _json(place / "config.json")
    _require(all(config.get(key) in values for key, values in _CONFIG.items()))
    _require(not (place / "adapter_config.json").exists())
    entries, _ = _header(place / WEIGHTS)
    for name, shape in _shapes(config).items():
        _require(tuple(entries[name]["shape"]) == shape and entries[name]["dtype"] in _DTYPES)
    return config


def _shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of the forward pass."""
    width, inner = int(config["hidden_size"]), int(config["intermediate_size"])
    embeddings = {"word": "vocab_size", "position": "max_position_embeddings", "token_type": "type_vocab_size"}
    linear = dict.fromkeys(
        (f"attention.{name}" for name in ("self.query", "self.key", "self.value", "output.dense")), (width, width)
    )
    linear |= {"intermediate.dense": (inner, width), "output.dense": (width, inner)}
    shapes: dict[str, tuple[int, ...]]
    shapes = {f"embeddings.{name}_embeddings.weight": (int(config[key]), width) for name, key in embeddings.items()}
    norms = ["embeddings"]
    for layer in (f"encoder.layer.{i}" for i in range(int(config["num_hidden_layers"]))):
        norms += [f"{layer}.attention.output", f"{layer}.output"]
        for name, shape in linear.items():
            shapes |= {f"{layer}.{name}.weight": shape, f"{layer}.{name}.bias": shape[:1]}
    return shapes | {f"{name}.LayerNorm.{part}": (width,) for name in norms for part in ("weight", "bias")}


def _read_tokenizer(place: Path) -> dict[str, Any]:
    """Return the tokenizer's settings; those of both of its files must agree."""
    settings, tokenizer = _optional_json(place / "tokenizer_config.json"), _json(place / "tokenizer.json")
    normalizer = tokenizer["normalizer"]
    _require(tokenizer["model"]["type"] == "WordPiece" and normalizer["type"] == "BertNormalizer")
    _require(tokenizer["pre_tokenizer"]["type"] == "BertPreTokenizer")
    _require(all(settings.get(key, normalizer[ours]) == normalizer[ours] for key, ours in _TOKENIZER_KEYS.items()))
    return settings


def _read_pooling(place: Path) -> str:
    config = _json(place / "config.json")
    _require(config.get("include_prompt", True) is True)
    flags = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
    pooling = config.get("pooling_mode", _POOLING_FLAGS[flags[0]] if len(flags) == 1 else None)
    _require(pooling in _POOLING)
    return str(pooling)


def _is_plain_normalize(place: Path) -> bool:
    _require(set(_optional_json(place / "config.json").values()) <= {"sentence_embedding"})
    return True


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the entries of a safetensors file and the position of its data."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        _require(length < path.stat().st_size)
        entries = json.loads(file.read(length))
    entries.pop("__metadata__", None)
    return {name.removeprefix("bert."): entry for name, entry in entries.items()}, 8 + length


@functools.lru_cache(maxsize=4)
def _mapped(path: Path, size: int, modified: int) -> Weights:
    """Return the tensors of a safetensors file; float32 weights are views of the file."""
    entries, start = _header(path)
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    weights = {}
    for name, entry in entries.items():
        if entry["dtype"] in _DTYPES:
            kind, count = _DTYPES[entry["dtype"]], math.prod(entry["shape"])
            values = np.frombuffer(data, kind, count, start + entry["data_offsets"][0])
            weights[name] = values.reshape(entry["shape"]).astype(np.float32, copy=False)
    return weights


# Abramowitz and Stegun, 7.1.26. In float32 it is as exact as SciPy's erf, and five times as fast.
_ERF = [np.float32(value) for value in (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)]
_ERF_SLOPE = np.float32(0.3275911 / math.sqrt(2))
_ONE, _HALF = np.float32(1), np.float32(0.5)


def gelu(x: Vectors) -> Vectors:
    """Return x Φ(x), to 4e-7."""
    size = np.abs(x)
    t = size * _ERF_SLOPE
    t += _ONE
    np.reciprocal(t, out=t)
    tail = t * _ERF[-1]
    for coefficient in _ERF[-2::-1]:
        tail += coefficient
        tail *= t
    np.multiply(size, size, out=t)
    t *= -_HALF
    np.exp(t, out=t)
    tail *= t
    tail *= size
    tail *= _HALF  # |x| Φ(-|x|)
    np.subtract(np.maximum(x, 0, out=size), tail, out=tail)
    return tail


class BertModel:
    """The tokenizer and the forward pass of one model, read when first used.

    Args:
        source: folder and settings of the model.
        library: loads the same model in sentence-transformers; picklable.
        fingerprint: of the folder and the settings, if known: a folder with another one is not read.
    """

    def __init__(
        self, source: BertFolder, library: Callable[[], SentenceTransformerBackend], fingerprint: str | None = None
    ) -> None:
        self.source = source
        self._library = library
        self._loaded: SentenceTransformerBackend | None = None
        self._fingerprint = fingerprint
        self._reading = threading.Lock()
        self._tokenizer: Any = None
        self._weights: Weights = {}
        self._scale = np.float32(1 / math.sqrt(source.width / source.heads))
        self._epsilon = np.float32(source.epsilon)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source, self._library, self.fingerprint)

    @property
    def fingerprint(self) -> str:
        """The fingerprint without the precision, the same as with sentence-transformers; it loads no weights."""
        if self._fingerprint is None:
            self._fingerprint = fingerprint_folder(self.source.folder, self.source.settings.to_record())
        return self._fingerprint

    def in_library(self) -> SentenceTransformerBackend:
        """Return the model in sentence-transformers, loaded once."""
        with self._reading:
            if self._loaded is None:
                self._loaded = self._library()
            return self._loaded

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, which truncates to the model's window."""
        with self._reading:
            if self._tokenizer is None:
                self._read()
            return self._tokenizer

    def _read(self) -> None:
        from tokenizers import Tokenizer, normalizers

        source, weights = self.source, (self.source.transformer / WEIGHTS).resolve()
        try:
            stat = weights.stat()
            if self._fingerprint not in (None, fingerprint_folder(source.folder, source.settings.to_record())):
                raise ValueError
            tokenizer = Tokenizer.from_file(str(source.transformer / "tokenizer.json"))
            self._weights = _mapped(weights, stat.st_size, stat.st_mtime_ns)
        except Exception as error:  # the tokenizers raise Exception itself
            raise InvalidInputError(
                f"The model in {self.source.folder.name!r} has changed since it was opened, or is damaged "
                f"({type(error).__name__}). Open it again, or install it again.",
                param="name",
            ) from None
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.source.limit)
        if self.source.lower_case:
            tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), tokenizer.normalizer])
        self._tokenizer = tokenizer

    def vectors(self, tokens: npt.NDArray[np.int64]) -> Vectors:
        """Return the vectors of texts of equal length, from their (N, T) tokens."""
        source, weights = self.source, self._weights
        texts, length = tokens.shape
        x = weights["embeddings.word_embeddings.weight"][tokens]
        x += weights["embeddings.position_embeddings.weight"][:length]
        x += weights["embeddings.token_type_embeddings.weight"][0]
        x = self._normalized(x.reshape(texts * length, -1), "embeddings")

        def per_head(name: str) -> Vectors:
            return self._linear(x, name).reshape(texts, length, source.heads, -1).swapaxes(1, 2)

        for i in range(source.layers):
            layer = f"encoder.layer.{i}"
            query, key, value = (per_head(f"{layer}.attention.self.{name}") for name in ("query", "key", "value"))
            attention: Vectors = query @ key.swapaxes(2, 3)
            attention *= self._scale
            attention -= attention.max(axis=3, keepdims=True)
            np.exp(attention, out=attention)
            attention /= attention.sum(axis=3, keepdims=True)
            context: Vectors = (attention @ value).swapaxes(1, 2).reshape(texts * length, -1)
            y = self._linear(context, f"{layer}.attention.output.dense")
            y += x
            x = self._normalized(y, f"{layer}.attention.output")
            inner = gelu(self._linear(x, f"{layer}.intermediate.dense"))
            y = self._linear(inner, f"{layer}.output.dense")
            y += x
            x = self._normalized(y, f"{layer}.output")
        pooled = _POOLING[source.pooling](x.reshape(texts, length, -1))
        if source.normalized:
            pooled = unit(pooled)
        return pooled[:, : source.dimension]

    def _linear(self, x: Vectors, name: str) -> Vectors:
        y: Vectors = x @ self._weights[f"{name}.weight"].T
        y += self._weights[f"{name}.bias"]
        return y

    def _normalized(self, x: Vectors, name: str) -> Vectors:
        x -= x.mean(axis=1, keepdims=True)
        variance = np.einsum("ij,ij->i", x, x)[:, None] / np.float32(x.shape[1])
        x /= np.sqrt(variance + self._epsilon)
        x *= self._weights[f"{name}.LayerNorm.weight"]
        x += self._weights[f"{name}.LayerNorm.bias"]
        return x


class BertBackend:
    """A BERT model in NumPy; calls with many texts go to sentence-transformers if torch has a GPU.

    Args:
        model: the model and its settings.
        fingerprint: replaces the computed one.
    """

    precision = "fp32"

    def __init__(self, model: BertModel, *, name: str, batch_size: int, fingerprint: str | None) -> None:
        if importlib.util.find_spec("tokenizers") is None:
            raise MissingDependencyError("Encoding texts", "tokenizers", "minilm")
        self.name = name
        self.dimension: int | None = model.source.dimension
        self._batch_size = check_count(batch_size, owner=OWNER, param="batch_size")
        self._model = model
        self._given_fingerprint = fingerprint
        self._prompt = model.source.settings.prompt or ""
        self._for_queries = False

    @property
    def model_fingerprint(self) -> str:
        """The fingerprint without the precision."""
        return self._given_fingerprint or self._model.fingerprint

    @property
    def fingerprint(self) -> str:
        """The fingerprint with the precision, and of queries with their mark."""
        return f"{self.model_fingerprint}:{self.precision}{':query' if self._for_queries else ''}"

    @property
    def keeps_accents(self) -> bool:
        """True if the tokenizer distinguishes letters with and without accents."""
        tokenizer = self._model.tokenizer
        return bool(tokenizer.encode("é ü").ids != tokenizer.encode("e u").ids)

    def for_queries(self) -> BertBackend | None:
        """Return this model with the prompt of queries; None if documents have the same."""
        settings = self._model.source.settings
        if self._for_queries or settings.query_prompt == settings.prompt:
            return None
        queries = copy.copy(self)
        queries._prompt, queries._for_queries = settings.query_prompt or "", True
        return queries

    def read_lengths(self, texts: Sequence[str]) -> list[int]:
        """Return how many leading characters of each text fit into the window with the prompt."""
        lengths = [len(text) for text in texts]
        most = self._model.source.limit
        # A token covers a byte at least, and each text has a few special tokens.
        rows = [i for i, text in enumerate(texts) if len((self._prompt + text).encode()) + SPECIAL_TOKENS > most]
        # A tokenizer reads a text to its end, which may be far: the beginning is nearly always enough.
        longest = CHARACTERS_AT_A_TIME // TOKENISED_AT_A_TIME
        for start in range(0, len(rows), TOKENISED_AT_A_TIME):
            part = rows[start : start + TOKENISED_AT_A_TIME]
            given = [self._prompt + texts[i][:longest] for i in part]
            for i, encoded in zip(part, self._model.tokenizer.encode_batch(given), strict=True):
                if len(encoded.ids) >= most:
                    lengths[i] = max(0, max(end for _, end in encoded.offsets) - len(self._prompt))
                elif len(texts[i]) > longest:
                    lengths[i] = longest
        return lengths

    def run(self, texts: list[str], advance: Callable[[int], None]) -> Vectors:
        """Return the vectors of ``texts``, float32 of shape (N, n)."""
        if len(texts) >= MANY_TEXTS and gpu_available():
            library = self._model.in_library()
            return ((library.for_queries() or library) if self._for_queries else library).run(texts, advance)
        source = self._model.source
        tokens = [row for part in self._parts(texts) for row in self._model.tokenizer.encode_batch(part)]
        lengths = np.array([len(row.ids) for row in tokens], np.int64)
        batches = plan_batches(lengths, max_tokens=_BATCH_TOKENS, max_texts=self._batch_size, min_tokens=0)
        out = np.empty((len(texts), source.dimension), np.float32)
        advancing = threading.Lock()

        def work(start: int, stop: int) -> None:
            for batch in batches[start:stop]:
                out[batch] = self._model.vectors(np.array([tokens[i].ids for i in batch], np.int64))
                with advancing:
                    advance(len(batch))

        # One batch per thread: threads that share the small products of one batch mostly wait for each other.
        with one_blas_thread():
            in_chunks(len(batches), 1, work)
        return unit(out) if source.settings.normalize else out

    def _parts(self, texts: list[str]) -> Iterator[list[str]]:
        """Yield the texts with the prompt, a few million characters at a time."""
        part: list[str] = []
        size = 0
        for text in texts:
            if part and (len(part) == TOKENISED_AT_A_TIME or size + len(text) > CHARACTERS_AT_A_TIME):
                yield part
                part, size = [], 0
            part.append(self._prompt + text)
            size += len(text)
        if part:
            yield part


def unit(vectors: Vectors) -> Vectors:
    """Return the rows scaled to unit length; a row of zeros stays."""
    norms: Vectors = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, np.maximum(norms, np.float32(1e-12)))


def gpu_available() -> bool:
    """Return True if sentence-transformers is installed and torch has a GPU."""
    if importlib.util.find_spec("sentence_transformers") is None:
        return False
    if sys.platform == "linux" and not any(Path(file).exists() for file in _GPU_FILES):
        return False
    import torch  # takes seconds: not where there is no device

    return torch.cuda.is_available() or torch.backends.mps.is_available()
