"""What every integration takes: a protector or its file, how queries are protected, a key and a ledger by name."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vecveil.errors import InvalidInputError
from vecveil.protector import Protector
from vecveil.protector.policy import STRONGER, QueryProtection, ReleasePolicy
from vecveil.randomness import NoiseKey, NoiseKeys

if TYPE_CHECKING:
    from vecveil.accounting import Ledger

__all__ = [
    "CleanQueryWarning",
    "KeySource",
    "PlaintextWarning",
    "open_policy",
    "open_protector",
    "policy_config",
    "warn_plaintext",
]

KeySource = NoiseKeys | NoiseKey | str | os.PathLike[str] | None
"""Keys, the path of a key file, or ``env:NAME`` of an environment variable that holds one."""

_ENVIRONMENT = "env:"


class PlaintextWarning(UserWarning):
    """The text lies beside its protected vector: whoever gets the store needs no attack."""


class CleanQueryWarning(UserWarning):
    """Queries leave as clean vectors: map-only, with a method that has no map."""


def open_policy(
    protector: Protector | str | os.PathLike[str],
    *,
    query_protection: QueryProtection = "same",
    query_noise: float = STRONGER,
    key: KeySource = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
) -> ReleasePolicy:
    """Return the policy; files are opened, objects taken as they are.

    Args:
        protector: or the path of its file.
        query_protection: ``same``, ``stronger`` or ``map-only``; see `ReleasePolicy`.
        query_noise: times the documents' noise, for ``stronger``.
        key: keys, the path of a key file, or ``env:NAME``.
        ledger: or the path of its file, which must exist.

    Raises:
        InvalidInputError, ProtectorFileError, KeyFileError, LedgerError: what the parts raise.
    """
    keys: NoiseKeys | NoiseKey | None
    if key is None or isinstance(key, NoiseKeys | NoiseKey):
        keys = key
    elif isinstance(key, str) and key.startswith(_ENVIRONMENT):
        keys = NoiseKeys.from_environment(key.removeprefix(_ENVIRONMENT))
    elif isinstance(key, str | os.PathLike):
        keys = NoiseKeys.from_file(key)
    else:
        raise InvalidInputError.of("open_policy", "key", "NoiseKeys, the path of a key file, or env:NAME",
                                   type(key).__name__)  # fmt: skip
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


def open_protector(protector: Any) -> Protector:
    """Return ``protector``, read from its file if it is a path.

    Raises:
        InvalidInputError: neither a Protector nor a path.
    """
    if isinstance(protector, str | os.PathLike):
        from vecveil.protector import load

        return load(protector)
    if not isinstance(protector, Protector):
        raise InvalidInputError.of("open_protector", "protector", "a vecveil.Protector or the path of one",
                                   type(protector).__name__)  # fmt: skip
    return protector


def policy_config(
    protector: Any, *, query_protection: str, query_noise: float, key: Any, ledger: Any, owner: str
) -> dict[str, Any]:
    """Return what a framework may keep of the arguments of `open_policy`: names of files, never what is in them.

    Raises:
        InvalidInputError: an object was given where only a name can be kept.
    """
    kept: dict[str, Any] = {"query_protection": query_protection, "query_noise": query_noise}
    for name, value in (("protector", protector), ("key", key), ("ledger", ledger)):
        if value is None:
            continue
        if not isinstance(value, str | os.PathLike):
            raise InvalidInputError.of(owner, name,
                                       "a path (or env:NAME for a key) in a configuration that is kept",
                                       type(value).__name__,
                                       "Nothing of the object itself is written to a store.",
                                       f"Save it, and pass {name}='FILE'.")  # fmt: skip
        text = os.fspath(value)
        is_name = name == "key" and text.startswith(_ENVIRONMENT)
        kept[name] = text if is_name else str(Path(text).expanduser().absolute())
    return kept


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
