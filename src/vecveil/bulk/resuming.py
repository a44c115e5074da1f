"""Whether a run may go on in a folder: one folder is one release, and what was released is not released again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vecveil.bulk.manifest import MANIFEST, Manifest
from vecveil.bulk.planning import Part
from vecveil.errors import DataFileError, message
from vecveil.io import is_temporary_of

__all__ = ["LOCK", "check_files", "check_same", "forget_gone", "further_files", "of_a_start"]

LOCK = "_lock"
_NAMES = {
    "key_check": "another noise key",
    "key_id": "another noise key",
    "randomness": "noise of another kind",
    "noise": "noise of another kind",
    "protected": "noise of another kind",
    "protector": "another protector",
    "vecveil": "another version of vecveil",
    "carry": "another choice of columns to carry",
    "keep_text": "another choice of --keep-text",
    "text_column": "another column of texts",
    "embedding_column": "another column of vectors",
    "id_column": "another column of ids",
}
_OF_A_PROTECTOR = {"method", "concept", "encoder", "guarantee", "conditional_on", "not_promised"}
"""What a protector, or a key, changes by itself."""


def of_a_start(name: str) -> bool:
    """Return whether a run that was killed before its manifest was there may have left this file."""
    return name == LOCK or is_temporary_of(MANIFEST, name)


def further_files(names: Iterable[str], manifest: Manifest) -> list[str]:
    """Return the data files among ``names`` that the manifest does not know."""
    found = set(names) - {part["output"] for part in manifest.parts}
    return sorted(name for name in found if not name.startswith(("_", ".")))


def check_same(known: Manifest, now: Manifest) -> None:
    """Refuse to go on with other rows, another protector or other options."""
    if known.run == now.run:
        return
    names = sorted(key for key in {*known.job, *now.job} if known.job.get(key) != now.job.get(key))
    got = _told(names, known.job, now.job) if names else "other inputs, or inputs that changed"
    fix = "Give another folder."
    if not known.results:
        fix = f"Nothing is in it yet: remove its {MANIFEST}, or give another folder."
    elif not names:
        fix = "Protect what is new or repaired alone, into another folder: what is here is released already."
    raise DataFileError.of("protect", "out", f"the folder of this run, as its {MANIFEST} says", got,
                           "Rows of both would stand side by side.", fix)  # fmt: skip


def _told(names: list[str], former: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return in words which options differ."""
    if former.get("key_check") is None or now.get("key_check") is None:  # with a key, and without
        names = [name for name in names if name not in ("key_check", "key_id")] or names
    own = [name for name in names if name not in _OF_A_PROTECTOR] or names
    known = dict.fromkeys(_NAMES[name] for name in own if name in _NAMES)
    others = [name for name in own if name not in _NAMES]
    if others:
        known[f"another value of {', '.join(others)}"] = None
    return ", ".join(known)


def check_files(manifest: Manifest, here: Mapping[str, int]) -> None:
    """Refuse a folder with files that are not of the run, or with parts that are not as they were written.

    Args:
        here: names of its files, with their bytes.
    """
    if strange := further_files(here, manifest):
        raise DataFileError.of("protect", "out", "a folder of this run alone",
                               f"one with other files, such as {strange[0]!r}",
                               "Whoever reads the folder would take their rows for protected ones.",
                               "Move them elsewhere.")  # fmt: skip
    for index, result in manifest.results.items():
        name = Part.output_of(index)
        if here.get(name, result.bytes) != result.bytes:
            raise DataFileError(
                message("protect", "out", "the folder with its parts as they were written", f"another {name}",
                        "It was damaged or replaced.",
                        "Put the right one back; or remove it, and have its rows released again with --again.")
            )  # fmt: skip


def forget_gone(manifest: Manifest, here: Mapping[str, int], *, allowed: bool) -> None:
    """Take parts that were finished and are gone for missing ones; refuse that where it is a second release.

    Args:
        allowed: the same release is made again, or a second one is accepted.
    """
    gone = [i for i, one in manifest.results.items() if one.rows and Part.output_of(i) not in here]
    if gone and not allowed:
        first = Part.output_of(gone[0])
        raise DataFileError.of("protect", "out", "the folder with all parts that were finished",
                               f"one without {len(gone)} of them ({first}{', ...' if len(gone) > 1 else ''})",
                               "With fresh noise they would be released a second time, and both together tell more.",
                               "Put them back; or accept that with --again (in Python again=True).")  # fmt: skip
    for index in gone:
        del manifest.results[index]
