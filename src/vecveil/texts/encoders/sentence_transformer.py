"""Load and run models of the sentence-transformers library: folders and the hub, batches, precision, fingerprints.

In fp32 the vectors equal the library's ``encode`` to rounding. Batching makes the difference in speed: a whole
chunk is tokenised at once and run in batches of texts with the same number of tokens, without padding and
attention masks; on a CPU in fp32 matrix products then take nearly all the time.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, optional_import
from vecveil.io import expanded
from vecveil.runtime import in_chunks, one_thread, resolve_device, thread_count
from vecveil.validation import check_count, checked_vectors

# Files that decide the vectors; training logs and read-me files change without changing them.
_SUFFIXES = {".json", ".safetensors", ".bin", ".pt", ".pth", ".model", ".py", ".jinja", ".npz"}
_NAMES = {"vocab.txt", "merges.txt", "whitespacetokenizer_config.json"}
# Redundant: tokenizer.json has the same, which the fast tokenizer reads alone.
_WITH_TOKENIZER_JSON = {"vocab.txt", "vocab.json", "merges.txt", "special_tokens_map.json", "added_tokens.json"}
_IGNORED = {"data_config.json", "trainer_state.json", "training_args.bin", "optimizer.pt", "train_script.py"}
_OTHER_FORMATS = {"onnx", "openvino"}
# Entries that record where a model came from, or which version of the library wrote it.
_VOLATILE = {"_name_or_path", "name_or_path", "transformers_version", "__version__", "_commit_hash"}

_digests: dict[tuple[str, int, int], bytes] = {}


def fingerprint_folder(folder: Path, settings: Mapping[str, Any]) -> str:
    """Return ``st1:`` and the SHA-256 of a sentence-transformers folder and of ``settings``.

    Folders with equal content have equal fingerprints on every machine and under every version of the libraries.
    Read-me files, other formats of the same weights (ONNX, TensorFlow) and entries about a model's origin do not count.
    """
    digest = hashlib.sha256()
    for path in sorted(_files(folder), key=lambda file: file.relative_to(folder).as_posix()):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + _file_digest(path))
    return _finish(digest, settings)


def fingerprint_model(model: Any, settings: Mapping[str, Any]) -> str:
    """Return the fingerprint of a SentenceTransformer in memory: weights, vocabulary and module settings.

    It differs from the fingerprint of the model's folder, and it may change with the version of the library: load
    by name or folder for a fingerprint that the command line reproduces.
    """
    digest = hashlib.sha256(b"in memory\0")
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        # NumPy has no bfloat16; float32 represents every float16 and bfloat16 exactly.
        values = flat.float() if flat.dtype.is_floating_point and flat.element_size() < 4 else flat
        digest.update(memoryview(values.numpy()).cast("B"))
    for module in model.children():
        config = module.get_config_dict() if hasattr(module, "get_config_dict") else {}
        digest.update(type(module).__name__.encode() + _canonical(config))
    get_vocabulary: Callable[[], dict[str, int]]
    get_vocabulary = getattr(getattr(model, "tokenizer", None), "get_vocab", dict)
    vocabulary = get_vocabulary()
    digest.update(_canonical(dict(sorted(vocabulary.items()))))
    return _finish(digest, settings)


def _finish(digest: Any, settings: Mapping[str, Any]) -> str:
    digest.update(b"\0settings\0" + _canonical(settings))
    return f"st1:{digest.hexdigest()}"


def _files(folder: Path) -> Iterator[Path]:
    yield from _chosen(path for path in folder.iterdir() if path.is_file())
    for module in _module_folders(folder):
        inside = (path for path in module.rglob("*") if path.is_file())
        yield from _chosen(path for path in inside if _OTHER_FORMATS.isdisjoint(path.relative_to(folder).parts))


def _module_folders(folder: Path) -> list[Path]:
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        names = {str(module["path"]).strip("/") for module in modules}
    except (OSError, ValueError, TypeError, KeyError):
        return []
    inside = (name for name in sorted(names) if name and ".." not in name)
    return [folder / name for name in inside if (folder / name).is_dir()]


def _chosen(paths: Iterator[Path]) -> Iterator[Path]:
    files = {path for path in paths if path.name in _NAMES or path.suffix in _SUFFIXES}
    # Folders often hold the same weights in two formats; the library prefers safetensors.
    with_safetensors = {path.parent for path in files if path.suffix == ".safetensors"}
    with_tokenizer = {path.parent for path in files if path.name == "tokenizer.json"}
    for path in files:
        redundant_weights = path.suffix in {".bin", ".pt", ".pth"} and path.parent in with_safetensors
        redundant_vocabulary = path.name in _WITH_TOKENIZER_JSON and path.parent in with_tokenizer
        if not (path.name in _IGNORED or redundant_weights or redundant_vocabulary):
            yield path


def _file_digest(path: Path) -> bytes:
    stat = path.stat()
    # Hashing gigabytes again is slow: equal size and modification time count as unchanged.
    key = (str(path.resolve()), stat.st_size, stat.st_mtime_ns)
    if key not in _digests:
        if path.suffix == ".json":
            data = path.read_bytes()
            with contextlib.suppress(ValueError):
                data = _canonical(_without_volatile(json.loads(data)))
            _digests[key] = hashlib.sha256(data).digest()
        else:
            with path.open("rb") as file:
                _digests[key] = hashlib.file_digest(file, "sha256").digest()
    return _digests[key]


def _without_volatile(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_volatile(entry) for key, entry in value.items() if key not in _VOLATILE}
    return value


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, default=str).encode()


MIN_COSINE = 0.9999
"""Least cosine to fp32 that every calibration text must keep for bf16."""
MIN_WEIGHTS = 1_000_000
"""Fewest weights for bf16: a smaller model gains nothing. MiniLM (22.7 million) is 2.4 times as fast."""

CALIBRATION_TEXTS = (
    "",
    "Yes.",
    "Call me back on Monday.",
    "The patient was given 400 mg of ibuprofen twice a day.",
    "A man is playing a guitar on the street.",
    "Interest rates rose by a quarter of a point, the central bank said.",
    "Is there any way to cancel the order before it ships?",
    "Two dogs run through the snow towards a frozen lake.",
    "Ticket 48213: the printer on the third floor prints blank pages.",
    "She moved from Lisbon to Oslo in 2019 and works as a nurse.",
    "Zażółć gęślą jaźń; 今日は天気がいい; привет, мир!",
    "E = mc^2, x_1 <= 3.14159, and the p-value was 0.032 (n = 120).",
    "After three weeks without symptoms the treatment was stopped, the dose of the second drug was "
    "halved, and a follow-up visit was agreed for the beginning of the next quarter.",
    "We regret to inform you that your application was not successful this time; the committee "
    "received an unusually high number of proposals, and only one in nine could be funded from the "
    "budget available. You are welcome to apply again in the autumn round.",
    "The old bridge, which had carried trains over the valley for more than a century, was closed "
    "to all traffic after inspectors found cracks in two of the main supports.",
    "please pls fix this asap!!! login broken again :(",
)
"""Sentences of mixed length and script, encoded in both precisions before bf16 is chosen."""

EncodeWith = Callable[[list[str], str], "np.ndarray[Any, np.dtype[np.float32]]"]


_BF16_FLAGS = {"amx_bf16", "bf16"}


def cpu_has_bf16() -> bool:
    """Return True if the processor multiplies bfloat16 faster than float32 (AMX, Arm).

    AVX512_BF16 alone does not count: with it MiniLM takes 1.7 times as long as in float32 on an Intel Xeon.
    """
    import torch

    try:
        capabilities = torch.cpu.get_capabilities()
        if any(capabilities.get(flag) for flag in _BF16_FLAGS):
            return True
    except (AttributeError, RuntimeError):  # older torch
        pass
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="ignore").splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.lower().startswith(("flags", "features"))), "").split()
    return not _BF16_FLAGS.isdisjoint(flags)


def lowest_cosine(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> float:
    """Return the smallest cosine between corresponding rows of two (N, n) arrays; NaN counts as -1."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return float(np.nan_to_num(cosines, nan=-1.0).min())


