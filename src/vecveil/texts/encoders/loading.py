"""Find a model by name or folder, and choose what runs it: NumPy for BERT models, else sentence-transformers."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from vecveil.errors import InvalidInputError, optional_import
from vecveil.io import expanded
from vecveil.runtime import resolve_device
from vecveil.texts.encoders.bert import BertBackend, BertModel, read_bert
from vecveil.texts.encoders.fingerprint import ModelOptions
from vecveil.texts.encoders.sentence_transformer import OWNER, SentenceTransformerBackend, check_precision
from vecveil.validation import check_count

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
) -> BertBackend | SentenceTransformerBackend:
    """Return the backend of a folder or hub name; the hub is contacted only for an incomplete cache.

    A BERT model runs in NumPy and is read when it first encodes a text. The library runs every other model, and also
    runs a BERT model if the caller names a device or bf16.
    """
    if unknown := sorted(set(options) - _FOR_LIBRARY - _FOR_BACKEND):
        known = ", ".join(sorted(_FOR_LIBRARY | _FOR_BACKEND | {"max_seq_length"}))
        raise InvalidInputError(f"Unknown encoder options: {', '.join(unknown)}. Known: {known}.", param="options")
    check_precision(precision)
    if max_seq_length is not None:
        check_count(max_seq_length, owner=OWNER, param="max_seq_length")
    arguments: dict[str, Any] = {"trust_remote_code": False}
    arguments |= {key: value for key, value in options.items() if key in _FOR_LIBRARY}
    for_backend: Any = {key: value for key, value in options.items() if key in _FOR_BACKEND}
    folder: Path | None = expanded(source)
    if os.fspath(source) and folder is not None and folder.is_dir():
        _check_folder(folder, arguments)
        name, from_hub = label or folder.resolve().name, False
    else:
        name, from_hub = os.fspath(source), True
        if isinstance(source, os.PathLike) or _looks_like_path(name):
            raise InvalidInputError(
                "The encoder's folder does not exist. Name 'minilm', a folder with a model, or a model of the hub.",
                param="name",
            )
        with optional_import("Loading a model of the hub", "huggingface-hub", "encoders"):
            folder = _cached_folder(name, arguments)

    library = partial(
        _in_library,
        name,
        None if from_hub else folder,
        {"device": device, **arguments},
        max_seq_length=max_seq_length,
        precision=precision,
        batch_size=batch_size,
        **for_backend,
    )
    if folder is not None and device == "auto" and precision != "bf16":
        truncate_dim = arguments.get("truncate_dim")
        bert = read_bert(folder, for_backend, max_seq_length=max_seq_length, truncate_dim=truncate_dim)
        if bert is not None:
            fingerprint = for_backend.get("fingerprint")
            return BertBackend(BertModel(bert, library), name=name, batch_size=batch_size, fingerprint=fingerprint)
    return library()


def _in_library(
    name: str, folder: Path | None, arguments: dict[str, Any], *, max_seq_length: int | None, **options: Any
) -> SentenceTransformerBackend:
    """Return the backend of a folder, or of the hub's model of that name, in sentence-transformers."""
    with optional_import("Encoding texts", "sentence-transformers", "encoders"):
        import sentence_transformers as library
    arguments = arguments | {"device": _device(arguments["device"])}
    with _quiet_loading():
        if folder is None:
            model, folder = _from_hub(library, name, arguments)
        else:
            model = _from_folder(library, folder, arguments)
    if max_seq_length is not None:
        model.max_seq_length = max_seq_length
    model = model.float()  # transformers may load the weights in half precision
    return SentenceTransformerBackend(model, name=name, folder=folder, **options)


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


def _check_folder(folder: Path, arguments: dict[str, Any]) -> None:
    if not (folder / "modules.json").is_file() and not (folder / "config.json").is_file():
        raise InvalidInputError(
            f"The folder {folder.name!r} contains no model: no modules.json and no config.json.", param="name"
        )
    if not arguments["trust_remote_code"]:
        _check_modules(folder)


def _from_folder(library: Any, folder: Path, arguments: dict[str, Any]) -> Any:
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
    return resolve_device(device, owner=OWNER)


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
