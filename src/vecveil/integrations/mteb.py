"""MTEB: a protector and its encoder as a model for ``mteb.evaluate``.

    model = ProtectedEncoder(protector, seed=0)
    results = mteb.evaluate(model, tasks)

MTEB caches results by the model's name and revision. Both hold a hash of protector, encoder, noise, and treatment of
queries and documents.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vecveil.encoders import load_encoder
from vecveil.errors import InvalidInputError, MissingDependencyError, unknown_name
from vecveil.types import Embeddings, Texts
from vecveil.validation import check_count

if TYPE_CHECKING:
    from vecveil.protector import Protector

__all__ = ["ProtectedEncoder"]

Treatment = Literal["protected", "map", "clean"]
_TREATMENTS = ("protected", "map", "clean")
# Version of the noise derivation; increase it with any change, so that cached results are not reused.
_VERSION = 1


class ProtectedEncoder:
    """A protector and its encoder as a model of MTEB (its ``EncoderProtocol``).

    Args:
        protector: protector of any method.
        encoder: the protector's encoder, by name or object; None loads it.
        seed: None draws fresh noise, and no cached result is reused. With a seed, the noise of a call depends on
            seed, task, side and texts, and not on earlier calls.
        queries: ``protected``; ``map`` (the deterministic map alone, for queries on the trusted side); or ``clean``
            (the encoder's vectors, for comparison).
        documents: treatment of documents, and of the texts of tasks without queries.

    Raises:
        InvalidInputError: an unknown or inapplicable treatment, or treatments with vectors of different dimension.
        IncompatibleError: ``encoder`` is not the protector's.
        MissingDependencyError: mteb is not installed.
    """

    def __init__(
        self,
        protector: Protector,
        encoder: Any = None,
        *,
        seed: int | None = None,
        queries: Treatment = "protected",
        documents: Treatment = "protected",
    ) -> None:
        owner = "ProtectedEncoder"
        _models()  # fail before the encoder loads
        self.protector = protector
        self.seed = seed if seed is None else check_count(seed, owner=owner, param="seed", minimum=0)
        self.queries, self.documents = queries, documents
        for param, value in (("queries", queries), ("documents", documents)):
            if value not in _TREATMENTS:
                raise unknown_name(owner, param, _TREATMENTS, value)
            if value == "map" and protector.text_only:
                raise InvalidInputError.of(owner, param,
                                           "'protected' or 'clean' for a method that rewrites texts", "'map'",
                                           "It has no noise to leave out.")  # fmt: skip
        # Protected and mapped vectors share a space; clean ones only if the protector keeps the dimension.
        spaces = {value == "clean" for value in (queries, documents)}
        if len(spaces) == 2 and protector.released_dimension != protector.dimension:
            raise InvalidInputError.of(owner, "queries",
                                       "treated like documents for a protector that releases fewer dimensions",
                                       f"{queries!r} beside {documents!r}",
                                       "Their vectors could not be compared.")  # fmt: skip
        if encoder is None:
            self.encoder: Any = protector.loaded_encoder()
        else:
            self.encoder = load_encoder(encoder)
            protector.check_encoder(self.encoder)
        self._fresh = secrets.token_hex(8)

    def __repr__(self) -> str:
        noise = "fresh" if self.seed is None else f"seed {self.seed}"
        return (
            f"ProtectedEncoder({self.protector.method!r}, queries {self.queries}, documents "
            f"{self.documents}, {noise} noise)"
        )

    @cached_property
    def policy(self) -> str:
        """SHA-256 of all that decides the vectors; unique to this object for fresh noise."""
        known = getattr(self.encoder, "fingerprint", None)
        noisy = "protected" in (self.queries, self.documents)
        # No cached result applies to fresh noise, or to an encoder without a fingerprint.
        fresh = known is None or (noisy and self.seed is None)
        parts = {
            "version": _VERSION,
            "protector": self.protector.fingerprint,
            "encoder": known,
            "queries": self.queries,
            "documents": self.documents,
            "seed": self.seed,
            "fresh": self._fresh if fresh else None,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    @cached_property
    def mteb_model_meta(self) -> Any:
        """MTEB's ``ModelMeta``, with `policy` in name and revision."""
        encoder = "".join(c if c.isalnum() or c in "-." else "-" for c in str(self._encoder_name))
        models = _models()
        return models.ModelMeta.create_empty(
            overwrites={
                "name": f"vecveil/{self.protector.method}-{encoder}-{self.policy[:12]}",
                "revision": self.policy,
                "embed_dim": self.protector.released_dimension,
                "similarity_fn_name": models.model_meta.ScoringFunction.COSINE,
                "framework": ["NumPy"],
            }
        )

    @property
    def _encoder_name(self) -> str:
        return getattr(self.encoder, "name", None) or type(self.encoder).__name__

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: Any = None,
        hf_split: str = "",
        hf_subset: str = "",
        prompt_type: Any = None,
        **kwargs: Any,
    ) -> Embeddings:
        """Return the vectors (N, m) of the texts in a loader's batches; called by MTEB.

        Args:
            inputs: batches, each with texts under ``text``.
            prompt_type: ``query`` for queries; any other value for documents.
            kwargs: MTEB's ``encode_kwargs``; its batch size is ignored.

        Raises:
            InvalidInputError: batches without texts, or a precision other than float32.
        """
        owner = "ProtectedEncoder.encode"
        # MTEB would cache quantised results under the name of the unquantised model.
        if kwargs.get("precision") not in (None, "float32"):
            raise InvalidInputError.of(owner, "precision", "left out of encode_kwargs",
                                       repr(kwargs["precision"])[:40],
                                       fix="Fit with postprocess='int8' or 'float16'.")  # fmt: skip
        texts: list[str] = []
        for batch in inputs:
            if "text" not in batch:
                raise InvalidInputError.of(owner, "inputs", "batches of texts", "batches without the key 'text'")
            texts += [str(text) for text in batch["text"]]
        side = str(getattr(prompt_type, "value", prompt_type) or "document")
        treatment = self.queries if side == "query" else self.documents
        if treatment == "clean":
            return np.asarray(self.encoder.encode(texts))
        seen = texts if self.protector.rewriter is None else self.protector.rewrite(texts)
        X = np.asarray(self.encoder.encode(seen))
        if treatment == "map":
            return self.protector.protect(X, noise=False, rewritten=True)
        name = str(getattr(task_metadata, "name", ""))
        rng = self._noise([name, hf_split, hf_subset, side], texts)
        return self.protector.protect(X, rng, rewritten=True)

    def _noise(self, call: list[str], texts: Texts) -> np.random.Generator | None:
        """Return the generator of one call, or None for fresh noise."""
        if self.seed is None:
            return None
        # The texts enter the seed: with equal draws, the difference of two releases would be free of noise.
        digest = hashlib.sha256(json.dumps([self.policy, call, list(texts)]).encode())
        return np.random.default_rng(np.frombuffer(digest.digest(), dtype=np.uint32))

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the cosine similarity of all pairs."""
        from mteb.similarity_functions import cos_sim

        return cos_sim(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the cosine similarity of corresponding rows."""
        from mteb.similarity_functions import pairwise_cos_sim

        return pairwise_cos_sim(embeddings1, embeddings2)


def _models() -> Any:
    try:
        from mteb import models
    except ImportError:
        raise MissingDependencyError("Evaluating with MTEB", "mteb", "mteb") from None
    return models