def verify_bf16(encode_with: EncodeWith) -> str:
    """Return ``"bf16"`` if it preserves every calibration vector, else ``"fp32"``.

    bf16 means autocast: matrix products in bfloat16; residual stream, normalisation and pooling in float32.
    With MiniLM the lowest cosine to fp32 over 153 texts was .99995; with all weights in bfloat16 it was
    .99986, below the limit. Nothing is timed: the precision is part of the encoder's fingerprint, so every
    process on one machine must choose the same.
    """
    texts = list(CALIBRATION_TEXTS)
    cosine = lowest_cosine(encode_with(texts, "fp32"), encode_with(texts, "bf16"))
    return "bf16" if cosine >= MIN_COSINE else "fp32"


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

_OWNER = "load_encoder"
# Measured with MiniLM on a CPU: 2048 to 8192 tokens perform alike, 512 is slow.
_CPU_TOKENS, _CPU_MIN_TOKENS = 4096, 256
# Not measured: a GPU gains more from large batches than it loses by padding.
_GPU_TOKENS, _GPU_MIN_TOKENS = 32768, 8192
_TOKENISED_AT_A_TIME = 256
_SPECIAL_TOKENS = 8
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")  # in the order of the library's encode_document
# A tokeniser takes a hundred bytes of memory per character of a batch, also of the end that the model does not read.
_CHARACTERS_AT_A_TIME = 1 << 22


