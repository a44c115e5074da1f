"""Latent semantic analysis: an encoder fitted on the user's texts, without a model or a network.

A text is its TF-IDF vector (1 + log of a term's count, times log((1 + N)/(1 + df)) + 1, norm 1), projected on
the leading right singular vectors of the fitted texts (Deerwester et al. 1990), scaled to norm 1.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import DataFileError, InvalidInputError
from vecveil.io import write_bytes
from vecveil.types import Texts
from vecveil.validation import check_count, check_texts

LSA_FILE = "lsa.json"
SCHEMA = "vecveil.lsa/1"
_ARRAYS = "lsa.safetensors"
_OWNER = "LsaEncoder"
_LARGEST_FILE = 2**31  # 2 GiB
_WORD = re.compile(r"\w+")

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False, repr=False)
class LsaEncoder:
    """Encoder by latent semantic analysis, made by `fit` or `load`; vectors have norm 1.

    It holds the terms of the fitted texts, names among them: its folder is as sensitive as the texts.

    Attributes:
        terms: the V terms, sorted; with ``ngrams=2`` also two words with a space between.
        idf: (V,) weights of the terms.
        components: (n, V) rows of norm 1, the leading right singular vectors.
        centre: (n,) mean direction of the fitted texts, the vector of a text without a known term.
        ngrams: 1 for words, 2 for words and pairs of neighbours.
    """

    terms: tuple[str, ...]
    idf: Floats
    components: Floats
    centre: Floats
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

        Cost:
            An exact sparse singular value decomposition: about a minute on one core for 20,000 texts and 300
            dimensions. Encoding takes some 5,000 short texts a second.
        """
        owner = f"{_OWNER}.fit"
        texts = check_texts(texts, owner=owner)
        n = check_count(dimension, owner=owner, param="dimension")
        ngrams = check_count(ngrams, owner=owner, param="ngrams", maximum=2)
        least = check_count(min_texts, owner=owner, param="min_texts")
        most = check_count(max_terms, owner=owner, param="max_terms")
        seed = check_count(seed, owner=owner, param="seed", minimum=0)
        held = Counter(term for text in texts for term in set(_terms(text, ngrams)))
        kept = sorted((term for term, count in held.items() if count >= least),
                      key=lambda term: (-held[term], term))[:most]  # fmt: skip
        if n >= min(len(kept), len(texts)):
            raise InvalidInputError.of(owner, "dimension",
                                       f"below the texts ({len(texts)}) and the terms in {least} of them ({len(kept)})",
                                       n)  # fmt: skip
        terms = tuple(sorted(kept))
        counts = np.array([held[term] for term in terms], dtype=np.float64)
        idf = (np.log((1 + len(texts)) / (1 + counts)) + 1).astype(np.float32)
        # A provisional encoder: weighting needs only terms and idf, not the components.
        plain = cls(
            terms, idf, np.zeros((n, len(terms)), np.float32), np.zeros(n, np.float32), ngrams
        )
        weighted = plain._weighted(texts)
        components = _right_singular_vectors(weighted, n, seed)
        rows = _unit(np.asarray(weighted @ components.T))
        centre = rows.mean(axis=0)
        length = float(np.linalg.norm(centre))
        # opposite rows cancel: any fixed direction will do
        centre = centre / length if length > 1e-6 else np.eye(1, n)[0]
        return cls(terms, idf, components, centre.astype(np.float32), ngrams)

    @property
    def dimension(self) -> int:
        """The dimension n."""
        return int(self.components.shape[0])

    @cached_property
    def fingerprint(self) -> str:
        """``lsa1:`` and the SHA-256 of everything that determines the vectors."""
        digest = hashlib.sha256(json.dumps([self.ngrams, self.terms]).encode())
        # JSON of a list: no two lists of terms collide
        for array in (self.idf, self.components, self.centre):
            digest.update(str(array.shape).encode() + np.ascontiguousarray(array, "<f4").tobytes())
        return f"lsa1:{digest.hexdigest()}"

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return (N, n) float32 vectors of norm 1; a text without a known term gets ``centre``."""
        checked = check_texts(texts, owner=f"{_OWNER}.encode", min_rows=0)
        rows = np.asarray(self._weighted(checked) @ self.components.T)
        # No known term, or one outside the kept subspace: a zero vector would have no direction.
        rows[np.linalg.norm(rows, axis=1) < 1e-6] = self.centre
        return _unit(rows)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the encoder to ``folder`` (JSON and safetensors), readable by its owner only."""
        from safetensors.numpy import save as to_bytes

        target = Path(folder)
        arrays = {"idf": self.idf, "components": self.components, "centre": self.centre}
        record = {
            "schema": SCHEMA,
            "ngrams": self.ngrams,
            "fingerprint": self.fingerprint,
            "terms": self.terms,
        }
        own = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        # The arrays go first: `load` compares the fingerprint, so a crash between the two is noticed.
        write_bytes(target / _ARRAYS, to_bytes(own))
        write_bytes(target / LSA_FILE, json.dumps(record).encode("utf-8"))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> LsaEncoder:
        """Return the encoder saved in ``folder``; raise `DataFileError` for damaged or mixed files."""
        from safetensors import SafetensorError
        from safetensors.numpy import load as from_bytes

        source = Path(folder)
        try:
            files = [source / LSA_FILE, source / _ARRAYS]
            if any(file.stat().st_size > _LARGEST_FILE for file in files):
                raise _damaged("is too large")
            record: Any = json.loads(files[0].read_text(encoding="utf-8"))
            arrays = from_bytes(files[1].read_bytes())
            if record["schema"] != SCHEMA:
                raise _damaged("has another format")
            encoder = cls(
                tuple(record["terms"]),
                arrays["idf"],
                arrays["components"],
                arrays["centre"],
                record["ngrams"],
            )
            encoder._check()
            if encoder.fingerprint != record["fingerprint"]:
                raise _damaged("does not match its own fingerprint")
        except OSError as error:
            raise _damaged(f"cannot be read ({type(error).__name__})") from None
        except DataFileError:
            raise
        except (SafetensorError, ValueError, LookupError, TypeError, RecursionError):
            raise _damaged("is damaged") from None
        return encoder

    def _check(self) -> None:
        V, n = len(self.terms), len(self.components)
        shapes = (self.idf.shape, self.components.shape, self.centre.shape)
        if shapes != ((V,), (n, V), (n,)) or self.ngrams not in (1, 2) or n < 1:
            raise ValueError("shapes")
        for array in (self.idf, self.components, self.centre):
            if array.dtype != np.float32 or not np.isfinite(array).all():
                raise ValueError("numbers")
        if not all(isinstance(term, str) for term in self.terms) or len(set(self.terms)) != V:
            raise ValueError("terms")

    @cached_property
    def _column(self) -> dict[str, int]:
        return {term: j for j, term in enumerate(self.terms)}

    def _weighted(self, texts: Texts) -> Any:
        """Return the TF-IDF rows of ``texts`` as a sparse (N, V) float32 matrix."""
        from scipy.sparse import csr_array

        columns: list[int] = []
        values: list[float] = []
        starts = [0]
        for text in texts:
            known = [self._column[t] for t in _terms(text, self.ngrams) if t in self._column]
            counts = sorted(Counter(known).items())  # CSR columns ascend, so equal texts give equal bits
            row = np.array([1 + np.log(count) for _, count in counts])
            row *= self.idf[[j for j, _ in counts]] if counts else 1.0
            length = float(np.linalg.norm(row))
            columns += [j for j, _ in counts]
            values += (row / length).tolist() if length else []
            starts.append(len(columns))
        parts = (
            np.array(values, np.float32),
            np.array(columns, np.int64),
            np.array(starts, np.int64),
        )
        return csr_array(parts, shape=(len(texts), len(self.terms)))


