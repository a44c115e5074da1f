"""Open release policies, and protect the rows and queries of a database with one."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt

from vecveil.encoders import load_encoder
from vecveil.encoders.protocol import PROBE_SENTENCES, checked_vectors
from vecveil.encoders.upstream_verification import matches_probe
from vecveil.errors import IncompatibleError, InvalidInputError, wrong_type
from vecveil.protector import Protector, load
from vecveil.protector.policy import STRONGER, QueryProtection, ReleasePolicy
from vecveil.protector.protector import encoder_fingerprint
from vecveil.randomness import ItemId, NoiseKey, NoiseKeys
from vecveil.types import Embeddings, Texts

if TYPE_CHECKING:
    from vecveil.accounting import Ledger

__all__ = [
    "CleanQueryWarning", "Items", "KeySource", "PlaintextWarning", "PolicyOptions", "Vectors", "open_policy",
    "open_protector", "policy_config", "warn_plaintext", "with_policy",
]  # fmt: skip

Vectors = npt.NDArray[np.float32]
KeySource = NoiseKeys | NoiseKey | str | os.PathLike[str] | None
"""Noise keys, path of a key file, or ``env:NAME``."""

F = TypeVar("F", bound=Callable[..., None])
_ENVIRONMENT = "env:"
# A value with this many words counts as a text, for the warning, if the texts are unknown.
_TEXT_WORDS = 5


class PlaintextWarning(UserWarning):
    """Texts are stored beside their protected vectors: a reader of the store needs no attack."""


class CleanQueryWarning(UserWarning):
    """Queries are released clean: map-only with a method that has no map."""


class PolicyOptions(TypedDict, total=False):
    """Keywords of `open_policy`, accepted by every class of ``vecveil.integrations``.

    Attributes:
        query_protection: ``same``, ``stronger`` or ``map-only``; see `ReleasePolicy`.
        query_noise: noise scale of queries for ``stronger``, relative to documents.
        key: noise keys, path of a key file, or ``env:NAME``; never saved.
        ledger: ledger or path of its existing file. Counted releases stay counted if the database fails.
    """

    query_protection: QueryProtection
    query_noise: float
    key: KeySource
    ledger: Ledger | str | os.PathLike[str] | None


def open_policy(
    protector: Protector | ReleasePolicy | str | os.PathLike[str],
    *,
    query_protection: QueryProtection = "same",
    query_noise: float = STRONGER,
    key: KeySource = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
) -> ReleasePolicy:
    """Return the release policy of ``protector`` with the arguments of `PolicyOptions`.

    A `ReleasePolicy` is returned unchanged and accepts no further arguments.
    """
    if isinstance(protector, ReleasePolicy):
        if (query_protection, query_noise, key, ledger) != ("same", STRONGER, None, None):
            raise InvalidInputError.of("open_policy", "protector", "a protector or its file with other arguments",
                                       "a ReleasePolicy", "The policy has its own key and ledger.")  # fmt: skip
        return protector
    keys: NoiseKeys | NoiseKey | None
    if key is None or isinstance(key, NoiseKeys | NoiseKey):
        keys = key
    elif isinstance(key, str) and key.startswith(_ENVIRONMENT):
        keys = NoiseKeys.from_environment(key.removeprefix(_ENVIRONMENT))
    elif isinstance(key, str | os.PathLike):
        keys = NoiseKeys.from_file(key)
    else:
        raise wrong_type(
            "open_policy", "key", "NoiseKeys, the path of a key file, or env:NAME", key
        )
    if isinstance(ledger, str | os.PathLike):
        from vecveil.accounting import Ledger

        # A mistyped path must not start an empty ledger.
        ledger = Ledger(ledger, create=False)
    policy = ReleasePolicy(
        open_protector(protector),
        query_protection=query_protection,
        query_noise=query_noise,
        key=keys,
        ledger=ledger,
    )
    if policy.gives_clean_queries:
        warnings.warn(
            f"Queries are the encoder's own vectors: method {policy.protector.method!r} has no map for map-only. "
            "Keep them where clean vectors may be seen, or use query_protection='same'.",
            CleanQueryWarning,
            stacklevel=3,
        )
    return policy


def with_policy(init: F) -> F:
    """Replace ``**policy`` in a constructor's signature by the keywords of `PolicyOptions`, for documentation."""
    own = list(inspect.signature(init).parameters.values())
    first = next(i for i, one in enumerate(own) if one.kind is inspect.Parameter.KEYWORD_ONLY)
    options = list(inspect.signature(open_policy).parameters.values())[1:]
    init.__signature__ = inspect.Signature([*own[:first], *options, *own[first:-1]])  # type: ignore[attr-defined]
    return init


