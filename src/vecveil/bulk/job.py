"""What is done to every row, in a form that travels to workers: names of keys, never keys."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from vecveil.errors import InvalidInputError, message
from vecveil.protector import Protector
from vecveil.protector.files import from_bytes, to_bytes
from vecveil.protector.own_encoder import encoder_for
from vecveil.randomness import NoiseKey, NoiseKeys

if TYPE_CHECKING:
    from vecveil.encoders import TextEncoder

__all__ = ["BulkJob"]

_ENVIRONMENT = "env:"
_NOT_OF_ROWS = ("protector", "key", "key_id", "check_lengths", "cache")
"""Secrets, what has a name in the metadata, and what is refused: nothing of that changes what a row becomes."""


@dataclass(frozen=True)
class BulkJob:
    """A protector and how tables are read.

    Args:
        protector: bytes of a protector's file; see `BulkJob.of`.
        text_column: None takes ``text``, or the only column.
        embedding_column: None takes ``embedding`` if it holds vectors; without one, texts are encoded.
        carry: other columns to write as they are; None carries all but the text, and refuses what may hold vectors.
        keep_text: also write the texts.
        id_column: names the item of each row, for keyed noise.
        key: where the key is, as each worker finds it: ``env:NAME`` or the path of a key file. The key itself travels
            nowhere.
        key_id: which key of the file; None is the current one.
        noise: False applies the map alone.
        check_lengths: refuse vectors longer than those of the fit.
        encoder: None is the protector's own.
        precision: of the encoder.
        format: of the inputs; None goes by their suffixes.
        encoding: of text files.
        delimiter: of CSV files.
        cache: keep clean vectors of texts in the cache of this machine.

    Raises:
        InvalidInputError: keyed noise without a column of ids, or options that exclude each other.
    """

    protector: bytes = field(repr=False)
    text_column: str | None = None
    embedding_column: str | None = None
    carry: tuple[str, ...] | None = None
    keep_text: bool = False
    id_column: str | None = None
    key: str | None = None
    key_id: str | None = None
    noise: bool = True
    check_lengths: bool = True
    encoder: str | None = None
    precision: str | None = None
    format: str | None = None
    encoding: str = "utf-8"
    delimiter: str | None = None
    cache: bool = False

    def __post_init__(self) -> None:
        if self.key is not None and self.id_column is None:
            raise InvalidInputError(
                message("protect", "id_column", "given for keyed noise", "None",
                        "A row's number would do until somebody sorts or splits the files: then every row is a further "
                        "release.", "Name the column that names the item of each row.")
            )  # fmt: skip
        if self.key is not None and not self.noise:
            raise InvalidInputError.of("protect", "key", "left out without noise", "a key")

    @classmethod
    def of(cls, protector: Protector | str | os.PathLike[str], **options: Any) -> BulkJob:
        """Return the job of a protector or its file.

        Raises:
            ProtectorFileError, InvalidInputError: see `vecveil.load` and the class.
        """
        if not isinstance(protector, Protector):
            from vecveil.protector import load

            protector = load(protector)
        return cls(to_bytes(protector), **options)

    def pinned(self) -> BulkJob:
        """Return the job with the key that is the current one now named: a later one would make other releases."""
        if self.key is None or self.key_id is not None:
            return self
        key = _key(self)
        return self if key is None else replace(self, key_id=key.key_id)

    def opened(self) -> OpenJob:
        """Return the job with its protector loaded; a worker does that once."""
        return OpenJob(self)

    def to_record(self) -> dict[str, Any]:
        """Return what is done as JSON values, for manifests: no key and no protector, but their names."""
        opened = self.opened()
        protector = opened.protector
        about = {k: v for k, v in vars(self).items() if k not in _NOT_OF_ROWS}
        about["carry"] = None if self.carry is None else list(self.carry)
        key = opened.key
        return {
            **about,
            "key_check": None if key is None else key.check_value,
            **metadata_of(protector, key, noise=self.noise),
        }


class OpenJob:
    """A job in a process that works on it.

    Attributes:
        job: the job.
        protector: loaded.
        key: read from where the job says, or None.
    """

    def __init__(self, job: BulkJob) -> None:
        self.job = job
        self.protector = from_bytes(job.protector)
        self.key = _key(job)
        self._encoder: TextEncoder | None = None

    def encoder(self) -> TextEncoder:
        """Return the encoder, loaded and compared with the protector's."""
        if self._encoder is None:
            self._encoder = encoder_for(
                self.protector, self.job.encoder, self.job.precision, self.job.cache
            )
        return self._encoder


def _key(job: BulkJob) -> NoiseKey | None:
    if job.key is None:
        return None
    if job.key.startswith(_ENVIRONMENT):
        return NoiseKeys.from_environment(job.key.removeprefix(_ENVIRONMENT)).key(job.key_id)
    return NoiseKeys.from_file(job.key).key(job.key_id)


def metadata_of(protector: Protector, key: NoiseKey | None, *, noise: bool) -> Mapping[str, Any]:
    """Return what a file of protected vectors says about itself."""
    from vecveil.version import __version__

    guarantee = protector.guarantee if key is None else protector.guarantee.with_keyed_noise()
    rewrites = protector.rewriter is not None
    return {
        "vecveil": __version__,
        "protected": noise,
        "noise": noise and not rewrites,
        "randomness": None if not noise or rewrites else "secure" if key is None else "keyed",
        "key_id": None if key is None else key.key_id,
        "method": protector.method,
        "concept": protector.concept,
        "protector": protector.fingerprint,
        "encoder": protector.encoder_info.to_record(),
        "guarantee": guarantee.statement if noise else None,
        "conditional_on": list(guarantee.conditional_on) if noise else None,
        "not_promised": list(guarantee.not_promised) if noise else None,
    }
