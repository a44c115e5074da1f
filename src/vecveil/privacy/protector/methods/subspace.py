"""The ``subspace`` method: erase the concept's directions, keep the leading others, with Laplace noise in these alone.

The method searches open settings on the user's own texts. An erasure hides more in the texts of its fit than in others,
so the search fits the map on one fold, and a kernel attacker (`vecveil.privacy.sensitivity.concept_subspace`) learns
and is scored on releases of the other. The noise of a setting is the largest at which the map of all texts reaches the
target utility. No group of near-duplicates spans two folds.

A list is never complete, so the maps of the folds treat a quarter of the concept's words as unlisted, while the
attacker searches all words. Settings within one standard error of the least leakage are equal; among them the search
takes the one that keeps most of the texts' nearest neighbours. On the rest of the texts, which did not influence the
choice, the fit measures what the attacker recovers of listed and unlisted words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from vecveil.errors import InvalidInputError, wrong_type
from vecveil.privacy.protector.data import Data, classes_of
from vecveil.privacy.protector.method import (
    SMALLEST_NOISE,
    Aim,
    Candidate,
    CommonDraws,
    Method,
    blas_threads,
    largest_noise,
    projected_laplace,
    refuse_target,
)
from vecveil.privacy.sensitivity.concept_subspace import (
    ConceptDirections,
    Moments,
    concept_directions,
    cross_covariance,
    kernel_ridge_left_out,
    kernel_ridge_path,
    labels_recovered,
    near_duplicate_groups,
    pair_covariance,
    reader_gradients,
    share_recovered,
    standard_error,
    subspace_map,
    transplanted_moments,
)
from vecveil.privacy.sensitivity.shapes import LinearMap, NoiseShape
from vecveil.privacy.utility.tasks import NeighbourTask, UtilityRelease
from vecveil.runtime import progress
from vecveil.types import Embeddings, Groups, TokenLabels
from vecveil.validation import check_count, check_positive, connected_groups

LEAST_STRENGTH = 1e-6
"""Label directions below this share of the strongest are rounding errors."""

RANKS = (0.1, 0.16, 0.26, 0.38, 0.5)
"""Numbers of erased directions, as shares of all, for the first round."""
SHAPES = ((1 / 12, 0.0), (1 / 4, 0.9), (1 / 2, 0.3))
"""Released directions, as a share of all, each with a matching flattening."""
FURTHER_SHAPES = ((1 / 8, 0.3), (1 / 6, 0.9), (3 / 8, 0.6), (1.0, 0.0))
FURTHER_RANKS = (0.8, 1.25)
"""Shapes, and ranks as shares of the best one, to try around the best setting."""
PAIRS_RANKS = (0.6, 1.0)
"""Ranks, as shares of the best one, to try with pairs, whose directions cost more utility."""

FOLDS = (0.4, 0.4, 0.2)
"""Shares of the texts in the two folds of the search, and in the rest for the report."""
READER_ROWS, LEARNT_ROWS = 1000, 1600
"""Maximum number of rows for the search's attacker in a fold, and for the attacker of the rest."""
COPIES = 4
"""Releases of each text for an attacker's training; attackers with the protector draw as many as they like."""
FEWEST_JUDGED = 20
"""Minimum number of texts with a word for a report."""
UNLISTED, FEWEST_LABELS = 0.25, 8
"""Share of the concept's words that the folds treat as unlisted, and minimum number of words for that."""
ENOUGH_NOISE = 0.1
"""Preferred minimum noise-to-signal ratio: without noise an attacker can match a release with a candidate exactly."""

