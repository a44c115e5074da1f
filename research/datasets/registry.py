"""Register data sets by name and open them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from research.datasets import entities, pairs, reading, texts
from research.datasets.kinds import KINDS, DataSet, DatasetInfo, PairSet, Place, RetrievalSet, TextSet, is_folder
from research.specification import load_beside
from vecveil.errors import DataFileError, InvalidInputError, unknown_name, wrong_type
from vecveil.privacy.concepts.concept_file import load_yaml
from vecveil.texts.tables.files import readable

FILE = "dataset.yaml"
_READERS: dict[str, Callable[..., DataSet]] = {
    name.removeprefix("read_"): value
    for module in (pairs, entities, reading, texts)
    for name, value in vars(module).items()
    if name.startswith("read_")
}
_READER_OF = {"pairs": "pair_table", "retrieval": "beir", "texts": "text_table"}
_OPTIONS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "pairs": {"file": str, "low": (int, float), "high": (int, float)},
    "retrieval": {"same_pool": bool},
    "texts": {**dict.fromkeys(("file", "text", "split", "spans", "label", "group"), str), "classes": dict},
}


def described_dataset(name: str, data: Path) -> DatasetInfo | None:
    """Return the data set that ``data``/``name``/dataset.yaml describes; None without such a file.

    Raises:
        DataFileError: it is not YAML, or a key is missing, unknown or of the wrong type.
    """
    folder = data / name
    if Path(name).name != name or not (folder / FILE).is_file():
        return None
    with readable(FILE):
        try:
            text = (folder / FILE).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise _wrong("file", "The file is not UTF-8.") from None
    found = load_yaml(text, FILE, owner="load_dataset")
    if not isinstance(found, dict) or found.get("kind") not in KINDS:
        raise _wrong("kind", f"`kind` is unknown or missing; use one of {', '.join(KINDS)}.")
    kind, what = found.pop("kind"), found.pop("what", "A data set of your own.")
    options = _checked(kind, found)
    needs = tuple(options[key] for key in ("file",) if key in options) or ("corpus.jsonl*",)
    place = Place((name,), needs, partial(_READERS[_READER_OF[kind]], **options))
    return DatasetInfo(name, kind, str(what), (place,))


def _checked(kind: str, found: dict[Any, Any]) -> dict[str, Any]:
    known = _OPTIONS[kind]
    if kind != "retrieval" and "file" not in found:
        raise _wrong("file", "`file`, the name of a file in the folder, is missing.")
    for key, value in found.items():
        if key not in known:
            names = ", ".join(("kind", "what", *known))
            raise _wrong("keys", f"One of the `keys` is unknown; {kind} takes {names}.")
        if not isinstance(value, known[key]) or (known[key] is not bool and isinstance(value, bool)):
            raise _wrong(key, f"`{key}` does not take a {type(value).__name__}.")
    if "classes" in found:
        if not all(isinstance(value, str) for value in found["classes"].values()):
            raise _wrong("classes", "`classes` takes texts. Put quotes around yes, no and numbers.")
        return {**found, "classes": {str(k): v for k, v in found["classes"].items()}}
    return found


def _wrong(param: str, text: str) -> DataFileError:
    return DataFileError(f"{FILE}: {text}", param=param)


def _registered() -> dict[str, DatasetInfo]:
    """Return the data sets of ``datasets.yaml`` by name."""
    infos = {}
    for entry in load_beside(__file__, "datasets.yaml"):
        places = tuple(_place(**place) for place in entry.pop("places"))
        infos[entry["name"]] = DatasetInfo(**entry, places=places)
    return infos


def _place(read: str, folders: list[str], needs: list[str] | None = None, **options: Any) -> Place:
    return Place(tuple(folders), tuple(needs or (options["file"],)), partial(_READERS[read], **options))


_known = _registered()
DATASETS: Mapping[str, DatasetInfo] = MappingProxyType(_known)
"""Every data set that has a name, in the order in which they were registered."""

_KINDS: dict[str, type[DataSet]] = {"pairs": PairSet, "retrieval": RetrievalSet, "texts": TextSet}


def register_dataset(info: DatasetInfo, *, replace: bool = False) -> DatasetInfo:
    """Register ``info`` under its name, for this process; ``replace`` allows a name in use."""
    if not isinstance(info, DatasetInfo):
        raise wrong_type("register_dataset", "info", "a DatasetInfo", info)
    if info.name in _known and not replace:
        raise InvalidInputError(
            f"register_dataset: a data set {info.name!r} exists. Choose another name for `info`, or pass replace=True.",
            param="info",
        )
    _known[info.name] = info
    return info


def open_dataset(name: str | DatasetInfo, data: str | os.PathLike[str]) -> DataSet:
    """Return the data set ``name`` from the first of its layouts that is found below ``data``.

    Args:
        name: a key of DATASETS, a DatasetInfo, or a folder in ``data`` with a file dataset.yaml.

    Raises:
        InvalidInputError: the name is unknown.
        DataFileError: ``data`` cannot be read, no layout is found, or a file is damaged (the message has file, row and
            field).
    """
    folder = Path(data)
    if not is_folder(folder):
        raise DataFileError(f"open_dataset: folder not found: {folder.name!r} (`data`).", param="data")
    info = name if isinstance(name, DatasetInfo) else _named(name, folder)
    for place in info.places:
        found = place.find(folder)
        if found is not None:
            with readable(found.name):
                dataset = place.read(info.name, found)
            if not isinstance(dataset, _KINDS[info.kind]):
                text = f"`read` returned {type(dataset).__name__}, not {_KINDS[info.kind].__name__}."
                raise InvalidInputError(f"data set {info.name!r}: {text}", param="read")
            return dataset
    raise _missing(info, folder)


def _named(name: str, data: Path) -> DatasetInfo:
    if name in _known:
        return _known[name]
    described = described_dataset(str(name), data)
    if described is not None:
        return described
    close = get_close_matches(str(name).lower(), _known, n=1)
    own = f"For your own, write {FILE} into a folder of its name, or call register_dataset."
    fix = f"Did you mean {close[0]!r}?" if close else own
    raise unknown_name("open_dataset", "name", sorted(_known), name, fix=fix)


def _missing(info: DatasetInfo, folder: Path) -> DataFileError:
    places = "; ".join(map(str, info.places))
    parts = [f"data set {info.name!r}: it is not in the folder {folder.name!r} (`data`).", f"Looked for {places}."]
    parts += [f"Partly there: {part}." for place in info.places if (part := place.partly(folder))]
    fix = " ".join(f"Put it into one of these places. {info.source} {info.terms}".split())
    return DataFileError(" ".join([*parts, fix]), param="data")
