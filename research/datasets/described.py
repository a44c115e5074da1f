"""A data set of the user's own, described by a file dataset.yaml in a folder of its name.

The folder lies in the data folder, so that commands and worker processes find it as they find the others.
Keys: ``kind`` (pairs, retrieval, texts), ``what``, and the options of the kind's reader: ``file`` and
the columns for texts, ``file`` and the range of scores for pairs, ``same_pool`` for retrieval.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from research.datasets.annotated import read_text_table
from research.datasets.beir import read_beir
from research.datasets.info import KINDS, DatasetInfo, Place
from research.datasets.kinds import DataSet
from research.datasets.sts import read_pair_table
from vecveil.data.files import readable
from vecveil.errors import DataFileError, message

__all__ = ["FILE", "described_dataset"]

FILE = "dataset.yaml"
_READERS: dict[str, Callable[..., DataSet]] = {
    "pairs": read_pair_table,
    "retrieval": read_beir,
    "texts": read_text_table,
}
_OPTIONS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "pairs": {"file": str, "low": (int, float), "high": (int, float)},
    "retrieval": {"same_pool": bool},
    "texts": {
        **dict.fromkeys(("file", "text", "split", "spans", "label", "group"), str),
        "classes": dict,
    },
}


def described_dataset(name: str, data: Path) -> DatasetInfo | None:
    """Return what ``data``/``name``/dataset.yaml says; None if there is no such file.

    Raises:
        DataFileError: it is not YAML, or a key is missing, unknown or of another type.
    """
    folder = data / name
    if Path(name).name != name or not (folder / FILE).is_file():
        return None
    from research.specification import read_yaml

    with readable(FILE):
        try:
            text = (folder / FILE).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise _wrong("file", "UTF-8", "another encoding") from None
    found = read_yaml(text, owner=FILE)
    if not isinstance(found, dict) or found.get("kind") not in KINDS:
        raise _wrong("kind", f"one of {', '.join(KINDS)}", "something else")
    kind, what = found.pop("kind"), found.pop("what", "A data set of your own.")
    options = _checked(kind, found)
    needs = tuple(options[key] for key in ("file",) if key in options) or ("corpus.jsonl*",)
    place = Place((name,), needs, partial(_READERS[kind], **options))
    return DatasetInfo(name, kind, str(what), (place,))


def _checked(kind: str, found: dict[Any, Any]) -> dict[str, Any]:
    known = _OPTIONS[kind]
    if kind != "retrieval" and "file" not in found:
        raise _wrong("file", "the name of a file in the folder", "none")
    for key, value in found.items():
        if key not in known:
            names = ", ".join(("kind", "what", *known))
            raise _wrong("keys", f"among {names} for {kind}", "an unknown one")
        if not isinstance(value, known[key]) or (
            known[key] is not bool and isinstance(value, bool)
        ):
            raise _wrong(key, "of the type that it should have", f"a {type(value).__name__}")
    if "classes" in found:
        if not all(isinstance(value, str) for value in found["classes"].values()):
            raise _wrong("classes", "texts, in quotes where YAML reads yes or no", "others")
        return {**found, "classes": {str(k): v for k, v in found["classes"].items()}}
    return found


def _wrong(param: str, constraint: str, got: str) -> DataFileError:
    return DataFileError(message(FILE, param, constraint, got))
