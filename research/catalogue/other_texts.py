"""Leakage of listed and unlisted words to attackers who learn on other texts than the protector was fitted on."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from research import tables as draw
from research.bench import Bench
from research.catalogue.held_out_terms import MIN_COUNT, WordSplit, strongest
from research.experiment import Cell, Experiment, Records
from research.points import attacks_named, protector_record, utility
from research.problems import Problem
from research.scales import parse_scale
from research.specification import Spec, check_names, json_ready, whole_numbers, wrong
from vecveil.concepts import Concept
from vecveil.concepts.folding import canonical, words
from vecveil.metrics import StsTask, UtilityTask
from vecveil.protector import fit
from vecveil.records.experiment import ClaimFinding, Number, Summary, Table, number

SMALL = "mlp-512"


@dataclass(frozen=True, kw_only=True)
class SetupSpec:
    """How texts and words are divided.

    Attributes:
        listed: share of the words that a fit knows: 0.5, 0.75 or 1.
        least: texts that attackers learn a word from.
        in_sample: attackers learn on the fitted texts, twice as many; they are judged on others.
        inside: the concept is the list of the words with at least this share of their occurrences inside the
            problem's spans; None keeps the problem's concept.
        defences: those that are measured; none takes all.
    """

    problem: str
    listed: float = 1.0
    least: int = MIN_COUNT
    in_sample: bool = False
    inside: float | None = None
    defences: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.listed not in (0.5, 0.75, 1.0):
            raise wrong("listed", "0.5, 0.75 or 1", self.listed)


@dataclass(frozen=True, kw_only=True)
class DefenceSpec:
    """Arguments of `vecveil.fit`; the method ``none`` is clean vectors.

    Attributes:
        scale: see `parse_scale`.
        options: of the method.
    """

    method: str = "none"
    scale: str = "utility 0.95"
    options: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BarSpec:
    """A bound on a defence in one setup, on the mean over seeds.

    Attributes:
        words: ``listed`` or ``unseen``.
        attack: name of an attack; None takes the strongest.
        of: the bound is on the excess over chance as a share of this defence's.
        beside: the bound is on the absolute difference to this setup.
    """

    claim: str
    setup: str
    at_most: float
    defence: str = "subspace"
    words: str = "listed"
    attack: str | None = None
    of: str | None = None
    beside: str | None = None


@dataclass(frozen=True, kw_only=True)
class OtherTextsSpec(Spec):
    """Setups, defences and bounds."""

    setups: dict[str, SetupSpec] = field(default_factory=dict)
    defences: dict[str, DefenceSpec] = field(default_factory=dict)
    bars: tuple[BarSpec, ...] = ()

    def __post_init__(self) -> None:
        attacks_named(self.attacks, further=False)
        for setup in self.setups.values():
            check_names("setups.problem", [setup.problem], self.problems)
            check_names("setups.defences", setup.defences, self.defences)
        for defence in self.defences.values():
            parse_scale(defence.scale)
        for bar in self.bars:
            check_names("bars.setup", [bar.setup, bar.beside or bar.setup], self.setups)
            check_names("bars.defence", [bar.defence, bar.of or bar.defence], self.defences)


def listed_words(problem: Problem, share: float) -> Problem:
    """Return the problem with a list as its concept: words that occur mostly inside its spans, wherever they stand."""
    inside: Counter[str] = Counter()
    every: Counter[str] = Counter()
    for text, spans in zip(problem.texts, problem.matches.spans, strict=True):
        every.update(words(canonical(text)))
        inside.update(word for span in spans for word in words(span.term))
    terms = sorted(word for word, count in inside.items() if count >= share * every[word])
    concept = Concept.from_terms(problem.name, terms)
    return replace(problem, concept=concept, matches=concept.find(problem.texts), rest={})


def halves(task: UtilityTask) -> tuple[UtilityTask, UtilityTask]:
    """Return the task on one half of its pairs, to calibrate on, and on the other, to measure on."""
    if not isinstance(task, StsTask):
        raise wrong("utility", "a data set of sentence pairs", type(task).__name__)
    order = np.random.default_rng(0).permutation(len(task.scores))
    first, second = (
        StsTask(task.left[rows], task.right[rows], task.scores[rows])
        for rows in np.array_split(order, 2)
    )
    return first, second


class OtherTexts(Experiment[OtherTextsSpec]):
    """Cells with the axes setup, defence and seed."""

    name = "other-texts"
    what = "Leakage to attackers who learn on other texts than the fit's, beside bounds on it."
    source = "own"
    spec_type = OtherTextsSpec

    def cells(self, spec: OtherTextsSpec) -> list[Cell]:
        return [
            Cell.of(setup=name, defence=defence, seed=seed)
            for seed in range(spec.seeds)
            for name, setup in spec.setups.items()
            for defence in setup.defences or spec.defences
        ]

    def problems(self, spec: OtherTextsSpec, cell: Cell) -> tuple[str, ...]:
        return (spec.setups[cell["setup"]].problem,)

    def settings(self, spec: OtherTextsSpec, cell: Cell) -> dict[str, Any]:
        setup = json_ready(spec.setups[cell["setup"]])
        del setup["defences"]
        defence = json_ready(spec.defences[cell["defence"]])
        return {**super().settings(spec, cell), "setup": setup, "defence": defence}

    def prepare(self, spec: OtherTextsSpec, bench: Bench, cells: Sequence[Cell]) -> None:
        super().prepare(spec, bench, cells)
        for name in dict.fromkeys(cell["setup"] for cell in cells):
            held = self._held(spec, bench, name, 0)
            held.encoder.encode(held.matches.negatives(), show_progress=bench.show_progress)

    def measure(self, spec: OtherTextsSpec, cell: Cell, bench: Bench) -> dict[str, Any]:
        defence, seed = spec.defences[cell["defence"]], cell["seed"]
        setup = spec.setups[cell["setup"]]
        held = self._held(spec, bench, cell["setup"], seed)
        task, judged = halves(bench.task(bench.utility_of(setup.problem), held.encoder))
        protector = None
        if defence.method != "none":
            protector = fit(
                held.texts, held.concept(None if setup.listed == 1 else held.listed), held.encoder,
                method=defence.method, utility=task, seed=seed, show_progress=False,
                **parse_scale(defence.scale).arguments(defence.method), **whole_numbers(defence.options),
            )  # fmt: skip
        return {
            **{
                kind: strongest(held, columns, protector, spec.attacks)
                for kind, columns in held.kinds(None).items()
            },
            "utility": utility(judged, protector, seed),
            "protector": protector_record(protector),
        }

    def _held(self, spec: OtherTextsSpec, bench: Bench, name: str, seed: int) -> WordSplit:
        setup = spec.setups[name]

        def split() -> WordSplit:
            problem = bench.problem(setup.problem)
            if setup.inside is not None:
                problem = listed_words(problem, setup.inside)
            return WordSplit(
                problem, bench.encoder(), seed,
                listed=setup.listed, least=setup.least, in_sample=setup.in_sample,
            )  # fmt: skip

        return bench.once(("held out", name, seed), split)

    def summary(self, spec: OtherTextsSpec, records: Records) -> Summary:
        tables = [_table(name, rows) for (name,), rows in records.each("setup")]
        findings = [_finding(bar, records) for bar in spec.bars]
        return Summary(tables=tables, findings=findings, notes=[ABOUT])


ABOUT = (
    "Texts are divided by group (abstract, document, template, connected pairs): 35 % fit the protector, "
    "attackers learn all words on another 35 %, with their labels and fresh noise, and are judged on 30 %; in- "
    "sample, they learn on the fitted texts. Figures are those of the strongest attack. Each seed draws its own "
    "division and its own list; unlisted words are in no list of the fit. Noise is calibrated on half of the "
    "pairs of STS12, both sides protected; utility is measured on the other half with other noise."
)
KINDS = {"listed": "Listed words", "unseen": "Unlisted words"}


def _table(name: str, records: Records) -> Table:
    base = records.where(defence="sparse")
    columns = [draw.axis("Protector", 0)]
    for kind, title in KINDS.items():
        if not records.figures(kind, "value"):
            continue

        def share(key: Any, rows: Records, kind: str = kind) -> Number | None:
            return number(draw.excess_shares(rows, base, kind), digits=0)

        def strongest_of(key: Any, rows: Records, kind: str = kind) -> str:
            return ", ".join(dict.fromkeys(row["found"][kind]["attack"] for row in rows))

        columns += [
            draw.estimate(title, kind),
            draw.percent("Chance", kind, "chance"),
            draw.column("Of SPARSE's excess", share, "%"),
            draw.percent("512 units", kind, "attacks", SMALL),
            draw.column("Strongest", strongest_of, text=True),
        ]
    columns.append(draw.percent("Utility kept", "utility", "relative"))
    columns.append(draw.column("Seeds", lambda key, rows: draw.count(len(rows))))
    return draw.table(name, records.each("defence"), columns)


def _finding(bar: BarSpec, records: Records) -> ClaimFinding:
    """Return whether the mean over seeds keeps to a bound."""
    own = records.where(setup=bar.setup)
    path = (bar.words, "value") if bar.attack is None else (bar.words, "attacks", bar.attack)
    found = own.where(defence=bar.defence).figures(*path)
    if bar.of is not None:
        found = draw.excess_shares(
            own.where(defence=bar.defence), own.where(defence=bar.of), bar.words
        )
    elif bar.beside is not None:
        other = records.where(setup=bar.beside, defence=bar.defence).figures(*path)
        found = [abs(statistics.fmean(found) - statistics.fmean(other))] if found and other else []
    if not found:
        return ClaimFinding(bar.claim, "own", "not measured", "not measured")
    mean = statistics.fmean(found)
    ours = f"{100 * mean:.1f} % (bound {100 * bar.at_most:g} %"
    if len(found) > 1:
        ours += f"; {100 * min(found):.1f} to {100 * max(found):.1f} over {len(found)} seeds"
    return ClaimFinding(
        bar.claim, "own", "agrees" if mean <= bar.at_most else "disagrees", ours + ")"
    )
