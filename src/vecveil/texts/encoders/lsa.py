"""Latent semantic analysis: an encoder fitted on the user's texts, without a model or a network.

scikit-learn's `TfidfVectorizer` and `TruncatedSVD` (Deerwester et al. 1990), scaled to norm 1.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import DataFileError, InvalidInputError, optional_import
from vecveil.io import expanded, write_bytes
from vecveil.types import Texts
from vecveil.validation import check_count, check_seed, check_texts

LSA_FILE = "lsa.safetensors"
_OWNER = "LsaEncoder"

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False, repr=False)
class LsaEncoder:
    """Encoder by latent semantic analysis, made by `fit` or `load`; vectors have norm 1.

    It contains the terms of the fitted texts, names among them: its folder is as sensitive as the texts.

    Attributes:
        terms: the V terms, sorted; with ``ngrams=2`` also two words with a space between.
        idf: (V,) weights of the terms.
        components: (n, V) the leading right singular vectors.
        ngrams: 1 for words, 2 for words and pairs of neighbours.
    """

    terms: tuple[str, ...]
    idf: Floats
    components: Floats
    ngrams: int = 1

    name = "lsa"

    def __repr__(self) -> str:
        return f"LsaEncoder({len(self.terms)} terms, dimension={self.dimension})"

    @classmethod
    def fit(
        cls,
        texts: Texts,
        dimension: int = 300,
        *,
        ngrams: int = 1,
        min_texts: int = 2,
        max_terms: int = 50_000,
        seed: int = 0,
    ) -> LsaEncoder:
        """Return the encoder of ``texts``; equal texts and seeds give equal encoders.

        Args:
            texts: N texts; words are runs of letters, digits and underscores, casefolded.
            dimension: n, fewer than the terms and than the texts. More keeps rarer words apart.
            ngrams: 1, or 2 to add pairs of neighbouring words.
            min_texts: least number of texts with a term. 1 keeps words of a single text.
            max_terms: largest number of terms; the most frequent ones.
        """
        owner = f"{_OWNER}.fit"
        texts = check_texts(texts, owner=owner)
        n = check_count(dimension, owner=owner, param="dimension")
        ngrams = check_count(ngrams, owner=owner, param="ngrams", maximum=2)
        least = check_count(min_texts, owner=owner, param="min_texts")
        most = check_count(max_terms, owner=owner, param="max_terms")
        seed = check_seed(seed, owner=owner)
        tfidf = _tfidf(ngrams, min_df=least, max_features=most)
        try:
            rows = tfidf.fit_transform(texts)
        except ValueError:  # no term is in enough texts
            rows = np.empty((len(texts), 0))
        if n >= min(rows.shape):
            raise InvalidInputError(
                f"`dimension` {n} is too high: {len(texts)} texts have {rows.shape[1]} terms in {least} or more. "
                "Lower it, or give more texts.",
                param="dimension",
            )
        from sklearn.decomposition import TruncatedSVD

        svd = TruncatedSVD(n, algorithm="arpack", random_state=seed).fit(rows)
        components = np.ascontiguousarray(svd.components_, np.float32)
        terms = tuple(map(str, tfidf.get_feature_names_out()))
        return cls(terms, np.asarray(tfidf.idf_, np.float32), components, ngrams)

    @property
    def dimension(self) -> int:
        """The dimension n."""
        return int(self.components.shape[0])

    @cached_property
    def fingerprint(self) -> str:
        """``lsa2:`` and the SHA-256 of everything that determines the vectors."""
        digest = hashlib.sha256(json.dumps([self.ngrams, self.terms]).encode())
        for array in (self.idf, self.components):
            digest.update(str(array.shape).encode() + np.ascontiguousarray(array, "<f4").tobytes())
        return f"lsa2:{digest.hexdigest()}"

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return (N, n) float32 vectors of norm 1; texts without a known term get one and the same vector."""
        checked = check_texts(texts, owner=f"{_OWNER}.encode", min_rows=0)
        if not checked:
            return np.empty((0, self.dimension), np.float32)
        rows = np.asarray(self._vectorizer.transform(checked) @ self.components.T)
        # No known term, or one outside the kept subspace: a zero vector would have no direction.
        rows[np.linalg.norm(rows, axis=1) < 1e-6] = 1.0
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)

    @cached_property
    def _vectorizer(self) -> Any:
        tfidf = _tfidf(self.ngrams, vocabulary=self.terms)
        tfidf.idf_ = self.idf
        return tfidf

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the encoder to a safetensors file in ``folder``, readable by its owner only."""
        from safetensors.numpy import save as to_bytes

        record = {"ngrams": self.ngrams, "fingerprint": self.fingerprint, "terms": self.terms}
        arrays = {"idf": self.idf, "components": np.ascontiguousarray(self.components)}
        data = to_bytes(arrays, metadata={"vecveil": json.dumps(record)})
        write_bytes(expanded(folder) / LSA_FILE, data)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> LsaEncoder:
        """Return the encoder saved in ``folder``; raise `DataFileError` for a damaged file."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(expanded(folder) / LSA_FILE, "numpy") as file:
                record: Any = json.loads(file.metadata()["vecveil"])
                idf, components = map(file.get_tensor, ("idf", "components"))
            encoder = cls(tuple(record["terms"]), idf, components, record["ngrams"])
            finite = all(array.dtype == np.float32 and np.isfinite(array).all() for array in (idf, components))
            if not (
                finite
                and encoder.ngrams in (1, 2)
                and all(isinstance(term, str) for term in encoder.terms)
                and encoder.encode(["a"]).size
                and encoder.fingerprint == record["fingerprint"]
            ):
                raise ValueError("other numbers")  # as scikit-learn does for shapes that do not match
        except (OSError, SafetensorError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise DataFileError(
                "The folder contains no LSA encoder, or a damaged one. Copy it again, or fit a new one.", param="folder"
            ) from error
        return encoder


def _tfidf(ngrams: int, **options: Any) -> Any:
    with optional_import("An LSA encoder", "scikit-learn", "sklearn"):
        from sklearn.feature_extraction.text import TfidfVectorizer
    return TfidfVectorizer(
        sublinear_tf=True,
        preprocessor=str.casefold,
        token_pattern=r"\w+",
        ngram_range=(1, ngrams),
        dtype=np.float32,
        **options,
    )
