"""Open a release policy, and protect rows and queries with it on their way to a database."""

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
"""Keys, the path of a key file, or ``env:NAME`` of an environment variable that holds one."""

F = TypeVar("F", bound=Callable[..., None])
_ENVIRONMENT = "env:"
_TEXT_WORDS = (
    5  # a value of so many words counts as a text where the texts themselves are not at hand
)


class PlaintextWarning(UserWarning):
    """The text lies beside its protected vector: whoever reads the store needs no attack."""


class CleanQueryWarning(UserWarning):
    """Queries leave as clean vectors: map-only, with a method that has no map."""


class PolicyOptions(TypedDict, total=False):
    """Keywords of `open_policy`, which every class of ``vecveil.integrations`` takes.

    Attributes:
        query_protection: ``same``, ``stronger`` or ``map-only``; see `ReleasePolicy`.
        query_noise: noise of a query as a multiple of a document's, for ``stronger``.
        key: keys, the path of a key file, or ``env:NAME``; never written anywhere.
        ledger: or the path of its file, which must exist. What was counted stays counted when the database refuses.
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
    """Return the policy of ``protector``, which may be a path; see `PolicyOptions` for the other arguments.

    A `ReleasePolicy` is returned as it is, and takes no other argument.

    Raises:
        InvalidInputError, ProtectorFileError, KeyFileError, LedgerError: raised by the parts.
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
    """Show the keywords of `PolicyOptions` in the signature of a constructor that takes them as ``**policy``."""
    own = list(inspect.signature(init).parameters.values())
    first = next(i for i, one in enumerate(own) if one.kind is inspect.Parameter.KEYWORD_ONLY)
    options = list(inspect.signature(open_policy).parameters.values())[1:]
    init.__signature__ = inspect.Signature([*own[:first], *options, *own[first:-1]])  # type: ignore[attr-defined]
    return init


def open_protector(protector: Any) -> Protector:
    """Return ``protector``, read from its file if it is a path.

    Raises:
        InvalidInputError: neither a Protector nor a path.
    """
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
    """Return the arguments of `open_policy` as a framework may save them: names of files, never their content.

    Raises:
        InvalidInputError: an object was given where only a name can be saved.
    """
    config: dict[str, Any] = {"query_protection": query_protection, "query_noise": query_noise}
    for name, value in (("protector", protector), ("key", key), ("ledger", ledger)):
        if value is None:
            continue
        if not isinstance(value, str | os.PathLike):
            raise wrong_type(owner, name, "a path (or env:NAME for a key) in a configuration that is saved", value,
                             fix=f"Save it, and pass {name}='FILE'.")  # fmt: skip
        text = os.fspath(value)
        is_variable = name == "key" and text.startswith(_ENVIRONMENT)
        config[name] = text if is_variable else str(Path(text).expanduser().absolute())
    return config


def warn_plaintext(where: str, fix: str, *, stacklevel: int = 3) -> None:
    """Warn that texts are stored beside their protected vectors.

    Args:
        where: such as ``the documents of this Chroma collection``.
        fix: what to do instead, a sentence.
    """
    warnings.warn(
        f"Texts lie beside their protected vectors in {where}: whoever reads the store reads them. {fix}",
        PlaintextWarning,
        stacklevel=stacklevel,
    )


class Items:
    """Protect the rows and queries of one database with a policy.

    Args:
        policy: how documents and queries are released.
        encoder: of the texts. None takes the protector's; else a name or object for `vecveil.load_encoder`, or a
            function from a list of texts to vectors. One without a fingerprint embeds a dozen fixed sentences
            first, a function before its first use, to verify that the protector was fitted for it.
        query_encoder: function for queries, where it differs from that for documents.
        owner: class that errors name.
        verify: embed those sentences now; else before the first use.

    Raises:
        IncompatibleError: ``encoder`` is not the one that the protector was fitted for.
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
        """Return the vectors to store for ``items``, (N, m) float32, and their texts if they are texts.

        Args:
            items: texts, or clean vectors (N, n).
            ids: one for each item; they name the items to a key and a ledger, a UUID by its text.
        """
        names = None if ids is None else [_item_id(value) for value in ids]
        return self._released(items, names, query=False)

    def queries(self, items: Texts | Embeddings) -> Vectors:
        """Return the vectors (N, m) to compare with stored ones for texts, or clean vectors (N, n)."""
        return self._released(items, None, query=True)[0]

    def query(self, item: str | Embeddings | Sequence[float]) -> Vectors:
        """Return the vector (m,) float32 to compare with stored ones for one text, or one clean vector (n,)."""
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
        elif self._encode is None:
            embed = policy.embed_queries if query else policy.embed_documents
            return _stored(embed(texts, ids=ids)), texts
        elif texts:
            X = self._encoded(texts, query=query)
            if policy.rewrites_texts:
                return X, texts
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
        # One row too few would store a vector under another text's id.
        return checked_vectors(
            encode(words), rows=len(texts), owner=self.owner, dimension=protector.dimension
        )

    def _verify(self) -> None:
        """Raise IncompatibleError if the encoder's vectors of fixed sentences are not those of the fit."""
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
        """Raise IncompatibleError if the vectors of the index, table or collection have another dimension."""
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
        """Warn, once for this object, if texts are stored beside their vectors.

        Args:
            fields: values stored beside each vector.
            texts: of the items, if they are at hand.
            where, fix: see `warn_plaintext`.
            kept: whether the caller asked to store the texts.
        """
        if not self._warned and (kept or _holds_text(fields, texts)):
            self._warned = True
            warn_plaintext(where, fix, stacklevel=4)


def _holds_text(fields: Sequence[Mapping[str, Any]] | None, texts: Sequence[str] | None) -> bool:
    for i, row in enumerate(fields or ()):
        for value in row.values():
            if not isinstance(value, str):
                continue
            if len(value.split(maxsplit=_TEXT_WORDS)) >= _TEXT_WORDS:
                return True
            if texts is not None and value.strip() and value.strip() == texts[i].strip():
                return True
    return False


def _as_texts(items: Any) -> list[str] | None:
    """Return the texts, or None for anything else, which the checks of vectors judge."""
    if isinstance(items, str | bytes) or not isinstance(items, Sequence):
        return None
    if len(items) and not all(isinstance(item, str) for item in items):
        return None
    return list(items)


def _as_array(items: Any) -> Any:
    """Return lists of numbers as an array, anything else as it is."""
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
    if isinstance(value, np.integer):
        return int(value)
    return value if isinstance(value, str | int | bytes) else str(value)