MAP_UTILITY = 0.95
"""With a given noise, minimum share of the utility at that noise that the map must keep."""

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True)
class SubspaceSetting:
    """One setting of the concept subspace.

    Attributes:
        rank: k, number of erased directions.
        kept: m, number of released directions.
        flattening: p.
        pairs: True if pairs count besides token labels in the concept's covariance.
        gradients: number of the k directions from a non-linear attacker, trained after erasing the others.
    """

    rank: int
    kept: int
    flattening: float
    pairs: bool
    gradients: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class SubspaceOptions:
    """Options of ``subspace``; the search determines those that are None.

    Attributes:
        rank, kept, flattening, pairs, gradients: as in `SubspaceSetting`.
        transplants: fit on transplanted texts too, see `vecveil.privacy.sensitivity.concept_subspace`.
        preserve: classes of a task, None where unknown: one per text of `fit`; of `fit_pairs` one per positive, or per
            positive and then per background row. The fit erases nothing that correlates with them, so a classifier of
            them keeps its accuracy. An attacker can recover what the classes reveal of the concept.
    """

    rank: int | None = None
    kept: int | None = None
    flattening: float | None = None
    pairs: bool | None = None
    gradients: int | None = None
    transplants: bool | None = False
    preserve: Any = None

    def __post_init__(self) -> None:
        if self.rank is not None:
            check_count(self.rank, owner="fit", param="rank")
        for param in ("pairs", "transplants"):
            if not isinstance(getattr(self, param), bool | None):
                raise wrong_type("fit", param, "True, False or None", getattr(self, param))
        if self.flattening is not None:
            check_positive(self.flattening, owner="fit", param="flattening", allow_zero=True)

    def fixed(self, n: int) -> dict[str, Any]:
        """Return the given fields of a setting; raise InvalidInputError for one beyond ``n`` dimensions."""
        most_gradients = n - 1 if self.rank is None else self.rank
        ranges = {"rank": (1, n - 1), "kept": (1, n - (self.rank or 1)), "gradients": (0, most_gradients)}
        for param, (least, most) in ranges.items():
            if getattr(self, param) is not None:
                check_count(getattr(self, param), owner="fit", param=param, minimum=least, maximum=most)
        given = {each.name: getattr(self, each.name) for each in fields(SubspaceSetting)}
        return {name: value for name, value in given.items() if value is not None}


def subspace_candidate(data: Data, options: SubspaceOptions, aim: Aim) -> Candidate:
    """Return the candidate of the best setting that agrees with the given options."""
    n, findings = data.dimension, dict[str, Any]()
    if n < 2:
        raise InvalidInputError("Method 'subspace' needs vectors of 2 dimensions or more.", param="positive")
    if options.preserve is not None:
        data, findings = _preserving(data, options.preserve)
    fixed, transplants = options.fixed(n), bool(options.transplants)
    if data.negative is None:
        _fix_label_rank(data, fixed, transplants=transplants)
    whole = MapFit(data, aim, transplants=transplants)
    if fixed.keys() >= {"rank", "kept", "flattening", "pairs"}:  # nothing is left to search
        return _candidate(whole, SubspaceSetting(**fixed), findings)
    with blas_threads(n):
        search = SubspaceSearch(whole)
        best = search.run(fixed)
        reading = search.reading(best)
    findings |= {"search": [{**vars(setting), **row} for setting, row in search.tried.items()]}
    findings |= {"reader": reading} if reading else {}
    return _candidate(whole, best, findings | {"warnings": search.warnings})


def _preserving(data: Data, labels: Any) -> tuple[Data, dict[str, Any]]:
    """Return the data with the covariance of the task's classes in its moments, and entries for the report."""
    rows, _ = data.sides("preserve", "labels")
    if data.background is not None and hasattr(labels, "__len__") and len(labels) != len(rows):
        rows = np.concatenate([rows, data.background])
    marks = classes_of(labels, len(rows), param="preserve")
    held, classes = marks.any(axis=1), marks.shape[1]
    if not 1 < classes <= data.dimension // 4:
        raise InvalidInputError(
            f"`preserve` has {classes} classes; {data.dimension} dimensions allow 2 to {data.dimension // 4}.",
            param="preserve",
        )
    task = cross_covariance(rows[held], marks[held])
    preserved = {"classes": classes, "texts": int(held.sum())}
    return data.with_moments(replace(data.moments, preserved=task)), {"preserved": preserved}


def _fix_label_rank(data: Data, fixed: dict[str, Any], *, transplants: bool) -> None:
    """Fix the number of erased directions to the rank of the labels: one less than the classes."""
    for param, value in (("pairs", fixed.get("pairs")), ("transplants", transplants)):
        if value:
            data.sides(param, value)
    strengths = directions_of(data.moments, pairs=False).strengths
    telling = int((strengths > LEAST_STRENGTH * strengths[0]).sum())
    most = min(telling, data.dimension - 1)
    rank = fixed.setdefault("rank", most)
    if rank > most:
        raise InvalidInputError(
            f"`rank` is at most {most} here: the labels distinguish texts in no more directions.", param="rank"
        )
    fixed["pairs"] = False
    fixed.setdefault("gradients", 0)


