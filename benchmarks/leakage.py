"""What attackers read behind each method at the same utility, on real texts.

    python benchmarks/leakage.py --data DIR [--concept sts|ade|pii] [--seeds 1] [--split shared|separate]

DIR is a folder with ``sts/*.parquet``, ``ade/ade_corpus_v2.jsonl.gz``, ``concepts/sts_terms.json`` and
``pii/presidio_generated_large.jsonl.gz``. Words of the concept count from 15 training texts on, in the 1,800 texts
of ``pii`` from 5 on.
Methods are calibrated to keep 95 % of the clean Pearson correlation over the STS12 pairs, both sides
protected. Utility is measured on the same pairs with other noise, and on the pairs of STS13 to STS16,
which had no part in the calibration. With
``shared`` (the setting of the published tables) attackers learn on the texts that the protector was
fitted on; with ``separate`` they learn on other texts, which is harder on the protector. Each run adds
its rows to ``benchmarks/results/leakage.json``.
"""

from __future__ import annotations

import argparse
import glob
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

import vecveil
from vecveil.auditing.attacks import LabelledVectors, LadderResult, MLPAttack, split_groups, token_inference_ladder
from vecveil.auditing.metrics import StsTask
from vecveil.io import write_text
from vecveil.privacy.concepts import Concept, TokenVocabulary, mark_words
from vecveil.texts.tables import read_texts

RESULTS = Path(__file__).parent / "results" / "leakage.json"
METHODS: dict[str, dict[str, Any]] = {"laplace": {}, "sparse": {}, "covariance": {}, "subspace": {}}
TARGET = 0.952  # a little room for the other noise of the measurement
MIN_COUNT = {"sts": 15, "ade": 15, "pii": 5}
PLACES = ("ADDRESS", "LOCATION")


@dataclass(frozen=True)
class Problem:
    """Texts with a concept, their groups, and the STS pairs that utility is measured on."""

    name: str
    texts: list[str]
    groups: np.ndarray
    concept: Concept


def sts_tables(data: Path) -> dict[str, dict[str, list[Any]]]:
    """Return the columns of every STS file."""
    return {Path(f).stem: pq.read_table(f).to_pydict() for f in sorted(glob.glob(str(data / "sts" / "*.parquet")))}


def sts_problem(data: Path) -> Problem:
    """Distinct STS sentences; sentences of one pair, and pairs that share one, are a group."""
    tables = sts_tables(data)
    texts = sorted({s for t in tables.values() for s in (*t["sentence1"], *t["sentence2"])})
    where = {text: i for i, text in enumerate(texts)}
    pairs = np.array(
        [(where[a], where[b]) for t in tables.values() for a, b in zip(t["sentence1"], t["sentence2"], strict=True)]
    )
    graph = coo_matrix((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(texts), len(texts)))
    groups = connected_components(graph, directed=False)[1]
    listed = json.loads((data / "concepts" / "sts_terms.json").read_text())
    terms = sorted({term for group in listed.values() for term in group})
    return Problem("sts", texts, groups, Concept.from_terms("STS entities", terms))


def ade_problem(data: Path) -> Problem:
    """ADE sentences with drugs and adverse effects as spans; an abstract is a group."""
    rows = read_texts(data / "ade" / "ade_corpus_v2.jsonl.gz", "text", columns=["spans", "pmid"])
    spans = [[span for span in row if span["label"] != "DOSE"] for row in rows.columns["spans"]]
    groups = np.unique([str(p) for p in rows.columns["pmid"]], return_inverse=True)[1]
    return Problem("ade", rows.texts, groups, Concept.from_spans("ADE drugs and effects", spans))


def pii_problem(data: Path) -> Problem:
    """Made-up texts with persons and places as spans; the texts of one template are a group."""
    source = data / "pii" / "presidio_generated_large.jsonl.gz"
    rows = read_texts(source, "text", columns=["spans", "template_id"])
    spans = [[span for span in row if span["label"] in ("PERSON", *PLACES)] for row in rows.columns["spans"]]
    groups = np.unique([str(t) for t in rows.columns["template_id"]], return_inverse=True)[1]
    return Problem("pii", rows.texts, groups, Concept.from_spans("PII persons and places", spans))


def _task(tables: list[dict[str, list[Any]]], encoder: Any) -> StsTask:
    """Return the STS task over the pairs of several files."""
    left, right, scores = (
        [value for table in tables for value in table[column]] for column in ("sentence1", "sentence2", "score")
    )
    return StsTask(encoder.encode(left), encoder.encode(right), np.array(scores, dtype=float))


