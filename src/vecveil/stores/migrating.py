"""Copy a store to a protected one in batches, resume an interrupted copy, and verify the result."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from vecveil.errors import DataFileError, IncompatibleError, InvalidInputError, LedgerCapError, ReleaseError, StoreError
from vecveil.index import KeyStore, Sealer
from vecveil.index.blob import SEALED_FIELD, canonical_ids, decoded
from vecveil.index.keystore import token_fields
from vecveil.index.sealer import filter_tokens
from vecveil.io import LockedError, exclusive, expanded, write_bytes
from vecveil.keys import KeyFile
from vecveil.privacy.protector import Protector
from vecveil.privacy.protector.policy import ReleasePolicy
from vecveil.runtime import progress
from vecveil.schema import Count, Record
from vecveil.stores.scanning import (
    OTHERS,
    BadRows,
    Field,
    FieldTally,
    Survey,
    carried,
    is_text_name,
    matches,
    refused_rows,
    survey_beside,
    usable_rows,
)
from vecveil.stores.store import PROTECTOR_FIELD, Batch, StoreInfo, VectorStore, plain, protector_mark, with_blob
from vecveil.types import Embeddings
from vecveil.validation import check_count

_OWNER = "migrate"
_RESTART = "Remove the state file and the destination, and start again."
_LARGEST = 1 << 24  # bytes of a state file; one with 500 field names has far fewer
_DIRECTION = 1e-5  # tolerance per coordinate of unit vectors, for a store that normalises in float32
_RELEASED_AGAIN = 0.99  # least cosine of two keyed releases of a row
_SAME = 1e-6  # a few units of float32 rounding; the smallest useful noise is far larger


@dataclass(frozen=True)
class MigrationOptions:
    """Selection of the fields and rows to copy.

    Attributes:
        keep_text: copy text fields.
        keep: fields to copy regardless of their content.
        drop: fields to leave out.
        seal: write a sealed blob of the exact vector and all fields but dropped ones with each protected vector, and
            copy the fields of ``keep`` only.
        filter_fields: single-valued fields that get a token, with ``seal`` only; see `ProtectedCollection`.
        skip_bad: skip rows without a finite vector of the right dimension and rows that the protector refuses or does
            not change; otherwise they stop the migration.
    """

    keep_text: bool = False
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    skip_bad: bool = False
    seal: bool = False
    filter_fields: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class SourceCheck:
    """Result of reading the source before anything is written."""

    info: StoreInfo
    rows: int
    bad: BadRows
    fields: tuple[Field, ...]
    carried: tuple[str, ...]
    """Names of the fields to copy."""
    withheld: dict[str, str]
    """Reasons by the other names."""
    dest_metric: str | None = None
    """Metric of a destination that exists."""
    unit: bool = False
    """All vectors have norm 1."""

    @property
    def ranks_as_cosine(self) -> bool:
        """True if the source ranks by cosine, as three metrics do for vectors of norm 1."""
        return self.info.metric in ("cosine", *(("dot", "euclidean") if self.unit else ()))

    @property
    def personal(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.fields if one.personal and one.name in self.carried)

    @property
    def texts_kept(self) -> tuple[str, ...]:
        """Copied fields with text, numbers or binary values, on the user's request."""
        return tuple(one.name for one in self.fields if one.withheld and one.name in self.carried)


class MigrationState(
    Record, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="schema", tag="vecveil.migration/1"
):
    """Progress of a migration, saved next to the destination. It contains no text, vector or key.

    Attributes:
        source, dest: public names of the stores.
        protector: fingerprint of the protector.
        key_id, key_check: id and check value of the noise key; None for fresh noise.
        sealed: UUID of the sealed collection in the key store, or None.
        options: `MigrationOptions` as JSON.
        total: number of rows of the source when it was checked.
        dimension: dimension of the released vectors.
        carried, withheld: names of the copied fields; the others with the reason.
        rows: number of rows written and confirmed.
        skipped: number of bad rows left out.
        ahead: maximum number of rows that an interrupted run wrote beyond ``rows``.
        cursor: the source's cursor behind the last confirmed row.
        checksum: hexadecimal checksum of the confirmed rows as the destination returns them.
        copied: all rows are copied.
        verified: time of the last successful verification, or None.
    """

    source: str
    dest: str
    protector: str
    key_id: str | None
    key_check: str | None
    sealed: str | None
    options: Mapping[str, Any]
    total: Count
    dimension: Count
    carried: tuple[str, ...]
    withheld: Mapping[str, str]
    rows: Count = 0
    skipped: Count = 0
    ahead: Count = 0
    cursor: str = ""
    checksum: str = "0" * 64
    copied: bool = False
    verified: str | None = None


