"""The settings of the experiment: sets, defences and their options."""

from __future__ import annotations

import dataclasses

from research.specification import ConceptSpec, Spec, Whole, check_names, whole_numbers, wrong
from research.textcrafter.cells import TOKEN_ATTACKS
from research.textcrafter.data import PiiSpec
from research.textcrafter.defences import DEFENCES, Defence

PARTS = ("curves", "pii", "utility", "sentences")
PII = "pii"  # what the cells of the PII corpus have on the axis ``set``


class TextCrafterSpec(Spec, frozen=True, kw_only=True):
    """Sets (``problems``), parts and defences.

    A problem is a labelled set: its task is utility; its concept is the target of token inference, and hidden by
    defences that learn from the set.

    Attributes:
        parts: some of `PARTS`. ``curves``: the policies' training; ``pii``: classifiers and probes on the PII corpus;
            ``utility``: accuracy in both scenarios and token inference; ``sentences``: reconstruction.
        defences: names of `DEFENCES` or of ``variants``.
        variants: new name -> defence that it takes everything but ``options`` from.
        options: defence -> options that replace its own.
        control_seeds: maximum number of seeds of defences outside the paper's table.
        radius: r, the norm of a perturbation.
        rows: maximum numbers of training and test rows of each set.
        attacks: names of `TOKEN_ATTACKS`.
        pii: the corpus of policies and PII probes.
        seen: approximate number of texts in the fine-tuning of a decoder.
        judged: number of test texts to reconstruct.
        base_data, base_texts: the base decoder learns from the first ``base_texts`` of this set.
        start_from: folder of such a decoder; without it one is trained, half an hour of a core.
    """

    attacks: tuple[str, ...] = tuple(TOKEN_ATTACKS)
    parts: tuple[str, ...] = PARTS
    defences: tuple[str, ...] = tuple(DEFENCES)
    variants: dict[str, str] = {}
    options: dict[str, dict[str, float]] = {}
    control_seeds: Whole = 1
    radius: float = 1.0
    rows: tuple[int, ...] = (8000, 2000)
    pii: PiiSpec = PiiSpec()
    seen: Whole = 10_000
    judged: Whole = 300
    base_data: str = "sentences"
    base_texts: Whole = 100_000
    start_from: str | None = None

    def __post_init__(self) -> None:
        check_names("parts", self.parts, PARTS)
        check_names("attacks", self.attacks, TOKEN_ATTACKS)
        check_names("variants", self.variants.values(), DEFENCES)
        check_names("defences", self.defences, (*DEFENCES, *self.variants))
        check_names("options", self.options, (*DEFENCES, *self.variants))
        if len(self.rows) != 2:
            raise wrong("rows", f"`rows` takes two numbers, of training and test rows, not {len(self.rows)}.")
        if not self.radius > 0:
            raise wrong("radius", f"`radius` is {self.radius}; use a number above 0.")
        taken = [name for name in self.variants if name in DEFENCES]
        if taken:
            raise wrong("variants", f"`variants`: {repr(taken[0])[:60]} is the name of a defence. Choose another.")
        for name, one in self.problems.items():
            if name == PII:
                raise wrong("problems", f"`problems`: {PII!r} is reserved. Choose another name.")
            if one.texts is not None or one.utility is not None:
                text = "takes no texts or utility: `rows` caps the sets, and each set's own classes are its utility."
                raise wrong(f"problems.{name}"[:60], f"`problems.{name[:51]}` {text}")
        if self.texts is not None:
            raise wrong("texts", "Leave out `texts`: `rows` caps the sets.")

    def defence(self, name: str) -> Defence:
        """Return a defence with its options."""
        base = DEFENCES[self.variants.get(name, name)]
        own = self.options.get(name)
        if not own:
            return base
        numbers = whole_numbers(own)
        shown = ", ".join(f"{key} = {value:g}" for key, value in own.items())
        return dataclasses.replace(base, title=f"{base.title}; {shown}", options={**base.options, **numbers})

    def concepts(self) -> dict[str, ConceptSpec]:
        return {**super().concepts(), "the PII corpus": self.pii.concept}

    def seeds_of(self, name: str) -> int:
        is_row = name in DEFENCES and DEFENCES[name].main
        return self.seeds if is_row else min(self.seeds, self.control_seeds)
