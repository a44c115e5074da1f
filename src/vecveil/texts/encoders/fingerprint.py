"""Identify an encoder: the fingerprint of a model's files, weights and settings."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypedDict

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


class ModelOptions(TypedDict, total=False):
    """Options of a backend that decide its vectors; `SentenceTransformerBackend` explains them."""

    prompt: str | None
    query_prompt: str | None
    normalize: bool
    fingerprint: str | None


_DOCUMENT_PROMPTS = ("document", "passage", "corpus")  # in the order of the library's encode_document


@dataclass(frozen=True)
class EncodingSettings:
    """Settings that decide the vectors of a model, besides its files."""

    prompt: str | None
    query_prompt: str | None
    normalize: bool
    max_seq_length: int | None
    truncate_dim: int | None

    @classmethod
    def of(
        cls,
        own: Mapping[str, str],
        default: str | None,
        options: ModelOptions,
        *,
        max_seq_length: int | None,
        truncate_dim: int | None,
    ) -> Self:
        """Return the settings of a model with the prompts ``own``, of which ``default`` names one."""
        prompt, query_prompt = options.get("prompt"), options.get("query_prompt")
        registered = own.get(default or "")
        if query_prompt is None:
            query_prompt = (own.get("query") or registered) if prompt is None else prompt
        if prompt is None:
            prompt = next(filter(None, (*map(own.get, _DOCUMENT_PROMPTS), registered)), None)
        normalize = options.get("normalize", False)
        return cls(prompt or None, query_prompt or None, normalize, max_seq_length, truncate_dim)

    def to_record(self) -> dict[str, Any]:
        """Return what a fingerprint covers; the query's prompt only where it differs."""
        record = {
            "max_seq_length": self.max_seq_length,
            "normalize": self.normalize,
            "prompt": self.prompt,
            "truncate_dim": self.truncate_dim,
        }
        return record if self.query_prompt == self.prompt else record | {"query_prompt": self.query_prompt}
