"""What concept expansion does for words that the fit was not told of, on real texts.

    python benchmarks/expansion.py --data DIR [--concept sts|ade] [--seeds 1]

DIR is the folder of ``leakage.py``, with ``lm/sentences.parquet`` and ``concepts/bc5cdr_sentences.jsonl.gz``
beside. Of four words next to one another in frequency two are listed, one is open to the sources, one is
withheld from them. ``expanded`` are the open words that a source proposes; ``unseen`` are the withheld ones
and those that no source proposes. Every protector keeps 95 % of the clean Pearson correlation over STS12, is
fitted on texts of its own, and is attacked by who learnt all words from other texts; each kind of word is read
apart, by the strongest of the linear, the kernel and the transplant attack. Adds its rows to
``benchmarks/results/expansion.json``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from leakage import TARGET, Problem, _task, ade_problem, sts_problem, sts_tables

import vecveil
from vecveil.atomic import write_text
from vecveil.attacks import (
    KernelAttack,
    LabelledVectors,
    LinearAttack,
    TransplantAttack,
    split_groups,
)
from vecveil.concepts import Concept, TokenVocabulary
from vecveil.concepts.expansion import (
    CorpusNeighbourSource,
    Expansion,
    ExpansionContext,
    FakerSource,
    MemberSource,
    WordListSource,
)
from vecveil.concepts.folding import canonical, words

RESULTS = Path(__file__).parent / "results" / "expansion.json"
SHARES = (0.35, 0.35, 0.3)
"""Of the texts: fitted on, attackers learn from, attackers are judged on."""
MIN_COUNT = 10
ROWS = 2000
CURVE = (50, 200, 800)
BACKGROUND = {
    "sts": ("ag_news_train_subset", "brown", "masc"),
    "ade": ("ade_train", "bc5cdr_train"),
}


@dataclass
class Withholding:
    """A source that does not know some words."""

    source: MemberSource
    withheld: frozenset[str] = field(repr=False)

    @property
    def name(self) -> str:
        """The name of the source."""
        return self.source.name

    def members(self, context: ExpansionContext) -> Mapping[str, Sequence[str]]:
        """Return the members of the source that hold none of the words."""
        return {
            group: [m for m in members if self.withheld.isdisjoint(words(canonical(m)))]
            for group, members in self.source.members(context).items()
        }


class Setting:
    """One split of texts and words of a problem."""

    def __init__(self, problem: Problem, data: Path, encoder: Any, seed: int) -> None:
        self.problem, self.encoder, self.seed = problem, encoder, seed
        matches = problem.concept.find(problem.texts)
        self.matches = matches
        ids = problem.groups[matches.with_concept]
        rest, self.test = split_groups(ids, (sum(SHARES[:2]), SHARES[2]), seed=seed)
        parts = split_groups(ids[rest], (0.5, 0.5), seed=seed)
        self.fit, self.attack = (rest[part] for part in parts)
        every, tokens = matches.token_labels(min_count=1)
        counts = every[self.attack].sum(axis=0)
        kept = [t for t, c in zip(tokens.tokens, counts, strict=True) if c >= MIN_COUNT]
        self.vocabulary = TokenVocabulary(tuple(kept))
        self.labels, _ = matches.token_labels(self.vocabulary)
        self.listed, self.withheld = _split_words(tokens.tokens, seed)
        self.ids = ids
        self.positive = encoder.encode(matches.positives())
        self.negative = encoder.encode(matches.negatives())
        # The texts of the fit: with the concept those of its part, without it those in no group of the other parts.
        others = np.isin(problem.groups, ids[np.concatenate([self.attack, self.test])])
        ordinary = np.setdiff1d(matches.without_concept, np.flatnonzero(others))
        self.rows = np.concatenate([matches.with_concept[self.fit], ordinary])
        self.texts = [problem.texts[i] for i in self.rows]
        tables = sts_tables(data)
        self.sts12 = _task([tables["sts12"]], encoder)
        self.others = _task([tables[f"sts{year}"] for year in (13, 14, 15, 16)], encoder)

    def concept(self, known: frozenset[str] | None) -> Concept:
        """Return the concept of the spans that hold one of the known words; None knows all."""
        spans = [
            [
                {"start": s.start, "end": s.end, "label": s.label}
                for s in self.matches.spans[i]
                if known is None or not known.isdisjoint(words(s.term))
            ]
            for i in self.rows
        ]
        return Concept.from_spans("concept", spans)

    def kinds(self, expansion: Expansion) -> dict[str, np.ndarray]:
        """Return the columns of listed, expanded and unseen words."""
        members = {w for row in expansion.rows for m in row.members for w in words(m)}
        kinds = {
            t: "listed" if t in self.listed else "expanded" if t in members else "unseen"
            for t in self.vocabulary.tokens
        }
        return {
            kind: np.array([j for j, k in enumerate(kinds.values()) if k == kind], dtype=np.intp)
            for kind in ("listed", "expanded", "unseen")
        }


def _split_words(tokens: Sequence[str], seed: int) -> tuple[frozenset[str], frozenset[str]]:
    """Return the listed and the withheld words: of each four next in frequency two and one."""
    rng = np.random.default_rng([seed, 6])
    listed, withheld = set(), set()
    for start in range(0, len(tokens), 4):
        four = rng.permutation(tokens[start : start + 4]).tolist()
        listed.update(four[:2])
        withheld.update(four[2:3])
    return frozenset(listed), frozenset(withheld)


def sources(setting: Setting, data: Path) -> list[MemberSource]:
    """Return the sources of a concept, which do not know the withheld words."""
    name = setting.problem.name
    table = pq.read_table(data / "lm" / "sentences.parquet").to_pydict()
    corpus = [
        t for t, s in zip(table["text"], table["source"], strict=True) if s in BACKGROUND[name]
    ]
    found: list[MemberSource] = [
        CorpusNeighbourSource(corpus, min_count=10, vocabulary=8000, most=100)
    ]
    if name == "sts":
        listed = json.loads((data / "concepts" / "sts_terms.json").read_text())
        found.append(WordListSource(listed))
        found.append(FakerSource(["first_name", "last_name", "city", "country"], count=200))
    else:
        counts: dict[str, Counter[str]] = {}
        with gzip.open(data / "concepts" / "bc5cdr_sentences.jsonl.gz", "rt") as lines:
            for line in lines:
                for span in json.loads(line)["spans"]:
                    counts.setdefault(span["label"], Counter())[span["text"].lower()] += 1
        groups = {label: [m for m, _ in own.most_common(600)] for label, own in counts.items()}
        found.append(WordListSource(groups))
    return [Withholding(source, setting.withheld) for source in found]


def strongest(
    setting: Setting, columns: np.ndarray, protector: Any, vectors: np.ndarray | None = None
) -> dict[str, Any]:
    """Return the strongest attack on the words of some columns, and chance.

    Args:
        vectors: what is attacked in place of the vectors of the texts; no protector then.
    """
    X = setting.positive if vectors is None else vectors
    learnt, judged = (
        rows[setting.labels[rows][:, columns].any(axis=1)]
        for rows in (setting.attack, setting.test)
    )
    released = X[judged]
    oracle = {}
    if protector is not None:
        released = protector.protect(released, np.random.default_rng(setting.seed))
        oracle = {
            "release": protector.release(),
            "noise_covariance": protector.released_noise_covariance(),
        }
    train = LabelledVectors(
        X[learnt], setting.labels[learnt][:, columns], setting.ids[learnt], setting.negative[learnt]
    )
    test = LabelledVectors(released, setting.labels[judged][:, columns], setting.ids[judged])
    attacks = [LinearAttack(), KernelAttack(rows=ROWS)]
    if vectors is None:
        attacks.append(TransplantAttack(rows=ROWS))
    results = [attack.run(train, test, rng=setting.seed, **oracle) for attack in attacks]
    worst = max(results, key=lambda result: result.value)
    estimate = worst.estimates["r_precision"]
    return {
        "words": len(columns), "texts": len(judged), "attack": worst.name,
        "value": round(float(estimate.value), 4), "low": round(float(estimate.low), 4),
        "high": round(float(estimate.high), 4), "chance": round(float(estimate.chance), 4),
    }  # fmt: skip


def run(
    problem: Problem, data: Path, seed: int, encoder: Any, chosen: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield one row for each variant."""
    setting = Setting(problem, data, encoder, seed)
    listed, everything = setting.concept(setting.listed), setting.concept(None)
    started = time.perf_counter()
    proposing = sources(setting, data)
    shared: dict[str, Any] = {"sources": proposing, "encoder": encoder, "seed": seed}
    expansion = listed.expand(setting.texts, **shared)
    expanding = time.perf_counter() - started
    kinds = setting.kinds(expansion)
    variants: dict[str, dict[str, Any] | None] = {
        "none": None,
        "words deleted": None,
        "subspace": {},
        "expansion": {"expansion": expansion},
        "all words known": {"concept": everything},
        "sparse": {"method": "sparse"},
        "laplace": {"method": "laplace"},
        **{f"expansion of {members}": {"members": members} for members in CURVE},
        "substitutions only": {"occurrences": False},
    }
    for name, arguments in variants.items():
        if chosen and name not in chosen:
            continue
        if arguments is not None and arguments.keys() & {"members", "occurrences"}:
            arguments = {"expansion": listed.expand(setting.texts, **arguments, **shared)}
        row: dict[str, Any] = {"concept": problem.name, "seed": seed, "variant": name}
        protector = None
        if arguments is not None:
            started = time.perf_counter()
            options = {"concept": listed, **arguments}
            protector = vecveil.fit(
                setting.texts, encoder=encoder, target_utility=TARGET, utility=setting.sts12,
                seed=seed, show_progress=False, **options,
            )  # fmt: skip
            row["fit_seconds"] = round(time.perf_counter() - started, 1)
            rng = np.random.default_rng(seed + 1)

            def release(X: Any, rng: Any, p: Any = protector) -> Any:
                return p.protect(X, rng, noise=rng is not None)

            for key, task in (("sts12", setting.sts12), ("sts13_16", setting.others)):
                row[key] = round(float(np.mean([task.relative(release, rng) for _ in range(3)])), 4)
            row["noise_to_signal"] = round(protector.report["noise_to_signal"], 4)
            if protector.method != "sparse":
                row["parameters"] = protector.report["parameters"]
            if "expansion" in arguments:
                row["expansion"] = arguments["expansion"].report()
                row["expansion"]["seconds_with_sources"] = round(expanding, 1)
        vectors = setting.negative if name == "words deleted" else None
        row["leakage"] = {
            kind: strongest(setting, columns, protector, vectors)
            for kind, columns in kinds.items()
            if len(columns) > 1
        }
        shown = {k: (v["value"], v["chance"], v["attack"]) for k, v in row["leakage"].items()}
        print(name, shown, row.get("sts12"), row.get("sts13_16"), row.get("parameters"), flush=True)
        print("   ", row.get("expansion"), row.get("fit_seconds"), flush=True)
        yield row


def _save(path: Path, row: dict[str, Any]) -> None:
    """Put a row into the results, in place of one of the same concept, seed and variant."""

    def key(r: dict[str, Any]) -> tuple[Any, ...]:
        return (r["concept"], r["seed"], r["variant"])

    old = json.loads(path.read_text())["rows"] if path.exists() else []
    record = {
        "schema": "vecveil.bench.expansion/1",
        "vecveil": vecveil.__version__,
        "target": TARGET,
        "rows": [*(r for r in old if key(r) != key(row)), row],
    }
    write_text(path, json.dumps(record, indent=1) + "\n")


def main() -> None:
    """Run and add the rows to the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--concept", choices=["sts", "ade", "all"], default="all")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--variants", nargs="+", default=[], help="only these")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    encoder = vecveil.load_encoder("minilm")
    makers = {"sts": sts_problem, "ade": ade_problem}
    names = list(makers) if arguments.concept == "all" else [arguments.concept]
    for name in names:
        problem = makers[name](arguments.data)
        for seed in range(arguments.seeds):
            for row in run(problem, arguments.data, seed, encoder, arguments.variants):
                _save(arguments.out, row)


if __name__ == "__main__":
    main()
