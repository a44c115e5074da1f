"""Words that the protector was not told of: listed, expanded and unseen words measured apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from research.bench import Bench
from research.catalogue.held_out_tables import (
    ABOUT,
    SETTING,
    VARIANTS,
    bar,
    cost_table,
    limit,
    protector_table,
)
from research.experiment import Cell, Experiment, Records
from research.held_out import HeldOut, SourceSpec, member_sources, strongest
from research.points import attacks_named, protector_record, utility
from research.scales import parse_scale
from research.specification import Spec
from research.summary import Summary
from vecveil.concepts.expansion import Expansion
from vecveil.errors import CalibrationError, InvalidInputError
from vecveil.protector import fit

__all__ = ["HeldOutSpec", "HeldOutTerms", "setting_options"]


@dataclass(frozen=True, kw_only=True)
class HeldOutSpec(Spec):
    """The settings.

    Attributes:
        variants: by name.
        more_seeds, more_variants: variants that are measured with more seeds.
        settings: of the subspace method, fitted on the listed words: shares of the directions that are erased and
            released, and the flattening, as ``0.23 0.08 0.4``.
        scale: that all are fitted at.
        few_members: of the variant ``expansion-few``.
        sources: of the expansions, for each problem.
    """

    variants: tuple[str, ...] = tuple(VARIANTS)
    more_seeds: int = 1
    more_variants: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    scale: str = "utility 0.95"
    few_members: int = 200
    sources: dict[str, SourceSpec] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parse_scale(self.scale)
        attacks_named(self.attacks, further=False)
        for one in self.settings:
            setting_options(one, 100)
        for name in (*self.variants, *self.more_variants):
            if name not in VARIANTS:
                wanted = "of " + ", ".join(VARIANTS)
                raise InvalidInputError.of("experiment", "variants", wanted, repr(name)[:60])
        expanded = any(v.startswith("expansion") for v in (*self.variants, *self.more_variants))
        for name in self.problems:
            if expanded and name not in self.sources:
                raise InvalidInputError.of("experiment", f"sources.{name}",
                                           "given for the variants of expansions", "nothing")  # fmt: skip


class HeldOutTerms(Experiment):
    """Cells with the axes problem, variant and seed."""

    name = "held-out-terms"
    what = "Leakage of words that were listed, of words that an expansion proposed, and of words that nobody named."
    source = "own"
    spec_type = HeldOutSpec

    def cells(self, spec: Spec) -> list[Cell]:
        """Return the cells; those of a problem and seed side by side."""
        assert isinstance(spec, HeldOutSpec)
        variants = (*spec.variants, *(SETTING + one for one in spec.settings))
        return [
            Cell.of(problem=problem, variant=variant, seed=seed)
            for seed in range(max(spec.seeds, spec.more_seeds))
            for problem in spec.problems
            for variant in (variants if seed < spec.seeds else spec.more_variants)
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
            if variant.startswith(SETTING):
                extra |= setting_options(variant.removeprefix(SETTING), held.positive.shape[1])
            concept = held.concept(None if variant == "oracle" else held.listed)
            try:
                protector = fit(
                    held.texts, concept, held.encoder, method=method, utility=task, seed=seed,
                    show_progress=False, **parse_scale(spec.scale).arguments(method), **extra,
                )  # fmt: skip
            except CalibrationError:
                if not variant.startswith(SETTING):
                    raise
                return {"kept": False}  # the map alone costs more than the scale allows
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
            tables=[*(protector_table(records, name) for name in problems), cost_table(records)],
            findings=[
                *(bar(records, name) for name in problems),
                *(limit(records, name) for name in problems),
            ],
            notes=[ABOUT],
        )


def setting_options(text: str, n: int) -> dict[str, Any]:
    """Return the options of `vecveil.fit` that a setting stands for, among ``n`` directions.

    Raises:
        InvalidInputError: not two shares and a flattening.
    """
    try:
        erased, released, flattening = (float(part) for part in text.split())
        if not (0 < erased < 1 and 0 < released <= 1 - erased and 0 <= flattening <= 2):
            raise ValueError
    except ValueError:
        wanted = "shares erased and released, and a flattening, such as '0.23 0.08 0.4'"
        raise InvalidInputError.of("experiment", "settings", wanted, repr(text)[:40]) from None
    rank = min(n - 1, max(1, round(erased * n)))
    return {
        "rank": rank,
        "kept": max(1, min(n - rank, round(released * n))),
        "flattening": flattening,
        "gradients": 0,
    }
