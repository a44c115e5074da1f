"""Words that the protector was not told of: listed, expanded and unseen words measured apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from vecveil.concepts.expansion import Expansion
from vecveil.errors import InvalidInputError, message
from vecveil.experiments.bench import Bench
from vecveil.experiments.experiment import Cell, Experiment, Records
from vecveil.experiments.held_out import KINDS, HeldOut, SourceSpec, member_sources, strongest
from vecveil.experiments.points import attacks_named, protector_record, utility
from vecveil.experiments.scales import parse_scale
from vecveil.experiments.specification import Spec
from vecveil.experiments.summary import Cell as TableCell
from vecveil.experiments.summary import Column, Finding, Summary, Table, number
from vecveil.protector import fit

__all__ = ["HeldOutSpec", "HeldOutTerms"]

VARIANTS = {
    "none": "no protection",
    "removed": "every concept word removed from the text",
    "laplace": "Laplace",
    "sparse": "SPARSE",
    "subspace": "subspace, listed words alone",
    "expansion-found": "subspace, listed words and members where they stand",
    "expansion-few": "subspace, listed words and few members",
    "expansion": "subspace, listed words and their expansion",
    "oracle": "subspace, told of every word",
}
BAR = 0.5  # of SPARSE's excess over chance, for unseen words
ABOUT = (
    "Half of the concept's words are listed; a quarter is open to the sources of an expansion (a corpus, lists, "
    "Faker), a quarter is withheld from them. Expanded words are open ones that a source proposed; unseen ones are all "
    "others. In the specification that comes with it sources are rich: for sts the list that the concept is made of, "
    "for ade sentences of the same set, judged ones too; others will propose fewer of the right words. Protectors are "
    "fitted on texts of their own; the attackers know every word and learn it from other texts. "
    "Two rows bound what can be had: 'told of every word' is the same method with nothing held out, and 'every concept "
    "word removed' is what the rest of a sentence says of a word that is not in it any more."
)


@dataclass(frozen=True, kw_only=True)
class HeldOutSpec(Spec):
    """The settings: variants by name, the scale that all are fitted at, and the sources of each problem."""

    variants: tuple[str, ...] = tuple(VARIANTS)
    scale: str = "utility 0.95"
    few_members: int = 200
    sources: dict[str, SourceSpec] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parse_scale(self.scale)
        attacks_named(self.attacks, further=False)
        for name in self.variants:
            if name not in VARIANTS:
                wanted = "of " + ", ".join(VARIANTS)
                raise InvalidInputError(message("experiment", "variants", wanted, repr(name)[:60]))
        for name in self.problems:
            if "expansion" in self.variants and name not in self.sources:
                raise InvalidInputError(
                    message(
                        "experiment",
                        f"sources.{name}",
                        "given for the variant expansion",
                        "nothing",
                    )
                )


class HeldOutTerms(Experiment):
    """Cells with the axes problem, variant and seed."""

    name = "held-out-terms"
    what = "Leakage of words that were listed, of words that an expansion proposed, and of words that nobody named."
    source = "own"
    spec_type = HeldOutSpec

    def cells(self, spec: Spec) -> list[Cell]:
        """Return the cells; those of a problem and seed side by side."""
        assert isinstance(spec, HeldOutSpec)
        return [
            Cell.of(problem=problem, variant=variant, seed=seed)
            for seed in range(spec.seeds)
            for problem in spec.problems
            for variant in spec.variants
        ]

    def settings(self, spec: Spec, cell: Cell) -> dict[str, Any]:
        """Return what decides a cell; kinds of words follow from the expansion, so its sources count everywhere."""
        assert isinstance(spec, HeldOutSpec)
        sources = spec.sources.get(cell["problem"])
        own = (
            None
            if sources is None
            else {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(sources).items()}
        )
        few = spec.few_members if cell["variant"] == "expansion-few" else None
        return {**super().settings(spec, cell), "scale": spec.scale, "sources": own, "few": few}

    def prepare(self, spec: Spec, bench: Bench, cells: Sequence[Cell]) -> None:
        """Encode the problems' texts, and those of the expansions."""
        super().prepare(spec, bench, cells)
        for problem, seed in dict.fromkeys((cell["problem"], cell["seed"]) for cell in cells):
            held, expansion = (
                self._held(bench, problem, seed),
                self._expansion(spec, bench, problem, seed),
            )
            if expansion is not None:
                held.encoder.encode(
                    [*expansion.texts, *expansion.negatives], show_progress=bench.show_progress
                )

    def measure(self, spec: Spec, cell: Cell, bench: Bench) -> dict[str, Any]:
        """Return the leakage of each kind of word, and what is left of utility."""
        assert isinstance(spec, HeldOutSpec)
        problem, variant, seed = cell["problem"], cell["variant"], cell["seed"]
        held = self._held(bench, problem, seed)
        expansion = self._expansion(spec, bench, problem, seed)
        task = bench.task(bench.utility_of(problem), held.encoder)
        protector = None
        extra: dict[str, Any] = {}
        if variant not in ("none", "removed"):
            method = variant if variant in ("laplace", "sparse") else "subspace"
            if variant == "expansion-few":
                extra["expansion"] = self._expansion(
                    spec, bench, problem, seed, members=spec.few_members
                )
            elif variant.startswith("expansion"):
                made = 0 if variant == "expansion-found" else None
                extra["expansion"] = self._expansion(spec, bench, problem, seed, made=made)
            concept = held.concept(None if variant == "oracle" else held.listed)
            protector = fit(
                held.texts, concept, held.encoder, method=method, utility=task, seed=seed,
                show_progress=False, **parse_scale(spec.scale).arguments(method), **extra,
            )  # fmt: skip
        found = {
            kind: strongest(held, columns, protector, spec.attacks, removed=variant == "removed")
            for kind, columns in held.kinds(expansion).items()
        }
        used = extra.get("expansion")
        return {
            "leakage": found,
            "utility": None if variant == "removed" else utility(task, protector, seed),
            "expansion": None if used is None else used.report(),
            "protector": protector_record(protector),
        }

    def _held(self, bench: Bench, problem: str, seed: int) -> HeldOut:
        return bench.once(
            ("held out", problem, seed),
            lambda: HeldOut(bench.problem(problem), bench.encoder(), seed),
        )

    def _expansion(
        self,
        spec: Spec,
        bench: Bench,
        problem: str,
        seed: int,
        *,
        members: int | None = None,
        made: int | None = None,
    ) -> Expansion | None:
        """Return the expansion of the listed words, of ``members`` or of as many as the sources may give.

        Args:
            made: texts that are made up; None: as many as a user gets.
        """
        assert isinstance(spec, HeldOutSpec)
        sources = spec.sources.get(problem)
        if sources is None:
            return None
        held = self._held(bench, problem, seed)
        most = sources.members if members is None else members

        def expand() -> Expansion:
            known = member_sources(sources, bench.data, held.withheld)
            return held.concept(held.listed).expand(
                held.texts,
                sources=known,
                encoder=held.encoder,
                members=most,
                substitutions=made,
                seed=seed,
                show_progress=False,
            )

        return bench.once(("expansion", problem, seed, most, made), expand)

    def summary(self, spec: Spec, records: Records) -> Summary:
        """Return a table for each problem, what expansions cost, and the bar."""
        problems = records.values("problem")
        return Summary(
            tables=[*(_table(records, name) for name in problems), _costs(records)],
            findings=[_bar(records, name) for name in problems],
            notes=[ABOUT],
        )