class ModelOptions(TypedDict, total=False):
    """Options of a backend that decide its vectors; `SentenceTransformerBackend` explains them."""

    prompt: str | None
    query_prompt: str | None
    normalize: bool
    fingerprint: str | None


class SentenceTransformerBackend:
    """One loaded model with its device, precision and fingerprint.

    Args:
        model: a ``sentence_transformers.SentenceTransformer``. Weights that are not float32 stay as
            they are; the precision is then ``"native"``.
        folder: origin of the model, whose files give the fingerprint. None for an object in memory.
        precision: ``"fp32"``, ``"bf16"``, or ``"auto"``; see `verify_bf16`.
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
        if precision not in ("auto", "fp32", "bf16"):
            raise InvalidInputError(
                f"`precision` must be 'auto', 'fp32' or 'bf16', not {precision!r}.", param="precision"
            )
        self.name = name
        self._batch_size = check_count(batch_size, owner=_OWNER, param="batch_size")
        self._model = model.eval()
        own: dict[str, str] = dict(model.prompts or {})
        default: str = model.default_prompt_name or ""
        registered = [own.get(name) for name in (*_DOCUMENT_PROMPTS, default)]
        prompt, query_prompt = options.get("prompt"), options.get("query_prompt")
        if query_prompt is None:
            query_prompt = (own.get("query") or own.get(default)) if prompt is None else prompt
        if prompt is None:
            prompt = next(filter(None, registered), None)
        self._prompt, self._query_prompt = prompt or None, query_prompt or None
        # A model with a router has a network for queries and one for documents.
        routed = any(type(module).__name__ in ("Router", "Asym") for module in model.children())
        self._task = "document" if routed else None
        self._normalize = options.get("normalize", False)
        self.precision = self._choose(precision)
        settings = {
            "max_seq_length": getattr(model, "max_seq_length", None),
            "normalize": self._normalize,
            "prompt": self._prompt,
            "truncate_dim": getattr(model, "truncate_dim", None),
        } | ({} if self._query_prompt == self._prompt else {"query_prompt": self._query_prompt})
        if (fingerprint := options.get("fingerprint")) is not None:
            self.model_fingerprint = fingerprint
        elif folder is not None:
            self.model_fingerprint = fingerprint_folder(folder, settings)
        else:
            self.model_fingerprint = fingerprint_model(model, settings)
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
        rows = [i for i, text in enumerate(texts) if len((prompt + text).encode()) + _SPECIAL_TOKENS > most]
        while rows:
            # A tokeniser reads a text to its end, which may be far: the beginning is nearly always enough.
            longest = _CHARACTERS_AT_A_TIME // _TOKENISED_AT_A_TIME
            part, rows = rows[:_TOKENISED_AT_A_TIME], rows[_TOKENISED_AT_A_TIME:]
            given = [prompt + texts[i][:longest] for i in part]
            tokens = tokenizer(given, truncation=True, max_length=most, return_offsets_mapping=True)
            for i, offsets in zip(part, tokens["offset_mapping"], strict=True):
                if len(offsets) >= most:
                    lengths[i] = max(0, max(end for _, end in offsets) - len(prompt))
                elif len(texts[i]) > longest:
                    lengths[i] = longest
        return lengths

    def run(self, texts: list[str], advance: Callable[[int], None]) -> Vectors:
        """Return the vectors of ``texts``, float32 of shape (N, n)."""
        return self._run(texts, self.precision, advance)

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
        if precision != "auto":
            return precision
        # bf16 is verified on CPUs only, and is slower on one without matrix units for it.
        if self._model.device.type != "cpu" or not cpu_has_bf16():
            return "fp32"
        if sum(value.numel() for value in weights) < MIN_WEIGHTS:
            return "fp32"
        return verify_bf16(lambda texts, name: self._run(texts, name, lambda _: None))

    def _run(self, texts: list[str], precision: str, advance: Callable[[int], None]) -> Vectors:
        import torch

        if not texts:
            return np.empty((0, self.dimension or 0), np.float32)

        @contextlib.contextmanager
        def mode() -> Iterator[None]:  # torch keeps both for the thread that enters them
            cast: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
            if precision == "bf16":
                cast = torch.autocast(self._model.device.type, torch.bfloat16)
            with torch.inference_mode(), cast:
                yield

        # A prompt, truncation or router needs steps of the library that the direct forward pass omits.
        direct = self._prompt is None and self._task is None and getattr(self._model, "truncate_dim", None) is None
        vectors = self._in_equal_lengths(texts, advance, mode) if direct else None
        if vectors is None:
            with mode():
                vectors = self._by_the_library(texts, advance)
        if self._normalize:
            norms = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = vectors / np.maximum(norms, np.float32(1e-12))
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
            rows = order[start : start + max(1, min(_TOKENISED_AT_A_TIME, _CHARACTERS_AT_A_TIME // longest))]
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


_HUB_SECONDS = 15.0  # for the hub's first answer
_FOR_LIBRARY = {"truncate_dim", "revision", "token", "cache_folder", "trust_remote_code"}
_FOR_BACKEND = set(ModelOptions.__annotations__)
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_PICKLED = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib"}


def load_model(
    source: str | os.PathLike[str],
    *,
    label: str | None,
    precision: str,
    device: str,
    batch_size: int,
    max_seq_length: int | None = None,
    **options: Any,
) -> SentenceTransformerBackend:
    """Return the backend of a folder or hub name; the hub is contacted only for an incomplete cache."""
    if unknown := sorted(set(options) - _FOR_LIBRARY - _FOR_BACKEND):
        known = ", ".join(sorted(_FOR_LIBRARY | _FOR_BACKEND | {"max_seq_length"}))
        raise InvalidInputError(f"Unknown encoder options: {', '.join(unknown)}. Known: {known}.", param="options")
    with optional_import("Encoding texts", "sentence-transformers", "encoders"):
        import sentence_transformers as library
    arguments: dict[str, Any] = {"device": _device(device), "trust_remote_code": False}
    arguments |= {key: value for key, value in options.items() if key in _FOR_LIBRARY}
    folder: Path | None = expanded(source)
    with _quiet_loading():
        if os.fspath(source) and folder is not None and folder.is_dir():
            model = _from_folder(library, folder, arguments)
            name = label or folder.resolve().name
        else:
            name = os.fspath(source)
            if isinstance(source, os.PathLike) or _looks_like_path(name):
                raise InvalidInputError(
                    "The encoder's folder does not exist. Name 'minilm', a folder with a model, or a model of the hub.",
                    param="name",
                )
            model, folder = _from_hub(library, name, arguments)
    if max_seq_length is not None:
        model.max_seq_length = max_seq_length
    model = model.float()  # transformers may load the weights in half precision
    for_backend: Any = {key: value for key, value in options.items() if key in _FOR_BACKEND}
    return SentenceTransformerBackend(
        model, name=name, folder=folder, precision=precision, batch_size=batch_size, **for_backend
    )


def downloaded_folder(name: str, *, revision: str | None = None) -> Path | None:
    """Return the folder in the local hub cache of a model that a file from somebody else may name, else None.

    Such a file starts no download and names no folder of this machine, and the model's weights are safetensors.
    """
    if not _HUB_NAME.fullmatch(name):
        return None
    folder = _cached_folder(name, {"revision": revision})
    if folder is None:
        return None
    weights = list(folder.rglob("*"))
    # The libraries prefer safetensors where both formats are present.
    safe = {path.parent for path in weights if path.suffix == ".safetensors"}
    pickled = any(path.suffix in _PICKLED and path.parent not in safe for path in weights)
    return None if pickled else folder


def _looks_like_path(name: str) -> bool:
    # a hub name has one slash at most
    return name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1 or not name


def _from_folder(library: Any, folder: Path, arguments: dict[str, Any]) -> Any:
    if not (folder / "modules.json").is_file() and not (folder / "config.json").is_file():
        raise InvalidInputError(
            f"The folder {folder.name!r} contains no model: no modules.json and no config.json.", param="name"
        )
    if not arguments["trust_remote_code"]:
        _check_modules(folder)
    try:
        # a folder never needs the network
        return library.SentenceTransformer(str(folder), local_files_only=True, **arguments)
    except Exception as error:
        said = f"Loading the model in {folder.name!r} failed: {_first_line(error)}. {_remote_code_hint(error)}"
        raise InvalidInputError(said.strip(), param="name") from error


def _check_modules(folder: Path) -> None:
    """Raise for a modules.json that names code of the folder, or files outside it: older libraries load both."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        kinds, paths = ([str(module[key]) for module in modules] for key in ("type", "path"))
    except (OSError, ValueError, TypeError, KeyError):
        return  # the library says what it misses
    root = folder.resolve()
    inside = all((folder / path).resolve().is_relative_to(root) for path in paths)
    if not inside or not all(kind.startswith("sentence_transformers.") for kind in kinds):
        named = "code that is not part of sentence-transformers" if inside else "files outside the folder"
        raise InvalidInputError(
            f"modules.json of the model in {folder.name!r} names {named}. If you trust it, pass "
            "trust_remote_code=True.",
            code="E-ENCODER-CODE",
            param="name",
        )


