"""Write and search protected vectors in any database, with or without their sealed originals."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from vecveil.errors import (
    IncompatibleError,
    InvalidInputError,
    KeyFileError,
    SealingError,
    StoreError,
    unknown_name,
    wrong_type,
)
from vecveil.index import KeyStore, Ranking, Sealer, Unsealed
from vecveil.index.blob import SEALED_FIELD, VERSION, canonical_ids, decoded, key_id_of, uuid_spellings
from vecveil.index.keystore import FILTER_PREFIX, CollectionKeys, token_fields, typed_value
from vecveil.index.sealer import OnInvalid, filter_tokens
from vecveil.index.searchable import check_fields
from vecveil.privacy.accounting import Guarantee
from vecveil.privacy.protector import Protector
from vecveil.privacy.protector.policy import (
    ReleasePolicy,
    WrappedEmbedder,
    fitted_candidates,
    open_policy,
    warn_plaintext,
)
from vecveil.runtime import progress
from vecveil.stores.locations import open_store, public_name
from vecveil.stores.store import PROTECTOR_FIELD, Batch, Match, Missing, VectorStore, as_json, protector_mark, with_blob
from vecveil.texts.encoders import Encoder
from vecveil.texts.folding import without_surrogates
from vecveil.texts.tables.columns import filter_value
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_same_length, check_texts, check_unmasked

SEALED = (
    "Without the key, a sealed row reveals the id of its data key and its length: AES-256-GCM-SIV with random nonces. "
    "A row that was changed, or moved to another id or collection, does not open. The rest of this guarantee is about "
    "the protected vectors, by which the database finds candidates."
)
NOT_SEALED = (
    "Access patterns are not hidden: the database sees which rows a query fetches, how often, and which filter tokens "
    "are equal.",
    "The database can withhold rows, return deleted rows or older versions of a row (`generations` detects these two), "
    "and swap protected vectors to change the candidates. None of this opens a blob, but a row written "
    "again gets new noise, and several draws average out; keyed noise repeats the draw.",
    "Anyone with the key file can read everything.",
)
NOT_SEALED_AT_ALL = (
    "Ids, metadata, and texts of `keep_text` are stored in clear with the protected vectors.",
    "The database sees the protected queries, which rows they find, and how often. It can withhold and exchange rows.",
)
_OWNER = "ProtectedCollection"
_BATCH = 1000
_TEXT = "text"
"""Field of the readable text of a row without a sealed blob."""
_TEXT_WORDS = 5  # a metadata value with as many words counts as a text, for the warning
_INTERRUPTED = 3  # consecutive interrupted writes after which `add` still keeps the vector of an unchanged row


class CollectionOptions(TypedDict, total=False):
    """Arguments of `ProtectedCollection` that a saved Haystack pipeline contains."""

    name: str | None
    candidates: int | None
    query_noise: float
    filter_fields: Sequence[str]


class ProtectedCollection:
    """One collection of protected vectors in a database, with or without sealed originals.

    The database stores the protected vector of each text and a sealed blob of its exact vector, text and metadata.
    A search fetches ``candidates`` rows by the protected query, opens their blobs here and ranks them by the exact
    cosine. The database sees protected vectors, lengths of blobs, and which rows a query fetches.

    Without a sealer there are no blobs: the database ranks the protected vectors and stores metadata in plain text.

    Args:
        database: store, or its location as for `vecveil scan`; the first `add` creates a missing one.
        protector: protector or its path, or a `ReleasePolicy` with a noise key or ledger. None opens the collection
            for `get`, `delete` and `reseal`, which need the key alone.
        sealer: sealer, or the path of its key store; None keeps no exact vectors.
        name: name of the collection in the key store. By default the name that sealed the existing rows, or the
            database's location if there are none. Two collections must not share a name.
        candidates: rows to fetch for a search; by default those that the protector was fitted for
            (``utility="sealed-search"``), or 200. More find more of the exact neighbours and cost more to open.
        query_noise: noise of a query in units of a document's; see `ReleasePolicy`. 0 sends queries through the map
            without noise: better candidates, but the database can read a query as well as erasure alone permits.
            Refused for a protector without a map.
        encoder: embeds the texts; must be the encoder of the fit, which is the default. Queries go through its method
            ``encode_query`` if it has one.
        blobs: where to store the blobs instead of the database, such as a dict or another trust zone's store.
        filter_fields: metadata fields for the ``where`` of `search`. The database gets a token for each value: it sees
            which rows have equal values, not the values. The key store records these names.
        generations: number of writes by id, kept by the caller outside of the database. `add` and `delete` raise it,
            so that older blobs and deleted rows do not open. Use it from the first row on.
        keep_text: without a sealer, also store each text in plain text, in the field ``text``.
    """

    def __init__(
        self,
        database: VectorStore | str,
        protector: Protector | ReleasePolicy | str | os.PathLike[str] | None,
        sealer: Sealer | str | os.PathLike[str] | None = None,
        *,
        encoder: Encoder | None = None,
        blobs: MutableMapping[str, bytes] | None = None,
        generations: MutableMapping[str, int] | None = None,
        keep_text: bool = False,
        **options: Unpack[CollectionOptions],
    ) -> None:
        if sealer is None and (blobs is not None or generations is not None):
            raise InvalidInputError("`blobs` and `generations` require `sealer`.", param="sealer")
        if sealer is not None and keep_text:
            raise InvalidInputError("With `sealer` the text is sealed. Leave out `keep_text`.", param="keep_text")
        if sealer is not None and not isinstance(database, str) and options.get("name") is None:
            raise InvalidInputError("Pass `name`: an open store does not name its collection.", param="name")
        self._place = public_name(database) if isinstance(database, str) else ""
        self._moved = False
        self.database = open_store(database) if isinstance(database, str) else database
        if not isinstance(self.database, VectorStore):
            raise wrong_type(_OWNER, "database", "a VectorStore or its location", database)
        self._policy = None if protector is None else open_policy(protector)
        self._sealer = sealer if isinstance(sealer, Sealer | None) else Sealer(sealer)
        self.keep_text, self._warned, self._metric = keep_text, False, ""
        self._choose(**options)
        self.encoder, self._blobs, self._generations = encoder, blobs, generations
        self._checked = self._made = self._filled = False

    def _choose(
        self,
        name: str | None = None,
        candidates: int | None = None,
        query_noise: float = 1.0,
        filter_fields: Sequence[str] = (),
    ) -> None:
        self._name = name if name is None else str(name)
        self._query_noise = query_noise
        if self._policy is not None:
            self._policy = _query_policy(self._policy, query_noise)
        if candidates is None:
            candidates = fitted_candidates(None if self._policy is None else self._policy.protector)
        self.candidates = check_count(candidates, owner=_OWNER, param="candidates")
        self._filter_fields, self._met_fields = tuple(filter_fields), set[str]()
        token_fields(filter_fields, owner=_OWNER)

    def __repr__(self) -> str:
        return f"{_OWNER}({self._name or self._place!r})"

    @property
    def name(self) -> str:
        """Name of the collection in the key store; raises KeyFileError if the store has no key for the rows."""
        if self._name is None:
            found, blob = self._place, b""
            if self._sealer is not None and isinstance(self._sealer.keys, KeyStore):
                found, blob = sealed_name(self.database, self._place, self._sealer.keys, self._blobs)
                if blob and not found:
                    raise _no_key(f"{self._sealer.keys!r} has no key of the rows: pass the key file that sealed them.")
                self._moved = bool(blob) and found != self._place
            self._name = found or self._place
        return self._name

    @property
    def policy(self) -> ReleasePolicy:
        """Release policy of rows and queries; raises InvalidInputError without a protector."""
        if self._policy is None:
            raise InvalidInputError("To add or search rows, pass `protector`.", param="protector")
        return self._policy

    @property
    def sealer(self) -> Sealer:
        """The sealer; raises InvalidInputError without one."""
        if self._sealer is None:
            raise InvalidInputError("Rows without sealed originals cannot be resealed or reprotected.", param="sealer")
        return self._sealer

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee against anyone with the database, its query log and its backups; ``print`` it."""
        rows = self.policy.protector.guarantee
        if self._sealer is None:
            return replace(rows, not_promised=(*NOT_SEALED_AT_ALL, *rows.not_promised))
        return replace(rows, promised=(SEALED, *rows.promised), not_promised=(*NOT_SEALED, *rows.not_promised))

    @cached_property
    def _embedder(self) -> WrappedEmbedder:
        return WrappedEmbedder(self.policy, owner=_OWNER)

    def add(
        self,
        texts: Sequence[str] | None = None,
        *,
        ids: Sequence[str],
        metadata: Sequence[Mapping[str, Any] | None] | None = None,
        vectors: Embeddings | None = None,
    ) -> None:
        """Protect, seal and write rows, replacing equal ids.

        An unchanged row keeps its protected vector, since an attacker can average several draws of noise. Its blob and
        metadata are written again. Without a sealer and its key store, every `add` draws new noise.

        Args:
            texts: None with ``vectors`` alone.
            ids: ids as text.
            metadata: sealed with the text. A filter field is a text, number or boolean, or absent.
            vectors: exact vectors of ``texts`` (N, n), if available.
        """
        ids = self._stored(ids)
        if texts is None and vectors is None:
            raise InvalidInputError("Pass `texts`, `vectors` or both.", param="texts")
        check_unmasked(vectors, f"{_OWNER}.add", "vectors")
        given = None if texts is None else check_texts(texts, owner=f"{_OWNER}.add", min_rows=0)
        rows: Sequence[str | None] = [None] * len(ids) if given is None else given
        check_same_length(f"{_OWNER}.add", texts=rows, ids=ids, metadata=ids if metadata is None else metadata)
        if not all(without_surrogates(name) == name for name in ids):
            said = "`ids` contains a lone surrogate, which is not a character. Decode the text again."
            raise InvalidInputError(said, code="E-INPUT-IDS", param="ids")
        if len(set(canonical_ids(ids, len(ids), owner=f"{_OWNER}.add"))) != len(ids):
            raise InvalidInputError(
                "`ids` repeats an id, or a UUID in a different spelling.", code="E-INPUT-IDS", param="ids"
            )
        if not ids:
            return
        self._check_rows(adding=True)
        if self._sealer is not None:
            self._add_sealed(rows, ids, metadata, vectors)
        else:
            # The fields are checked first: what cannot be written is not released and not counted.
            fields = self._readable(rows, metadata)
            self._make()
            exact = None if vectors is None else np.asarray(vectors)
            self.database.write(Batch(tuple(ids), self._redrawn(exact, rows, ids), fields))
        self._filled = True

    def _readable(
        self, texts: Sequence[str | None], metadata: Sequence[Mapping[str, Any] | None] | None
    ) -> tuple[Mapping[str, Any], ...]:
        """Return the fields of rows without blobs: metadata, text if kept, mark and filter values."""
        fields: list[Mapping[str, Any]] = []
        wrong = InvalidInputError(
            "`metadata` is an object with string keys for each row, in Unicode and not nested too deep.",
            code="E-SEAL-METADATA",
            param="metadata",
        )
        for text, row in zip(texts, metadata or [None] * len(texts), strict=True):
            if not isinstance(row, Mapping | None) or not all(isinstance(name, str) for name in row or {}):
                raise wrong
            own = [name for name in row or {} if name.startswith("vecveil_") or (self.keep_text and name == _TEXT)]
            if own:
                raise InvalidInputError(
                    f"Rename the field {own[0][:60]!r}: vecveil writes it itself.", param="metadata"
                )
            filters = {name: row[name] for name in self.filter_fields if row and row.get(name) is not None}
            tokens = {f"{FILTER_PREFIX}{name}": _readable_token(value) for name, value in filters.items()}
            kept = {_TEXT: text} if self.keep_text and text is not None else {}
            fields.append({**(row or {}), **kept, PROTECTOR_FIELD: self._mark, **tokens})
            try:
                as_json(fields[-1]).encode()
            except (RecursionError, UnicodeEncodeError):  # the latter contains the value
                raise wrong from None
            if not self._warned and (kept or any(_is_text(value, text) for value in (row or {}).values())):
                self._warned = True
                warn_plaintext(
                    "the rows of a ProtectedCollection without a sealer",
                    "Pass a sealer, or store the texts where clean vectors are allowed.",
                    stacklevel=5,
                )
        return tuple(fields)

    @property
    def _mark(self) -> str:
        return protector_mark(self.policy.protector)

    def _make(self) -> None:
        """Create the collection, or add missing filter columns to an existing table."""
        if not self._made:
            filters = token_fields(self.filter_fields, owner=_OWNER)
            dimension = self.policy.protector.released_dimension
            self.database.create(dimension, metric="cosine", filter_fields=filters)
            self._made = True

    def _add_sealed(
        self,
        texts: Sequence[str | None],
        ids: list[str],
        metadata: Sequence[Mapping[str, Any] | None] | None,
        vectors: Embeddings | None,
    ) -> None:
        protector = self.policy.protector
        encoder = protector.encoder_info.fingerprint
        self.sealer.keys.check_protector(self.name, protector.fingerprint, adding=True, encoder=encoder)
        self._check_spelling(ids)
        kept, protected, opened = self._unchanged(ids, texts, vectors)
        drawn = sorted(set(range(len(ids))) - set(kept))
        if vectors is not None or not kept:
            exact = np.asarray(self._exact([text or "" for text in texts]) if vectors is None else vectors)
        else:
            exact = _placed(len(ids), kept, opened, drawn, lambda: self._exact([texts[i] or "" for i in drawn]))
        numbers = None
        if self._generations is not None:
            numbers = [self._generations.get(name, 0) + 1 for name in ids]
        # Sealed first: what cannot be sealed is not released and not counted.
        blobs = self.sealer.seal(
            exact, ids=ids, collection=self.name, texts=texts, metadata=metadata, generations=numbers
        )
        fields = self._fields([{}] * len(ids), blobs, metadata)
        self.sealer.keys.note_filter_fields(self.name, self._filter_fields)
        self._make()
        redraw = partial(self._redrawn, exact[drawn], [texts[i] for i in drawn], [ids[i] for i in drawn])
        stored = _placed(len(ids), kept, protected, drawn, redraw)
        if self._generations is not None and numbers is not None:
            # Before the rows: an interrupted add leaves rows that do not open, rather than a replay that does.
            self._generations.update(zip(ids, numbers, strict=True))
        if self._blobs is not None:
            # Before the rows: a search never finds a row without its blob. But never with the vector of an older
            # text, which an interrupted add would leave there and the next one take for the vector of this text.
            changed = [ids[i] for i in drawn if ids[i] in self._blobs]
            if changed:
                self.database.delete(changed)
            self._blobs.update(zip(ids, blobs, strict=True))
        self.database.write(Batch(tuple(ids), stored, fields))

    def _check_spelling(self, ids: list[str]) -> None:
        """Raise if a row has one of the UUIDs ``ids`` in a different spelling: either row's blob would open in both."""
        forms = {form for name in ids for form in uuid_spellings(name)} - set(ids)
        if forms and self.database.exists():
            others = set(self.database.read(sorted(forms), missing="skip").ids) - set(ids)
            if others:
                said = f"{len(others)} UUIDs of `ids` have a different spelling in the collection. Use the stored one."
                raise InvalidInputError(said, code="E-INPUT-IDS", param="ids")

    def _unchanged(
        self, ids: list[str], texts: Sequence[str | None], vectors: Embeddings | None
    ) -> tuple[list[int], Embeddings, Embeddings]:
        """Return positions, protected and exact vectors of the rows that are stored with this text and vector."""
        nothing: tuple[list[int], Embeddings, Embeddings] = [], np.empty((0, 0)), np.empty((0, 0))
        # Without a key store nothing notes the protector of the stored vectors.
        if not isinstance(self.sealer.keys, KeyStore):
            return nothing
        self._filled = self._filled or (self.database.exists() and self.database.count() > 0)
        known = ids if self._blobs is None else [name for name in ids if name in self._blobs]
        if not self._filled or not known:
            return nothing
        part = self.database.read(known, missing="skip")
        place, stored = ({name: at for at, name in enumerate(names)} for names in (ids, part.ids))
        X = None if vectors is None else np.asarray(vectors)
        closed, kept, exact = list(part.ids), [], []
        # An interrupted `add` or `delete` raised the generations of rows that it did not write.
        for back in range(1 if self._generations is None else 1 + _INTERRUPTED):
            opened = self._unsealed(part.rows([stored[name] for name in closed]), "skip", back)
            closed = opened.skipped
            for i, text, vector in zip((place[name] for name in opened.ids), opened.texts, opened.vectors, strict=True):
                if text != texts[i] or (X is not None and X.shape != (len(ids), len(vector))):
                    continue
                # The sealed vector is rounded, by 1/254 of its largest value at most.
                if X is None or np.abs(X[i] - vector).max() <= np.abs(X[i]).max() / 64:
                    kept.append(i)
                    exact.append(vector)
            if not closed:
                break
        return kept, part.vectors[[stored[ids[i]] for i in kept]], np.array(exact)

    def _released(self, exact: Embeddings | None, texts: Sequence[str], ids: Sequence[str]) -> Embeddings:
        # Only candidates are rewritten: the blob contains the vector of the original text.
        rewritten = exact is None or self.policy.rewrites_texts
        source = self._exact(self._embedder.seen(texts)) if rewritten else exact
        return np.asarray(self._embedder.released(source, texts, ids), np.float32)

    def search(
        self,
        query: str | npt.NDArray[np.floating[Any]],
        *,
        top: int = 10,
        candidates: int | None = None,
        where: Mapping[str, Any] | None = None,
        on_invalid: OnInvalid = "raise",
    ) -> Ranking:
        """Return the ``top`` candidates by the exact cosine of ``query``, a text or its clean vector (n,).

        Without a sealer these are the database's nearest rows, without vectors. Their scores are cosines of protected
        vectors if `add` created the collection, else the database's distances, negated.

        Args:
            candidates: rows to fetch and open; None takes the collection's number, or ``top`` if that is more.
            where: value, or list of values, by filter field, combined by ``$and``. The database selects rows by tokens;
                rows whose sealed metadata do not match are left out.

        Raises:
            SealingError: a candidate's blob is missing or does not open; ``on_invalid="skip"`` reports its id.
        """
        owner = f"{_OWNER}.search"
        top = check_count(top, owner=owner, param="top")
        k = max(self.candidates, top)
        if candidates is not None:
            k = check_count(candidates, owner=owner, param="candidates", minimum=top)
        if self._sealer is None:
            k = top
            self._check_rows(adding=False)
        else:  # a search creates no key: the name may be mistyped
            self._sealer.keys.check_protector(self.name, self.policy.protector.fingerprint, adding=False)
        values = self._values(where, owner)
        if isinstance(query, str):
            if not query.strip():
                raise InvalidInputError("`query` is an empty text.", param="query")
            source = exact = self._exact(self._embedder.seen([query]), query=True)
            if self.policy.rewrites_texts and self._sealer is not None:  # whose exact vectors are of the original texts
                exact = self._exact([query], query=True)
            released = self._embedder.released(source, [query], query=True)
        elif self.policy.rewrites_texts:
            raise wrong_type(owner, "query", "a text", query, fix="The protector rewrites texts.")
        else:
            check_unmasked(query, owner, "query")
            exact = np.atleast_2d(np.asarray(query))
            if exact.shape[0] != 1 or exact.dtype.kind not in "fiu":
                said = f"`query` is a text or one vector (n,), not an array {exact.shape} of {exact.dtype}."
                raise InvalidInputError(said, code="E-INPUT-SHAPE", param="query")
            released = self.policy.queries(exact)
        tokens = self._tokens(values)
        # A hostile or faulty database may return a row twice, and more rows than it was asked for.
        matches = {str(match.id): match for match in self.database.search(released[0], k, tokens or None)[:k]}
        if values and not matches:
            self._check_fields(values)
        if self._sealer is None:
            return self._found(list(matches.values()), values)
        ids = list(matches)
        blobs, numbers = self._blobs_of(ids, [match.fields for match in matches.values()])
        given: dict[str, Any] = {"ids": ids, "collection": self.name, "generations": numbers, "on_invalid": on_invalid}
        ranking = self.sealer.rank(exact[0], blobs, top=k if values else top, **given)
        # The database is not trusted to filter.
        return ranking.rows(_matching(ranking, values)[:top]) if values else ranking

    def get(
        self,
        ids: Sequence[str] | None = None,
        *,
        where: Mapping[str, Any] | None = None,
        missing: Missing = "raise",
        on_invalid: OnInvalid = "raise",
    ) -> Unsealed:
        """Return the exact vectors, texts and metadata of rows.

        Args:
            ids: None takes all rows.
            where: as for `search`.
            missing: ``skip`` leaves out ids without a row.

        Raises:
            StoreError: an id has no row.
            SealingError: a blob is missing or does not open; ``on_invalid="skip"`` reports its id.
        """
        values = self._values(where, f"{_OWNER}.get")
        # Without ids another program may delete a row between the two reads.
        names, missing = (self._proposed(values), "skip") if ids is None else (self._stored(ids), missing)
        if missing == "skip" and names and not self.database.exists():
            names = []
        rows = self._unsealed(self.database.read(names, missing=missing), on_invalid)
        if values and not rows.ids:
            self._check_fields(values)
        return rows.rows(_matching(rows, values)) if values else rows

    def _check_fields(self, values: Mapping[str, Any]) -> None:
        """Raise if no row has a token of one of the fields ``values``."""
        rows = 0
        if set(values) <= self._met_fields or not self.database.exists():
            return
        try:
            for part in self.database.batches(_BATCH):
                rows += len(part)
                names = {name for row in part.fields for name in row if name.startswith(FILTER_PREFIX)}
                self._met_fields |= {name.removeprefix(FILTER_PREFIX) for name in names}
                if set(values) <= self._met_fields:
                    return
        except StoreError:  # a store of LangChain lists no rows
            return
        if rows:
            fix = " `reseal` adds the token to rows that are older than the filter field." if self._sealer else ""
            check_fields(values, [self._met_fields], fix)

    def _found(self, matches: Sequence[Match], values: Mapping[str, Mapping[bytes, Any]]) -> Ranking:
        self._metric = self._metric or self.database.info().metric or "unknown"
        distances = np.array([match.distance for match in matches], np.float32)
        texts, metadata = _texts_and_metadata([match.fields for match in matches])
        scores = 1 - distances if self._metric == "cosine" else -distances
        vectors = np.empty((len(matches), 0), np.float32)
        ranking = Ranking([str(match.id) for match in matches], vectors, texts, metadata, [], scores)
        return ranking.rows(_matching(ranking, values)) if values else ranking

    def _unsealed(self, part: Batch, on_invalid: OnInvalid, back: int = 0) -> Unsealed:
        ids = list(part.ids)
        if self._sealer is None:
            texts, metadata = _texts_and_metadata(part.fields)
            return Unsealed(ids, part.vectors, texts, metadata, [])
        blobs, numbers = self._blobs_of(ids, part.fields)
        numbers = numbers and [max(number - back, 0) for number in numbers]
        return self.sealer.unseal(blobs, ids=ids, collection=self.name, generations=numbers, on_invalid=on_invalid)

    def ids(self, where: Mapping[str, Any] | None = None) -> list[str]:
        """Return the ids of all rows, or of those whose sealed metadata match ``where`` as in `search`.

        Reads the whole collection, unless ``where`` matches fewer than 1,000 rows.

        Raises:
            SealingError: a blob whose metadata must be compared is missing or does not open.
        """
        # Callers delete by these ids: a database that copies a token must not choose the rows to delete.
        return self.get(where=where).ids if where else self._proposed({})

    def count(self) -> int:
        """Return the number of rows."""
        return self.database.count() if self.database.exists() else 0

    def _proposed(self, values: Mapping[str, Mapping[bytes, Any]]) -> list[str]:
        if not self.database.exists():
            return []
        if tokens := self._tokens(values):
            nearest = self.database.search(np.ones(self.database.info().dimension), _BATCH, tokens)
            if len(nearest) < _BATCH:
                return list(dict.fromkeys(str(match.id) for match in nearest))
        return [
            name
            for part in self.database.every_row(_BATCH)
            for name, row in zip(part.ids, part.fields, strict=True)
            if all(row.get(field) in some for field, some in tokens.items())
        ]

    def delete(self, ids: Sequence[str]) -> None:
        """Delete rows and their blobs; unknown ids are ignored. Backups of the database may keep both."""
        listed = self._stored(ids)
        if self._generations is not None:
            written = [name for name in listed if name in self._generations]
            self._generations.update({name: self._generations[name] + 1 for name in written})
        if self.database.exists():
            self.database.delete(listed)
        for name in listed if self._blobs is not None else ():
            self._blobs.pop(name, None)  # type: ignore[union-attr]

    def reseal(self, *, batch: int = _BATCH, show_progress: bool | None = None) -> int:
        """Seal every row under a new data key, delete the older keys, and return the number of resealed rows.

        Readers keep working. Stop writers first: a row written meanwhile may revert to its old content. After an
        interruption, call it again. Protected vectors and the content of the blobs do not change.

        Raises:
            SealingError: some blobs do not open. All others are resealed, and the older keys stay.
            StoreError: another program wrote rows under an older key. The older keys stay.
        """
        keys = self._key_store("reseal")
        noted = keys.read(self.name)
        if noted.protector is not None:
            keys.check_protector(self.name, noted.protector, adding=False)
        rotates = len(noted.keys) == 1  # with two, an earlier call was interrupted
        stale = self._stale("reseal", rotates, batch)
        if rotates:
            keys.rotate(self.name)
        return self._renewed("reseal", stale, batch, show_progress)

    def reprotect(
        self,
        protector: Protector | ReleasePolicy | str | os.PathLike[str],
        *,
        batch: int = _BATCH,
        show_progress: bool | None = None,
    ) -> int:
        """Draw new protected vectors with ``protector`` from the sealed originals; return the number of rows.

        The rows get a new data key at the same time, which marks them as done: after an interruption, call it again.
        Other readers and writers get an error until it ends. The database may keep the older vectors, which stay as
        readable as they were, and two draws of one vector reveal more than one.

        Raises:
            IncompatibleError: the protector is of a different encoder or released dimension.
            SealingError, StoreError: as for `reseal`.
        """
        keys, policy = self._key_store("reprotect"), _query_policy(open_policy(protector), self._query_noise)
        stored, released = self.database.info().dimension, policy.protector.released_dimension
        if stored not in (0, released):
            said = f"The protector releases {released} dimensions; the collection has {stored}. Migrate to a new one."
            raise IncompatibleError(said, code="E-INCOMPATIBLE-DIMENSION", param="protector")
        # A different encoder's map and noise would leave readable what the concept names.
        encoders = {each.protector.encoder_info.fingerprint for each in (policy, self._policy or policy)}
        encoders.add(keys.read(self.name).encoder)
        if len(encoders - {None, ""}) > 1:
            said = "The protector and the sealed vectors have different encoders. Fit a protector for theirs."
            raise IncompatibleError(said, code="E-INCOMPATIBLE-ENCODER", param="protector")
        fingerprint = policy.protector.fingerprint
        rotates = keys.read(self.name).protector != fingerprint
        stale = self._stale("reprotect", rotates, batch)
        if rotates:
            keys.rotate(self.name, protector=fingerprint)
        self._policy = policy
        self.__dict__.pop("_embedder", None)
        return self._renewed("reprotect", stale, batch, show_progress)

    def _key_store(self, doing: str) -> KeyStore:
        if not isinstance(self.sealer.keys, KeyStore):
            raise wrong_type(f"{_OWNER}.{doing}", "sealer", "a sealer with a key store", self.sealer.keys)
        if self.name and self._moved:
            raise KeyFileError(
                f"The rows are sealed as {self.name!r}: the store was moved or copied. If it was moved, pass that name "
                f"(--seal-name). For a copy, {doing} would lock the original by deleting its older keys.",
                code="E-SEAL-MOVED",
                param="name",
            )
        return self.sealer.keys

    def _stale(self, doing: str, rotates: bool, batch: int) -> list[str]:
        """Return the ids of the rows that are not under the current key, or of all rows if a new key follows.

        Call this before the rotation, because some stores cannot list their rows, and before any write, because some
        databases move written rows to the end and would return them again.
        """
        if not self.database.count():  # retiring the older keys would erase the rows of the right store
            said = "The collection has no rows. If it is gone, delete its keys with `vecveil key erase`."
            raise StoreError(said, code="E-STORE-EMPTY", param="database")
        target = None if rotates else self.sealer.keys.read(self.name).current.key_id
        return list(dict.fromkeys(self._under_older_keys(target, batch)))

    def _renewed(self, doing: str, stale: list[str], batch: int, show_progress: bool | None) -> int:
        """Write these rows under the current key, delete the other keys, and return the number of rows."""
        keys = self._key_store(doing)
        target = keys.read(self.name).current.key_id
        closed: list[str] = []
        starts = range(0, len(stale), batch)
        for start in progress(starts, f"{doing.capitalize()}ing", show=show_progress, unit="batch"):
            names = stale[start : start + batch]
            part = self.database.read(names, missing="skip")
            closed += self._renew_rows(part)
            closed += self._renew_blobs(set(names).difference(part.ids))
        if closed:
            raise SealingError(
                f"{len(closed)} blobs do not open, such as the one of id {closed[0][:60]!r}; the older keys stay. Pass "
                "`blobs` or `generations` if the collection has them; else delete these rows or add them again.",
                code="E-SEAL-OPEN",
                param="database",
            )
        if next(iter(self._under_older_keys(target, batch)), None) is not None:
            said = "Another program wrote rows under an older key, which stays. Stop it, and repeat the call."
            raise StoreError(said, code="E-STORE-CHANGED", param="database")
        keys.retire(self.name, keep=target)
        return len(stale)

    def _under_older_keys(self, target: bytes | None, batch: int) -> Iterator[str]:
        seen: set[str] = set()
        for part in self.database.every_row(batch):
            blobs, _ = self._blobs_of(list(part.ids), part.fields)
            yield from (name for name, blob in zip(part.ids, blobs, strict=True) if key_id_of(blob) != target)
            seen.update(part.ids if self._blobs is not None else ())
        # The database may have lost rows whose separate blobs still hold their texts.
        for name in self._blobs or ():
            blobs, _ = self._blobs_of([name], [{}])
            if name not in seen and key_id_of(blobs[0]) != target:
                yield name

    def _renew_blobs(self, ids: Iterable[str]) -> list[str]:
        """Seal separate blobs without a row under the current key; return the ids of the blobs that do not open."""
        names = [name for name in ids if self._blobs is not None and name in self._blobs]
        blobs, numbers = self._blobs_of(names, [{}] * len(names))
        sealed = self.sealer.reseal(blobs, ids=names, collection=self.name, generations=numbers)
        if self._blobs is not None:
            self._blobs.update(sealed)
        return [name for name in names if name not in sealed]

    def _renew_rows(self, part: Batch) -> list[str]:
        """Write the rows under the current key; return the ids of those whose blob does not open."""
        blobs, numbers = self._blobs_of(list(part.ids), part.fields)
        sealed = self.sealer.reseal(blobs, ids=list(part.ids), collection=self.name, generations=numbers)
        keys = self.sealer.keys.read(self.name)
        foreign = {key.key_id for key in keys.keys if key.protector != keys.protector}
        order = [i for i, name in enumerate(part.ids) if name in sealed]
        rows, vectors, metadata = part.rows(order), part.vectors[order], None
        redrawn = [at for at, i in enumerate(order) if key_id_of(blobs[i]) in foreign]
        if self.filter_fields or redrawn:
            opened = self._unsealed(part.rows(order), "raise")
            # Rows older than a filter field may contain lists in it, which get no token.
            rows_of = opened.metadata
            metadata = [{k: v for k, v in (row or {}).items() if not isinstance(v, list | dict)} for row in rows_of]
        if redrawn:
            texts = [opened.texts[at] for at in redrawn]
            names = [rows.ids[at] for at in redrawn]
            vectors[redrawn] = self._redrawn(opened.vectors[redrawn], texts, names)
        fields = self._fields(rows.fields, list(sealed.values()), metadata)
        # Before the blobs, which mark a row as done; the older tokens match as long as the older key exists.
        if sealed and (self._blobs is None or metadata is not None):
            self.database.write(Batch(rows.ids, vectors, fields))
        if self._blobs is not None:
            self._blobs.update(sealed)
        return [name for name in part.ids if name not in sealed]

    def _redrawn(self, exact: Embeddings | None, texts: Sequence[str | None], ids: Sequence[str]) -> Embeddings:
        known = [text for text in texts if text is not None]
        if len(known) == len(texts):
            return self._released(exact, known, ids)
        if exact is None or self.policy.rewrites_texts:
            said = "The protector rewrites texts, and some rows have no text."
            raise SealingError(said, code="E-SEAL-TEXT", param="protector")
        return np.asarray(self.policy.documents(exact, ids=ids), np.float32)

    @property
    def filter_fields(self) -> tuple[str, ...]:
        """Fields of ``where``: those given here and those that the key store records."""
        noted = self._noted()
        return tuple(dict.fromkeys([*(noted.filter_fields if noted else ()), *self._filter_fields]))

    @property
    def rewrites_texts(self) -> bool:
        """True if the protector rewrites texts, so that a query must be a text."""
        return self._policy is not None and self._policy.rewrites_texts

    def _noted(self) -> CollectionKeys | None:
        """Return the keys of the collection; None before its first row, and without a sealer."""
        if self._sealer is None:
            return None
        try:
            return self.sealer.keys.read(self.name)
        except KeyFileError as error:
            if error.code != "E-SEAL-COLLECTION":
                raise
            return None

    def _values(self, where: Mapping[str, Any] | None, owner: str) -> dict[str, dict[bytes, Any]]:
        """Return the values of ``where`` by field and `typed_value`."""
        values: dict[str, dict[bytes, Any]] = {}
        for field, listed in _equalities({} if where is None else where, owner):
            if field not in self.filter_fields:
                known = ", ".join(self.filter_fields) or "none; name them in `filter_fields`"
                raise InvalidInputError(
                    f"{owner}: the collection has no filter field {str(field)[:60]!r}. It has: {known}.",
                    code="E-INPUT-NAME",
                    param="where",
                )
            typed = {typed_value(one, param="where"): one for one in listed}
            before = values.get(field, typed)
            values[field] = {name: one for name, one in typed.items() if name in before}
        return values

    def _tokens(self, values: Mapping[str, Mapping[bytes, Any]]) -> dict[str, list[str]]:
        forms: list[Callable[[str, Any], str]] = [lambda field, value: _readable_token(value)]
        if self._sealer is not None:  # during rotation some rows have tokens under the older key
            forms = [key.token for key in self.sealer.keys.read(self.name).keys] if values else []
        return {
            f"{FILTER_PREFIX}{field}": [form(field, value) for form in forms for value in some.values()]
            for field, some in values.items()
        }

    def _fields(
        self, rows: Sequence[Mapping[str, Any]], blobs: Sequence[bytes], metadata: Any
    ) -> tuple[Mapping[str, Any], ...]:
        """Return the stored fields of rows: blobs, unless they are separate, and the tokens of ``metadata``."""
        tokens = filter_tokens(self.sealer.keys.read(self.name), self.filter_fields, blobs, metadata)
        if self._blobs is not None and self._policy is not None:
            tokens = [{**beside, PROTECTOR_FIELD: self._mark} for beside in tokens]
        return tuple(
            with_blob(row, blob if self._blobs is None else None, beside)
            for row, blob, beside in zip(rows, blobs, tokens, strict=True)
        )

    def _stored(self, ids: Any) -> list[str]:
        """Return ``ids`` as the database returns them, which decides how they are sealed."""
        listed = isinstance(ids, Sequence) and not isinstance(ids, str | bytes)
        if not listed or not all(isinstance(name, str) for name in ids):
            raise wrong_type(_OWNER, "ids", "a list of strings", ids, fix="Write numbers in decimal.")
        return self.database.spelled(ids) if ids and self.database.exists() else list(ids)

    def _check_rows(self, *, adding: bool) -> None:
        """Raise if the collection contains rows that may be clean, or of a different key store or protector."""
        if self._checked or not self.database.exists():
            return
        part = next(iter(self.database.batches(1)), None)
        if part is not None and len(part):
            self._check_row(part.ids[0], part.fields[0], adding)
        self._checked = True

    def _check_row(self, name: str, fields: Mapping[str, Any], adding: bool) -> None:
        mark = fields.get(PROTECTOR_FIELD)
        if self._sealer is None and SEALED_FIELD in fields:
            raise _sealed_rows()
        if mark is not None and self._policy is not None and mark != self._mark:
            raise IncompatibleError(
                "A different protector protected the stored rows, and vectors of two cannot be compared. Pass the "
                "protector that filled the collection.",
                code="E-INCOMPATIBLE-PROTECTOR",
                param="protector",
            )
        if self._sealer is None:
            if mark is None and adding:
                said = "vecveil did not write the rows: their vectors may be clean. Copy them with `vecveil migrate`."
                raise StoreError(said, code="E-STORE-UNSEALED", param="database")
            return
        held = fields.get(SEALED_FIELD) if self._blobs is None else self._blobs.get(name)
        if held is None:
            said = "The rows are not sealed: their vectors may be clean. Copy them with `vecveil migrate --seal-key`."
            raise StoreError(said, code="E-STORE-UNSEALED", param="database")
        blob, noted = decoded(held), self._noted()
        known = {key.key_id for key in noted.keys} if noted else set()
        if blob[:1] == VERSION and key_id_of(blob) not in known:
            # It would draw new noise for every stored text.
            filled = self.sealer.keys.collection_of([key_id_of(blob)])
            fix = (
                f"It has one for {filled!r}: pass that name."
                if filled
                else "Pass their key file, or empty the collection."
            )
            raise _no_key(f"The key store has no key for the rows of {self.name!r}. {fix}")

    def _exact(self, texts: Sequence[str], *, query: bool = False) -> Embeddings:
        encoder = self.encoder or self.policy.protector.loaded_encoder()
        if self.encoder is not None and (sentences := self._embedder.probe()):
            self._embedder.compare(encoder.encode(sentences))
        encode = getattr(encoder, "encode_query", encoder.encode) if query else encoder.encode
        vectors = encode(list(texts))
        check_unmasked(vectors, _OWNER, "encoder")
        return np.asarray(vectors)

    def _blobs_of(
        self, ids: Sequence[str], fields: Sequence[Mapping[str, Any]]
    ) -> tuple[list[bytes], list[int] | None]:
        """Return blobs and generations of rows; an id that the caller never wrote gets a blob that does not open."""
        if self._blobs is not None:
            blobs = [self._blobs.get(name, b"") for name in ids]
        else:
            blobs = [decoded(row.get(SEALED_FIELD)) for row in fields]
        if self._generations is None:
            return blobs, None
        numbers = [self._generations.get(name) for name in ids]
        return [b"" if n is None else blob for n, blob in zip(numbers, blobs, strict=True)], [n or 0 for n in numbers]