def _table(records: Records, problem: str) -> Table:
    columns = [Column("Protector", text=True)]
    for kind in KINDS:
        columns += [
            Column(f"{kind.title()} words", "%"),
            Column("Chance", "%"),
            Column("Of SPARSE's excess", "%"),
        ]
    columns.append(Column("Utility kept", "%"))
    body: list[list[TableCell]] = []
    for (variant,), rows in records.where(problem=problem).each("variant"):
        row: list[TableCell] = [VARIANTS[variant]]
        for kind in KINDS:
            where = ("leakage", kind)
            ratio = _ratio(records, problem, variant, kind)
            low, high = (rows.figures(*where, end) for end in ("low", "high"))
            row += [
                number(rows.figures(*where, "value"), low=low, high=high),
                number(rows.figures(*where, "chance")),
                number([] if math.isnan(ratio) else [ratio], digits=0),
            ]
        kept = number(rows.figures("utility", "relative"))
        body.append([*row, "–" if variant == "removed" else kept])
    return Table(problem, columns, body)


def _ratio(records: Records, problem: str, variant: str, kind: str) -> float:
    """Return the excess over chance as a share of SPARSE's; NaN if one was not measured or SPARSE's is none."""

    def excess(name: str) -> float:
        rows = records.where(problem=problem, variant=name)
        value, chance = (number(rows.figures("leakage", kind, key)) for key in ("value", "chance"))
        return math.nan if value is None or chance is None else value.value - chance.value

    base = excess("sparse")
    return excess(variant) / base if base > 0 else math.nan


def _costs(records: Records) -> Table:
    columns = [
        Column("Problem", text=True), Column("Members"), Column("Texts"), Column("Encodings to find members"),
        Column("Encodings of texts"), Column("Seconds to expand"),
    ]  # fmt: skip
    paths = (
        ("members",),
        ("texts",),
        ("encodings", "members"),
        ("encodings", "texts"),
        ("seconds",),
    )
    body = [
        [
            problem,
            *(number(rows.figures("expansion", *path), percent=False, digits=0) for path in paths),
        ]
        for (problem,), rows in records.where(variant="expansion").each("problem")
    ]
    return Table("What an expansion costs", columns, body)


def _bar(records: Records, problem: str) -> Finding:
    claim = f"With an expansion unseen words leak at most half of SPARSE's excess over chance ({problem})."
    ratio = _ratio(records, problem, "expansion", "unseen")
    best = _ratio(records, problem, "oracle", "unseen")
    if math.isnan(ratio):
        return Finding(claim, "own", "not measured", "not measured")
    ours = f"{100 * ratio:.0f} % of SPARSE's excess"
    if not math.isnan(best):
        ours += f"; {100 * best:.0f} % when told of every word"
    return Finding(claim, "own", "agrees" if ratio <= BAR else "disagrees", ours)