def _candidate(whole: MapFit, setting: SubspaceSetting, findings: Mapping[str, Any]) -> Candidate:
    data = whole.data
    directions, exact = whole.map(setting)
    # Quantised, so that a release is the same on every machine.
    linear = LinearMap.quantised(exact.down, exact.up, norm=data.moments.rms_norm)
    kept = min(setting.kept, data.dimension - setting.rank)
    return Candidate(
        NoiseShape.isotropic(data.dimension),
        lambda _: linear,
        family=projected_laplace(linear),
        parameters={**vars(setting), "kept": kept, "transplants": whole.transplants},
        findings={**findings, "residual_after_erasure": directions.residual(setting.rank)},
    )


def directions_of(moments: Moments, *, pairs: bool) -> ConceptDirections:
    if pairs or moments.B is None or not moments.B.any():
        return concept_directions(moments)
    return concept_directions(replace(moments, C=np.zeros_like(moments.C)))


def _evidence(data: Data) -> tuple[Embeddings, TokenLabels]:
    """Return texts and their labels, or both sides of pairs and the side of each row."""
    if data.token_labels is not None:
        return data.positive, data.token_labels
    assert data.negative is not None
    sides = np.repeat([1, 0], [len(data.positive), len(data.negative)])[:, None]
    return np.concatenate([data.positive, data.negative]), sides


def _fold(data: Data, rows: Rows, unlisted: Rows) -> Data:
    """Return the data of some positives and of all ordinary texts, with the ``unlisted`` columns as unlisted words."""
    positive, labels, words = data.positive[rows], data.token_labels, data.words
    negative = None if data.negative is None else data.negative[rows]
    listed = np.ones(len(rows), dtype=bool)
    if labels is not None:
        listed = np.asarray(labels[rows][:, unlisted].sum(axis=1) == 0)
        labels = np.delete(labels[rows], unlisted, axis=1)
    if words is not None:
        ordinary = np.arange(len(data.positive), words.marks.shape[0])
        words = words.without(unlisted).of(np.concatenate([rows, ordinary]))
    groups = None if data.groups is None else data.groups[rows]
    fold = replace(data, positive=positive, negative=negative, token_labels=labels, groups=groups, words=words)
    moments = replace(fold.moments, preserved=data.moments.preserved)
    if negative is not None and not listed.all():
        # Pairs of unlisted words would reveal the directions of these words, so omit them.
        C = pair_covariance(positive[listed], negative[listed]) if listed.any() else np.zeros_like(moments.C)
        moments = replace(moments, C=C)
    return fold.with_moments(moments)


class MapFit:
    """Maps of any setting, fitted on the texts of ``data``, and on transplanted ones as well."""

    def __init__(self, data: Data, aim: Aim, *, transplants: bool) -> None:
        self.data, self.aim, self.transplants = data, aim, transplants
        self.moments = data.moments
        if transplants:
            pairs = data.sides("transplants", True)
            moments = transplanted_moments(*pairs, data.token_labels, data.background, seed=aim.seed)
            # Transplants repeat the differences of real pairs, and a fold takes C from pairs of listed words alone.
            self.moments = replace(moments, C=data.moments.C, preserved=data.moments.preserved)
        self._directions: dict[bool, ConceptDirections] = {}

    def map(self, setting: SubspaceSetting) -> tuple[ConceptDirections, LinearMap]:
        """Return the directions in their order of erasure, and the map, not yet quantised."""
        if setting.pairs not in self._directions:
            self._directions[setting.pairs] = directions_of(self.moments, pairs=setting.pairs)
        directions = self._directions[setting.pairs]
        kept = min(setting.kept, len(directions.K) - setting.rank)
        if setting.gradients:
            # Train the attacker after the first erasure: its gradients then show what remains.
            first = setting.rank - setting.gradients
            before = subspace_map(directions, erased=first, kept=kept, flattening=setting.flattening)
            moment = reader_gradients(*_evidence(self.data), before, seed=self.aim.seed)
            directions = directions.followed_by(moment, after=first)
        return directions, subspace_map(directions, erased=setting.rank, kept=kept, flattening=setting.flattening)

    def draws(self, setting: SubspaceSetting, *, reduced: bool = True) -> CommonDraws:
        linear = self.map(setting)[1]
        candidate = Candidate(
            NoiseShape.isotropic(linear.dimension), lambda _: linear, family=projected_laplace(linear)
        )
        return CommonDraws(candidate, self.data.moments.rms_norm, self.aim.seed, reduced=reduced)


