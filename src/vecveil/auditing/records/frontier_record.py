"""The record of a frontier, schema ``vecveil.frontier/1`` (docs/formats.md), and the choice of one of its points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any

from vecveil.auditing.records.audit_record import EncoderRecord
from vecveil.auditing.records.verdict import NBSP, percent
from vecveil.errors import optional_import
from vecveil.schema import Conflict, Count, Finite, Record, Scalar, Share
from vecveil.validation import check_probability

SEARCH_KEPT = 0.98
"""Share of clean search that the recommended point keeps, if any point does."""
NO_DESIGN = "No design both hides and searches well here: use a sealed index."
NO_DESIGN_ALONE = (
    "No design both hides and searches well here without a key: give one to whoever searches, and use a sealed index."
)
LARGE_PART = 0.25
"""Share of the rows as candidates above which sealed search says little of larger collections."""


class Leak(Record, frozen=True):
    """R-precision of the strongest attack, ``reader``, with its 95 % interval over groups of texts.

    It is, of the k concept words of a text, the share among its k best guesses; ``n`` counts occurrences of words.
    """

    value: Share
    low: Share
    high: Share
    reader: str
    n: Count


class AuditedLeak(Record, frozen=True):
    """R-precision of the strongest attack of an audit's quick tier on a design that was fitted with every word."""

    leak: Leak
    clean: Share
    chance: Share

    @property
    def left(self) -> float:
        """Remaining share of the clean leak over chance, at the upper end of the interval."""
        return max(0.0, self.leak.high - self.chance) / max(self.clean - self.chance, 1e-9)


class Kept(Record, frozen=True):
    """A utility as a share of the clean one, with its 95 % interval; 0 ``candidates`` is the store alone."""

    metric: str
    value: Finite
    low: Finite
    high: Finite
    candidates: Count = 0


_IN_WORDS = {"rank": "erase", "kept": "keep", "flattening": "flatten", "noise_to_signal": "noise"}


class FrontierPoint(Record, frozen=True):
    """One design and its figures on texts that it was not fitted on.

    Attributes:
        arguments: of `vecveil.fit`, to fit the design on all texts.
        listed: leak of the words that the fit knew.
        left_out: leak of those omitted from the fit, or None.
        store: search by the protected vectors alone, or None.
        sealed: the same after the exact ranking of so many candidates, fewest first.
        seconds: spent on this point.
        audited: leak under the attacks of an audit; None if they did not run.
    """

    number: Count
    arguments: Mapping[str, Scalar]
    listed: Leak
    left_out: Leak | None
    similarity: Kept
    store: Kept | None
    sealed: tuple[Kept, ...]
    seconds: Finite
    audited: AuditedLeak | None

    @property
    def words(self) -> str:
        """The design in words, such as ``subspace, erase 115, keep 269, noise 1``."""
        given = dict(self.arguments)
        parts = [f"{words} {given[name]:g}" for name, words in _IN_WORDS.items() if given.get(name)]
        return ", ".join([str(given["method"]), *parts])

    def search(self, *, store_alone: bool = False) -> Kept | None:
        """Return the best search: after exact ranking, with the fewest candidates that reach it; else the store's."""
        choices = [] if store_alone else list(self.sealed)
        return max(choices, key=lambda kept: (kept.value, -kept.candidates), default=self.store)

    def enough(self, share: float) -> Kept | None:
        """Return the search with the fewest candidates that keeps ``share``, or the best one."""
        return next((kept for kept in self.sealed if kept.value >= share), self.search())


class FrontierCounts(Record, frozen=True):
    """Counts of texts by part, and of words; ``judged`` texts give the figures of leakage.

    Attributes:
        words: different words of the concept in the texts; ``listed`` and ``left_out`` count those frequent enough to
            be attacked.
        rows: size of the collection that the figures of search are for.
        queries: judged queries; None if texts serve as queries.
        query_noise: 1, or 0 if queries go through the map without noise.
    """

    texts: Count
    with_concept: Count
    fitted: Count
    learnt: Count
    judged: Count
    words: Count
    listed: Count
    left_out: Count
    rows: Count
    queries: Count | None
    query_noise: float