def sealed_name(
    store: VectorStore, place: str, keys: KeyStore, blobs: Mapping[str, bytes] | None = None
) -> tuple[str, bytes]:
    """Return the name in ``keys`` of a store at ``place``, or of its rows' key if it was moved, and the first blob.

    The name is empty if ``keys`` has neither.
    """
    known = keys.collections()
    part = None if place in known or not store.exists() else next(iter(store.batches(1)), None)
    if part is None or not len(part):
        return (place if place in known else ""), b""
    blob = decoded(part.fields[0].get(SEALED_FIELD)) if blobs is None else blobs.get(part.ids[0], b"")
    return keys.collection_of([key_id_of(blob)]) or "", blob


def _placed(rows: int, kept: list[int], X: Embeddings, drawn: list[int], draw: Callable[[], Embeddings]) -> Embeddings:
    new = draw() if drawn else X
    placed = np.empty((rows, new.shape[1]), np.float32)
    if kept:
        placed[kept] = X
    if drawn:
        placed[drawn] = new
    return placed


def _readable_token(value: Any) -> str:
    """Return a readable filter value as text, with its type: 1 and "1" differ."""
    typed = typed_value(value)
    return f"f{value!r}" if typed[:1] == b"f" else typed.decode("utf-8", "replace")


def _is_text(value: Any, text: str | None) -> bool:
    if not isinstance(value, str):
        return False
    # maxsplit bounds the work on long values.
    return len(value.split(maxsplit=_TEXT_WORDS)) >= _TEXT_WORDS or bool(
        text and text.strip() and value.strip() == text.strip()
    )


