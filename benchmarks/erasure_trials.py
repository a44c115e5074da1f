"""Changes of the erasure that `subspace` does not have: what an attacker reads at equal similarity, on other texts.

    python benchmarks/erasure_trials.py --data DIR [--concepts ade sts] [--trials steps weights ...] [--seeds 0 1]

DIR and the concepts are those of ``leakage.py``; MiniLM, 3,000 ordinary texts. A protector is fitted on half of the
training groups' texts, attackers learn on the other half and are judged on the test groups. ``linear`` is the release
y = T(x + z) of ``subspace`` at a setting that a fit chose. Each release gets the largest noise that keeps 95 % of the
correlation on half of the pairs of STS12, both sides protected; similarity is measured on the other half.

``steps`` adds a non-linear step h, ``before`` the noise, h(Tx) + Tz, or ``after`` it, h(T(x + z)), learnt on noisy
vectors:

- ``kernel``: layers of 1,000 random Fourier features beside the vector itself; the concept's leading directions among
  the features are erased as in ``subspace``, and a ridge regression leads back to the vector (the closed-form part of
  Obliviator, Akbari, Afshari and Boddeti 2026; Kernelized Concept Erasure, Ravfogel et al. 2022).
- ``linear step``: the same without random features, to tell what is due to further directions alone.
- ``network``: u + W₂ tanh(W₁u + b), trained to lower the centred kernel alignment of releases and words and to keep
  the cosines between texts (the trained part of Obliviator).
- ``projection``: an orthogonal projection of all that the erasure leaves on as many directions as T keeps, instead of
  the principal ones, trained by the same loss (LEOPARD, Saillenfest and Lemberger 2025, for many words at once).

``more directions`` is the linear map with 60 more of them. A quick reader (kernel ridge, four releases of 1,500 texts)
measures every change; the row ``best`` is the step from which it reads least **on the judged texts**, which favours it
over ``linear``. Both are attacked by kernel ridge regression and a 2,048-unit perceptron with fresh releases.

``weights`` lets a fit know half of the words and weights them: ``by group`` (each group of the list, or label of the
spans, as much as another), ``by share`` (of the texts that hold the word), and by the roots of that. ``background``
adds 3,000 and 20,000 sentences of ``lm/sentences.parquet`` to the ordinary texts of K, with the shrinkage of Ledoit
and Wolf or with the least ridge alone. ``estimates`` takes B ``across folds``, Σ_v w_v Cov₁(Φ, l_v) Cov₂(l_v, Φ) of two
halves of the texts, or adds ``transplants``: each pair's difference put into other sentences, for the labels' part of B
(``labels``) or as the option of `vecveil.fit` does (``all``). The quick reader measures all three.
Writes benchmarks/results/erasure_trials.json after each row; a later run measures the missing setups.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from leakage import MIN_COUNT, _task, ade_problem, sts_problem, sts_tables
from scipy.sparse import csr_array

import vecveil
from vecveil.attacks import KernelAttack, LabelledVectors, MLPAttack, split_groups
from vecveil.concepts import mark_words
from vecveil.concepts.folding import words as folded_words
from vecveil.concepts.pairs import WordMarks
from vecveil.io import write_text
from vecveil.metrics import StsTask
from vecveil.protector.methods.subspace import directions_of
from vecveil.sensitivity.kernel_reader import kernel_ridge_path, share_recovered
from vecveil.sensitivity.moments import RIDGE, Moments, between_label_covariance, covariance, transplanted_moments
from vecveil.sensitivity.subspace import ConceptDirections, concept_directions, subspace_map
from vecveil.types import Matrix

RESULTS = Path(__file__).parent / "results" / "erasure_trials.json"
ORDINARY, FEATURES, TARGET, MIN_LABEL = 3000, 1000, 0.95, 10
MORE = (3000, 20_000)
"""Numbers of further ordinary texts."""
SETTINGS: dict[str, dict[str, Any]] = {
    "ade": {"rank": 182, "kept": 192, "flattening": 0.3, "pairs": False},
    "sts": {"rank": 61, "kept": 96, "flattening": 0.9, "pairs": True},
}
"""Settings that fits chose for listed words in `vecveil experiment run other-texts` (ADE seed 2, STS seed 0)."""
READER_ROWS, STEPS, BATCH, UNITS = 1500, 300, 400, 512
TRIALS = ("steps", "weights", "background", "estimates")
HALVINGS = 4
Map = Callable[[np.ndarray], np.ndarray]
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "kernel, before": [{"rank": 60, "layers": 1}, {"rank": 20, "layers": 3}],
    "kernel, after": [{"rank": 60, "layers": 1}, {"rank": 20, "layers": 3}],
    "linear step, before": [{"rank": 60, "layers": 1, "features": 0}],
    "network, before": [{"similarity": 1.0}],
    "network, after": [{"similarity": 1.0}],
    "projection": [{"similarity": 1.0}],
}


@dataclass
class Setup:
    """One concept and seed: vectors, labels, and the setting of the linear map."""

    pairs: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # with and without the concept, labels, ordinary
    words: Any
    groups: np.ndarray  # of the words
    setting: dict[str, Any]
    attack: LabelledVectors
    test: LabelledVectors
    unlisted: np.ndarray  # which of the attackers' words the fit does not know
    tasks: tuple[StsTask, StsTask]
    seed: int

    @classmethod
    def of(cls, name: str, data: Path, encoder: Any, seed: int, listed: float = 1.0) -> Setup:
        problem = {"ade": ade_problem, "sts": sts_problem}[name](data)
        matches = problem.concept.find(problem.texts)
        ids = problem.groups[matches.with_concept]
        rest, test = split_groups(ids, (0.7, 0.3), seed=seed)
        fit, attack = (rest[part] for part in split_groups(ids[rest], (0.5, 0.5), seed=seed))
        every, tokens = matches.token_labels(min_count=1)
        drawn = np.random.default_rng([seed, 6]).permutation(every.shape[1])
        known = np.zeros(every.shape[1], bool)
        known[drawn[: round(listed * len(drawn))]] = True

        def columns(rows: np.ndarray, count: int) -> np.ndarray:
            return np.flatnonzero(every[rows].sum(axis=0) >= count)

        own = columns(attack, MIN_COUNT[name])
        L = every[:, own]
        attack, test = attack[L[attack].any(axis=1)], test[L[test].any(axis=1)]
        labelled, marked = (part[known[part]] for part in (columns(fit, MIN_LABEL), columns(fit, 3)))
        without = np.random.default_rng(0).permutation(matches.without_concept)[:ORDINARY]
        without = without[~np.isin(problem.groups[without], np.delete(ids, fit))]
        texts, ordinary = matches.positives(), [problem.texts[i] for i in without]
        X, plain = encoder.encode(texts), encoder.encode(ordinary)
        N = encoder.encode([matches.negatives()[i] for i in fit])
        names = np.array(tokens.tokens)
        words = mark_words(
            [*(texts[i] for i in fit), *ordinary],
            names[marked].tolist(),
            encoder.encode,
            labels=names[labelled].tolist(),
        )
        terms = json.loads((data / "concepts" / "sts_terms.json").read_text())
        group_of = {word: group for group, own in terms.items() for word in own}
        if name == "ade":
            for row in matches.spans:
                group_of |= {word: span.label for span in row for word in folded_words(span.term)}
        kinds = {group: i for i, group in enumerate(sorted(set(group_of.values())))}
        listed_names = [w for w in sorted(names[marked])]  # the order of the marks
        groups = np.array([kinds[group_of[word]] if word in group_of else -1 for word in listed_names])
        pairs = _task([sts_tables(data)["sts12"]], encoder)
        order = np.random.default_rng(0).permutation(len(pairs.scores))
        tasks = [StsTask(pairs.left[part], pairs.right[part], pairs.scores[part]) for part in np.array_split(order, 2)]
        learnt, judged = (LabelledVectors(X[rows], L[rows], ids[rows]) for rows in (attack, test))
        return cls(
            (X[fit], N, every[fit][:, labelled], plain),
            words,
            groups,
            SETTINGS[name],
            learnt,
            judged,
            ~known[own],
            (tasks[0], tasks[1]),
            seed,
        )

    @cached_property
    def moments(self) -> Moments:
        X, N, L, plain = self.pairs
        return Moments.of(X, N, token_labels=L, background=plain, words=self.words)

    @cached_property
    def directions(self) -> ConceptDirections:
        return directions_of(self.moments, pairs=self.setting["pairs"])

    @property
    def norm(self) -> float:
        return self.moments.rms_norm

    @property
    def fitted(self) -> tuple[np.ndarray, np.ndarray]:
        """Vectors of the texts with the concept, and of ordinary ones."""
        return self.pairs[0], self.pairs[3]

    def linear(self, rank: int, kept: int, directions: ConceptDirections | None = None) -> np.ndarray:
        """Return the m rows of T."""
        kept = min(kept, len(self.moments.K) - rank)
        flattening = self.setting["flattening"]
        made = subspace_map(directions or self.directions, erased=rank, kept=kept, flattening=flattening)
        return made.down.astype(np.float32)

    def design(self, directions: ConceptDirections | None = None) -> Design:
        """Return the linear design, with other directions if given."""
        return Design(self.linear(self.setting["rank"], self.setting["kept"], directions))

    @property
    def listed(self) -> Any:
        """Marks of listed words in the fitted texts, then in ordinary ones."""
        return self.words.marks[:, self.words.listed]


def unit_noise(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return isotropic Laplace noise of root mean square norm 1."""
    z = rng.standard_normal(X.shape, dtype=np.float32)
    n = X.shape[1]
    size = rng.gamma(n, size=(len(X), 1)) / np.sqrt(n * (n + 1))
    return np.asarray(z / np.linalg.norm(z, axis=1, keepdims=True) * size, np.float32)


