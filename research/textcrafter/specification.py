"""The settings of the experiment: which sets, which defences with which options, and how much of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field

from research.specification import Spec, check_names, whole_numbers
from research.textcrafter.cells import TOKEN_ATTACKS
from research.textcrafter.data import PiiSpec
from research.textcrafter.defences import DEFENCES, Defence
from vecveil.errors import InvalidInputError

PARTS = ("curves", "pii", "utility", "sentences")
PII = "pii"  # what the cells of the PII corpus have on the axis ``set``


@dataclass(frozen=True, kw_only=True)
class TextCrafterSpec(Spec):
    """Sets (``problems``), parts and defences.

    A problem is a labelled set: its task is utility, its concept is what token inference looks for and what defences
    that learn from the set hide.

    Attributes:
        parts: some of `PARTS`. ``curves``: of the policies' training; ``pii``: classifiers and probes on the PII
            corpus; ``utility``: accuracy in both scenarios and token inference; ``sentences``: reconstruction.
        defences: names of `DEFENCES` or of ``variants``.
        variants: new name -> defence that it is but for its ``options``.
        options: defence -> options that take the place of its own.
        control_seeds: at most so many seeds of the defences that are no row of the paper's table.
        radius: r, the norm of a perturbation.
        rows: at most so many training and test rows of each set.
        attacks: names of `TOKEN_ATTACKS`.
        pii: the corpus of policies and PII probes.
        seen: about so many texts are gone through when a decoder is fine-tuned.
        judged: test texts that are reconstructed.
        base_data, base_texts: the decoder learns from the first so many texts of this set, and is then fine-tuned.
        start_from: folder of a decoder that has learnt from them; without it one is trained, half an hour of a core.
    """

    attacks: tuple[str, ...] = tuple(TOKEN_ATTACKS)
    parts: tuple[str, ...] = PARTS
    defences: tuple[str, ...] = tuple(DEFENCES)
    variants: dict[str, str] = field(default_factory=dict)
    options: dict[str, dict[str, float]] = field(default_factory=dict)
    control_seeds: int = 1
    radius: float = 1.0
    rows: tuple[int, ...] = (8000, 2000)
    pii: PiiSpec = field(default_factory=PiiSpec)
    seen: int = 10_000
    judged: int = 300
    base_data: str = "sentences"
    base_texts: int = 100_000
    start_from: str | None = None

    def __post_init__(self) -> None:
        _check("parts", self.parts, PARTS)
        _check("attacks", self.attacks, TOKEN_ATTACKS)
        _check("variants", self.variants.values(), DEFENCES)
        _check("defences", self.defences, (*DEFENCES, *self.variants))
        _check("options", self.options, (*DEFENCES, *self.variants))
        if len(self.rows) != 2:
            raise _wrong("rows", "two numbers: of training and test rows", len(self.rows))
        if not self.radius > 0:
            raise _wrong("radius", "above 0", self.radius)
        taken = [name for name in self.variants if name in DEFENCES]
        if taken:
            raise _wrong("variants", "new names", repr(taken[0])[:60])
        for name, one in self.problems.items():
            if name == PII:
                raise _wrong("problems", f"named otherwise than {PII!r}", repr(name))
            if one.texts is not None or one.utility is not None:
                fix = "`rows` caps the sets, and each set's own classes are its utility."
                raise _wrong(
                    f"problems.{name}"[:60], "without texts and utility", "one of them", fix
                )
        if self.texts is not None:
            raise _wrong("texts", "left out", "given", "`rows` caps the sets.")

    def defence(self, name: str) -> Defence:
        """Return a defence with its options."""
        base = DEFENCES[self.variants.get(name, name)]
        own = self.options.get(name)
        if not own:
            return base
        numbers = whole_numbers(own)
        shown = ", ".join(f"{key} = {value:g}" for key, value in own.items())
        return dataclasses.replace(
            base, title=f"{base.title}; {shown}", options={**base.options, **numbers}
        )

    def seeds_of(self, name: str) -> int:
        """Return how many seeds a defence is measured with."""
        is_row = name in DEFENCES and DEFENCES[name].main
        return self.seeds if is_row else min(self.seeds, self.control_seeds)


def _check(param: str, given: Iterable[str], known: Iterable[str]) -> None:
    check_names(param, given, known, owner="textcrafter")


def _wrong(param: str, constraint: str, got: object, fix: str = "") -> InvalidInputError:
    return InvalidInputError.of("textcrafter", param, constraint, got, fix=fix)