def _terms(text: str, ngrams: int) -> list[str]:
    """Return the words of ``text`` in order, then its pairs of neighbours."""
    words = _WORD.findall(text.casefold())
    pairs = [f"{a} {b}" for a, b in itertools.pairwise(words)] if ngrams == 2 else []
    return words + pairs


def _right_singular_vectors(matrix: Any, count: int, seed: int) -> Floats:
    """Return the leading right singular vectors, (count, V), each with its largest entry positive."""
    from scipy.sparse.linalg import svds

    start = np.random.default_rng(seed).standard_normal(min(matrix.shape))
    _, values, rows = svds(matrix.astype(np.float64), k=count, v0=start, solver="arpack")
    # ARPACK returns no order and no sign; fixing both makes equal input give equal bits.
    rows = rows[np.argsort(-values, kind="stable")]
    largest = rows[np.arange(count), np.abs(rows).argmax(axis=1)]
    return np.ascontiguousarray(rows * np.sign(largest)[:, None], dtype=np.float32)


def _unit(rows: npt.NDArray[Any]) -> Floats:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), dtype=np.float32)


def _damaged(what: str) -> DataFileError:
    fix = "Copy it again or fit a new one."
    return DataFileError.of(
        f"{_OWNER}.load",
        "folder",
        "one that LsaEncoder.save wrote",
        f"one that {what}",
        fix=fix,
    )
