"""Read problems and encode them once per process; split them for a seed."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from research.problems import Problem, make_problem
from research.specification import Spec
from research.tasks import read_task, task_digest, task_texts
from vecveil.auditing.case import Case, Options, make_case
from vecveil.auditing.metrics import UtilityTask
from vecveil.errors import InvalidInputError
from vecveil.privacy.concepts import TokenVocabulary
from vecveil.types import Embeddings

T = TypeVar("T")
KEPT = 24  # results of `once`: vectors of a few problems, a mask or two
FIT_COUNTS = (10, 5, 3)  # as `vecveil.fit` chooses the words with a label


@dataclass(frozen=True, eq=False, repr=False)
class Material:
    """A problem as vectors, split for one seed.

    Attributes:
        case: the audit's split by group: 70 % of the texts with the concept to learn from, 30 % to judge on.
        positive, negative: (P, n) texts with the concept and without it, aligned with ``matches.with_concept``.
        background: (K, n) texts without the concept, none of a judged group.
        task: the utility task.
    """

    problem: Problem
    case: Case
    positive: Embeddings
    negative: Embeddings
    background: Embeddings
    task: UtilityTask
    seed: int

    @cached_property
    def fit_rows(self) -> npt.NDArray[np.intp]:
        """Positions of the pairs that protectors are fitted on: none of a judged group."""
        case = self.case
        own = case.groups[case.matches.with_concept]
        return np.flatnonzero(~np.isin(own, case.groups[case.test]))

    @cached_property
    def fit_labels(self) -> npt.NDArray[np.uint8]:
        """(len(fit_rows), V) concept words of the fitted texts, including rare ones."""
        matches = self.case.matches
        words: TokenVocabulary = matches.frequent_tokens(FIT_COUNTS, self.fit_rows)
        return matches.token_labels(words)[0][self.fit_rows]

    @cached_property
    def fit_groups(self) -> npt.NDArray[np.intp]:
        own: npt.NDArray[np.intp] = self.case.groups[self.case.matches.with_concept][self.fit_rows]
        return own


class Bench:
    """Problems, encoders and vectors of one run, kept in memory; each worker process has its own.

    Args:
        work: folder for files beside the records, such as trained decoders.
        show_progress: of encoding; None shows bars on a terminal.
    """

    def __init__(self, spec: Spec, data: Path, work: Path, *, show_progress: bool | None = None) -> None:
        self.spec, self.data, self.work = spec, data, work
        self.show_progress = show_progress
        self._kept: OrderedDict[Any, Any] = OrderedDict()

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """Return the cached result for ``key``, or compute it; the least recently used are dropped."""
        if key not in self._kept:
            self._kept[key] = make()
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        found: T = self._kept[key]
        return found

    def problem(self, name: str) -> Problem:
        return self.once(("problem", name), lambda: make_problem(name, self.spec.problem(name), self.data))

    def encoder(self, name: str | None = None) -> Any:
        """Return an encoder by name or folder; None takes the specification's."""
        from vecveil.texts.encoders import load_encoder

        chosen = self.spec.encoder if name is None else name
        return self.once(("encoder", chosen), lambda: load_encoder(chosen, show_progress=False))

    def task(self, name: str, encoder: Any) -> UtilityTask:
        key = ("task", name, getattr(encoder, "fingerprint", id(encoder)))
        return self.once(key, lambda: read_task(name, self.data, encoder.encode))

    def texts_of(self, name: str) -> list[str]:
        """Return the distinct texts that a problem and its task encode."""
        problem = self.problem(name)
        matches = problem.matches
        negatives = [] if matches.labels is not None else matches.negatives()
        used = [*problem.texts, *negatives, *task_texts(self.utility_of(name), self.data)]
        return list(dict.fromkeys(used))

    def utility_of(self, name: str) -> str:
        """Return the data set of a problem's utility task."""
        spec = self.spec.problem(name)
        return spec.utility or spec.data[0]

    def digest_of(self, name: str) -> list[str]:
        """Return hashes of a problem's texts and concept, of its task, and of an encoder in a folder."""
        found = [self.problem(name).digest]
        with contextlib.suppress(InvalidInputError):  # a data set without a task; code that needs one raises
            found.append(self.task_digest(self.utility_of(name)))
        if Path(self.spec.encoder).is_dir():
            found.append(self.encoder().fingerprint)
        return found

    def task_digest(self, name: str) -> str:
        return self.once(("task digest", name), lambda: task_digest(name, self.data))

    def encode(self, name: str, encoder: Any = None) -> None:
        """Encode a problem's texts into the cache, with a progress bar."""
        chosen = self.encoder() if encoder is None else encoder
        chosen.encode(self.texts_of(name), show_progress=self.show_progress)

    def material(self, name: str, seed: int, encoder: Any = None) -> Material:
        """Return a problem as vectors, split for a seed."""
        chosen = self.encoder() if encoder is None else encoder
        key = ("material", name, seed, getattr(chosen, "fingerprint", id(chosen)))
        return self.once(key, lambda: self._material(name, seed, chosen))

    def _material(self, name: str, seed: int, encoder: Any) -> Material:
        problem = self.problem(name)
        matches = problem.matches
        vectors_key = ("vectors", name, getattr(encoder, "fingerprint", id(encoder)))
        X, negative = self.once(
            vectors_key, lambda: (encoder.encode(problem.texts), encoder.encode(matches.negatives()))
        )
        options = Options(
            seed=seed,
            device="cpu",
            show_progress=False,
            attacker_texts=tuple(problem.rest),
            groups=problem.groups.tolist(),
        )
        case = make_case(
            matches,
            options,
            embeddings=X,
            encode=encoder.encode,
            detect=lambda part: [problem.rest.get(text, ()) for text in part],
            owner="experiment",
        )
        ordinary = matches.without_concept
        free = ordinary[~np.isin(case.groups[ordinary], case.groups[case.test])]
        return Material(
            problem, case, X[matches.with_concept], negative, X[free], self.task(self.utility_of(name), encoder), seed
        )