def open_protector(protector: Any) -> Protector:
    """Return ``protector``, loaded if it is a path."""
    if isinstance(protector, str | os.PathLike):
        return load(protector)
    if not isinstance(protector, Protector):
        raise wrong_type(
            "open_protector", "protector", "a vecveil.Protector or the path of one", protector
        )
    return protector


def policy_config(
    protector: Any, *, query_protection: str, query_noise: float, key: Any, ledger: Any, owner: str
) -> dict[str, Any]:
    """Return the arguments of `open_policy` for a saved configuration: names of files, never their content.

    Raises:
        InvalidInputError: an argument is an object.
    """
    config: dict[str, Any] = {"query_protection": query_protection, "query_noise": query_noise}
    for name, value in (("protector", protector), ("key", key), ("ledger", ledger)):
        if value is None:
            continue
        if not isinstance(value, str | os.PathLike):
            raise wrong_type(owner, name, "a path (or env:NAME for a key) in a configuration that is saved", value,
                             fix=f"Save it, and pass {name}='FILE'.")  # fmt: skip
        text = os.fspath(value)
        # Absolute, since another working directory may open it.
        is_variable = name == "key" and text.startswith(_ENVIRONMENT)
        config[name] = text if is_variable else str(Path(text).expanduser().absolute())
    return config


def warn_plaintext(where: str, fix: str, *, stacklevel: int = 3) -> None:
    """Warn that texts are stored beside their protected vectors.

    Args:
        where: place of the texts, such as ``the documents of this Chroma collection``.
        fix: advice, a sentence.
    """
    warnings.warn(
        f"Texts lie beside their protected vectors in {where}: whoever reads the store reads them. {fix}",
        PlaintextWarning,
        stacklevel=stacklevel,
    )


