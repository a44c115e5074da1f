"""Checks of what an audit is asked to do."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

from vecveil.attacks import FAMILIES
from vecveil.auditing.case import Options
from vecveil.errors import InvalidInputError, message
from vecveil.types import Texts
from vecveil.validation import check_count, check_texts

__all__ = ["check_kinds", "check_options", "check_work"]


def check_kinds(owner: str, **given: tuple[Any, type[Any]]) -> None:
    """Refuse arguments that are not what they must be: name=(value, kind)."""
    for param, (value, kind) in given.items():
        if not isinstance(value, kind):
            got = type(value).__name__
            raise InvalidInputError.of(owner, param, f"a vecveil {kind.__name__}", got)


def check_work(work: Any, *, owner: str) -> Path | None:
    """Return the folder for finished attacks, after making sure that it can be written, before anything is run."""
    if work is None:
        return None
    if not isinstance(work, str | os.PathLike):
        raise InvalidInputError.of(owner, "work", "the path of a folder", type(work).__name__)
    folder = Path(work)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise InvalidInputError(
            message(owner, "work", "a folder that can be written", f"{folder.name}: {reason}",
                    "Finished attacks are kept there.", "Name another folder, or none.")
        ) from error  # fmt: skip
    return folder


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
        raise InvalidInputError.of(owner, "tier", "'quick' or 'full'", repr(tier)[:40])
    if groups is not None:
        if len(groups) != len(texts):
            raise InvalidInputError.of(owner, "groups", f"of {len(texts)} ids", f"{len(groups)}")
        if not all(isinstance(each, Hashable) for each in groups):
            wanted = "of strings, numbers or other hashable ids"
            raise InvalidInputError.of(owner, "groups", wanted, "another kind of id")
    listed = list(skip) if isinstance(skip, list | tuple | set | frozenset) else [None]
    if any(family not in FAMILIES or family == "token-inference" for family in listed):
        known = ", ".join(family for family in FAMILIES if family != "token-inference")
        raise InvalidInputError.of(owner, "skip", f"a list of families of attacks ({known})", repr(skip)[:60],
                                   "Token inference gives the verdict and cannot be left out.")  # fmt: skip
    if device != "auto":
        from vecveil.runtime import resolve_device

        resolve_device(device, owner=owner)
    return Options(
        tier="full" if tier == "full" else "quick",
        seed=seed,
        device=device,
        corpus=tuple(check_texts(corpus, owner=owner, param="corpus", min_rows=0)),
        show_reconstructions=bool(show_reconstructions),
        skip=frozenset(map(str, listed)),
        show_progress=show_progress,
    )
