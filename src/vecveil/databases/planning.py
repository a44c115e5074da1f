"""What a migration will do, decided before it writes: which rows, which fields, and whether it may."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from vecveil.databases.fields import OTHERS, Field, matches
from vecveil.databases.sampling import Reservoir
from vecveil.databases.signs import Signs, signs_of_protection
from vecveil.databases.state import MigrationState
from vecveil.databases.store import Batch, StoreInfo, VectorStore
from vecveil.databases.survey import BadRows, Survey, judged
from vecveil.databases.verifying import as_clean
from vecveil.errors import IncompatibleError, InvalidInputError, StoreError, message
from vecveil.protector import Protector
from vecveil.protector.taken_rows import taken_rows
from vecveil.randomness import NoiseKeys
from vecveil.release_policy import ReleasePolicy
from vecveil.runtime import progress

__all__ = [
    "Checked",
    "MigrationOptions",
    "check_policy",
    "check_same",
    "check_source",
    "key_of",
    "usable",
]

_OWNER = "migrate"
_LOOKED_AT = 1000
_LONGER = " Longer ones than those of the fit may be another encoder's, or protected already."


@dataclass(frozen=True)
class MigrationOptions:
    """What is asked of a migration.

    Attributes:
        keep_text: carry fields of texts.
        keep: fields to carry whatever is in them.
        drop: fields to leave out.
        skip_bad: leave out rows without a finite vector of the right dimension, and those that the protector does
            not take, or not change.
    """

    keep_text: bool = False
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    skip_bad: bool = False


@dataclass(frozen=True, eq=False)
class Checked:
    """What was found in a source.

    Attributes:
        info: what it says of itself.
        rows: counted.
        bad: of them.
        fields: beside the vectors.
        carried: names of the fields that are written.
        withheld: names of those that are not, with why.
        signs: of protection.
    """

    info: StoreInfo
    rows: int
    bad: BadRows
    fields: tuple[Field, ...]
    carried: tuple[str, ...]
    withheld: dict[str, str]
    signs: Signs

    @property
    def personal(self) -> tuple[str, ...]:
        """Carried fields that look like data of persons."""
        return tuple(one.name for one in self.fields if one.personal and one.name in self.carried)

    @property
    def texts_kept(self) -> tuple[str, ...]:
        """Carried fields that hold what protection hides."""
        return tuple(one.name for one in self.fields if one.withheld and one.name in self.carried)


def check_policy(policy: ReleasePolicy) -> Protector:
    """Return the protector of ``policy``; refuses one that rewrites texts, as a store has vectors."""
    if policy.rewrites_texts:
        raise InvalidInputError.of(_OWNER, "protector", "of a method that protects vectors",
                                   repr(policy.protector.method),
                                   "It rewrites texts before they are encoded, and vectors cannot be rewritten.",
                                   "Rewrite and encode the texts, and fill a new store with them.")  # fmt: skip
    return policy.protector


def check_source(
    source: VectorStore,
    protector: Protector,
    options: MigrationOptions,
    *,
    batch: int,
    show_progress: bool | None,
) -> Checked:
    """Return what ``source`` holds, after reading all of it.

    Raises:
        StoreError: no rows, bad rows (unless they are to be skipped), rows that share an id, or a count that changed.
        IncompatibleError: another dimension than the protector's.
        InvalidInputError: a field that is asked for and not there.
    """
    info = source.info()
    if not info.count:
        raise StoreError.of(_OWNER, "source", "a store with rows", "an empty one")
    survey = Survey(protector.dimension, partial(_releasable, protector))
    kept = Reservoir(_LOOKED_AT, 0)
    if info.dimension and info.dimension != protector.dimension:
        raise IncompatibleError.of(_OWNER, "protector", f"for vectors of dimension {info.dimension}",
                                   f"one for {protector.dimension}", "It belongs to another encoder.",
                                   "Fit a protector on vectors of this store's encoder.")  # fmt: skip
    total = -(-info.count // batch)
    for rows in progress(
        source.batches(batch), "check", total=total, show=show_progress, unit="batch"
    ):
        kept.add(rows, survey.add(rows))
    _check_rows(info, survey, options)
    carried, withheld = _chosen(survey.fields, options)
    signs = signs_of_protection(kept.sample(protector.dimension).vectors)
    return Checked(info, survey.rows, survey.bad, survey.fields, carried, withheld, signs)


def usable(rows: Batch, protector: Protector) -> tuple[npt.NDArray[np.bool_], BadRows]:
    """Return which of ``rows`` can be copied, and how many cannot."""
    good, bad = judged(rows, protector.dimension)
    finite = np.flatnonzero(good)
    if len(finite):
        good[finite] = _releasable(protector, np.ascontiguousarray(rows.vectors[finite]))
    return good, bad + BadRows(refused=len(finite) - int(good.sum()))


def _releasable(protector: Protector, X: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Return for each row of ``X`` (N, n), finite, whether it can be released and is changed by that: (N,)."""
    taken = taken_rows(protector, X)
    if not protector.mechanism.is_random and taken.any():
        # Another order of equal values is the same row.
        taken[taken] = ~as_clean(protector.protect(np.ascontiguousarray(X[taken])), X[taken])
    return taken


