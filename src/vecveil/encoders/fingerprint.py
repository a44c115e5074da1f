"""A name for an encoder that depends on its content alone: weights, configuration, settings.

Two folders with the same content have the same fingerprint on every machine and under every version
of the libraries; read-me files, other formats of the same weights (ONNX, TensorFlow) and entries
that only record where a model came from do not count.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["fingerprint_folder", "fingerprint_model"]

_SUFFIXES = {".json", ".safetensors", ".bin", ".pt", ".pth", ".model", ".py", ".jinja", ".npz"}
_NAMES = {"vocab.txt", "merges.txt", "whitespacetokenizer_config.json"}
_WITH_TOKENIZER_JSON = {
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
}
_IGNORED = {
    "data_config.json",
    "trainer_state.json",
    "training_args.bin",
    "optimizer.pt",
    "train_script.py",
}
_OTHER_FORMATS = {"onnx", "openvino"}
_VOLATILE = {"_name_or_path", "name_or_path", "transformers_version", "__version__", "_commit_hash"}

_digests: dict[tuple[str, int, int], bytes] = {}


def fingerprint_folder(folder: Path, settings: Mapping[str, Any]) -> str:
    """Return ``st1:`` and the SHA-256 of a sentence-transformers folder and of ``settings``."""
    digest = hashlib.sha256()
    for path in sorted(_files(folder), key=lambda file: file.relative_to(folder).as_posix()):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + _file_digest(path))
    return _finish(digest, settings)


def fingerprint_model(model: Any, settings: Mapping[str, Any]) -> str:
    """Return the fingerprint of a SentenceTransformer that is in memory already.

    It covers weights, vocabulary and module settings. Where the model came from is unknown, so it
    differs from the fingerprint of the folder, and it may change with the version of the library:
    load by name or folder for one that the command line reproduces.
    """
    digest = hashlib.sha256(b"in memory\0")
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        # NumPy has no bfloat16; float32 holds every float16 and bfloat16 exactly.
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
        yield from _chosen(
            path for path in inside if _OTHER_FORMATS.isdisjoint(path.relative_to(folder).parts)
        )


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
    with_safetensors = {path.parent for path in files if path.suffix == ".safetensors"}
    with_tokenizer = {path.parent for path in files if path.name == "tokenizer.json"}
    for path in files:
        redundant_weights = (
            path.suffix in {".bin", ".pt", ".pth"} and path.parent in with_safetensors
        )
        redundant_vocabulary = path.name in _WITH_TOKENIZER_JSON and path.parent in with_tokenizer
        if not (path.name in _IGNORED or redundant_weights or redundant_vocabulary):
            yield path


def _file_digest(path: Path) -> bytes:
    stat = path.stat()
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
        return {
            key: _without_volatile(entry) for key, entry in value.items() if key not in _VOLATILE
        }
    return value


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, default=str).encode()
