"""Checks of what an audit is asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vecveil.attacks import FAMILIES
from vecveil.auditing.case import Options
from vecveil.checks import check_count, check_texts
from vecveil.errors import InvalidInputError, message
from vecveil.types import Texts

__all__ = ["check_options"]


def check_options(
    texts: Texts,
    groups: Sequence[Any] | None,
    *,
    tier: str,
    seed: int,
    device: str,
    corpus: Texts,
    skip: Sequence[str],
    min_token_count: int | None,
    show_reconstructions: bool,
    show_progress: bool | None,
    owner: str,
) -> Options:
    """Return the options; refuses values that mean nothing, before anything is encoded."""
    if min_token_count is not None:
        check_count(min_token_count, owner=owner, param="min_token_count")
    seed = check_count(seed, owner=owner, param="seed", minimum=0)
    if tier not in ("quick", "full"):
        raise InvalidInputError(message(owner, "tier", "'quick' or 'full'", repr(tier)[:40]))
    if groups is not None and len(groups) != len(texts):
        raise InvalidInputError(message(owner, "groups", f"of {len(texts)} ids", f"{len(groups)}"))
    if isinstance(skip, str) or set(skip) - (set(FAMILIES) - {"token-inference"}):
        known = ", ".join(family for family in FAMILIES if family != "token-inference")
        raise InvalidInputError(
            message(owner, "skip", f"a list of families of attacks ({known})", repr(skip)[:60],
                    "Token inference gives the verdict and cannot be left out.")
        )  # fmt: skip
    if device != "auto":
        from vecveil.attacks.networks.devices import resolve_device

        resolve_device(device, owner=owner)
    return Options(
        tier="full" if tier == "full" else "quick",
        seed=seed,
        device=device,
        corpus=tuple(check_texts(corpus, owner=owner, param="corpus", min_rows=0)),
        show_reconstructions=bool(show_reconstructions),
        skip=frozenset(skip),
        show_progress=show_progress,
    )
