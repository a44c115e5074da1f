"""The data sets known by name, and opening one of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType

from research.datasets.described import FILE, described_dataset
from research.datasets.info import DatasetInfo
from research.datasets.kinds import DataSet, PairSet, RetrievalSet, TextSet
from vecveil.data.files import readable
from vecveil.errors import DataFileError, InvalidInputError, message

__all__ = ["DATASETS", "open_dataset", "register_dataset"]

_known: dict[str, DatasetInfo] = {}
DATASETS: Mapping[str, DatasetInfo] = MappingProxyType(_known)
"""Every data set that has a name, in the order in which they were registered."""

_KINDS: dict[str, type[DataSet]] = {"pairs": PairSet, "retrieval": RetrievalSet, "texts": TextSet}


def register_dataset(info: DatasetInfo, *, replace: bool = False) -> DatasetInfo:
    """Make ``info`` known under its name, for this process, and return it.

    Args:
        replace: take the place of a data set of that name; without it such a name is an error.
    """
    if not isinstance(info, DatasetInfo):
        raise InvalidInputError.of("register_dataset", "info", "a DatasetInfo", type(info).__name__)
    if info.name in _known and not replace:
        raise InvalidInputError.of("register_dataset", "info", "under a name that is not taken",
                                   repr(info.name), fix="Choose another name, or pass replace=True.")  # fmt: skip
    _known[info.name] = info
    return info


def open_dataset(name: str | DatasetInfo, data: str | os.PathLike[str]) -> DataSet:
    """Return the data set ``name``, whichever of its layouts lies below ``data``.

    Args:
        name: one of DATASETS, a DatasetInfo itself, or a folder in ``data`` that has a file
            dataset.yaml (:mod:`research.datasets.described`).
        data: the folder with the data; the places of the set are looked for below it, in order.

    Raises:
        InvalidInputError: the name is not known.
        DataFileError: ``data`` is no folder that can be read, no place of the set holds its files,
            or a file is damaged (the message has file, row and field).
    """
    folder = _data_folder(data)
    info = name if isinstance(name, DatasetInfo) else _named(name, folder)
    for place in info.places:
        found = place.find(folder)
        if found is not None:
            with readable(found.name):
                dataset = place.read(info.name, found)
            if not isinstance(dataset, _KINDS[info.kind]):
                wanted = f"a reader of a {_KINDS[info.kind].__name__}"
                got = type(dataset).__name__
                raise InvalidInputError.of(f"data set {info.name!r}", "read", wanted, got)
            return dataset
    raise _missing(info, folder)


def _named(name: str, data: Path) -> DatasetInfo:
    if name in _known:
        return _known[name]
    described = described_dataset(str(name), data)
    if described is not None:
        return described
    close = get_close_matches(str(name).lower(), _known, n=1)
    raise InvalidInputError(
        message(
            "open_dataset",
            "name",
            f"one of {', '.join(sorted(_known))}",
            repr(name),
            fix=f"Did you mean {close[0]!r}?"
            if close
            else f"For your own, write {FILE} into a folder of its name, or call register_dataset.",
        )
    )


def _data_folder(data: str | os.PathLike[str]) -> Path:
    folder = Path(data)
    with readable(folder.name):
        try:
            os.scandir(folder).close()
        except (FileNotFoundError, NotADirectoryError):
            got = f"{folder.name!r}, which is none"
            text = message("open_dataset", "data", "an existing folder", got)
            raise DataFileError(text) from None
    return folder


def _missing(info: DatasetInfo, folder: Path) -> DataFileError:
    places = "; ".join(map(str, info.places))
    parts = [f"Looked for {places}."]
    parts += [f"Partly there: {part}." for place in info.places if (part := place.partly(folder))]
    fix = f"Put it into one of these places. {info.source} {info.terms}"
    return DataFileError(
        message(
            f"data set {info.name!r}",
            "data",
            "a folder that holds it",
            f"{folder.name!r}, where it is not",
            " ".join(parts),
            " ".join(fix.split()),
        )
    )