def _check_rows(info: StoreInfo, survey: Survey, options: MigrationOptions) -> None:
    if survey.rows != info.count:
        raise StoreError.of(_OWNER, "source", "left alone while it is copied",
                            f"{survey.rows:,} rows where it counts {info.count:,}",
                            "Somebody seems to write to it.", "Stop that, and start again.")  # fmt: skip
    if survey.bad.total == survey.rows or (survey.bad.total and not options.skip_bad):
        all_bad = survey.bad.total == survey.rows
        raise StoreError(
            message(_OWNER, "source", "a store of finite vectors of one dimension that the protector takes",
                    f"{survey.bad.total:,} bad rows of {survey.rows:,} ({survey.bad})",
                    "They cannot be protected." + (_LONGER if survey.bad.refused else ""),
                    "There is nothing to copy." if all_bad else "Correct them, or leave them out with --skip-bad.")
        )  # fmt: skip
    if shared := survey.equal_ids.count():
        raise StoreError.of(_OWNER, "source", "a store in which every row has an id of its own",
                            f"{shared:,} rows that share theirs",
                            "Rows are written by id: one of each would be left.", "Give them other ids.")  # fmt: skip


def _chosen(
    fields: Sequence[Field], options: MigrationOptions
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return which fields are carried, and why the others are not."""
    for param, names in (("keep", options.keep), ("drop", options.drop)):
        for name in names:
            if not any(matches(one.name, name) for one in fields):
                known = ", ".join(repr(one.name) for one in fields) or "none"
                raise InvalidInputError.of(
                    _OWNER, param, f"a field of the source ({known})", repr(name)[:80]
                )
    carried, withheld = [], {}
    for one in fields:
        wanted = any(matches(one.name, name) for name in options.keep)
        if any(matches(one.name, name) for name in options.drop):
            withheld[one.name] = "dropped"
        elif one.name == OTHERS:
            withheld[one.name] = "too many fields to look at"
        elif one.withheld is None or wanted or (one.withheld == "text" and options.keep_text):
            carried.append(one.name)
        else:
            withheld[one.name] = one.withheld
    return tuple(carried), withheld


def key_of(policy: ReleasePolicy) -> tuple[str | None, str | None]:
    """Return the id of the key and what tells it from another of that id; None for fresh noise."""
    if policy.key is None:
        return None, None
    key = policy.key.key() if isinstance(policy.key, NoiseKeys) else policy.key
    return key.key_id, key.check_value


def check_same(
    state: MigrationState,
    *,
    names: tuple[str, str],
    protector: Protector,
    key: tuple[str | None, str | None],
    options: MigrationOptions | None,
) -> None:
    """Refuse to go on with another source, destination, protector, key or other options than `state` was made with."""
    source, dest = names
    pairs: list[tuple[str, object, object]] = [
        ("source", state.source, source),
        ("dest", state.dest, dest),
        ("protector", state.protector[:12], protector.fingerprint[:12]),
        ("key", state.key_id, key[0]),
    ]
    if state.key_check is not None:  # states of older versions do not know it
        pairs.append(("key", f"check value {state.key_check}", f"check value {key[1]}"))
    if options is not None:
        pairs.append(("options", _as_json(state.options), _as_json(asdict(options))))
    for param, former, now in pairs:
        if former != now:
            raise StoreError(
                message(_OWNER, param, f"that of the migration that is under way ({former})", now,
                        "The destination would hold rows of two migrations.",
                        "Repeat the former command, or give another destination and another --state.")
            )  # fmt: skip


def _as_json(options: dict[str, object]) -> dict[str, object]:
    return {k: list(v) if isinstance(v, tuple | list) else v for k, v in sorted(options.items())}
