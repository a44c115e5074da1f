"""What the recipes of docs/recipes give away and keep on public data, before protection and after it.

    python benchmarks/recipes.py --data DIR [--only NAME]

DIR holds the files that ``SETS`` names; research/datasets/datasets.yaml says what they are and where to get them. Each
recipe's own `vecveil.fit` learns on one part of the texts; a store of other texts is measured. Leak: somebody with the
store and the encoder looks a word up; the share of its nearest rows that name it (one row a person; three a drug, or as
many as name it if these are fewer), for the words of the list and for words that it lacks. For the released data set it
is the R-precision of kernel ridge regression, which learns on half of the texts. Search: the share of a text's ten
nearest neighbours that the store finds alone and, where the store is sealed, after the exact ranking of the candidates.
``sealed`` takes the seconds of the ten lines of docs/integrations/rag.md from a Chroma collection of 3,000 sentences to
a retriever, in a process of its own.
Each recipe is written to benchmarks/results/recipes.json when it is measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

import vecveil
from vecveil.auditing.attacks import KernelAttack, LabelledVectors
from vecveil.io import write_text
from vecveil.privacy.concepts import Concept
from vecveil.texts.tables import read_texts

RESULTS = Path(__file__).parent / "results" / "recipes.json"
SETS = {
    "rag": "pii/presidio_synth_v2.jsonl.gz",
    "clinical": "ade/ade_corpus_v2.jsonl.gz",
    "api": "pii/asq_phi.jsonl.gz",
    "release": "classification/ag_news_train_subset.parquet",
}
STAGE = {"rewrite": "delete", "noise_to_signal": 0.3, "kept": 128, "flattening": 0.0, "pairs": True}
STEMS = (
    r"(?i)\b\w+(?:mab|pril|olol|statin|dipine|cillin|mycin|cycline|oxacin|azole|prazole|tidine|gliptin|glutide|profen|"
    r"oxetine|pram|aline|azepine|lukast|tinib|vir|parin|xaban|sartan|thiazide|semide|dronate|oxen|coxib|triptan|limus|"
    r"mustine)\b"
)
QUERIES = 200


def nearest(queries: Any, rows: Any, top: int) -> Any:
    """Return the rows of the ``top`` nearest vectors to each query, by cosine."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.argsort(-(queries @ unit.T), axis=1)[:, :top]


def of_labels(data: Path, name: str, label: str) -> tuple[list[str], list[set[str]]]:
    """Return the texts of a data set and the spans of one label in each, lower case."""
    table = read_texts(data / SETS[name], "text", columns=["spans"])
    named = [{s["text"].lower() for s in spans if s["label"] == label} for spans in table.columns["spans"]]
    return table.texts, named


def lookups(
    protector: Any,
    encoder: Any,
    texts: list[str],
    named: list[set[str]],
    words: dict[str, list[str]],
    top: int,
    candidates: int,
) -> dict[str, Any]:
    """Return the leak of each list of ``words`` and the search in a store of ``texts``, before and after protection."""
    clean, stored = encoder.encode(texts), protector.encode(texts)
    leaks = {}
    for kind, each in words.items():
        holds = {word: np.array([word in names for names in named]) for word in each}
        holds = {word: held for word, held in holds.items() if held.any()}
        queries = encoder.encode(list(holds))
        mapped = protector.protect(queries, noise=False, rewritten=True)
        # Of a word that fewer than ``top`` rows name, no more can be found.
        most = np.array([min(top, held.sum()) for held in holds.values()])
        before, after = (
            float(np.mean([held[i].sum() for held, i in zip(holds.values(), rows, strict=True)] / most))
            for rows in (nearest(queries, clean, top), nearest(mapped, stored, top))
        )
        chance = float(np.mean([top * held.mean() for held in holds.values()] / most))
        leaks[kind] = {"words": len(holds), "before": before, "after": after, "chance": chance}
    alone, sealed = search(clean, stored, protector.encode(texts), candidates)
    ranked = {"sealed": sealed, "candidates": candidates}
    return {"texts": len(texts), "leak": leaks, "search": {"alone": alone, **ranked}}


def search(clean: Any, stored: Any, queries: Any, candidates: int = 10) -> tuple[float, float]:
    """Return the recall of the ten nearest by the store alone, and by the exact ranking of its candidates."""
    rows = np.random.default_rng(0).permutation(len(clean))[:QUERIES]
    exact = [set(row) - {i} for i, row in zip(rows, nearest(clean[rows], clean, 11), strict=True)]
    fetched = nearest(queries[rows], stored, candidates + 1)
    alone = [len(set(row[row != i][:10]) & near) / len(near) for i, row, near in zip(rows, fetched, exact, strict=True)]
    sealed = [len(set(row) & near) / len(near) for row, near in zip(fetched, exact, strict=True)]
    return float(np.mean(alone)), float(np.mean(sealed))


def rag(data: Path, encoder: Any) -> dict[str, Any]:
    """Names in tickets: the list holds every customer of the store, as the page's does."""
    texts, named = of_labels(data, "rag", "PERSON")
    half = len(texts) // 2
    people = sorted(set.union(*named))
    protector = vecveil.fit(texts[:half], Concept.from_terms("customer", people), encoder, rank=16, **STAGE)
    return lookups(protector, encoder, texts[half:], named[half:], {"listed": people}, 1, 60)


