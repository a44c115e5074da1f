"""What ``preserve=`` keeps of a task's accuracy, at equal leakage of the concept.

    python benchmarks/preserve.py --data DIR [--sets phrasebank ag-news] [--seeds 3]

DIR is a folder with ``classification/*.parquet`` and ``concepts/sts_terms.json``. MiniLM; protector and attackers use
different texts. The concept of AG News is the countries and names of that list; of Financial PhraseBank the words
with a capital in nine of ten places after the first word of a sentence (companies, places, months, currencies). A
word is a label if 15 of the protector's texts hold it.

``erase`` is the method ``subspace`` at a given rank and noise, all other directions kept, and at the setting that a
fit with ``target_utility=0.95`` chooses. ``same kernel`` erases the same directions with the same noise, but by the
oblique projection that also keeps Cov(Φ, classes) (SPLINCE, Holstege, Ravfogel and Wouters 2025): a matrix turns one
release into the other. ``preserve`` erases only directions that do not correlate with the classes, with as much noise,
or as many erased directions (then noise), as bring the strongest of three attackers to that behind ``erase``, within
half a point.

Attackers recover words of the concept (R-precision): kernel ridge and linear ridge, of the release and of its
projection on the map's row space, and a 512-unit perceptron with fresh noise. Accuracy is that of a logistic
regression on other texts, trained on the releases of the protector's texts and as many others, or on clean vectors.
The gain is that of the former over ``erase``, with a 95 % interval over seeds.
Writes benchmarks/results/preserve.json, in percent.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegression

import vecveil
from vecveil.auditing.attacks import LabelledVectors, MLPAttack
from vecveil.io import write_text
from vecveil.privacy.concepts import Concept
from vecveil.privacy.sensitivity.concept_subspace import (
    Moments,
    concept_directions,
    cross_covariance,
    kernel_ridge_path,
    matrix_root,
    near_duplicate_groups,
    share_recovered,
)

RESULTS = Path(__file__).parent / "results" / "preserve.json"
DESIGNS = ((0.2, 0.25), (0.4, 0.5))  # share of erased directions, noise
TEXTS, ATTACKED, STEPS, DRAWS = 6_000, 3_000, 5, 2
MOST_ERASED = 0.7  # share of all directions
WORD = re.compile(r"[^\W\d_][\w'-]*")
Release = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def texts_of(name: str, data: Path) -> tuple[list[str], np.ndarray, np.ndarray, list[str]]:
    """Return texts, classes, which texts are of the test part, and the concept's terms."""
    files = {"phrasebank": ["financial_phrasebank"], "ag-news": ["ag_news_train_subset", "ag_news_test"]}[name]
    tables = [pq.read_table(data / "classification" / f"{file}.parquet") for file in files]
    texts = [text for table in tables for text in table["text"].to_pylist()]
    classes = np.concatenate([table["label"].to_numpy() for table in tables])
    if name == "ag-news":
        terms = json.loads((data / "concepts" / "sts_terms.json").read_text())
        return (texts, classes, np.arange(len(texts)) >= len(tables[0]), terms["country"] + terms["name"])
    capital: collections.Counter[str] = collections.Counter()
    small: collections.Counter[str] = collections.Counter()
    for text in texts:
        for word in WORD.findall(text)[1:]:
            (capital if word[0].isupper() else small)[word.lower()] += 1
    terms = [w for w, n in capital.items() if n >= 15 and n >= 9 * small[w] and len(w) > 1]
    return texts, classes, np.zeros(len(texts), bool), terms


def linear_path(A: np.ndarray, L: np.ndarray, B: np.ndarray) -> list[np.ndarray]:
    """Return scores of ridge regressions from releases ``A`` to labels, for releases ``B``."""
    mean, base = A.mean(0), L.mean(0)
    values, V = np.linalg.eigh((A - mean).T @ (A - mean))
    G = V.T @ ((A - mean).T @ (L - base))
    return [(B - mean) @ V @ (G / (values + p * values.mean())[:, None]) + base for p in (1e-3, 1e-2, 0.1)]