def run(problem: Problem, data: Path, seed: int, split: str, methods: list[str], encoder: Any) -> list[dict[str, Any]]:
    """Return one row per method."""
    tables = sts_tables(data)
    sts12, others = (
        _task([tables[name] for name in names], encoder) for names in (["sts12"], ["sts13", "sts14", "sts15", "sts16"])
    )
    matches = problem.concept.find(problem.texts)
    ids = problem.groups[matches.with_concept]
    fit_rows, test_rows = split_groups(ids, (0.7, 0.3), seed=seed)
    if split == "separate":
        fit_rows, attack_rows = (fit_rows[part] for part in split_groups(ids[fit_rows], (0.5, 0.5), seed=seed))
    else:
        attack_rows = fit_rows
    every, tokens = matches.token_labels(min_count=1)
    counts = every[attack_rows].sum(axis=0)
    least = MIN_COUNT[problem.name]
    vocabulary = TokenVocabulary(tuple(t for t, c in zip(tokens.tokens, counts, strict=True) if c >= least))
    labels, _ = matches.token_labels(vocabulary)
    fit_vocabulary = TokenVocabulary(
        tuple(t for t, c in zip(tokens.tokens, every[fit_rows].sum(axis=0), strict=True) if c >= min(10, least))
    )
    fit_labels, _ = matches.token_labels(fit_vocabulary)
    held = labels.any(axis=1)
    attack_rows, test_rows = attack_rows[held[attack_rows]], test_rows[held[test_rows]]
    ordinary = np.setdiff1d(matches.without_concept, np.flatnonzero(np.isin(problem.groups, ids[test_rows])))
    positive = encoder.encode(matches.positives())
    negative = encoder.encode(matches.negatives())
    ordinary_texts = [problem.texts[i] for i in ordinary]
    background = encoder.encode(ordinary_texts)
    fitted = [matches.positives()[i] for i in fit_rows]
    listed = [t for t, c in zip(tokens.tokens, every[fit_rows].sum(axis=0), strict=True) if c >= 3]
    words = mark_words([*fitted, *ordinary_texts], listed, encoder.encode, labels=tuple(fit_vocabulary))

    def attack(protector: Any) -> Any:
        """The quick ladder, and the largest network of the full one."""
        clean = protector is None
        test = positive[test_rows]
        if not clean:
            test = protector.protect(test, np.random.default_rng(seed))
        oracle = {
            "release": None if clean else protector.release(),
            "noise_covariance": None if clean else protector.released_noise_covariance(),
        }
        quick = token_inference_ladder(
            positive[attack_rows],
            labels[attack_rows],
            test,
            labels[test_rows],
            groups_train=ids[attack_rows],
            groups_test=ids[test_rows],
            without_train=negative[attack_rows],
            seed=seed,
            **oracle,
        )
        if not (clean or protector.method in ("laplace", "subspace")):
            return quick
        large = MLPAttack((2048,), epochs=40).run(
            LabelledVectors(positive[attack_rows], labels[attack_rows], ids[attack_rows]),
            LabelledVectors(test, labels[test_rows], ids[test_rows]),
            rng=seed,
            **oracle,
        )
        return LadderResult((*quick.results, large))

    rows = []
    for method in ["none", *methods]:
        started = time.perf_counter()
        protector = None
        if method != "none":
            protector = vecveil.fit_pairs(
                positive[fit_rows],
                negative[fit_rows],
                fit_labels[fit_rows],
                background,
                words=words,
                method=method,
                target_utility=TARGET,
                utility=sts12,
                groups=ids[fit_rows],
                seed=seed,
                **METHODS[method],
            )
        seconds = time.perf_counter() - started
        ladder = attack(protector)
        row: dict[str, Any] = {
            "concept": problem.name,
            "method": method,
            "seed": seed,
            "split": split,
            "texts": len(attack_rows) + len(test_rows),
            "terms": len(vocabulary),
            "fit_seconds": round(seconds, 2),
            "worst": ladder.worst.name,
            "chance": round(ladder.worst.estimates["r_precision"].chance, 4),
            "attacks": {
                r.name: [round(float(v), 4) for v in (e.value, e.low, e.high)]
                for r in ladder.results
                for e in [r.estimates["r_precision"]]
            },
        }
        if protector is not None:
            test_rng = np.random.default_rng(seed + 1)

            def release(X: Any, rng: Any, p: Any = protector) -> Any:
                return p.protect(X, rng, noise=rng is not None)

            for key, task in (("sts12", sts12), ("sts13_16", others)):
                kept = np.mean([task.relative(release, test_rng) for _ in range(3)])
                row[key] = round(float(kept), 4)
            row["epsilon"] = round(protector.report["epsilon"], 1)
            row["noise_to_signal"] = round(protector.report["noise_to_signal"], 4)
            row["parameters"] = protector.report["parameters"]
        rows.append(row)
        print(
            method,
            row.get("sts12"),
            row.get("sts13_16"),
            row["attacks"],
            f"chance {row['chance']}",
            row.get("parameters"),
            flush=True,
        )
    return rows


def main() -> None:
    """Run and add the rows to the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--concept", choices=["sts", "ade", "pii", "all"], default="all")
    parser.add_argument("--split", choices=["shared", "separate"], default="shared")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    encoder = vecveil.load_encoder("minilm")
    makers = {"sts": sts_problem, "ade": ade_problem, "pii": pii_problem}
    names = list(makers) if arguments.concept == "all" else [arguments.concept]
    for name in names:
        problem = makers[name](arguments.data)
        for seed in range(arguments.seeds):
            fresh = run(problem, arguments.data, seed, arguments.split, arguments.methods, encoder)
            done = {(r["concept"], r["method"], r["seed"], r["split"]) for r in fresh}
            old = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
            kept = [r for r in old if (r["concept"], r["method"], r["seed"], r["split"]) not in done]
            record = {
                "schema": "vecveil.bench.leakage/1",
                "vecveil": vecveil.__version__,
                "target": TARGET,
                "rows": kept + fresh,
            }
            write_text(RESULTS, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