def clinical(data: Path, encoder: Any) -> dict[str, Any]:
    """Drugs in clinical sentences: half of them listed, others found by the stems of their names."""
    texts, named = of_labels(data, "clinical", "DRUG")
    order = np.random.default_rng(0).permutation(len(texts))
    fitted, stored = order[:2000], order[2000:3500]
    drugs = sorted(set.union(*named))
    concept = Concept.from_terms("drug", drugs[::2])
    detector = Concept.combined("drug", [concept, Concept.from_patterns("drug", [STEMS])])
    protector = vecveil.fit([texts[i] for i in fitted], concept, encoder, detector=detector, rank=32, **STAGE)
    words = {"listed": drugs[::2], "unlisted": drugs[1::2]}
    return lookups(protector, encoder, [texts[i] for i in stored], [named[i] for i in stored], words, 3, 200)


def api(data: Path, encoder: Any) -> dict[str, Any]:
    """Names in clinical queries, with the default method, which rewrites nothing: most names occur once."""
    texts, named = of_labels(data, "api", "NAME")
    half = len(texts) // 2
    people = sorted(set.union(*named))
    protector = vecveil.fit(texts[:half], Concept.from_terms("person", people), encoder, target_utility=0.9)
    return lookups(protector, encoder, texts[half:], named[half:], {"listed": people}, 1, 40)


def release(data: Path, encoder: Any) -> dict[str, Any]:
    """Countries in news: what a reader of the release finds, and the accuracy of a classifier of the section."""
    table = read_texts(data / SETS["release"], "text", columns=["label_name"])
    order = np.random.default_rng(0).permutation(len(table.texts))
    texts, section = [table.texts[i] for i in order[:3000]], np.array([table.columns["label_name"][i] for i in order])
    terms = json.loads((data / "concepts" / "sts_terms.json").read_text(encoding="utf-8"))["country"]
    concept = Concept.from_terms("country", terms)
    protector = vecveil.fit(texts[:1000], concept, encoder, target_utility=0.9)
    clean, section = encoder.encode(texts[1000:]), section[1000:3000]
    released = protector.protect(clean)
    matches = concept.find(texts[1000:], show_progress=False)
    L, known = matches.token_labels(min_count=10)
    held = np.asarray(matches.with_concept)[L.any(axis=1)]
    L = L[L.any(axis=1)]
    cut = len(held) // 2

    def read(X: Any, **oracle: Any) -> Any:
        groups = np.arange(len(held))
        train = LabelledVectors(clean[held[:cut]], L[:cut], groups[:cut])
        test = LabelledVectors(X[held[cut:]], L[cut:], groups[cut:])
        return KernelAttack().run(train, test, rng=0, **oracle).estimates["r_precision"]

    before = read(clean)
    after = read(released, release=protector.release(), noise_covariance=protector.released_noise_covariance())
    accuracy = [
        float(LogisticRegression(max_iter=1000).fit(X[:1000], section[:1000]).score(X[1000:], section[1000:]))
        for X in (clean, released)
    ]
    leak = {"words": len(known), "before": before.value, "after": after.value, "chance": after.chance}
    return {
        "texts": len(clean),
        "leak": {"listed": leak},
        "accuracy": accuracy,
        "search": {"alone": search(clean, released, protector.protect(clean))[0]},
    }


def sealed(data: Path, encoder: Any) -> dict[str, Any]:
    """Seconds and lines from a Chroma collection to a LangChain retriever over a sealed index."""
    import chromadb

    texts = list(dict.fromkeys(read_texts(data / SETS["clinical"], "text").texts))[:3000]
    page = (Path(__file__).parents[1] / "docs" / "integrations" / "rag.md").read_text(encoding="utf-8")
    code = page.partition("#### From a Chroma collection")[2].split("```python\n")[2].partition("```")[0]
    with tempfile.TemporaryDirectory() as folder:
        collection = chromadb.PersistentClient(f"{folder}/store").create_collection("notes")
        collection.add([str(i) for i in range(len(texts))], encoder.encode(texts), documents=texts)
        vecveil.KeyFile.create(f"{folder}/search.keys", "2026-11")
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
        seconds = time.perf_counter() - began
    return {"texts": len(texts), "lines": sum(bool(line.strip()) for line in code.splitlines()), "seconds": seconds}


RECIPES: dict[str, Callable[[Path, Any], dict[str, Any]]] = {
    "rag": rag,
    "clinical": clinical,
    "api": api,
    "release": release,
    "sealed": sealed,
}


def main() -> None:
    """Measure the recipes and write the record after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", choices=RECIPES, action="append")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    encoder = vecveil.load_encoder("minilm")
    recipes = json.loads(arguments.out.read_text(encoding="utf-8"))["recipes"] if arguments.out.exists() else {}
    for name in arguments.only or RECIPES:
        recipes[name] = {"set": SETS.get(name, SETS["clinical"]), **RECIPES[name](arguments.data, encoder)}
        record = {"schema": "vecveil.bench.recipes/1", "vecveil": vecveil.__version__, "recipes": recipes}
        write_text(arguments.out, json.dumps(record, indent=1) + "\n")
        print(name, recipes[name], flush=True)


if __name__ == "__main__":
    main()