# -- the search: settings in two rounds, the second around the best of the first


def first_settings(n: int, fixed: dict[str, Any], *, labels: bool = True) -> Iterator[SubspaceSetting]:
    """Yield the settings of the first round, with directions from labels alone if there are labels."""
    most = n - fixed.get("kept", 1)
    ranks = sorted({min(most, max(1, round(n * share))) for share in RANKS})
    pairs = fixed.get("pairs", not labels)
    for rank in [fixed["rank"]] if "rank" in fixed else ranks:
        for kept, flattening in _shapes(n, rank, fixed, SHAPES):
            yield SubspaceSetting(rank, kept, flattening, pairs, min(rank, fixed.get("gradients", 0)))


def _shapes(n: int, rank: int, fixed: dict[str, Any], shapes: Sequence[tuple[float, float]]) -> list[tuple[int, float]]:
    """Return pairs of a number of released directions and a flattening."""
    choices = [
        (fixed.get("kept", max(1, min(n - rank, round(n * kept)))), fixed.get("flattening", power))
        for kept, power in shapes
    ]
    return list(dict.fromkeys(choices))


def gentle_settings(n: int, *, pairs: bool) -> list[SubspaceSetting]:
    """Return settings that erase little and keep the rest, a half or an eighth: for demanding targets, given noise."""
    ranks = sorted({max(1, round(n * share)) for share in (1 / n, 0.01, 0.03, 0.07)}, reverse=True)
    shapes = ((1.0, 0.0), (1 / 2, 0.0), (1 / 8, 0.3))
    return [
        SubspaceSetting(rank, kept, flattening, pairs)
        for rank in ranks
        if rank < n
        for kept, flattening in _shapes(n, rank, {}, shapes)
    ]


def second_settings(n: int, best: SubspaceSetting, fixed: dict[str, Any]) -> Iterator[SubspaceSetting]:
    """Yield further shapes, fewer and more erased directions, and pairs, around the best first setting."""
    for kept, flattening in _shapes(n, best.rank, fixed, FURTHER_SHAPES):
        yield replace(best, kept=kept, flattening=flattening)
    ranks = [] if "rank" in fixed else [(share, best.pairs) for share in FURTHER_RANKS]
    if "pairs" not in fixed and not best.pairs:
        ranks += [(share, True) for share in ([1.0] if "rank" in fixed else PAIRS_RANKS)]
    for share, pairs in ranks:
        # More erased directions may leave fewer to release.
        rank = min(n - fixed.get("kept", 1), max(1, round(best.rank * share)))
        kept = min(best.kept, n - rank)
        yield replace(best, rank=rank, kept=kept, pairs=pairs, gradients=min(rank, best.gradients))