def _texts_and_metadata(fields: Sequence[Mapping[str, Any]]) -> tuple[list[str | None], list[dict[str, Any] | None]]:
    if any(SEALED_FIELD in row for row in fields):
        raise _sealed_rows()
    texts = [row.get(_TEXT) for row in fields]
    metadata = [{k: v for k, v in row.items() if k != _TEXT and not k.startswith("vecveil_")} for row in fields]
    return texts, [row or None for row in metadata]


def _query_policy(policy: ReleasePolicy, query_noise: float) -> ReleasePolicy:
    """Return ``policy`` with the queries that ``query_noise`` chooses; 1 leaves the policy unchanged."""
    if query_noise != 1:
        policy = replace(policy, query_noise=query_noise)
    if policy.gives_clean_queries:
        raise InvalidInputError(
            f"Method {policy.protector.method!r} has no map for queries without noise: the "
            "database would get clean queries. Leave out `query_noise`.",
            param="query_noise",
        )
    return policy


def _equalities(where: Mapping[str, Any], owner: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield each field of ``where`` with its accepted values, as in `SealedIndex.search`."""
    if not isinstance(where, Mapping):
        raise wrong_type(owner, "where", "a mapping of filter fields to values", where)
    for field, condition in where.items():
        if field == "$and":
            for part in condition if isinstance(condition, list | tuple) else [condition]:
                yield from _equalities(part, owner)
            continue
        conditions = condition if isinstance(condition, Mapping) else {"in": condition}
        if field.startswith("$"):
            conditions = {field: None}
        for name, value in conditions.items():
            operator = str(name).removeprefix("$")
            if operator not in ("eq", "in"):
                fix = "The database sees tokens, which can only be compared."
                raise unknown_name(owner, "where", ("$and", "eq", "in"), name, fix=fix)
            several = operator == "in" and isinstance(value, list | tuple | set | frozenset)
            yield field, filter_value(list(value) if several else [value])


def _matching(rows: Unsealed, values: Mapping[str, Mapping[bytes, Any]]) -> list[int]:
    """Return the positions of the rows whose metadata have an accepted value in each field."""
    # A row that is older than the filter field may contain any value in it.
    return [
        i
        for i, row in enumerate(rows.metadata)
        if row is not None
        and all(
            isinstance(row.get(field), str | bool | int | float) and typed_value(row[field]) in some
            for field, some in values.items()
        )
    ]


def _no_key(text: str) -> KeyFileError:
    return KeyFileError(f"{text} Rows whose key was erased no longer open.", code="E-SEAL-COLLECTION", param="sealer")


def _sealed_rows() -> StoreError:
    return StoreError("The rows of this collection are sealed: pass `sealer`.", code="E-STORE-SEALED", param="sealer")
