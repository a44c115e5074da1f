"""scikit-learn: a transformer that protects embeddings with a given or fitted protector.

make_pipeline(ProtectorTransformer("drug.vecveil"), LogisticRegression())
ProtectorTransformer(method="subspace", target_utility=0.9).fit(X, labels)
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vecveil.errors import IncompatibleError, InvalidInputError, MissingDependencyError
from vecveil.privacy.mechanisms import Gaussian, Laplace
from vecveil.privacy.protector import Protector, fit_labels
from vecveil.privacy.protector.data import MIN_PAIRS
from vecveil.privacy.protector.policy import KeySource, ReleasePolicy, open_policy, open_protector
from vecveil.privacy.sensitivity.shapes import NoiseShape
from vecveil.validation import check_texts, check_unmasked

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise MissingDependencyError("A scikit-learn transformer", "scikit-learn", "sklearn") from None

if TYPE_CHECKING:
    from vecveil.privacy.accounting import Ledger

__all__ = ["ProtectorTransformer"]

_OWNER = "ProtectorTransformer"
_DTYPES = (np.float64, np.float32)


class ProtectorTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc, unused-ignore]
    """Protects embeddings: `transform` as documents, `transform_queries` as queries.

    Args:
        protector: protector or path of its file; `fit` then learns nothing. With a text-level method `transform` maps
            texts to rewritten texts. None fits a protector.
        method: method to fit. ``laplace`` with ``epsilon`` and ``gaussian`` with ``sigma`` need no labels; every other
            method and scale hides the labels ``y``, see `vecveil.fit_labels`.
        epsilon, sigma, noise_to_signal, target_utility: the scale, exactly one.
        output: ``full``, or ``reduced`` for the kept coordinates alone.
        options: further arguments of `vecveil.fit_labels`.
        query_noise: noise of queries, in units of documents'; see `vecveil.privacy.protector.policy`.
        key: path of a key file, or ``env:NAME``: equal rows get equal releases. A transformer with keys in memory
            can be neither cloned nor pickled.
        ledger: ledger or path of its file; item ids come from the rows' values.
        random_state: None draws from a cryptographic generator. An int is repeatable and insecure, for experiments:
            the noise then depends on it and on all rows of the call.

    Attributes:
        protector_: fitted or given protector; a pickle contains it, but no key.
    """

    def __init__(
        self,
        protector: Protector | str | os.PathLike[str] | None = None,
        *,
        method: str = "subspace",
        epsilon: float | None = None,
        sigma: float | None = None,
        noise_to_signal: float | None = None,
        target_utility: float | None = None,
        output: str = "full",
        options: dict[str, Any] | None = None,
        query_noise: float = 1.0,
        key: KeySource = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        random_state: Any = None,
    ) -> None:
        # scikit-learn's convention: store arguments unchanged and validate them in `fit`, so that clones are equal.
        self.protector = protector
        self.method = method
        self.epsilon = epsilon
        self.sigma = sigma
        self.noise_to_signal = noise_to_signal
        self.target_utility = target_utility
        self.output = output
        self.options = options
        self.query_noise = query_noise
        self.key = key
        self.ledger = ledger
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None and self.key is None
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.target_tags.required = self.protector is None and not self._learns_nothing()
        return tags

    def _learns_nothing(self) -> bool:
        # Isotropic noise of a given scale depends on the dimension alone.
        names = ("epsilon", "sigma", "noise_to_signal", "target_utility")
        scales = [name for name in names if getattr(self, name) is not None]
        plain = (("laplace", ["epsilon"]), ("gaussian", ["sigma"]))
        return (self.method, scales) in plain and not self.options and self.output == "full"

    def fit(self, X: Any, y: Any = None) -> ProtectorTransformer:
        """Fit the protector unless one was given; return self.

        Args:
            X: (N, n) clean embeddings, or texts for a text-level method.
            y: labels to hide, with at least ten rows each.
        """
        self.__dict__.pop("_opened", None)  # the policy of an earlier fit
        if self.protector is not None:
            # Without its encoder: the transformer gets embeddings, and a pickle would hold the model.
            self.protector_ = replace(open_protector(self.protector), encoder=None)
            if self.protector_.rewriter is not None:
                if not self.protector_.text_only:
                    said = "The protector rewrites texts and protects vectors. Call protector.encode(texts)."
                    raise InvalidInputError(said, param="protector")
                self._policy()
                return self
        learns = self.protector is None and not self._learns_nothing()
        check_unmasked(X, f"{_OWNER}.fit", "X")  # validate_data drops a mask
        X = validate_data(self, X, dtype=_DTYPES, order="C")
        if learns and len(X) < MIN_PAIRS:
            said = f"`X` has n_samples={len(X)}; a fit takes at least {MIN_PAIRS}. n_features={X.shape[1]}."
            raise InvalidInputError(said, code="E-INPUT-SHAPE", param="X")
        n = X.shape[1]
        if self.protector is not None:
            if n != self.protector_.dimension:
                said = f"`X` has {n} dimensions; the protector was fitted for {self.protector_.dimension}."
                raise IncompatibleError(said, param="X")
        elif not learns:
            epsilon: Any = self.epsilon
            sigma: Any = self.sigma
            laplace = self.method == "laplace"
            mechanism = Laplace(n, epsilon) if laplace else Gaussian(NoiseShape.isotropic(n), sigma)
            self.protector_ = Protector(self.method, mechanism)
        else:
            self.protector_ = self._fitted(X, y)
        # Read by ClassNamePrefixFeaturesOutMixin for the output's feature names.
        self._n_features_out = self.protector_.released_dimension
        self._policy()
        return self

    def _fitted(self, X: Any, y: Any) -> Protector:
        if y is None:
            said = "The fit requires y to be passed, but the target y is None: labels to hide. Or give protector=."
            raise InvalidInputError(said, param="y")
        labels = np.asarray(y)
        if labels.dtype.kind == "f" and np.array_equal(labels, labels.round()):
            labels = labels.astype(np.int64)  # class labels that a pipeline has converted to floats
        # Without a random_state, fit_labels uses its default seed.
        seed = {} if self.random_state is None else {"seed": int(self._draw().integers(2**31))}
        return fit_labels(
            X,
            labels.tolist() if labels.ndim == 1 else labels,
            method=self.method,
            epsilon=self.epsilon,
            sigma=self.sigma,
            noise_to_signal=self.noise_to_signal,
            target_utility=self.target_utility,
            output=self.output,
            show_progress=False,
            **{**seed, **(self.options or {})},
        )

    def transform(self, X: Any) -> Any:
        """Return ``X`` (N, n) protected as documents, (N, m); rewritten texts for a text-level method."""
        return self._released(X, query=False)

    def transform_queries(self, X: Any) -> Any:
        """Return ``X`` (N, n) protected as queries, (N, m)."""
        return self._released(X, query=True)

    def _released(self, X: Any, *, query: bool) -> Any:
        check_is_fitted(self, "protector_")
        policy = self._policy()
        if policy.rewrites_texts:
            return policy.protector.rewrite(check_texts(X, owner=f"{_OWNER}.transform", min_rows=0))
        check_unmasked(X, f"{_OWNER}.transform", "X")
        X = validate_data(self, X, reset=False, dtype=_DTYPES, order="C")
        rng = None if self.random_state is None else self._draw(X)
        return (policy.queries if query else policy.documents)(X, rng)

    def _draw(self, X: Any = None) -> np.random.Generator:
        # The rows enter the seed: with equal draws for two matrices, the difference of their releases has no noise.
        words = check_random_state(self.random_state).randint(2**32, size=4, dtype=np.uint32)
        digest = hashlib.sha256(words.tobytes() + (b"" if X is None else X.tobytes())).digest()
        return np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))

    def _policy(self) -> ReleasePolicy:
        if "_opened" not in self.__dict__:
            self._opened = open_policy(self.protector_, query_noise=self.query_noise, key=self.key, ledger=self.ledger)
        return self._opened

    def __getstate__(self) -> Any:
        """Return the state with the names of key and ledger, without the opened ones."""
        state = dict(super().__getstate__())
        state.pop("_opened", None)
        return state