@dataclass
class Design:
    """T, a step h or None, and its place."""

    T: np.ndarray
    step: Map | None = None
    after: bool = False

    def release(self, noise: float) -> Callable[[np.ndarray, np.random.Generator | None], np.ndarray]:
        def released(X: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
            u = X @ self.T.T
            z = 0 if rng is None else noise * unit_noise(X, rng) @ self.T.T
            if self.step is None:
                return np.asarray(u + z, np.float32)
            return np.asarray(self.step(u + z) if self.after else self.step(u) + z, np.float32)

        return released


def largest_noise(design: Design, setup: Setup) -> float | None:
    """Return the largest noise that keeps the target on the first half of the pairs, None if there is none."""

    def kept(noise: float) -> float:
        rng = np.random.default_rng([setup.seed, 7])  # the same draws at each noise
        return float(np.mean([setup.tasks[0].relative(design.release(noise * setup.norm), rng) for _ in range(2)]))

    low, high = 0.02, 4.0
    if kept(low) < TARGET:
        return None
    for _ in range(10):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if kept(middle) >= TARGET else (low, middle)
    return low


def kernel_step(U: np.ndarray, setup: Setup, *, rank: int, layers: int, features: int = FEATURES) -> Map:
    """Return layers of random features, erased and led back to the vector by ridge regression."""
    rng, held = np.random.default_rng([setup.seed, 3]), len(setup.fitted[0])
    own = setup.words.listed
    listed = WordMarks(setup.listed, own[own], None, np.arange(0))
    made: list[tuple[np.ndarray, ...]] = []
    target, current = U, U
    for _ in range(layers):
        some = current[rng.permutation(len(current))[:700]]
        squares = (some**2).sum(axis=1)
        width = np.median(squares[:, None] + squares - 2 * some @ some.T)
        omega = (rng.standard_normal((features, U.shape[1])) * np.sqrt(2 / width)).astype(np.float32)
        phase = rng.uniform(0, 2 * np.pi, features).astype(np.float32)
        spread = np.float32(np.sqrt((current.var(axis=0)).sum()))
        F = _features(current, omega, phase, spread)
        mean = F.mean(axis=0)
        moments = Moments.of(F[:held], None, background=F[held:], words=listed)
        P = concept_directions(moments).erasure(rank)
        G = (F - mean) @ P.T
        gram = G.T @ G
        gram[np.diag_indices_from(gram)] += 1e-3 * np.trace(gram) / len(gram)
        back = np.linalg.solve(gram, G.T @ (target - target.mean(axis=0))).T
        made.append((omega, phase, spread, mean, (back @ P).astype(np.float32), target.mean(axis=0)))
        current = _through(current, made[-1])
    return lambda X: _all_through(X, made)


def _features(U: np.ndarray, omega: np.ndarray, phase: np.ndarray, spread: Any) -> np.ndarray:
    return np.concatenate([U / spread, np.cos(U @ omega.T + phase) * np.sqrt(2 / max(len(omega), 1))], axis=1)


def _through(U: np.ndarray, layer: tuple[np.ndarray, ...]) -> np.ndarray:
    omega, phase, spread, mean, matrix, offset = layer
    return np.asarray((_features(U, omega, phase, spread) - mean) @ matrix.T + offset, np.float32)


def _all_through(U: np.ndarray, layers: list[tuple[np.ndarray, ...]]) -> np.ndarray:
    for layer in layers:
        U = _through(U, layer)
    return U


def trained_step(
    T: np.ndarray, setup: Setup, *, noise: float, after: bool, similarity: float, kept: int | None = None
) -> Map | np.ndarray:
    """Return a residual network behind T; with ``kept`` the rows of T projected on that many directions."""
    torch.manual_seed(setup.seed)
    rng = np.random.default_rng([setup.seed, 5])
    X = np.concatenate(setup.fitted)
    marks = setup.listed.toarray().astype(np.float32)
    held = len(setup.fitted[0])
    for part in (slice(0, held), slice(held, None)):
        marks[part] -= marks[part].mean(axis=0)  # the kinds of texts by themselves, as in `subspace`
    marks /= np.sqrt((marks**2).mean(axis=0) + 1e-6)
    m = len(T)
    linear = torch.tensor(T)
    if kept is None:
        first, bias, second = ((torch.randn(UNITS, m) / np.sqrt(m)), torch.zeros(UNITS), torch.zeros(m, UNITS))
        parameters = [first, bias, second]
        scale = float(np.sqrt((X @ T.T).var(axis=0).sum() / m))
        rate = 2e-3
    else:
        parameters, rate = [torch.eye(m)[:, :kept].contiguous()], 5e-3
    for each in parameters:
        each.requires_grad_(True)
    optimiser = torch.optim.Adam(parameters, lr=rate)

    def step(u: Any) -> Any:
        if kept is not None:
            return u @ torch.linalg.qr(parameters[0])[0]
        return u + scale * torch.tanh(u / scale @ first.T + bias) @ second.T

    for _ in range(STEPS):
        rows = rng.permutation(len(X))[:BATCH]
        x = torch.tensor(X[rows])
        z = torch.tensor(noise * unit_noise(X[rows], rng)) @ linear.T
        u = x @ linear.T
        if kept is not None:
            y = step(u + z)
        else:
            y = step(u + z) if after else step(u) + z
        distances = torch.cdist(y, y) ** 2
        kernel = torch.exp(-distances / distances.detach().median())
        kernel = kernel - kernel.mean(0) - kernel.mean(1, keepdim=True) + kernel.mean()
        of_words = torch.tensor(marks[rows] @ marks[rows].T)
        of_words.fill_diagonal_(0)
        aligned = (kernel * of_words).sum() / (kernel.norm() * of_words.norm())
        cosines = (torch.nn.functional.normalize(v, dim=1) for v in (x, y))
        upper = torch.triu_indices(len(rows), len(rows), 1)
        clean, own = ((v @ v.T)[upper[0], upper[1]] for v in cosines)
        alike = torch.corrcoef(torch.stack([clean, own]))[0, 1]
        optimiser.zero_grad()
        (aligned - similarity * alike).backward()
        optimiser.step()
    if kept is not None:
        Q = torch.linalg.qr(parameters[0])[0].detach().numpy()
        return np.asarray(Q.T @ T, np.float32)
    W, b, V = (each.detach().numpy() for each in parameters)
    return lambda U: U + scale * np.tanh(U / scale @ W.T + b) @ V.T


def designs(setup: Setup, variant: str, noise: float) -> Iterator[tuple[dict[str, Any], Design]]:
    """Yield the strengths of a variant."""
    rank, kept = setup.setting["rank"], setup.setting["kept"]
    kind, _, place = variant.partition(", ")
    clean = np.concatenate(setup.fitted)
    for k in (rank, rank // 2) if variant == "kernel, before" else (rank,):
        T = setup.linear(k, kept)
        U = clean @ T.T
        if place == "after":
            U = U + noise * setup.norm * unit_noise(clean, np.random.default_rng([setup.seed, 4])) @ T.T
        for options in VARIANTS[variant][: None if k == rank else 1]:
            named = {"erased": k, **options}
            if kind.startswith(("kernel", "linear")):
                yield named, Design(T, kernel_step(U, setup, **options), place == "after")
            elif kind == "network":
                made = trained_step(T, setup, noise=noise * setup.norm, after=place == "after", **options)
                yield named, Design(T, made, place == "after")  # type: ignore[arg-type]
            else:
                wide = setup.linear(k, len(setup.directions.K))
                made = trained_step(wide, setup, noise=noise * setup.norm, after=True, kept=len(T), **options)
                yield named, Design(made)  # type: ignore[arg-type]


def weighted(setup: Setup, scheme: str) -> ConceptDirections:
    """Return the directions with weights of the listed words, of which the sum does not change."""
    X, _, L, plain = setup.pairs
    words, listed = setup.words, setup.words.listed
    counts = np.asarray(words.marks.sum(axis=0)).ravel()
    share = {"alike": 0.0, "by share": 1.0, "by root of share": 0.5, "by inverse root": -0.5}
    if scheme == "by group":
        sizes = np.bincount(setup.groups + 1)
        gain = 1.0 / sizes[setup.groups + 1]
    else:
        gain = np.maximum(counts[listed], 1.0) ** share[scheme]
    weights = words.weights.copy()
    weights[listed] = gain / gain.mean()
    # Labels, whose texts are annotated, get the weight of their word.
    own = np.where(words.labels >= 0, weights[words.labels], 1.0)
    marked = [(X, words.marks[: len(X)]), (plain, words.marks[len(X) :])]
    B = between_label_covariance([(X, L)], own) + between_label_covariance(marked, weights)
    return directions_of(replace(setup.moments, B=B), pairs=setup.setting["pairs"])


def with_background(setup: Setup, more: np.ndarray, *, shrunk: bool) -> ConceptDirections:
    """Return the directions with K from further ordinary texts as well."""
    X, _, _, plain = setup.pairs
    ordinary = np.concatenate([plain, more])
    K: Matrix = (covariance(X) + covariance(ordinary)) / 2
    K += RIDGE * np.trace(K) / len(K) * np.eye(len(K))
    if shrunk:
        K = Moments.of(X, None, background=ordinary).K
    return directions_of(replace(setup.moments, K=K), pairs=setup.setting["pairs"])


def across_folds(setup: Setup) -> ConceptDirections:
    """Return the directions with B from two halves of the texts, whose sampling errors are independent."""
    X, _, L, plain = setup.pairs
    words = setup.words
    marked = [(X, words.marks[: len(X)]), (plain, words.marks[len(X) :])]
    labelled = [(X, csr_array(L))]
    rng, B = np.random.default_rng([setup.seed, 10]), np.zeros_like(setup.moments.K)
    for _ in range(HALVINGS):
        for parts, weights in ((labelled, np.ones(L.shape[1])), (marked, words.weights)):
            total = sum(len(rows) for rows, _ in parts)
            cross, spread = [np.zeros(()), np.zeros(())], np.zeros(())
            for rows, marks in parts:
                share = np.asarray(marks.mean(axis=0)).ravel()
                spread = spread + share * (1 - share) * len(rows) / total
                order = rng.permutation(len(rows))
                for i, half in enumerate(np.array_split(order, 2)):
                    centred = rows[half] - rows[half].mean(axis=0, dtype=np.float64)
                    cross[i] = cross[i] + 2 * np.asarray(marks[half].T @ centred) / total
            gain = np.divide(weights, spread, out=np.zeros(len(spread)), where=spread > 0)
            product = (cross[0] * gain[:, None]).T @ cross[1]
            B += (product + product.T) / (2 * HALVINGS)
    return directions_of(replace(setup.moments, B=B), pairs=setup.setting["pairs"])


def transplanted(setup: Setup, *, labels: bool) -> ConceptDirections:
    """Return the directions with transplants in the labels' part of B, or in all moments as the option has them."""
    X, N, L, plain = setup.pairs
    made = transplanted_moments(X, N, L, plain, seed=setup.seed)
    if labels:
        marks, weights = setup.words.marks, setup.words.weights
        marked = [(X, marks[: len(X)]), (plain, marks[len(X) :])]
        assert made.B is not None
        made = replace(setup.moments, B=made.B + between_label_covariance(marked, weights))
    return directions_of(replace(made, C=setup.moments.C), pairs=setup.setting["pairs"])


def quick(design: Design, noise: float, setup: Setup) -> dict[str, float]:
    """Return what a kernel reader of four releases a text recovers, of listed and of unlisted words."""
    release = design.release(noise * setup.norm)
    found = {}
    for kind, columns in (("listed", ~setup.unlisted), ("unlisted", setup.unlisted)):
        if columns.any():
            (X, L), (Y, M) = ((part.X, part.L[:, columns]) for part in (setup.attack, setup.test))
            learn, judge = (np.flatnonzero(marks.any(axis=1))[:READER_ROWS] for marks in (L, M))
            learnt = [release(X[learn], np.random.default_rng([setup.seed, i])) for i in range(4)]
            judged = release(Y[judge], np.random.default_rng([setup.seed, 9]))
            path = kernel_ridge_path(learnt, L[learn], judged)
            found[kind] = round(max(share_recovered(scores, M[judge]) for scores in path), 4)
    return found


def measured(design: Design, noise: float, setup: Setup) -> dict[str, Any]:
    """Return the figures of a design."""
    release = design.release(noise * setup.norm)
    rng = np.random.default_rng([setup.seed, 8])
    kept = float(np.mean([setup.tasks[1].relative(release, rng) for _ in range(3)]))
    released = LabelledVectors(release(setup.test.X, rng), setup.test.L, setup.test.groups)
    found: dict[str, Any] = {"noise": round(noise, 4), "similarity": round(kept, 4)}
    for attack in (KernelAttack(), MLPAttack((2048,), epochs=40)):
        result = attack.run(setup.attack, released, release=release, rng=setup.seed, show_progress=False)
        record = result.main.to_record()
        found[attack.name] = [round(record[key], 4) for key in ("value", "low", "high", "chance")]
    found["strongest"] = max(found[key][0] for key in ("kernel", "mlp-2048"))
    return found


def trials(setup: Setup, trial: str, more: np.ndarray, base: float) -> Iterator[tuple[str, dict[str, Any], Design]]:
    """Yield name, options and design of each change of a trial."""
    if trial == "weights":
        for scheme in ("by group", "by share", "by root of share", "by inverse root"):
            yield scheme, {}, setup.design(weighted(setup, scheme))
    elif trial == "background":
        for count, shrunk in itertools.product(MORE, (True, False)):
            name = f"{count} more texts, {'shrunk' if shrunk else 'least ridge'}"
            yield name, {}, setup.design(with_background(setup, more[:count], shrunk=shrunk))
    elif trial == "estimates":
        yield "across folds", {}, setup.design(across_folds(setup))
        for labels in (True, False):
            name = f"transplants, {'labels' if labels else 'all'}"
            yield name, {}, setup.design(transplanted(setup, labels=labels))
    else:
        rank, kept = setup.setting["rank"], setup.setting["kept"]
        yield "more directions", {"erased": rank + 60}, Design(setup.linear(rank + 60, kept))
        for variant in VARIANTS:
            for options, design in designs(setup, variant, base):
                yield variant, options, design


def main() -> None:
    """Measure the setups that the results lack."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--concepts", nargs="+", choices=["ade", "sts"], default=["ade", "sts"])
    parser.add_argument("--trials", nargs="+", choices=TRIALS, default=list(TRIALS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    encoder = vecveil.load_encoder("minilm")
    more = np.empty((0, 0))
    if "background" in given.trials:
        sentences = pq.read_table(given.data / "lm" / "sentences.parquet")["text"].to_pylist()
        more = encoder.encode([sentences[i] for i in np.random.default_rng(0).permutation(len(sentences))[: max(MORE)]])
    for trial in given.trials:
        for name in given.concepts:
            for seed in given.seeds:
                record = json.loads(given.out.read_text()) if given.out.exists() else {"rows": []}
                key = {"trial": trial, "concept": name, "seed": seed}
                if any(row["last"] for row in record["rows"] if key.items() <= row.items()):
                    continue
                # An interrupted setup starts again.
                rows = [row for row in record["rows"] if not key.items() <= row.items()]
                setup = Setup.of(name, given.data, encoder, seed, 0.5 if trial == "weights" else 1.0)
                plain = setup.design()
                base = largest_noise(plain, setup)
                assert base is not None
                listed = quick(plain, base, setup)
                more_figures = measured(plain, base, setup) if trial == "steps" else {}
                new = [{**key, "change": "none", "noise": round(base, 4), **listed, **more_figures, "last": False}]
                best: tuple[dict[str, Any], float, Design] | None = None
                for change, options, design in trials(setup, trial, more, base):
                    noise = largest_noise(design, setup)
                    row = {**key, "change": change, **options, "noise": noise and round(noise, 4), "last": False}
                    if noise is not None:
                        row |= quick(design, noise, setup)
                        control = change.startswith(("linear", "more"))
                        if not control and (best is None or row["listed"] < best[0]["listed"]):
                            best = row, noise, design
                    new.append(row)
                    print(row, flush=True)
                if trial == "steps" and best is not None:
                    row, noise, design = best
                    new.append({**row, **measured(design, noise, setup), "best": True})
                new[-1]["last"] = True
                record = {
                    "schema": "vecveil.bench.erasure-trials/1",
                    "vecveil": vecveil.__version__,
                    "target": TARGET,
                    "settings": SETTINGS,
                    "rows": rows + new,
                }
                write_text(given.out, json.dumps(record, indent=1) + "\n")
                print(new[0], new[-1], sep="\n", flush=True)


if __name__ == "__main__":
    main()