def _from_hub(library: Any, name: str, arguments: dict[str, Any]) -> tuple[Any, Path | None]:
    """Load from the local hub cache if the model is complete there, else from the network."""
    from huggingface_hub import constants

    # A complete local copy needs no network; if it fails to load, the network is tried next.
    attempts = [] if constants.HF_HUB_OFFLINE else [False]
    if _cached_folder(name, arguments) is not None:
        attempts.insert(0, True)
    error: Exception | None = None
    for local in attempts:
        try:
            if not local:
                _ask_hub(name, arguments)
            model = library.SentenceTransformer(name, local_files_only=local, **arguments)
        except Exception as failure:
            error = failure
        else:
            return model, _cached_folder(name, arguments)
    reason = "the hub is switched off (HF_HUB_OFFLINE)" if error is None else _first_line(error)
    hint = _remote_code_hint(error) or (
        "Check the name and the network, or download the model elsewhere with `hf download NAME --local-dir FOLDER` "
        "and pass the folder; 'minilm' needs no network."
    )
    raise InvalidInputError(
        f"The model {name!r} is not in the local hub cache, and loading it failed: {reason}. {hint}", param="name"
    ) from error


def _ask_hub(name: str, arguments: dict[str, Any]) -> None:
    """Raise at once if the hub is unreachable or has no such model; the library would retry."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    revision, token = arguments.get("revision"), arguments.get("token")
    *others, last = _repositories(name)
    for repository in others:
        with contextlib.suppress(RepositoryNotFoundError):
            HfApi().model_info(repository, revision=revision, token=token, timeout=_HUB_SECONDS)
            return
    HfApi().model_info(last, revision=revision, token=token, timeout=_HUB_SECONDS)


def _repositories(name: str) -> list[str]:
    return [name] if "/" in name else [f"sentence-transformers/{name}", name]


def _cached_folder(name: str, arguments: dict[str, Any]) -> Path | None:
    """Return the model's folder in the local hub cache, or None if it is incomplete.

    For a model without modules.json the library uses mean pooling. So a missing file counts only if the
    hub reported its absence, not if it was never requested.
    """
    from huggingface_hub import _CACHED_NO_EXIST, try_to_load_from_cache

    folder = arguments.get("cache_folder") or os.environ.get("SENTENCE_TRANSFORMERS_HOME")
    for repository in _repositories(name):
        with contextlib.suppress(ValueError):  # not a valid repository name
            modules, config = (
                try_to_load_from_cache(repository, file, folder, arguments.get("revision"))
                for file in ("modules.json", "config.json")
            )
            if isinstance(modules, str):
                return Path(modules).parent
            if modules is _CACHED_NO_EXIST and isinstance(config, str):
                return Path(config).parent
    return None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200].rstrip('.')}" if lines else type(error).__name__


def _remote_code_hint(error: Exception | None) -> str:
    if error is not None and "trust_remote_code" in str(error):
        return "The model brings its own code; if you trust it, pass trust_remote_code=True."
    return ""


def _device(device: str) -> str:
    """Return ``device``; for ``"auto"`` the first available of cuda, mps and cpu."""
    import torch

    if device == "auto" and not torch.cuda.is_available() and torch.backends.mps.is_available():
        return "mps"
    return resolve_device(device, owner=_OWNER)


@contextlib.contextmanager
def _quiet_loading() -> Iterator[None]:
    """Hide the progress bar that transformers draws while it reads weights."""
    from transformers.utils import logging as loaded

    logging: Any = loaded
    shown = logging.is_progress_bar_enabled()
    if shown:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