class Items:
    """Protects the rows and queries of one database.

    Args:
        policy: release policy.
        encoder: a name or object for `vecveil.load_encoder`, or a function from a list of texts to vectors; None uses
            the protector's encoder. Without a fingerprint it is verified by the vectors of a dozen fixed sentences.
        query_encoder: function for queries, if it differs.
        owner: class name for errors.
        verify: verify an object now instead of before its first use.

    Raises:
        IncompatibleError: the protector was fitted for another encoder.
    """

    def __init__(
        self,
        policy: ReleasePolicy,
        encoder: Any = None,
        query_encoder: Callable[[list[str]], Any] | None = None,
        *,
        owner: str,
        verify: bool = True,
    ) -> None:
        self.owner, self.policy = owner, policy
        self._encode: Callable[[list[str]], Any] | None = None
        # A protector fitted on vectors alone has no probe to compare with.
        self._verified = not policy.protector.encoder_info.probe
        self._warned = False
        if isinstance(encoder, str):
            encoder = load_encoder(encoder)
        if hasattr(encoder, "encode"):
            policy.protector.check_encoder(encoder)
            self._encode = encoder.encode
            self._verified = self._verified or encoder_fingerprint(encoder) is not None
            if verify:
                self._verify()
        elif encoder is not None:
            self._encode = encoder if callable(encoder) else load_encoder(encoder).encode
        self._encode_query = query_encoder or self._encode

    @property
    def dimension(self) -> int:
        """Dimension of the released vectors."""
        return self.policy.protector.released_dimension

    def documents(
        self, items: Texts | Embeddings, ids: Sequence[Any] | None = None
    ) -> tuple[Vectors, list[str] | None]:
        """Return the vectors to store for ``items``, (N, m) float32, and their texts or None.

        Args:
            items: texts, or clean vectors (N, n).
            ids: item ids for keyed noise and the ledger.
        """
        names = None if ids is None else [_item_id(value) for value in ids]
        return self._released(items, names, query=False)

    def queries(self, items: Texts | Embeddings) -> Vectors:
        """Return the protected query vectors (N, m) of texts or clean vectors (N, n)."""
        return self._released(items, None, query=True)[0]

    def query(self, item: str | Embeddings | Sequence[float]) -> Vectors:
        """Return the protected query vector (m,) of one text or one clean vector (n,)."""
        rows: Any = [item] if isinstance(item, str) else np.atleast_2d(_as_array(item))
        if len(rows) != 1:
            owner = f"{self.owner}.search"
            raise InvalidInputError.of(
                owner, "query", "one text or one vector", f"{len(rows)} rows"
            )
        vector: Vectors = self.queries(rows)[0]
        return vector

    def _released(
        self, items: Any, ids: Sequence[ItemId] | None, *, query: bool
    ) -> tuple[Vectors, list[str] | None]:
        policy, texts = self.policy, _as_texts(items)
        if texts is None:
            if policy.rewrites_texts:
                raise InvalidInputError.of(self.owner, "items", "texts for a method that rewrites texts", "vectors",
                                           "It changes texts before they are encoded, and leaves vectors as they are.",
                                           "Pass the texts.")  # fmt: skip
            X = _as_array(items)
        elif self._encode is None:  # the protector's encoder, which the policy loads and verifies
            embed = policy.embed_queries if query else policy.embed_documents
            return _stored(embed(texts, ids=ids)), texts
        elif texts:
            X = self._encoded(texts, query=query)
            if policy.rewrites_texts:
                return X, texts  # vectors of the rewritten texts
        else:
            return np.empty((0, self.dimension), dtype=np.float32), texts
        release = policy.queries if query else policy.documents
        return _stored(release(X, ids=ids, texts=texts)), texts

    def _encoded(self, texts: list[str], *, query: bool) -> Vectors:
        self._verify()
        encode = self._encode_query if query else self._encode
        assert encode is not None
        protector = self.policy.protector
        words = protector.rewrite(texts) if self.policy.rewrites_texts else texts
        # A missing row would shift all later vectors to other texts' ids.
        return checked_vectors(
            encode(words), rows=len(texts), owner=self.owner, dimension=protector.dimension
        )

    def _verify(self) -> None:
        """Raise IncompatibleError unless the encoder reproduces the protector's probe vectors."""
        if self._verified or self._encode is None:
            return
        info = self.policy.protector.encoder_info
        vectors = checked_vectors(
            self._encode(list(PROBE_SENTENCES)), rows=len(PROBE_SENTENCES), owner=self.owner
        )
        if not matches_probe(vectors, info.probe, owner=self.owner):
            expected = f"the one that the protector was fitted for ({info.name})"
            raise IncompatibleError.of(self.owner, "encoder", expected, "another",
                                       "Its map and noise fit the vectors of that encoder only.",
                                       "Use that encoder, or fit a new protector.")  # fmt: skip
        self._verified = True

    def check_dimension(self, dimension: Any, noun: str) -> None:
        """Raise IncompatibleError unless ``dimension`` is that of the released vectors."""
        if dimension != self.dimension:
            raise IncompatibleError.of(self.owner, noun, f"one with vectors of dimension {self.dimension}",
                                       f"dimension {dimension}", "The protector releases others.",
                                       f"Make another {noun} for it.", code="E-INCOMPATIBLE-DIMENSION")  # fmt: skip

    def warn_if_text(
        self,
        fields: Sequence[Mapping[str, Any]] | None,
        texts: Sequence[str] | None,
        where: str,
        fix: str = "Leave the text out, and keep it where the clean vectors may be.",
        *,
        kept: bool = False,
    ) -> None:
        """Warn once if texts are stored beside their vectors.

        Args:
            fields: values stored beside each vector.
            texts: texts of the items, if known.
            where, fix: see `warn_plaintext`.
            kept: the caller chose to store the texts.
        """
        if not self._warned and (kept or _holds_text(fields, texts)):
            self._warned = True
            warn_plaintext(where, fix, stacklevel=4)


def _holds_text(fields: Sequence[Mapping[str, Any]] | None, texts: Sequence[str] | None) -> bool:
    for i, row in enumerate(fields or ()):
        for value in row.values():
            if not isinstance(value, str):
                continue
            # maxsplit bounds the work on long values.
            if len(value.split(maxsplit=_TEXT_WORDS)) >= _TEXT_WORDS:
                return True
            if texts is not None and value.strip() and value.strip() == texts[i].strip():
                return True
    return False


def _as_texts(items: Any) -> list[str] | None:
    """Return ``items`` as texts, or None if they are not texts."""
    # A single str is a sequence of strings too, and must not be stored letter by letter.
    if isinstance(items, str | bytes) or not isinstance(items, Sequence):
        return None
    if len(items) and not all(isinstance(item, str) for item in items):
        return None
    return list(items)


def _as_array(items: Any) -> Any:
    """Return lists of numbers as an array, other values unchanged."""
    if isinstance(items, list | tuple) and len(items):
        try:
            return np.asarray(
                items, dtype=np.float64
            )  # keyed noise depends on the bits of the values
        except (TypeError, ValueError):
            return items
    return items


def _stored(Y: Any) -> Vectors:
    return np.ascontiguousarray(Y, dtype=np.float32)


def _item_id(value: Any) -> ItemId:
    # Equal ids must get equal keyed noise: NumPy's 7 is 7, and a UUID is its text.
    if isinstance(value, np.integer):
        return int(value)
    return value if isinstance(value, str | int | bytes) else str(value)