class Split:
    """One seed: the protector's texts, other texts to learn from, and test texts."""

    def __init__(self, X: np.ndarray, N: np.ndarray, y: np.ndarray, test: np.ndarray, matches: Any, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.X, self.y, self.seed = X, y, seed
        place = np.full(len(X), -1)
        place[matches.with_concept] = np.arange(len(matches.with_concept))
        if test.any():
            order = rng.permutation(np.flatnonzero(~test))
            fit, other, self.test = order[:TEXTS], order[TEXTS : 2 * TEXTS], np.flatnonzero(test)
        else:
            groups = near_duplicate_groups(X)
            share = rng.permutation(groups.max() + 1)[groups] / (groups.max() + 1)
            fit, other, self.test = (
                np.flatnonzero((low <= share) & (share < high)) for low, high in ((0, 0.4), (0.4, 0.7), (0.7, 1))
            )
        self.learn = np.concatenate([fit, other])
        self.own, rest = fit[place[fit] >= 0], fit[place[fit] < 0]
        vocabulary = matches.frequent_tokens([15], rows=place[self.own])
        tokens = matches.tokens()
        self.read, self.held = (rows[place[rows] >= 0][:ATTACKED] for rows in (other, rng.permutation(self.test)))
        L, self.L_read, self.L_held = (
            vocabulary.labels([tokens[i] for i in place[rows]]) for rows in (self.own, self.read, self.held)
        )
        self.pairs = (X[self.own], N[place[self.own]], L, X[rest])
        self.preserved = np.concatenate([self.own, rest])
        self.moments = Moments.of(*self.pairs[:2], token_labels=L, background=X[rest])
        self.clean = self.classifier(X[self.learn])

    def classifier(self, A: np.ndarray) -> Any:
        unit = A / np.linalg.norm(A, axis=1, keepdims=True)
        return LogisticRegression(C=10.0, max_iter=2000).fit(unit, self.y[self.learn])

    def release(self, T: np.ndarray, noise: float) -> Release:
        deviation = noise * self.moments.rms_norm / np.sqrt(len(T))
        return lambda X, rng: (X + deviation * rng.standard_normal(X.shape, dtype=np.float32)) @ T.T

    def leak(self, T: np.ndarray, noise: float) -> float:
        release, back = self.release(T, noise), np.linalg.pinv(T, rcond=1e-4).T
        found = []
        for draw in range(DRAWS):
            rng = np.random.default_rng([self.seed, draw])
            raw = tuple(release(self.X[rows], rng) for rows in (self.read, self.held))
            scores = [linear_path(raw[0], self.L_read, raw[1])]
            scores += [[*kernel_ridge_path([A], self.L_read, B)] for A, B in (raw, (raw[0] @ back, raw[1] @ back))]
            found.append(max(share_recovered(each, self.L_held) for path in scores for each in path))
        return float(np.mean(found))

    def figures(self, T: np.ndarray, noise: float) -> dict[str, float]:
        release, rng = self.release(T, noise), np.random.default_rng([self.seed, 99])
        trained, clean = [], []
        for _ in range(DRAWS):
            A, B = release(self.X[self.learn], rng), release(self.X[self.test], rng)
            B /= np.linalg.norm(B, axis=1, keepdims=True)
            trained.append(self.classifier(A).score(B, self.y[self.test]))
            clean.append(self.clean.score(B, self.y[self.test]))
        train = LabelledVectors(self.X[self.read], self.L_read)
        held = LabelledVectors(release(self.X[self.held], rng).astype(np.float32), self.L_held)
        perceptron = MLPAttack((512,)).run(train, held, release=release, rng=self.seed, show_progress=False)
        return {
            "noise": noise,
            "leak": self.leak(T, noise),
            "perceptron": perceptron.value,
            "accuracy": float(np.mean(trained)),
            "accuracy_clean": float(np.mean(clean)),
        }

    def at_leak(self, T: np.ndarray, noise: float, leak: float) -> float:
        """Return the noise, half to four times the given one, at which the readers recover ``leak``."""
        low, high = noise / 2, 4 * noise
        for _ in range(STEPS):
            middle = float(np.sqrt(low * high))
            low, high = (middle, high) if self.leak(T, middle) > leak else (low, middle)
        return float(np.sqrt(low * high))

    def same_kernel(self, rank: int) -> tuple[np.ndarray, float]:
        """Return SPLINCE's projection and the largest squared cosine between task and erased directions."""
        root, back = matrix_root(self.moments.K), matrix_root(self.moments.K, -0.5)
        A = root @ concept_directions(self.moments).vectors[:, :rank]
        rows = self.preserved
        task = back @ cross_covariance(self.X[rows], self.y[rows][:, None] == np.unique(self.y))
        basis, sizes, _ = np.linalg.svd(task, full_matrices=False)
        basis = basis[:, sizes > 1e-6 * sizes[0]]
        R = A - basis @ (basis.T @ A)
        P = root @ (np.eye(len(A)) - A @ np.linalg.solve(R.T @ A, R.T)) @ back
        return P, float(np.linalg.norm(basis.T @ A, 2) ** 2)


def designs(split: Split) -> Iterator[tuple[str, dict[str, Any], float]]:
    """Yield name, options and noise of the designs of ``erase``."""
    n = split.X.shape[1]
    for share, noise in DESIGNS:
        rank = round(share * n)
        options = {"rank": rank, "kept": n - rank, "flattening": 0.0, "pairs": True}
        yield f"rank {rank}, noise {noise}", options, noise
    report = vecveil.fit_pairs(*split.pairs, target_utility=0.95, show_progress=False).report
    yield "target utility 0.95", report["parameters"], report["noise_to_signal"]


def fitted(split: Split, options: dict[str, Any], noise: float, **more: Any) -> np.ndarray:
    settings = {**options, "noise_to_signal": noise, "show_progress": False}
    protector = vecveil.fit_pairs(*split.pairs, **settings, **more)
    assert protector.map is not None
    return protector.map.matrix


def preserved(
    split: Split, options: dict[str, Any], noise: float, base: dict[str, float], *, by_rank: bool
) -> dict[str, float]:
    """Return the figures of ``preserve`` at the leakage of ``base``."""
    n, classes, rank = split.X.shape[1], split.y[split.preserved], options["rank"]

    def of_rank(rank: int) -> np.ndarray:
        kept = min(options["kept"], n - rank)
        return fitted(split, {**options, "rank": rank, "kept": kept}, noise, preserve=classes)

    if by_rank:
        low, rank = rank, round(MOST_ERASED * n)
        for _ in range(STEPS):
            middle = (low + rank) // 2
            above = split.leak(of_rank(middle), noise) > base["leak"]
            low, rank = (middle, rank) if above else (low, middle)
    T = of_rank(rank)
    found = split.figures(T, noise if by_rank else split.at_leak(T, noise, base["leak"]))
    while max(found["leak"], found["perceptron"]) > max(base["leak"], base["perceptron"]) + 0.005:
        found = split.figures(T, 1.1 * found["noise"])
    return {"rank": rank, **found}


def measure(split: Split) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name, options, noise in designs(split):
        base = split.figures(fitted(split, options, noise), noise)
        results: dict[str, dict[str, Any]] = {"erase": base}
        if name.startswith("rank"):
            T, shared = split.same_kernel(options["rank"])
            results["same kernel"] = {**split.figures(T, noise), "shared": shared}
        results["preserve, more noise"] = preserved(split, options, noise, base, by_rank=False)
        results["preserve, more erased"] = preserved(split, options, noise, base, by_rank=True)
        for method, found in results.items():
            row = {"design": name, "method": method, "seed": split.seed, **found}
            rows.append({key: round(v, 4) if isinstance(v, float) else v for key, v in row.items()})
            print(rows[-1], flush=True)
    return rows


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return means over seeds, and the gain in accuracy over ``erase`` with a 95 % interval."""
    table = []
    for design, method in dict.fromkeys((row["design"], row["method"]) for row in rows):
        mine, base = ([r for r in rows if (r["design"], r["method"]) == (design, m)] for m in (method, "erase"))
        line: dict[str, Any] = {"design": design, "method": method}
        for key in ("noise", "leak", "perceptron", "accuracy", "accuracy_clean"):
            line[key] = round(float(np.mean([r[key] for r in mine])) * (1 if key == "noise" else 100), 2)
        if method != "erase" and len(mine) > 1:
            gains = 100 * np.array([r["accuracy"] - b["accuracy"] for r, b in zip(mine, base, strict=True)])
            half = student.ppf(0.975, len(gains) - 1) * gains.std(ddof=1) / np.sqrt(len(gains))
            line["gain"] = [round(float(v), 1) for v in (gains.mean(), gains.mean() - half, gains.mean() + half)]
        table.append(line)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["phrasebank", "ag-news"])
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    encoder = vecveil.load_encoder("minilm")
    record = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in given.sets:
        texts, classes, test, terms = texts_of(name, given.data)
        matches = Concept.from_terms(name, terms).find(texts)
        X, N = (np.asarray(encoder.encode(part), np.float32) for part in (texts, matches.negatives()))
        rows: list[dict[str, Any]] = []
        cleans: list[dict[str, float]] = []
        for seed in range(given.seeds):
            split = Split(X, N, classes, test, matches, seed)
            chance = share_recovered(np.tile(split.L_read.mean(0), (len(split.held), 1)), split.L_held)
            cleans.append(
                {
                    "leak": split.leak(np.eye(X.shape[1]), 0.0),
                    "chance": chance,
                    "accuracy": float(split.clean.score(split.X[split.test], classes[split.test])),
                }
            )
            rows += measure(split)
            record[name] = {
                "texts": [len(part) for part in (split.preserved, split.learn, split.test)],
                "labels": split.L_held.shape[1],
                "clean": {key: round(100 * float(np.mean([c[key] for c in cleans])), 1) for key in cleans[0]},
                "table": summary(rows),
                "rows": rows,
            }
            write_text(RESULTS, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