class FrontierRecord(Record, frozen=True, tag_field="schema", tag="vecveil.frontier/1"):
    """Designs from gentle to strong on the user's texts.

    Attributes:
        settings: SHA-256 of everything that determines the figures; it identifies the run of a folder.
        table: options of the table of texts (text column, format), for ``vecveil fit --from``.
        designs: number of designs; fewer points are an interrupted run.
        clean_listed, clean_left_out: leaks of clean vectors.
        chance_listed, chance_left_out: the shares of a guess by the words' frequencies.
        readers: names of the attacks, of which the strongest counts.
        missing: figures that are not measured, each with the reason.
        ceiling: maximum share of the clean leak over chance that may remain at a recommended point.
        store_alone: nobody who searches holds a key, so that a point is recommended by what the protected vectors find.
    """

    vecveil: str
    created: str
    settings: str
    concept: str
    encoder: EncoderRecord
    table: Mapping[str, Scalar]
    seed: Count
    counts: FrontierCounts
    readers: tuple[str, ...]
    clean_listed: Leak
    clean_left_out: Leak | None
    chance_listed: Share
    chance_left_out: Share | None
    missing: Mapping[str, str]
    designs: Count
    points: tuple[FrontierPoint, ...]
    seconds: Finite
    ceiling: Share
    store_alone: bool

    def __post_init__(self) -> None:
        for i, point in enumerate(self.points):
            if not isinstance(point.arguments.get("method"), str):
                raise Conflict(f"points[{i}].arguments", "they name no method")
            if any(type(point.arguments.get(name, 0)) not in (int, float, NoneType) for name in _IN_WORDS):
                raise Conflict(f"points[{i}].arguments", "a strength is not a number")
            if [kept.candidates for kept in point.sealed] != [kept.candidates for kept in self.points[0].sealed]:
                raise Conflict(f"points[{i}].sealed", "other numbers of candidates than the first point")
        if len({point.number for point in self.points}) < len(self.points):
            raise Conflict("points", "two points have one number")

    @property
    def is_complete(self) -> bool:
        """True once all designs are measured, and the best one is attacked as in an audit."""
        unfinished = self.candidate is not None and self.candidate.audited is None and "audited" not in self.missing
        return len(self.points) == self.designs and not unfinished

    def point(self, number: int) -> FrontierPoint | None:
        """Return the point of a number, or None."""
        return next((point for point in self.points if point.number == number), None)

    # -- choosing

    def pick(
        self,
        *,
        at_most_leak: float | None = None,
        at_least_search: float | None = None,
        store_alone: bool | None = None,
    ) -> FrontierPoint | None:
        """Return the point that meets the limits best, or None if none meets them.

        With ``at_most_leak`` alone: the point with the best search. Otherwise the point with the best search among
        those within about one standard error of the least leak, first of listed words, then of omitted words.

        Args:
            at_most_leak: of listed words, as measured.
            at_least_search: share of clean search, after exact ranking unless ``store_alone``.
            store_alone: consider search by the protected vectors alone; None takes what the record recommends by.

        Raises:
            InvalidInputError: a limit is not a share in [0, 1]; 20 % is 0.2.
        """
        store_alone = self.store_alone if store_alone is None else store_alone
        for param, limit in (("at_most_leak", at_most_leak), ("at_least_search", at_least_search)):
            if limit is not None:
                check_probability(limit, owner="FrontierRecord.pick", param=param)

        def search(point: FrontierPoint) -> float:
            kept = point.search(store_alone=store_alone)
            return -1.0 if kept is None else kept.value

        met = [
            point
            for point in self.points
            if (at_most_leak is None or point.listed.value <= at_most_leak)
            and (at_least_search is None or search(point) >= at_least_search)
        ]
        if not met:
            return None
        if at_most_leak is not None and at_least_search is None:
            return max(met, key=lambda point: (search(point), -point.listed.value))
        for leak in (_listed, _left_out):
            least = min(map(leak, met), key=lambda estimate: estimate.value)
            # About one standard error: smaller differences are measurement error.
            met = [point for point in met if leak(point).value <= (least.value + least.high) / 2]
        return max(met, key=lambda point: (search(point), -point.listed.value))

    @property
    def candidate(self) -> FrontierPoint | None:
        """The point of least leak in the table that keeps 98 % of search (any, if unmeasured), if below the ceiling."""
        limit = self.chance_listed + self.ceiling * max(0.0, self.clean_listed.value - self.chance_listed)
        measured = any(point.search(store_alone=self.store_alone) is not None for point in self.points)
        return self.pick(at_most_leak=limit, at_least_search=SEARCH_KEPT if measured else None)

    @property
    def recommended(self) -> FrontierPoint | None:
        """The `candidate`, if the attackers of an audit leave it below the ceiling; else None."""
        point = self.candidate
        return None if point is None or point.audited is None or point.audited.left > self.ceiling else point

    def ranked(self, point: FrontierPoint) -> Kept | None:
        """Return the search of a point by which the record recommends."""
        return point.store if self.store_alone else point.enough(SEARCH_KEPT)

    @property
    def recommendation(self) -> str:
        """The recommended point and the reason, or why there is none, in a few sentences."""
        counts = self.counts
        point, tried = self.recommended, counts.listed + counts.left_out
        words = f" Attacked were {tried:,} of the concept’s {counts.words:,} words, those in enough texts."
        if point is None:
            return f"{self._why_none()}{words}"
        assert point.audited is not None
        kept, leak = self.ranked(point), point.audited.leak
        reason = f"lowest leak among the designs that keep {_whole(SEARCH_KEPT)} of clean search"
        if kept is None:
            reason = "search was not measured; it leaks least"
        found = f" The attackers of an audit recover {percent(leak.value)} of the words ({_about(leak)}, chance "
        found += f"{percent(point.audited.chance)}, clean vectors {percent(point.audited.clean)}), at "
        found += f"most {_whole(point.audited.left)} of what clean vectors reveal over chance"
        if point.left_out is not None:
            found += f", the attackers of the table {percent(point.left_out.value)} of the words left out of a fit"
        search = ""
        if kept is not None and kept.candidates:
            alone = "" if point.store is None else f"; the store alone keeps {_share(point.store.value)}"
            search = f" Search keeps {_share(kept.value)} after exact ranking of {kept.candidates} candidates{alone}."
            if kept.candidates > LARGE_PART * counts.rows:
                search += (
                    f" They are a large part of {counts.rows:,} rows and keep less of a larger collection: give "
                    "its size as --collection-size."
                )
        elif kept is not None:
            search = f" Search in the store alone keeps {_share(kept.value)}."
        return f"Point {point.number} ({point.words}): {reason}.{found}.{words}{search}"

    def _why_none(self) -> str:
        point, excess = self.candidate, f"{_whole(self.ceiling)} of what clean vectors reveal over chance"
        if point is not None and point.audited is None:
            return f"No point is recommended. {self.missing.get('audited', 'The measurement is not finished.')}"
        if point is None:
            best = self.pick(at_least_search=SEARCH_KEPT)
            why = f"No design that keeps {_whole(SEARCH_KEPT)} of clean search leaves at most {excess}"
            if best is None:
                why = f"No design keeps {_whole(SEARCH_KEPT)} of clean search"
            elif best.search(store_alone=self.store_alone) is None:
                why = f"No design leaves at most {excess}"
            else:
                least = min(
                    (
                        each
                        for each in self.points
                        if (kept := each.search(store_alone=self.store_alone)) and kept.value >= SEARCH_KEPT
                    ),
                    key=lambda each: each.listed.value,
                )
                why += f"; point {least.number} leaks least, {percent(least.listed.value)} of the listed words"
        else:
            assert point.audited is not None
            leak = point.audited.leak
            why = (
                f"Of point {point.number}, the best, the attackers of an audit recover {percent(leak.value)} of the "
                f"words ({_about(leak)}, chance {percent(point.audited.chance)}, clean vectors "
                f"{percent(point.audited.clean)}): more than {excess}"
            )
        return f"{NO_DESIGN_ALONE if self.store_alone else NO_DESIGN} {why}."

    # -- drawing

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row for each point, indexed by number."""
        with optional_import("FrontierRecord.to_frame", "pandas", "plot"):
            import pandas  # type: ignore[import-untyped,unused-ignore]
        rows = []
        for point in self.points:
            row: dict[str, Any] = {"number": point.number, **point.arguments}
            for name, leak in (("listed", point.listed), ("left_out", point.left_out)):
                for key in ("value", "low", "high"):
                    row[name if key == "value" else f"{name}_{key}"] = leak and getattr(leak, key)
            row["audited"] = point.audited and point.audited.leak.value
            row["similarity"] = point.similarity.value
            row["store"] = point.store and point.store.value
            row |= {f"sealed_{kept.candidates}": kept.value for kept in point.sealed}
            rows.append(row)
        return pandas.DataFrame(rows).set_index("number")

    def plot(self, ax: Any = None) -> Any:
        """Draw search against leak of listed words with matplotlib, and return the axes."""
        if ax is None:
            with optional_import("FrontierRecord.plot", "matplotlib", "plot"):
                from matplotlib import pyplot
            ax = pyplot.subplots()[1]
        for name, line in self.lines().items():
            shown = [(point.listed.value, kept.value) for point, kept in line]
            (drawn,) = ax.plot(*zip(*best_of(shown), strict=True), label=name)
            ax.scatter(*zip(*shown, strict=True), color=drawn.get_color())
            for (point, _), place in zip(line, shown, strict=True):
                text = {"textcoords": "offset points", "xytext": (4, 4), "fontsize": "small"}
                ax.annotate(str(point.number), place, **text)
        ax.axvline(self.chance_listed, linestyle=":", color="grey", label="chance")
        ax.set_xlabel("leak of listed words (R-precision of the strongest attack)")
        ax.set_ylabel("search, share of clean")
        ax.legend()
        return ax

    def lines(self) -> dict[str, list[tuple[FrontierPoint, Kept]]]:
        """Return the lines of a plot: name -> each point with its search; unmeasured lines are absent."""
        ranked = self.candidates
        sealed = [(p, kept) for p in self.points for kept in p.sealed if kept.candidates == ranked]
        alone = [(p, p.store) for p in self.points if p.store is not None]
        named = {f"after exact ranking of {ranked} candidates": sealed, "store alone": alone}
        return {name: line for name, line in named.items() if line}

    @property
    def candidates(self) -> int:
        """Number of candidates in the plot; 0 without sealed search."""
        best = self.recommended or self.pick(at_most_leak=1.0)
        kept = None if best is None else self.ranked(best)
        return 0 if kept is None else kept.candidates


def best_of(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the Pareto-optimal places, by increasing leak (first) and search (second)."""
    best: list[tuple[float, float]] = []
    for leak, search in sorted(places, key=lambda place: (place[0], -place[1])):
        if not best or search > best[-1][1]:
            best.append((leak, search))
    return best


def _listed(point: FrontierPoint) -> Leak:
    return point.listed


def _left_out(point: FrontierPoint) -> Leak:
    return point.left_out or point.listed


def _share(kept: float) -> str:
    """Return the kept share of a utility in per cent; re-ranking by chance may keep more than all."""
    return f"{100 * kept:.1f}{NBSP}%"


def _whole(share: float) -> str:
    return f"{100 * share:.0f}{NBSP}%"


def _about(leak: Leak) -> str:
    return f"{percent(leak.low)} to {percent(leak.high)}"
