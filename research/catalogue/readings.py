"""SPARSE read in other ways: each reading of the text beside Laplace noise, at equal ε and at equal utility."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
from scipy.linalg import solve_triangular

from research import tables as draw
from research.bench import Bench, Material
from research.catalogue.concept_groups import closed_mask
from research.experiment import Cell, Experiment, Records, note
from research.grid import mask_options
from research.judging import Measured, Verdict, compare, difference
from research.points import leakage, utility
from research.results import ClaimFinding, Number, Summary, Table
from research.scales import EFFECTIVE_NORM, ROOM, parse_scale
from research.specification import Settings, Spec, Whole, check_names, json_ready, wrong
from vecveil.privacy.concepts.matching import Span
from vecveil.privacy.mechanisms import Mahalanobis, Step, TruncatedLaplace, epsilon_of_rms_norm
from vecveil.privacy.protector import Protector
from vecveil.privacy.protector.method import SMALLEST_NOISE, largest_noise
from vecveil.privacy.protector.methods.sparse import truncated_mask
from vecveil.privacy.sensitivity import NoiseShape
from vecveil.privacy.sensitivity.hard_concrete import fit_hard_concrete_mask
from vecveil.privacy.sensitivity.shapes import LinearMap
from vecveil.types import Embeddings, Vector

FLOOR = 1e-6  # of the mask, as published
BARE = 1e-3  # least weight of a masked vector's dimension: a weight of 0 has no inverse
CLIPPED = 0.999  # quantile of the clean coordinates beyond which a clipped release has none
BASE = "laplace"
MASKED_TOKEN = "[MASK]"
FEWEST_SEEDS = 2  # for a verdict: with one, figures of two readings are not paired
FEWEST_PAIRS = 10  # of a word, for a mask of its own


class Reading(Settings, frozen=True, kw_only=True):
    """One way to read SPARSE's text, or a control.

    Attributes:
        what: in words, for tables.
        law: ``additive`` (x + z with shape Σ), ``masked`` (x ⊙ m + z, Laplace noise of n dimensions), ``truncated``
            (x ⊙ m on the kept dimensions, Laplace noise of these alone), ``per-token`` (x + z with the shape of the
            text's own word: how often an attacker who sees a release names that word).
        mask: a name of ``masks``; ``ones``; ``random``, a permutation of ones.
        power: of the mask in Σ.
        scaling: of Σ: ``trace`` n, ``none``, or ``det`` 1.
        twice: multiply noise by Σ where Algorithm 1 has Σ^½.
        kept: k of a truncated law; None keeps all dimensions where the mask is not 0.
        clip: clip the coordinates of a release to the range of clean ones (in 255 steps).
    """

    what: str
    law: Literal["additive", "masked", "truncated", "per-token"] = "additive"
    mask: str = "published"
    power: float = 1.0
    scaling: Literal["trace", "none", "det"] = "trace"
    twice: bool = False
    kept: Whole | None = None
    clip: bool = False


class MaskSpec(Settings, frozen=True, kw_only=True):
    """A mask training.

    Attributes:
        options: that replace the published ones.
        steps: gradient steps in place of ``epochs``.
        negatives: the texts without the concept: its words ``deleted``, or each replaced by ``[MASK]``.
    """

    options: dict[str, float] = {}
    steps: Whole | None = None
    negatives: Literal["deleted", "masked"] = "deleted"


class ReadingsSpec(Spec, frozen=True, kw_only=True):
    """Readings, the masks that they name, and scales.

    Attributes:
        first: readings that are measured with all seeds before the others.
    """

    readings: dict[str, Reading]
    masks: dict[str, MaskSpec]
    scales: tuple[str, ...] = ("effective 10", "utility 0.835")
    first: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for scale in self.scales:
            if parse_scale(scale).kind not in ("literal", "effective", "utility"):
                raise wrong("scales", f"`scales`: {scale!r} is not literal, effective or a utility.")
        check_names("first", self.first, self.readings)
        check_names("mask", (each.mask for each in self.readings.values()), ("ones", "random", *self.masks))
        if BASE not in self.readings:
            raise wrong("readings", f"`readings` needs {BASE!r}: the others are compared with it.")
        for each in self.masks.values():
            mask_options(each.options)


class Readings(Experiment[ReadingsSpec]):
    """Cells with the axes problem, reading, scale and seed."""

    name = "readings"
    what = "SPARSE read in other ways, beside Laplace noise and random dimensions, at equal ε and at equal utility."
    source = "SPARSE, section 3"
    spec_type = ReadingsSpec

    def cells(self, spec: ReadingsSpec) -> list[Cell]:
        first = [name for name in spec.readings if name in spec.first]
        others = [name for name in spec.readings if name not in spec.first]
        return [
            Cell.of(problem=problem, reading=name, scale=scale, seed=seed)
            for names in (first, others)
            for problem in spec.problems
            for seed in range(spec.seeds)
            for name in names
            for scale in spec.scales
            # The noise of a text follows from its words, so no task of other texts has a utility.
            if spec.readings[name].law != "per-token" or parse_scale(scale).kind == "effective"
        ]

    def settings(self, spec: ReadingsSpec, cell: Cell) -> dict[str, Any]:
        reading = spec.readings[cell["reading"]]
        law = {key: value for key, value in json_ready(reading).items() if key != "what"}
        mask = spec.masks.get(reading.mask)
        return {**super().settings(spec, cell), "reading": law, "mask": None if mask is None else json_ready(mask)}

    def measure(self, spec: ReadingsSpec, cell: Cell, bench: Bench) -> dict[str, Any]:
        reading, seed = spec.readings[cell["reading"]], cell["seed"]
        material = bench.material(cell["problem"], seed)
        if reading.law == "per-token":
            return per_token(material, EFFECTIVE_NORM / parse_scale(cell["scale"]).value)
        mask, about = _mask(spec, reading, bench, material)
        made = release_of(reading, mask, material)
        n, scale = mask.size, parse_scale(cell["scale"])

        def kept(noise: float) -> float:
            # One generator for every strength: the utility is smooth in it.
            rng = np.random.default_rng([seed, 7])
            protector = made(epsilon_of_rms_norm(noise, n))
            return material.task.relative(lambda X, rng: protector.protect(X, rng, noise=rng is not None), rng)

        noise: float | None = EFFECTIVE_NORM / scale.value
        if scale.kind == "literal":
            noise = n / scale.value
        elif scale.kind == "utility":
            noise = largest_noise(kept, scale.value + ROOM)
        if noise is None:
            # Masking alone costs more than the target allows: no noise reaches it.
            return {"unreachable": kept(SMALLEST_NOISE), "protector": about}
        protector = made(epsilon_of_rms_norm(noise, n))
        return {
            "utility": utility(material.task, protector, seed),
            **leakage(material, protector, spec.attacks),
            "protector": {
                **about,
                "epsilon": epsilon_of_rms_norm(noise, n),
                "noise_to_signal": protector.mechanism.noise_ratio(1.0),
                "epsilon_euclidean_worst": protector.guarantee.epsilon_euclidean_worst,
            },
        }

    def summary(self, spec: ReadingsSpec, records: Records) -> Summary:
        released = Records([row for row in records if "identified" not in row["found"]])
        tables = [
            _table(spec, own, f"{problem}, {scale}") for (problem, scale), own in released.each("problem", "scale")
        ]
        tables += [_identified(records)] if len(released) < len(records) else []
        return Summary(tables=tables, findings=_findings(spec, records), notes=[note("readings")])


def _mask(spec: ReadingsSpec, reading: Reading, bench: Bench, material: Material) -> tuple[Vector, dict[str, Any]]:
    """Return the mask (n,) of a reading, and its figures for the record."""
    n, seed = material.positive.shape[1], material.seed
    trained = reading.mask in spec.masks
    mask = np.ones(n)
    if reading.mask == "random":
        mask = np.zeros(n)
        mask[np.random.default_rng([seed, 21]).permutation(n)[: reading.kept]] = 1.0
    elif trained:
        key = ("reading's mask", material.problem.name, seed, reading.mask)
        mask = bench.once(key, lambda: _trained(spec.masks[reading.mask], bench, material))
    if reading.law == "truncated":
        mask = truncated_mask(mask, kept=reading.kept)
    squares = float((mask**2).sum())
    about = {
        "trained": trained,
        "kept": int(np.count_nonzero(mask)),
        "effective_dimensions": float(mask.sum()) ** 2 / squares if squares else 0.0,
        "mean": float(mask.mean()),
        "sd": float(mask.std()),
    }
    return mask, about


def _trained(mask: MaskSpec, bench: Bench, material: Material) -> Vector:
    rows = material.fit_rows
    P, N = material.positive[rows], material.negative[rows]
    if mask.negatives == "masked":
        N = _masked_texts(bench, material)[rows]
    options = mask_options(mask.options)
    if mask.steps is not None:
        batches = -(-len(P) // options.batch_size)
        options = dataclasses.replace(options, epochs=-(-mask.steps // batches))
    fitted = fit_hard_concrete_mask(P, N, options, seed=material.seed, show_progress=False)
    return np.asarray(fitted.mask, dtype=np.float64)


def _masked_texts(bench: Bench, material: Material) -> Embeddings:
    """Return the vectors of the texts with the concept, each of its spans replaced by ``[MASK]``."""
    matches = material.case.matches
    texts = [_replaced(matches.texts[i], matches.spans[i]) for i in matches.with_concept]
    vectors: Embeddings = np.asarray(bench.encoder().encode(texts, show_progress=False))
    return vectors


def _replaced(text: str, spans: Iterable[Span]) -> str:
    for span in sorted(spans, key=lambda span: -span.start):
        text = text[: span.start] + MASKED_TOKEN + text[span.end :]
    return text


def release_of(reading: Reading, mask: Vector, material: Material) -> Callable[[float], Protector]:
    """Return the protector of a reading as a function of ε."""
    after: tuple[Step, ...] = ()
    if reading.clip:
        after = (Step("int8", float(np.quantile(np.abs(material.positive), CLIPPED))),)
    if reading.law == "truncated":
        weights = mask / mask.max()
        return lambda epsilon: Protector("sparse", TruncatedLaplace(weights, epsilon), after=after)
    linear = None
    if reading.law == "masked":
        # x ⊙ w + z is (x + z/w) ⊙ w: Mahalanobis noise of shape 1/w², then a map.
        weights = np.maximum(mask / mask.max(), BARE)
        spread, linear = weights**-2.0, LinearMap(np.diag(weights))
    else:
        spread = (mask + FLOOR) ** reading.power
        if reading.scaling == "trace":
            spread = spread / spread.mean()
        elif reading.scaling == "det":
            spread = spread / float(np.exp(np.log(spread).mean()))
        if reading.twice:
            spread = spread**2
    # The package's shapes have trace n: Σ times c at ε is Σ at ε/√c.
    share = math.sqrt(float(spread.mean()))
    shape = NoiseShape.from_diagonal(spread / spread.mean(), floor=1e-12)
    return lambda epsilon: Protector("sparse", Mahalanobis(shape, epsilon / share), map=linear, after=after)


def per_token(material: Material, noise: float) -> dict[str, Any]:
    """Return how often an attacker names the word whose mask shaped the noise of a text with one word.

    The attacker knows the masks, the words' frequencies and the mean and covariance of clean vectors; the likelihood
    of a release under each mask decides. A word's mask is |mean of D⁺ − D⁻| of its pairs.
    """
    case, rng = material.case, np.random.default_rng([material.seed, 22])
    own = case.labels[case.matches.with_concept]
    alone = np.flatnonzero(own.sum(axis=1) == 1)
    learnt = np.intersect1d(alone, material.fit_rows)
    judged = np.setdiff1d(alone, material.fit_rows)
    counts = own[learnt].sum(axis=0)
    named = np.flatnonzero(counts >= FEWEST_PAIRS)
    judged = judged[own[judged][:, named].any(axis=1)]
    word = own[judged][:, named].argmax(axis=1)
    n = material.positive.shape[1]
    clean = np.asarray(material.positive[material.fit_rows], dtype=np.float64)
    K, mean = np.cov(clean.T), clean.mean(axis=0)
    shapes, scores = [], np.empty((len(judged), len(named)))
    for column in named:
        rows = learnt[own[learnt, column] == 1]
        shapes.append(
            NoiseShape.from_diagonal(closed_mask(material.positive[rows], material.negative[rows]), floor=FLOOR)
        )
    Y = np.empty((len(judged), n))
    epsilon = epsilon_of_rms_norm(noise, n)
    for j, shape in enumerate(shapes):
        at = np.flatnonzero(word == j)
        Y[at] = Mahalanobis(shape, epsilon).protect(
            np.asarray(material.positive[judged[at]], dtype=np.float64), rng=rng
        )
    for j, shape in enumerate(shapes):
        root = np.linalg.cholesky(K + Mahalanobis(shape, epsilon).noise_covariance())
        white = solve_triangular(root, (Y - mean).T, lower=True)
        prior = math.log(counts[named[j]])
        scores[:, j] = prior - 0.5 * (white**2).sum(axis=0) - np.log(np.diag(root)).sum()
    sizes = [float(shape.covariance().trace() ** 2 / (shape.covariance() ** 2).sum()) for shape in shapes]
    return {
        "identified": {
            "value": float((scores.argmax(axis=1) == word).mean()),
            "chance": float((word == counts[named].argmax()).mean()),
        },
        "words": len(named),
        "texts": {"judged": len(judged)},
        "protector": {"trained": False, "effective_dimensions": float(np.mean(sizes)), "epsilon": epsilon},
    }


def _identified(records: Records) -> Table:
    own = Records([row for row in records if "identified" in row["found"]])
    return draw.table(
        "Per-token masks: the word named from one release",
        own.each("problem", "scale"),
        [
            draw.axis("Data", 0),
            draw.axis("Scale", 1),
            draw.percent("Named", "identified", "value"),
            draw.percent("By the most frequent word", "identified", "chance"),
            draw.plain("Words", "words"),
            draw.plain("Texts", "texts", "judged"),
            draw.plain("Effective dimensions", "protector", "effective_dimensions"),
        ],
    )


def _against(one: Measured | None, other: Measured | None) -> Number | None:
    """Return the difference of two figures in points with its 95 % interval."""
    if one is None or other is None or not set(one.by_seed) & set(other.by_seed):
        return None
    gap, half = difference(one, other)
    return Number(gap, low=gap - half, high=gap + half, percent=False)


def _table(spec: ReadingsSpec, own: Records, title: str) -> Table:
    base = own.where(reading=BASE)

    def beside(name: str, *path: str) -> draw.Drawn:
        def cell(key: tuple[Any, ...], rows: Records) -> Number | None:
            return _against(rows.measured(*path, factor=100), base.measured(*path, factor=100))

        return draw.column(name, cell, "points")

    def control(key: tuple[Any, ...], rows: Records) -> Number | None:
        found = _control(spec, own, key[0])
        return None if found is None else _against(rows.measured("leakage", factor=100), found)

    names = [name for name in spec.readings if len(own.where(reading=name))]
    return draw.table(
        title,
        (((name,), own.where(reading=name)) for name in names),
        [
            draw.column("Reading", lambda key, rows: spec.readings[key[0]].what, text=True),
            draw.column("Mask", lambda key, rows: _trained_words(rows), text=True),
            draw.plain("Effective dimensions", "protector", "effective_dimensions"),
            draw.column("Seeds", lambda key, rows: draw.count(len(rows))),
            draw.percent("Utility kept", "utility", "relative"),
            beside("Utility − Laplace's", "utility", "relative"),
            draw.estimate("Leakage, strongest attack", "leakage"),
            beside("Leakage − Laplace's", "leakage"),
            draw.column("Leakage − random dimensions'", control, "points"),
            draw.percent("Leakage (Eq. 13), mlp-512", "attacks", "mlp-512", "leakage", "value"),
        ],
        "Differences are paired over seeds, with 95 % intervals. At a utility some readings have no row: masking alone "
        "costs more than the target allows.",
    )


def _trained_words(rows: Records) -> str:
    return "trained" if any(row["found"]["protector"]["trained"] for row in rows) else "none"


def _control(spec: ReadingsSpec, own: Records, name: str) -> Measured | None:
    """Return the leakage of as many random dimensions as a truncated reading keeps, the nearest k measured."""
    reading = spec.readings[name]
    if reading.law != "truncated" or reading.mask == "random":
        return None
    k = own.where(reading=name).figures("protector", "kept")
    controls = {
        other: each.kept
        for other, each in spec.readings.items()
        if each.mask == "random" and each.kept and own.where(reading=other).figures("leakage", "value")
    }
    if not k or not controls:
        return None
    nearest = min(controls, key=lambda other: abs(math.log(float(np.mean(k)) / (controls[other] or 1))))
    return own.where(reading=nearest).measured("leakage", factor=100)


def _findings(spec: ReadingsSpec, records: Records) -> list[ClaimFinding]:
    found = []
    for name, reading in spec.readings.items():
        if name == BASE or reading.law == "per-token":
            continue
        parts, outcomes, against, seeds = [], [], [], spec.seeds
        for (problem, scale), own in records.each("problem", "scale"):
            if parse_scale(scale).kind != "utility":
                continue
            one, other = own.where(reading=name).measured("leakage"), own.where(reading=BASE).measured("leakage")
            if one is None or other is None:
                continue
            gap = _against(own.where(reading=name).measured("leakage", factor=100), _scaled(other))
            outcomes.append(compare(other, one))
            seeds = min(seeds, len(one.by_seed))
            parts.append(f"{problem}, {scale}: {_points(gap)} points")
            control = _control(spec, own, name)
            if control is not None:
                against.append(_points(_against(own.where(reading=name).measured("leakage", factor=100), control)))
        if not outcomes:
            continue
        verdict: Verdict = "unclear" if seeds < FEWEST_SEEDS else "no difference"
        if seeds >= FEWEST_SEEDS and min(outcomes) > 0:
            verdict = "agrees"
        elif seeds >= FEWEST_SEEDS and max(outcomes) < 0:
            verdict = "disagrees"
        beside = f"; against random dimensions {', '.join(against)}" if against else ""
        found.append(
            ClaimFinding(
                f"{reading.what}: leaks less than Laplace noise at equal utility.",
                "SPARSE, section 3",
                verdict,
                "; ".join(parts) + beside,
                "not compared",
                draw.SETTING,
            )
        )
    return found


def _scaled(figure: Measured) -> Measured:
    return Measured({seed: 100 * value for seed, value in figure.by_seed.items()}, 100 * figure.half)


def _points(gap: Number | None) -> str:
    if gap is None or gap.low is None or gap.high is None:
        return "not measured"
    return f"{gap.value:+.1f} ± {(gap.high - gap.low) / 2:.1f}".replace("-", "−")