def read_state(path: Path) -> MigrationState | None:
    """Return the state in the file ``path``, or None if there is no file; raise `DataFileError` for a damaged one."""
    path = expanded(path)
    if not path.exists():
        return None
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError
        state = MigrationState.load(path)
        int(state.checksum, 16)
        read = state.rows + state.skipped
        if read > state.total or (state.copied and read < state.total):
            raise ValueError
        if state.skipped and not state.options.get("skip_bad"):
            raise ValueError
    except (OSError, ValueError):
        raise DataFileError(
            f"{path.name!r} is not a migration state file. Name another one with --state, or remove it and the "
            "destination, and start again.",
            param="state",
        ) from None
    return state


def write_state(path: Path, state: MigrationState) -> None:
    # Readable by its owner only: the cursor may be an id, and ids may be personal.
    content = json.dumps(state.to_record(), indent=1).encode()
    if len(content) > _LARGEST:
        raise StoreError(
            f"{path.name} would exceed {_LARGEST >> 20} MiB and be too large to read: names of fields, or an id, "
            "are too long.",
            code="E-STORE-STATE",
            param="state",
        )
    write_bytes(path, content)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the state file; raise `StoreError` if another process holds it."""
    # The operating system releases the lock of a killed process. The lock has a separate file, because each write
    # replaces the state file, and with it a lock on that file.
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(exclusive(path.with_name(f"{path.name}.lock")))
        except LockedError:
            raise StoreError(
                f"Another process writes to `dest`: it holds {path.name + '.lock'!r}. Wait for it, or stop it: the "
                "same command then continues.",
                param="dest",
            ) from None
        yield


@dataclass(frozen=True)
class Verification:
    """Comparison of a destination with what was written to it.

    Attributes:
        rows, expected: number of rows in the destination, and of rows written.
        checksum: ids and values equal the written ones.
        bad: number of rows without a finite vector of the right dimension.
        clean: number of rows that equal the source's vector; None if the source could not be read.
        unopened: number of rows whose sealed blob does not open; None without a sealer.
        missing: number of source rows that were neither copied nor skipped; None without it.
        altered: number of rows whose sealed original or keyed release differs from the source's vector; None if
            neither was compared.
        recorded: number of rows whose protected vectors only the checksum in the state file confirms. Anyone who can
            write that file and the destination can replace them.
        directions: the store normalises, so written vectors were compared by direction.
    """

    rows: int
    expected: int
    checksum: bool
    bad: int
    clean: int | None
    directions: bool
    unopened: int | None = None
    missing: int | None = None
    altered: int | None = None
    recorded: int = 0

    @property
    def ok(self) -> bool:
        return not self.failures

    @property
    def failures(self) -> tuple[str, ...]:
        sentences = (
            (self.rows != self.expected, f"The destination has {self.rows:,} rows; {self.expected:,} were written."),
            (not self.checksum, "Ids or vectors in the destination are not those that were written."),
            (self.bad, f"{self.bad:,} rows of the destination have no finite vector of the right dimension."),
            (self.clean, f"{self.clean or 0:,} rows of the destination hold their clean vector."),
            (self.unopened, f"{self.unopened or 0:,} rows of the destination have no sealed blob that opens."),
            (self.altered, f"{self.altered or 0:,} rows of the destination are not those of the source."),
            (self.missing, f"{self.missing or 0:,} rows of the source were not copied: it has changed."),
        )
        return tuple(sentence for wrong, sentence in sentences if wrong)

    def to_record(self) -> dict[str, Any]:
        return {**vars(self), "ok": self.ok, "failures": list(self.failures)}


@dataclass(frozen=True)
class Migration:
    """Result of a migration: the content of the state file, and the verification of all rows."""

    state: MigrationState
    resumed: int
    """Rows written by earlier runs."""
    verification: Verification

    def to_record(self) -> dict[str, Any]:
        names = ("rows", "skipped", "total", "dimension", "carried", "withheld", "protector", "key_id", "checksum")
        record = {name: getattr(self.state, name) for name in names}
        return {**record, "resumed": self.resumed, "verification": self.verification.to_record()}


class RunOptions(TypedDict, total=False):
    """Options that `migrate` and `verify_migration` share.

    Attributes:
        batch: rows to read and write at once; 1000 by default.
        sealer: for `MigrationOptions.seal`; the collection in its key store has the destination's public name.
        show_progress: None shows bars on a terminal.
    """

    batch: int
    sealer: Sealer | None
    show_progress: bool | None


def migrate(
    source: VectorStore,
    dest: VectorStore,
    policy: ReleasePolicy,
    state_file: Path,
    *,
    names: tuple[str, str],
    options: MigrationOptions | None = None,
    on_checked: Callable[[SourceCheck], None] | None = None,
    **running: Unpack[RunOptions],
) -> Migration:
    """Copy ``source`` to ``dest`` with every vector protected as a document of ``policy``, and verify the copy.

    ``state_file`` records each batch that the destination confirmed, and a repeated call continues there. Rows that
    were written but not recorded are written again by id: fresh noise releases such a row twice, keyed noise repeats
    its release.

    Args:
        names: public names of both stores, kept in the state file.
        on_checked: called with the check of the source before anything is written, but not on resuming.

    Raises:
        StoreError: a store does not answer, has changed, or differs from the state file; another process writes to it;
            or the source has rows that cannot be copied.
        IncompatibleError, LedgerCapError: the protector does not fit the source, or the ledger allows no release.
    """
    options, sealer = options or MigrationOptions(), running.get("sealer")
    if options.seal != (sealer is not None):
        raise InvalidInputError("Pass `sealer` and MigrationOptions(seal=True) together.", param="sealer")
    if options.filter_fields and not options.seal:
        raise InvalidInputError("`filter_fields` needs sealed rows: set seal.", param="filter_fields")
    filters = token_fields(options.filter_fields, owner=_OWNER)
    protector = policy.protector
    if protector.text_only:
        raise InvalidInputError(
            f"The method {protector.method!r} of `protector` rewrites texts, and a store has vectors. Rewrite and "
            "encode the texts, and fill a new store with them.",
            param="protector",
        )
    if names[0] == names[1]:
        raise StoreError("`dest` is the source itself. Name another destination.", param="dest")
    with _run(source, dest, state_file, **running) as run:
        dest = run.dest
        state = read_state(state_file)
        if state is None:
            check = check_source(source, protector, options, run.batch, run.show_progress)
            if policy.rewrites_texts and _text_field(check.withheld) is None:
                raise InvalidInputError(
                    "The protector rewrites texts, and `source` does not have a single text field. Add the texts to a "
                    "vecveil.ProtectedCollection.",
                    code="E-INPUT-REWRITTEN",
                    param="source",
                )
            # A row already in the destination could be clean, or be overwritten by id.
            if dest.exists() and (rows := dest.info().count):
                raise StoreError(
                    f"`dest` has {rows:,} rows, and no state file says that this migration wrote them. "
                    "Use another destination, or name the state file with --state.",
                    param="dest",
                )
            if on_checked is not None:
                on_checked(dataclasses.replace(check, dest_metric=dest.info().metric if dest.exists() else None))
            dest.create(protector.released_dimension, metric=check.info.metric, filter_fields=filters)
            state = MigrationState(
                source=names[0],
                dest=names[1],
                protector=protector.fingerprint,
                key_id=_key_of(policy)[0],
                key_check=_key_of(policy)[1],
                sealed=_seal_of(sealer, names[1]),
                options=json.loads(json.dumps(asdict(options))),
                total=check.rows,
                dimension=protector.released_dimension,
                carried=check.carried,
                withheld=check.withheld,
            )
        else:
            _check_same(state, names, policy, options, _seal_of(sealer, names[1]))
            if not state.copied:
                _check_destination(state, dest)
                _check_unchanged(state, source)
                if not dest.exists():
                    dest.create(state.dimension, metric=source.info().metric, filter_fields=filters)
        # Saved before the first row: without a state file they could not be told from foreign rows.
        resumed = state.rows
        run.save(state)
        if not state.copied:
            if sealer is not None and isinstance(sealer.keys, KeyStore):
                sealer.keys.note_protector(names[1], protector.fingerprint, protector.encoder_info.fingerprint)
                sealer.keys.note_filter_fields(names[1], options.filter_fields)
            run.copy(policy, source)
        return run.verified(resumed, policy)


def verify_migration(
    dest: VectorStore,
    source: VectorStore | None,
    state_file: Path,
    *,
    names: tuple[str, str],
    **running: Unpack[RunOptions],
) -> Migration:
    """Verify that ``dest`` still contains the rows of the finished migration in ``state_file``.

    With ``sealer`` the blob of every row must open.
    """
    with _run(source, dest, state_file, **running) as run:
        state = read_state(state_file)
        if state is None or (state.source, state.dest) != names or not state.copied:
            raise StoreError(
                "There is no state file of a finished migration of these "
                f"stores{'' if state is None else ', but one of others'}. Name it with --state, or "
                "finish the migration with the same command.",
                param="state",
            )
        if state.sealed is not None and run.sealer is None:
            raise StoreError(
                "The copy is sealed, and its blobs cannot be verified without their key. Give the key "
                "file with --seal-key.",
                code="E-STORE-STATE",
                param="sealer",
            )
        run.save(state)
        return run.verified(state.rows)


@contextlib.contextmanager
def _run(
    source: VectorStore | None, dest: VectorStore, state_file: Path, **running: Unpack[RunOptions]
) -> Iterator[_Run]:
    """Lock the state file and open the destination, in a subprocess if its database requires that."""
    with locked(state_file), contextlib.ExitStack() as stack:
        apart = dest.apart()
        if apart is not dest:
            stack.enter_context(apart)
        yield _Run(source, apart, state_file, **running)


@dataclass
class _Run:
    """One run of a migration; ``state`` equals the state file."""

    source: VectorStore | None
    dest: VectorStore
    state_file: Path
    batch: int = 1000
    sealer: Sealer | None = None
    show_progress: bool | None = None
    state: MigrationState = field(init=False)

    def __post_init__(self) -> None:
        check_count(self.batch, owner=_OWNER, param="batch")

    def progress(self, batches: Iterator[Batch], description: str, rows: int) -> Iterator[Batch]:
        total = -(-rows // self.batch)
        return progress(batches, description, total=total, show=self.show_progress, unit="batch")

    def save(self, state: MigrationState) -> None:
        self.state = state
        write_state(self.state_file, state)

    def verified(self, resumed: int, policy: ReleasePolicy | None = None) -> Migration:
        result = verify(
            self.dest,
            self.state,
            self.source,
            recorded=resumed,
            policy=policy,
            batch=self.batch,
            sealer=self.sealer,
            show_progress=self.show_progress,
        )
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) if result.ok else None
        self.save(replace(self.state, verified=when))
        return Migration(self.state, resumed, result)

    def copy(self, policy: ReleasePolicy, source: VectorStore) -> None:
        # Recorded before the first write: the bound on unrecorded rows after a crash, which a later run accepts.
        self.save(replace(self.state, ahead=max(self.state.ahead, self.batch)))
        total = self.state.total
        batches = source.batches(self.batch, after=self.state.cursor)
        left = total - self.state.rows - self.state.skipped
        try:
            for rows in self.progress(batches, "Copying", left):
                self.save(self._written(rows, policy))
            # Again at the end: a row inserted before the cursor was never read.
            _check_unchanged(self.state, source)
        except StoreError as error:
            so_far = f"{self.state.rows:,} of {total:,} rows are copied. The same command continues from there."
            raise StoreError(f"{error} {so_far}", code=error.code, param=error.param) from None
        except LedgerCapError as error:
            raise LedgerCapError(
                f"{error} {self.state.rows:,} of {total:,} rows are copied. A batch that was interrupted counts "
                "again unless its noise is keyed: raise the cap, or start again with a key.",
                items=error.items,
            ) from None
        if (read := self.state.rows + self.state.skipped) != total:
            raise StoreError(f"`source` had {total:,} rows, and {read:,} were read. {_RESTART}", param="source")
        self.save(replace(self.state, copied=True, ahead=0))

    def _written(self, rows: Batch, policy: ReleasePolicy) -> MigrationState:
        state = self.state
        good, bad = usable_rows(rows, policy.protector.dimension)
        if good.any():
            accepted = good.copy()
            accepted[good] = _releasable(policy.protector, np.ascontiguousarray(rows.vectors[good]))
            bad += refused_rows(rows, good, accepted)
            good = accepted
        # Without skip_bad the check found no bad rows: these are new.
        if bad.total and not state.options.get("skip_bad"):
            raise StoreError(
                f"`source` has new bad rows ({bad}): {bad.named}. Another program may write to it. Correct them. "
                f"{_RESTART}",
                param="source",
            )
        chosen = np.flatnonzero(good)
        checksum = int(state.checksum, 16)
        if len(chosen):
            ids = tuple(self.dest.spelled([rows.ids[i] for i in chosen]))
            clean = np.ascontiguousarray(rows.vectors[chosen])
            released = np.asarray(self._released(policy, clean, ids, [rows.fields[i] for i in chosen]), np.float32)
            # Last line of defence against a faulty protector: no clean row is written.
            if is_clean(released, clean).any():
                raise ReleaseError(
                    "The protector left some vectors unchanged. Nothing of this batch is written.", param="protector"
                )
            names = frozenset(state.carried)
            fields = tuple(carried(rows.fields[i], names) for i in chosen)
            self._check_fields(fields)
            if self.sealer is None:
                mark = {PROTECTOR_FIELD: protector_mark(policy.protector)}
                fields = tuple(with_blob(row, None, mark) for row in fields)
            else:
                fields = self._sealed(self.sealer, ids, clean, [rows.fields[i] for i in chosen], fields)
            self.dest.write(Batch(ids, released, fields))
            # The checksum covers the values that the store returns, so that `verify` needs no released copy.
            checksum = add_rows(checksum, ids, self._stored(ids, released))
        return replace(
            state,
            rows=state.rows + len(chosen),
            skipped=state.skipped + bad.total,
            # Rows beyond the record are overwritten as the copy passes them.
            ahead=max(state.ahead - len(chosen), self.batch),
            cursor=rows.cursor,
            checksum=as_hex(checksum),
        )

    def _check_fields(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Raise if a copied field contains values for which the check would have left it out."""
        # Another program may have written it since, or edited the state file.
        options, tally = self.state.options, FieldTally()
        tally.add(rows)
        for one in tally.fields():
            kind = dataclasses.replace(one, words=0.0).withheld  # the mean length in one batch says little
            kept = any(matches(one.name, name) for name in options.get("keep", ()))
            as_text = options.get("keep_text") and kind in ("text", None)
            if not (kept or as_text or (kind is None and not options.get("seal"))):
                raise StoreError(
                    f"Field {one.name[:80]!r} of `source` holds {kind or 'values'} that the check at the start left "
                    f"out. {_RESTART}",
                    param="source",
                )

    def _released(
        self,
        policy: ReleasePolicy,
        clean: npt.NDArray[np.float32],
        ids: tuple[str, ...],
        rows: Sequence[Mapping[str, Any]],
    ) -> Embeddings:
        """Return the protected vectors of rows, or of their rewritten texts if the protector has a text stage."""
        if not policy.rewrites_texts:
            return policy.documents(clean, ids=ids)
        field = _text_field(self.state.withheld)
        texts = [] if field is None else [row[field] for row in rows if isinstance(row.get(field), str)]
        if len(texts) != len(rows):
            raise StoreError(
                f"The protector rewrites texts, and {len(rows) - len(texts)} rows of `source` have none.",
                param="source",
            )
        return policy.embed_documents(texts, ids=ids)

    def _sealed(
        self,
        sealer: Sealer,
        ids: tuple[str, ...],
        clean: npt.NDArray[np.float32],
        rows: Sequence[Mapping[str, Any]],
        fields: Sequence[Mapping[str, Any]],
    ) -> tuple[Mapping[str, Any], ...]:
        """Return ``fields`` with blobs and tokens; the field of texts, if there is one, is the text of the blob."""
        name = self.state.dest
        values, metadata = texts_and_metadata(rows, self.state.carried, self.state.withheld)
        blobs = sealer.seal(clean, ids=ids, collection=name, texts=values, metadata=metadata)
        filters = self.state.options.get("filter_fields", ())
        tokens = filter_tokens(sealer.keys.read(name), filters, blobs, metadata)
        return tuple(with_blob(*parts) for parts in zip(fields, blobs, tokens, strict=True))

    def _stored(self, ids: tuple[str, ...], released: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the vectors as the store keeps them, read back if it normalises."""
        if not self.dest.normalises:
            return released
        stored = self.dest.read(ids).vectors
        if wrong := int((~_near(released, stored, _DIRECTION)).sum()):
            raise StoreError(
                f"`dest` stores {wrong:,} of the vectors with a different direction, perhaps in fewer bits. "
                "Turn off quantisation of stored vectors.",
                param="dest",
            )
        return stored


def check_source(
    source: VectorStore, protector: Protector | None, options: MigrationOptions, batch: int, show: bool | None = None
) -> SourceCheck:
    """Read all rows of the source; raise if it cannot be copied. Without ``protector`` the copy has exact vectors."""
    info = source.info()
    if not info.count:
        raise StoreError("`source` has no rows.", param="source")
    if protector is not None and info.dimension and info.dimension != protector.dimension:
        raise IncompatibleError(
            f"`protector` was fitted for {protector.dimension} dimensions; the vectors of the "
            f"store have {info.dimension}. Fit a protector on vectors of this store's encoder.",
            param="protector",
        )
    if protector is None:
        survey = Survey(info.dimension)
    else:
        survey = Survey(protector.dimension, partial(_releasable, protector))
    distinct: set[int] = set()
    total = -(-info.count // batch)
    for rows in progress(source.every_row(batch, repeated=True), "Checking", total=total, show=show, unit="batch"):
        survey.add(rows)
        distinct.update(map(hash, canonical_ids(list(rows.ids), len(rows), owner=_OWNER)))
    if shared := survey.rows - len(distinct):
        raise StoreError(
            f"{shared:,} rows of `source` share the id of another row, and rows are written by id: one "
            "of each would remain. A UUID is one id in any spelling. Give each row its own id.",
            param="source",
        )
    if survey.rows != info.count:
        raise StoreError(
            f"`source` counts {info.count:,} rows, and {survey.rows:,} were read. Stop programs that write to it, and "
            "start again.",
            param="source",
        )
    if any(one.name in (SEALED_FIELD, PROTECTOR_FIELD) for one in survey.fields):
        raise StoreError(
            "vecveil protected the rows of `source` already. A second noise costs utility and adds little protection.",
            code="E-STORE-SEALED",
            param="source",
        )
    bad = survey.bad
    if bad.total == survey.rows or (bad.total and not options.skip_bad):
        why = "They cannot be searched." if protector is None else "They cannot be protected."
        if bad.refused:
            why += " Vectors longer than the fit's may be a different encoder's, or protected already."
        skip = "Correct them, or omit them with --skip-bad."
        raise StoreError(
            f"{bad.total:,} of {survey.rows:,} rows of `source` are bad ({bad}): {bad.named}. {why} "
            f"{'There is nothing to copy.' if bad.total == survey.rows else skip}",
            param="source",
        )
    copied, withheld = _choose_fields(survey.fields, options)
    withheld |= {one.name: f"{one.withheld or one.personal} in another table" for one in survey_beside(source)}
    unit = survey.norms.unit_share == 1
    return SourceCheck(info, survey.rows, bad, survey.fields, copied, withheld, unit=unit)


def _releasable(protector: Protector, X: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows of ``X`` (N, n), finite, that the protector accepts and changes."""
    # Random mechanisms change every row; a deterministic one (shuffle, a map) may leave some.
    mask = protector.accepts(X)
    if not protector.mechanism.is_random and mask.any():
        # Shuffling equal values gives the same row.
        mask[mask] = ~is_clean(protector.protect(np.ascontiguousarray(X[mask])), X[mask])
    return mask


def _choose_fields(fields: Sequence[Field], options: MigrationOptions) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the names of the fields to copy, and the others with the reason."""
    for param, names in (("keep", options.keep), ("drop", options.drop), ("filter_fields", options.filter_fields)):
        for name in names:
            matching = [one for one in fields if matches(one.name, name)]
            if not matching:
                known = ", ".join(repr(one.name) for one in fields) or "none"
                raise InvalidInputError(
                    f"`{param}`: the source has no field {name[:80]!r}. Its fields: {known}.", param=param
                )
            several = any(one.name != name or {"vector", "numbers", "binary"} & one.kinds.keys() for one in matching)
            if param == "filter_fields" and several:
                raise InvalidInputError(
                    f"`{param}`: {name[:80]!r} contains lists or objects. A filter compares single values.",
                    code="E-SEAL-FILTER",
                    param=param,
                )
            if param == "filter_fields" and any(matches(name, pattern) for pattern in options.drop):
                raise InvalidInputError(f"`{param}`: {name[:80]!r} is dropped. Name it once.", param=param)
    copied, withheld = [], {}
    for one in fields:
        keep = any(matches(one.name, name) for name in options.keep)
        # drop wins over keep: leaving a field out is the reversible choice.
        if any(matches(one.name, name) for name in options.drop):
            withheld[one.name] = "dropped"
        elif one.name == OTHERS:
            withheld[one.name] = "too many fields to classify"
        elif one.name in options.filter_fields and not keep:
            # A long name counts as text, and would become the text of the blob: a filter reads its metadata.
            withheld[one.name] = "sealed, with a token to filter by"
        elif keep or (one.withheld == "text" and options.keep_text) or (one.withheld is None and not options.seal):
            copied.append(one.name)
        else:
            withheld[one.name] = one.withheld or "sealed"
    return tuple(copied), withheld


def _text_field(withheld: Mapping[str, str]) -> str | None:
    """Return the only field of texts, or the only one with a name that databases use for texts."""
    texts = [name for name, why in withheld.items() if why == "text"]
    named = [name for name in texts if is_text_name(name)]
    return next((some[0] for some in (texts, named) if len(some) == 1), None)


def texts_and_metadata(
    rows: Sequence[Mapping[str, Any]], carried_names: Sequence[str], withheld: Mapping[str, str]
) -> tuple[list[str | None], list[dict[str, Any]]]:
    """Return the text of each row, from the field of texts if there is one, and all other fields but dropped ones."""
    text = _text_field(withheld)
    kept = frozenset([*carried_names, *(name for name, why in withheld.items() if why != "dropped")])
    texts = [None if text is None or row.get(text) is None else str(row[text]) for row in rows]
    beside = (
        carried(row, kept - {text if value is not None else None}) for row, value in zip(rows, texts, strict=True)
    )
    return texts, [_unwrapped(plain(row, binary=True)) for row in beside]


def _unwrapped(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the nested metadata of a LangChain document in Qdrant."""
    inner = metadata.get("metadata")
    return inner if isinstance(inner, dict) and len(metadata) == 1 else metadata


def _key_of(policy: ReleasePolicy) -> tuple[str | None, str | None]:
    if policy.key is None:
        return None, None
    key = policy.key.key() if isinstance(policy.key, KeyFile) else policy.key
    return key.key_id, key.check_value


def _seal_of(sealer: Sealer | None, collection: str) -> str | None:
    """Return the UUID of the sealed collection, created if it is new; None without a sealer."""
    return None if sealer is None else str(sealer.keys.create(collection, exist_ok=True).uuid)


def _check_same(
    state: MigrationState, names: tuple[str, str], policy: ReleasePolicy, options: MigrationOptions, sealed: str | None
) -> None:
    # Two protectors or keys in one destination: vectors that cannot be compared, and independent releases of a row.
    given = json.loads(json.dumps(asdict(options)))
    pairs: list[tuple[str, object, object]] = [
        ("source", state.source, names[0]),
        ("dest", state.dest, names[1]),
        ("protector", state.protector[:12], policy.protector.fingerprint[:12]),
        ("key", [state.key_id, state.key_check], list(_key_of(policy))),
        *((name, state.options.get(name), given.get(name)) for name in sorted({*state.options, *given})),
        ("sealer", state.sealed, sealed),
    ]
    for param, former, now in pairs:
        if former != now:
            former, now = (
                ", ".join(filter(None, each)) or "none" if isinstance(each, list) else each for each in (former, now)
            )
            kind = "finished" if state.copied else "unfinished"
            raise StoreError(
                f"`{param}` is {now}; the {kind} migration of the state file had {former}. The "
                "destination would hold rows of two migrations. Repeat the former command, or use "
                "another destination and --state.",
                code="E-STORE-STATE",
                param=param,
            )


def _check_destination(state: MigrationState, dest: VectorStore) -> None:
    """Raise if the destination lost rows, or has more than this migration may have written."""
    rows = dest.info().count if dest.exists() else 0
    if not state.rows <= rows <= state.rows + state.ahead:
        raise StoreError(
            f"`dest` has {rows:,} rows; the last run left {state.rows:,} to "
            f"{state.rows + state.ahead:,}. Another program wrote to it. {_RESTART}",
            param="dest",
        )


def _check_unchanged(state: MigrationState, source: VectorStore) -> None:
    rows = source.info().count
    if rows != state.total:
        raise StoreError(
            f"`source` has {rows:,} rows; when the migration began it had {state.total:,}. "
            f"{state.rows:,} are copied; which ones are missing is unknown. {_RESTART}",
            param="source",
        )


def verify(
    dest: VectorStore,
    state: MigrationState,
    source: VectorStore | None,
    *,
    recorded: int,
    policy: ReleasePolicy | None = None,
    batch: int = 1000,
    sealer: Sealer | None = None,
    show_progress: bool | None = None,
) -> Verification:
    """Compare all rows of ``dest`` with the checksum in ``state``, and by id with the clean ``source`` if given.

    ``recorded`` counts rows of earlier runs, whose checksum comes from a file. A ``policy`` with a noise key releases
    them again for comparison.
    """
    rows = checksum = bad = 0
    clean: int | None = None if source is None else 0
    unopened: int | None = None if sealer is None else 0
    total = -(-state.rows // batch)
    copied: set[int] = set()
    repeats = policy is not None and policy.key is not None and not policy.rewrites_texts
    releases = policy if recorded and repeats else None
    altered: int | None = None if source is None or (releases is None and sealer is None) else 0
    for part in progress(dest.every_row(batch), "Verifying", total=total, show=show_progress, unit="batch"):
        rows += len(part)
        copied.update(map(hash, _keys(part.ids)))
        if part.vectors.shape[1] != state.dimension:
            bad += len(part)
            continue
        bad += int((~np.isfinite(part.vectors).all(axis=1)).sum())
        checksum = add_rows(checksum, part.ids, part.vectors)
        if sealer is not None and unopened is not None:
            blobs = [decoded(row.get(SEALED_FIELD)) for row in part.fields]
            opened = sealer.unseal(blobs, ids=part.ids, collection=state.dest, on_invalid="skip")
            unopened += len(opened.skipped)
            exact = dict(zip(opened.ids, opened.vectors, strict=True))
        if source is not None and clean is not None:
            try:
                originals = source.read(part.ids)
            except StoreError:
                clean = altered = None  # the source lacks a row
                continue
            clean += int(is_clean(part.vectors, originals.vectors).sum())
            if altered is not None:
                same_row = np.ones(len(part), np.bool_)
                if sealer is not None:
                    at = [i for i, name in enumerate(part.ids) if name in exact]
                    same_row[at] = _rounded([exact[part.ids[i]] for i in at], originals.vectors[at])
                if releases is not None:
                    repeated = np.asarray(releases.documents(originals.vectors, ids=part.ids), np.float32)
                    # Not bit for bit: a rounded value, or a sign, may differ with the size of the batch.
                    same_row &= (_units(part.vectors) * _units(repeated)).sum(axis=1) > _RELEASED_AGAIN
                altered += int((~same_row).sum())
    same, missing = as_hex(checksum) == state.checksum, None
    # List the source's ids again: the copy may not have read every row. The checksum reveals lost rows.
    if source is not None and same:
        absent = sum(hash(key) not in copied for names in source.ids() for key in _keys(dest.spelled(names)))
        missing = max(absent - state.skipped, 0)
    return Verification(
        rows,
        state.rows,
        same,
        bad,
        clean,
        dest.normalises,
        unopened,
        missing,
        altered,
        recorded=0 if releases is not None and altered is not None else recorded,
    )


def _keys(ids: Sequence[str]) -> list[bytes]:
    return canonical_ids(list(ids), len(ids), owner="verify")


def is_clean(released: npt.NDArray[np.float32], clean: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Return a mask (N,) of the rows with equal directions."""
    # Lengths do not count: encoders' vectors have norm 1, so a scaled clean vector is a clean vector.
    return _near(released, clean, _SAME)


def _rounded(sealed: Sequence[npt.NDArray[np.float32]], clean: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Return a mask (N,) of the rows within a sealed vector's rounding error: 1/254 of its largest value."""
    if not len(clean):
        return np.ones(0, np.bool_)
    return np.asarray(np.abs(np.stack(sealed) - clean).max(axis=1) <= np.abs(clean).max(axis=1) / 64, np.bool_)


def _near(A: npt.NDArray[np.float32], B: npt.NDArray[np.float32], tolerance: float) -> npt.NDArray[np.bool_]:
    if A.shape != B.shape:  # a reduced release has fewer dimensions than the clean vectors
        return np.zeros(len(A), dtype=bool)
    difference = np.abs(_units(A) - _units(B)).max(axis=1, initial=0.0)
    return np.asarray(difference <= tolerance, dtype=bool)


def _units(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    wide = vectors.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    return wide / np.where(norms > 0, norms, 1.0)


def add_rows(checksum: int, ids: Sequence[str], vectors: npt.NDArray[np.float32]) -> int:
    """Return ``checksum`` plus the SHA-256 of each row, modulo 2²⁵⁶.

    The hash covers the id, in one spelling of a UUID and with its length, and the values as little-endian float32 with
    −0 as 0. Only released vectors may enter: with sums of clean rows an attacker could test guesses of them.
    """
    # A sum, because stores return rows in a different order than they were written.
    values = np.ascontiguousarray(vectors + np.float32(0), dtype="<f4")
    for key, row in zip(_keys(ids), values, strict=True):
        digest = hashlib.sha256(key + row.tobytes())
        checksum += int.from_bytes(digest.digest(), "little")
    return checksum % (1 << 256)


def as_hex(checksum: int) -> str:
    return f"{checksum:064x}"
