"""Seconds that finding 100,000 terms in 100,000 sentences takes.

Run: ``python benchmarks/concepts.py``. Terms are one to three made-up words each; every sentence
has 15 words of the same stock; one in ten holds a word with accents, ß or a ligature. Writes
``benchmarks/results/concepts.json``.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import string
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vecveil.io import write_text
from vecveil.privacy.concepts import Concept, TermDetector

RESULT = Path(__file__).parent / "results" / "concepts.json"


def corpus(terms: int, sentences: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Return made-up terms, all different, and sentences that hold some of them."""
    rng = random.Random(seed)
    stock = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 10))) for _ in range(60_000)]
    special = ["café", "cafe\u0301", "STRASSE", "straße", "oﬃce", "naïve", "Übergröße", "İstanbul"]
    chosen: dict[str, None] = dict.fromkeys(special)
    while len(chosen) < terms:
        chosen[" ".join(rng.choices(stock, k=rng.choice((1, 1, 2, 3))))] = None
    texts = []
    for i in range(sentences):
        words = [*rng.choices(stock, k=14), rng.choice(special if i % 10 == 0 else stock)]
        rng.shuffle(words)
        texts.append(" ".join(words).capitalize() + ".")
    return list(chosen), texts


def timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return what ``work`` returns, and the seconds that it took."""
    wall, processor = time.perf_counter(), time.process_time()
    result = work()
    return result, {
        "wall": round(time.perf_counter() - wall, 3),
        "processor": round(time.process_time() - processor, 3),
    }


def main() -> None:
    """Measure, print one line and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--terms", type=int, default=100_000)
    parser.add_argument("--sentences", type=int, default=100_000)
    options = parser.parse_args()
    terms, texts = corpus(options.terms, options.sentences)

    detector, build = timed(lambda: TermDetector(terms))
    spans, detect = timed(lambda: detector.detect(texts))
    concept = Concept("benchmark", (detector,))
    matches, find = timed(lambda: concept.find(texts, show_progress=False))
    record: dict[str, Any] = {
        "what": "whole-word terms in sentences, one process; seconds of wall clock and processor",
        "terms": len(terms),
        "sentences": len(texts),
        "spans": sum(map(len, spans)),
        "with_concept": len(matches.with_concept),
        "build": build,
        "detect": detect,
        "find_with_pairs": find,
        "python": platform.python_version(),
    }
    write_text(RESULT, json.dumps(record, indent=2) + "\n")
    print(f"{len(terms):,} terms, {len(texts):,} sentences, {record['spans']:,} spans")
    for step in ("build", "detect", "find_with_pairs"):
        wall, processor = record[step]["wall"], record[step]["processor"]
        print(f"{step:16} {wall:6.2f} s wall clock, {processor:6.2f} s processor")


if __name__ == "__main__":
    main()
