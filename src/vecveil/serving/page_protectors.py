"""The protectors that the page can try: those that are served, and a few files that its visitors load."""

from __future__ import annotations

import secrets
import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vecveil.errors import InvalidInputError, ProtectorFileError
from vecveil.protector import Protector, load
from vecveil.serving.errors import ApiError, invalid
from vecveil.serving.upstream import Upstream

__all__ = ["Offered", "ProtectorShelf"]


@dataclass(frozen=True, eq=False, repr=False)
class Offered:
    """A protector, and where its clean vectors come from.

    Attributes:
        id: of a served one its name; of a loaded one a random word that only its visitor knows.
        model: the name under which the upstream is asked.
    """

    id: str
    name: str
    protector: Protector
    upstream: Upstream
    model: str
    served: bool

    def describe(self) -> dict[str, Any]:
        """Return what the page shows of it."""
        info = self.protector.encoder_info
        guarantee = self.protector.guarantee
        return {
            "id": self.id,
            "name": self.name,
            "served": self.served,
            "method": self.protector.method,
            "concept": self.protector.concept,
            "encoder": info.name,
            "encoder_known": info.fingerprint is not None,
            "dimension": self.protector.dimension,
            "kind": guarantee.kind,
            "statement": guarantee.statement,
            "guarantee": str(guarantee),
        }


class ProtectorShelf:
    """Served protectors by name, and loaded ones in memory: the oldest goes when there are too many.

    Args:
        served: by name: the protector, and its upstream.
        most: files at once.
    """

    def __init__(self, served: Mapping[str, tuple[Protector, Upstream]], *, most: int = 4) -> None:
        self._served = {
            name: Offered(name, name, protector, upstream, _model(protector, name), served=True)
            for name, (protector, upstream) in served.items()
        }
        self._loaded: OrderedDict[str, Offered] = OrderedDict()
        self._most = most

    def served(self) -> list[Offered]:
        """Return the served ones; what a visitor has loaded is listed to nobody."""
        return list(self._served.values())

    def get(self, id: str) -> Offered:
        """Return one of them.

        Raises:
            ApiError: 404, there is none of that id (any more).
        """
        found = self._loaded.get(id) or self._served.get(id)
        if found is None:
            raise invalid(
                "There is no such protector here (any more): load the file again.",
                code="no_such_protector", status=404,
            )  # fmt: skip
        return found

    def add(self, content: bytes, name: str) -> Offered:
        """Return the protector in a file, which nothing of it runs; it must fit an encoder of this server.

        Raises:
            ApiError: no protector, or one for another encoder.
        """
        protector = _read(content)
        partner = self._partner(protector)
        id = secrets.token_urlsafe(16)
        one = Offered(id, name, protector, partner.upstream, partner.model, served=False)
        self._loaded[id] = one
        while len(self._loaded) > self._most:
            self._loaded.popitem(last=False)
        return one

    def remove(self, id: str) -> None:
        """Forget a loaded protector; one that is served stays."""
        self._loaded.pop(id, None)

    def _partner(self, protector: Protector) -> Offered:
        """Return a served protector of the same encoder: an encoder that a file names is never loaded."""
        wanted = protector.encoder_info
        for one in self._served.values():
            own = one.protector.encoder_info
            if one.protector.dimension != protector.dimension:
                continue
            if (
                None in (wanted.fingerprint, own.fingerprint)
                or wanted.fingerprint == own.fingerprint
            ):
                return one
        names = sorted({str(one.protector.encoder_info.name or "unnamed") for one in self.served()})
        raise invalid(
            f"The protector is for another encoder ({wanted.name or 'unnamed'}, {protector.dimension} dimensions) "
            f"than this server has ({', '.join(names)}). Start a server with that protector and encoder.",
            code="another_encoder",
        )


def _model(protector: Protector, policy: str) -> str:
    """Return what to ask an upstream for that lets its clients choose: the model of the fit, if it is known."""
    _, _, model = str(protector.encoder_info.name or "").partition("#")
    return model or policy


def _read(content: bytes) -> Protector:
    failed: ApiError
    # A reader of files needs one: it is gone before the answer.
    with tempfile.TemporaryDirectory(prefix="vecveil-page-") as folder:
        path = Path(folder) / "protector.vecveil"
        path.touch(mode=0o600)
        path.write_bytes(content)
        try:
            return load(path)
        except ProtectorFileError:
            text = "The file is no protector: it is damaged, cut off, of a later version, or something else."
            failed = invalid(text, code="not_a_protector")
        except (InvalidInputError, OSError, MemoryError):
            failed = invalid("The file could not be loaded.", code="not_a_protector")
    raise failed