class SubspaceSearch:
    """Searches the best `SubspaceSetting` with the fields that the caller leaves open.

    ``whole`` is the fit on all texts (without negatives in `fit_labels`); ``tried`` has the figures of each setting.
    """

    def __init__(self, whole: MapFit) -> None:
        self.whole, self.data, self.aim = whole, whole.data, whole.aim
        data, self.warnings = whole.data, list[str]()
        rng = np.random.default_rng(self.aim.seed)
        groups = near_duplicate_groups(data.positive) if data.groups is None else data.groups
        groups, (first, second, self.rest), largest = _parts(groups, rng)
        if data.groups is not None and largest:
            self.warnings.append(
                f"One group joins {largest:.0%} of the texts with the concept, near-duplicates included: the search "
                "split texts without regard to groups, and the fit's leak figures are too low for groups that it has "
                "not seen."
            )
        self.unlisted = np.arange(0)
        if data.token_labels is not None and data.negative is not None:
            self.unlisted = _left_out(data.token_labels, rng)
        # The texts of one fold fit a map; the other fold's attacker learns from its releases.
        folds = [_fold(data, rows, self.unlisted) for rows in (first, second)]
        self._fits = [MapFit(fold, self.aim, transplants=whole.transplants) for fold in folds]
        self._read = second, first
        self._readers = [self._reader(rows, groups) for rows in self._read]
        everything = data.positive
        if data.background is not None:
            everything = np.concatenate([data.positive, data.background])
        own = everything[rng.permutation(len(everything))[:2000]]
        self._neighbours = NeighbourTask(own, queries=300, seed=self.aim.seed) if len(own) > 11 else None
        self.tried: dict[SubspaceSetting, dict[str, Any]] = {}
        self._hits: dict[SubspaceSetting, npt.NDArray[np.float64]] = {}

    def run(self, fixed: dict[str, Any]) -> SubspaceSetting:
        """Return the best setting that agrees with ``fixed``.

        Raises:
            CalibrationError: no setting reaches the target utility.
        """
        n, target = self.data.dimension, self.aim.utility_target

        def best_of(settings: list[SubspaceSetting], description: str) -> SubspaceSetting | None:
            new = [setting for setting in dict.fromkeys(settings) if setting not in self.tried]
            for setting in progress(new, description, total=len(new), show=self.aim.show_progress):
                self._try(setting)
            self._compare()
            return next(iter(_ranked(self.tried)), None)

        B = self.whole.moments.B
        first = list(first_settings(n, fixed, labels=B is not None and bool(B.any())))
        best = best_of(first, "Choosing concept directions")
        free = not fixed.keys() & {"rank", "kept", "flattening"}
        if free and sum(row["feasible"] for row in self.tried.values()) < 3:
            # A demanding target: try fewer erased directions as well, down to one in a hundred.
            best = best_of(gentle_settings(n, pairs=first[0].pairs), "Choosing fewer directions")
        elif best is None and "kept" not in fixed:
            # The number of erased directions is given: regain utility by keeping all others.
            whole = [replace(setting, kept=n - setting.rank) for setting in first]
            best = best_of(whole, "Keeping all others")
        if best is None and target is None:
            # The caller chose the noise, so take the setting with the highest utility instead of refusing.
            return max(self.tried, key=lambda setting: self.tried[setting]["utility"])
        if best is None:
            assert target is not None
            reachable = max((row["utility"] for row in self.tried.values()), default=0.0)
            raise refuse_target(target, reachable, self.aim.task)
        return best_of(list(second_settings(n, best, fixed)), "Choosing kept directions") or best

    def reading(self, setting: SubspaceSetting) -> dict[str, Any]:
        """Return what an attacker recovers of listed and unlisted words in texts that did not influence the choice.

        It attacks the maps of the folds, which are fitted on fewer texts than the protector's. Empty without labels, or
        with too few texts.
        """
        data, labels = self.data, self.data.token_labels
        noise = self.tried[setting]["noise_to_signal"]
        if labels is None or noise is None:
            return {}
        listed = np.setdiff1d(np.arange(labels.shape[1]), self.unlisted)
        reading: dict[str, Any] = {"attack": "kernel ridge", "texts": len(self.rest)}
        for kind, columns in (("listed", listed), ("unlisted", self.unlisted)):
            marks = labels[:, columns]
            judge = self.rest[marks[self.rest].any(axis=1)][:READER_ROWS]
            if len(judge) < FEWEST_JUDGED or len(columns) < 2:
                continue
            shares = []
            for fitted, read in zip(self._fits, self._read, strict=True):
                release = fitted.draws(setting).at(noise)
                shares.append(_shares(data.positive, marks, read[:LEARNT_ROWS], judge, release, self.aim.seed))
            value, chance, clean = (float(np.mean(each)) for each in zip(*shares, strict=True))
            error = 1.96 * standard_error(value, marks[judge])
            reading[kind] = {
                "value": value,
                "low": max(0.0, value - error),
                "high": min(1.0, value + error),
                "chance": chance,
                "clean": clean,
                "n": len(judge),
            }
        return reading if "listed" in reading else {}

    def _reader(self, rows: Rows, groups: Groups) -> FoldReader:
        X, labels = _evidence(self.data)
        # Kernel ridge costs N³: enough rows to rank settings, few enough for dozens of them.
        rows = rows[:READER_ROWS]
        if self.data.token_labels is None:
            rows = rows[: READER_ROWS // 2]
            rows, groups = np.concatenate([rows, rows + len(groups)]), np.tile(groups, 2)
        return FoldReader(X[rows], labels[rows], groups[rows], self.aim.seed)

    def _compare(self) -> None:
        """Set each feasible setting's ``error``: the standard error of its difference from the least leakage."""
        marks = np.concatenate([reader.labels for reader in self._readers])
        held = marks.sum(axis=1)
        feasible = {setting: row for setting, row in self.tried.items() if row["feasible"]}
        if not feasible:
            return
        least = min(feasible, key=lambda setting: feasible[setting]["recovered"])
        for setting, row in feasible.items():
            if setting in self._hits:
                # Settings share texts and noise, so text by text their difference varies less than either.
                more = self._hits[setting] - self._hits[least]
                more -= held * more.sum() / held.sum()
                row["error"] = float(np.sqrt((more**2).sum()) / held.sum())
            else:
                row["error"] = standard_error(feasible[least]["recovered"], marks)

    def _try(self, setting: SubspaceSetting) -> None:
        scale, rms_norm = self.aim.scale, self.data.moments.rms_norm
        draws = self.whole.draws(setting, reduced=not self.aim.task.same_space)
        utility = self._utility(draws)
        assert scale is not None
        if scale.utility_target is not None:
            noise = largest_noise(utility, scale.utility_target)
            feasible = noise is not None
        else:
            candidate = draws.candidate
            noise = scale.noise(rms_norm, candidate.shape.dimension, candidate.family)
            assert noise is not None
            plain = CommonDraws(Candidate(candidate.shape), rms_norm, self.aim.seed)
            feasible = utility(noise) >= MAP_UTILITY * self._utility(plain)(noise)
        row: dict[str, Any] = {"feasible": feasible, "noise_to_signal": noise}
        row["utility"] = utility(SMALLEST_NOISE if noise is None else noise)
        row["neighbours"] = row["recovered"] = None
        if feasible and noise is not None:
            rng = np.random.default_rng(self.aim.seed)
            if self._neighbours is not None:
                row["neighbours"] = self._neighbours.relative(draws.at(noise), rng)
            row["recovered"] = self._leakage(setting, noise)
        self.tried[setting] = row

    def _leakage(self, setting: SubspaceSetting, noise: float) -> float:
        """Return the share of the labels that the attackers recover; keep the number for each text in ``_hits``."""
        scored = [
            (reader.scores(fitted.draws(setting).at(noise)), reader.labels)
            for fitted, reader in zip(self._fits, self._readers, strict=True)
        ]
        if scored[0][1].shape[1] == 1:
            return float(np.mean([share_recovered(*each) for each in scored]))
        hits = self._hits[setting] = np.concatenate([labels_recovered(*each) for each in scored])
        return float(hits.sum() / max(sum(int(labels.sum()) for _, labels in scored), 1))

    def _utility(self, draws: CommonDraws) -> Callable[[float], float]:
        rng = np.random.default_rng(self.aim.seed)
        return lambda noise: self.aim.task.relative(draws.at(noise), rng)


@dataclass(frozen=True, eq=False, repr=False)
class FoldReader:
    """A kernel attacker that guesses each row's labels (N, V) from the releases of the other groups' rows."""

    X: Embeddings
    labels: TokenLabels
    groups: Groups
    seed: int

    def scores(self, release: UtilityRelease) -> npt.NDArray[np.float32]:
        *learnt, judged = releases(self.X, COPIES + 1, release, self.seed)
        path = list(kernel_ridge_left_out(learnt, self.labels, judged, self.groups))
        return max(path, key=lambda scores: share_recovered(scores, self.labels))


def releases(X: Embeddings, copies: int, release: UtilityRelease, seed: int) -> list[Embeddings]:
    """Return releases of the same rows with different noise, which is the same for every setting."""
    # Copies, because a release draws its noise once for an array.
    return [release(X.copy(), np.random.default_rng([seed, i])) for i in range(copies)]


def leak_of_releases(data: Data, release: UtilityRelease, seed: int) -> dict[str, float] | None:
    """Return what kernel ridge recovers from releases (``value``), from clean vectors (``clean``), and ``chance``.

    It learns from half of the texts (or of the pairs, without labels) and is scored on the other half, on which the
    protector was fitted too. None for too few texts, or if clean vectors leak nothing significant.
    """
    X, marks = _evidence(data)
    groups = near_duplicate_groups(data.positive) if data.groups is None else data.groups
    groups = np.tile(groups, len(X) // len(data.positive))
    names, own = np.unique(groups, return_inverse=True)
    rng = np.random.default_rng(seed)
    in_learn = (rng.permutation(len(names)) < len(names) // 2)[own]
    holding = np.ones(len(X), dtype=bool) if marks.shape[1] == 1 else marks.any(axis=1)
    learn, judge = (rng.permutation(np.flatnonzero(holding & part)) for part in (in_learn, ~in_learn))
    if min(len(learn), len(judge)) < FEWEST_JUDGED:
        return None
    value, chance, clean = _shares(X, marks, learn[:LEARNT_ROWS], judge[:READER_ROWS], release, seed)
    if clean - chance <= 2 * standard_error(clean, marks[judge]):
        return None
    return {"value": value, "chance": chance, "clean": clean}


def _shares(
    X: Embeddings, marks: TokenLabels, learn: Rows, judge: Rows, release: UtilityRelease, seed: int
) -> tuple[float, float, float]:
    """Return what kernel ridge recovers from the releases of ``judge``, chance, and the same for clean vectors."""
    learnt = releases(X[learn], COPIES, release, seed)
    released = release(X[judge].copy(), np.random.default_rng(seed))
    rates = np.tile(marks[learn].mean(axis=0), (len(judge), 1))
    return (
        _best(kernel_ridge_path(learnt, marks[learn], released), marks[judge]),
        share_recovered(rates, marks[judge]),
        _best(kernel_ridge_path([X[learn]], marks[learn], X[judge]), marks[judge]),
    )


def _best(path: Iterable[npt.NDArray[np.float32]], labels: TokenLabels) -> float:
    return max(share_recovered(scores, labels) for scores in path)


def _ranked(tried: Mapping[SubspaceSetting, Mapping[str, Any]]) -> list[SubspaceSetting]:
    """Return the feasible settings, best first, by the one-standard-error rule of the module's docstring."""
    feasible = {setting: row for setting, row in tried.items() if row["feasible"]}
    least = min((row["recovered"] for row in feasible.values()), default=0.0)

    def order(setting: SubspaceSetting) -> tuple[float, ...]:
        row = feasible[setting]
        if row["recovered"] > least + row["error"]:
            return (1.0, row["recovered"])
        little = row["noise_to_signal"] < ENOUGH_NOISE
        return (0.0, little, -(row["neighbours"] or 0.0), row["recovered"])

    return sorted(feasible, key=order)


def _left_out(labels: TokenLabels, rng: np.random.Generator) -> Rows:
    """Return the columns of a random quarter of the words, or none if there are only a few.

    Words that mostly occur together are omitted together: a map that erases one of them erases the others.
    """
    count = labels.shape[1]
    if count < FEWEST_LABELS:
        return np.arange(0)
    marks = sparse.csc_matrix(labels, dtype=np.float64)
    shared = (marks.T @ marks).tocoo()
    held = shared.diagonal()
    # Texts with both words, as a share of the texts with either: at least a half.
    near = 3 * shared.data >= held[shared.row] + held[shared.col]
    groups = connected_groups(shared.row[near], shared.col[near], count)
    sizes = np.bincount(groups)
    most = round(UNLISTED * count)
    order = [group for group in rng.permutation(len(sizes)) if sizes[group] <= most]
    chosen = [group for group, total in zip(order, np.cumsum(sizes[order]), strict=True) if total <= most]
    return np.flatnonzero(np.isin(groups, chosen))


def _parts(groups: Groups, rng: np.random.Generator) -> tuple[Groups, list[Rows], float]:
    """Return groups, rows of the two folds and of the rest with no group in two parts, and 0.

    If one group would fill a fold, each row becomes a group, and the share of that group is returned in place of 0.
    """
    largest = float(np.unique(groups, return_counts=True)[1].max()) / len(groups)
    parts = _parted(groups, rng)
    if largest <= FOLDS[0] and min(map(len, parts)) >= 0.1 * len(groups):
        return groups, parts, 0.0
    alone = np.arange(len(groups))
    return alone, _parted(alone, rng), largest


def _parted(ids: Groups, rng: np.random.Generator) -> list[Rows]:
    """Return the rows of random groups, in shares of about `FOLDS`."""
    names, own = np.unique(ids, return_inverse=True)
    # Random place of each row's group: sorting by it keeps the rows of a group together.
    place = np.argsort(rng.permutation(len(names)))[own]
    rows = np.argsort(place, kind="stable")
    cuts = [int(share * len(rows)) for share in np.cumsum(FOLDS)[:-1]]
    # Move a cut to the end of its group.
    cuts = [int(np.searchsorted(place[rows], place[rows[cut]], side="right")) for cut in cuts]
    return [rng.permutation(part) for part in np.split(rows, cuts)]


SUBSPACE = Method(
    "subspace",
    "erase the concept's directions, keep the leading ones of the rest, Laplace noise in these",
    subspace_candidate,
    option_type=SubspaceOptions,
    postprocess="own map",
    without_map="laplace",
)
