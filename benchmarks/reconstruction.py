"""How much of a sentence a decoder trained from scratch writes back from its vector.

    python benchmarks/reconstruction.py --data DIR [--texts 190000] [--preset small|medium] [--epochs 1]
        [--minutes M] [--beams 1 4] [--protector FILE] [--work FOLDER]
    python benchmarks/reconstruction.py --data DIR --sts --epochs 6 [--start-from FOLDER/geia] ...
    python benchmarks/reconstruction.py --data DIR --sts --language-model FOLDER --held-out 30 --beams 6

DIR holds ``lm/sentences.parquet`` and, for ``--sts``, ``sts/*.parquet``. GEIA is trained on MiniLM vectors of the
first ``--texts`` sentences, in the file's order, but for the last ones, on which it is judged; no sentence that
equals a judged one but for case and punctuation is learnt from. An interrupted run goes on from FOLDER. With
``--protector`` the vectors are protected, and the attack draws fresh releases. On clean vectors ALGEN then writes
behind a rotation that it does not know, with the same decoder and 1 to 1,000 leaked pairs. ``--sts`` learns and
judges on the distinct STS sentences, 70 to 30 by connected groups of pairs; what the corpus also holds is not
judged. With ``--language-model`` the attack is zero-shot, with a causal language model of transformers in FOLDER. Each
run adds its rows to ``benchmarks/results/reconstruction.json``.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import vecveil
from vecveil.auditing.attacks.attack import AttackResult, TextVectors, normalise_text, split_groups, text_groups
from vecveil.auditing.attacks.reconstruction.decoder import ALGENAttack, GEIAAttack
from vecveil.auditing.attacks.reconstruction.zero_shot import CausalLanguageModel, ZeroShotAttack
from vecveil.io import write_text

RESULTS = Path(__file__).parent / "results" / "reconstruction.json"
SCHEMA = "vecveil.bench.reconstruction/1"


class LongGEIA(GEIAAttack):
    """GEIA with 2 % of the texts for validation: of so many texts that is enough."""

    validation_share = 0.02


class FewShot(ALGENAttack):
    """ALGEN, likewise."""

    validation_share = 0.02


def split(texts: Sequence[str], held_out: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to learn from and the last ``held_out`` rows; no group is in both."""
    groups = text_groups(texts)
    test = np.arange(len(texts) - held_out, len(texts))
    train = np.flatnonzero(~np.isin(groups, groups[test]))
    return train, test


def sts_split(data: Path) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return the distinct STS sentences, the rows to learn from and the rows to judge."""
    tables = [pq.read_table(f).to_pydict() for f in sorted((data / "sts").glob("*.parquet"))]
    texts = sorted({s for t in tables for s in (*t["sentence1"], *t["sentence2"])})
    where = {text: i for i, text in enumerate(texts)}
    pairs = [(where[a], where[b]) for t in tables for a, b in zip(t["sentence1"], t["sentence2"], strict=True)]
    groups = text_groups(texts, pairs=np.array(pairs))
    learn, judge = split_groups(groups, (0.7, 0.3), seed=0)
    corpus = pq.read_table(data / "lm" / "sentences.parquet", columns=["text"])["text"]
    seen = {normalise_text(text) for text in corpus.to_pylist()}
    return texts, learn, np.array([i for i in judge if normalise_text(texts[i]) not in seen])


def row(result: AttackResult, **more: Any) -> dict[str, Any]:
    """Return the record of one result."""
    figures = {
        key: {"value": e.value, "low": e.low, "high": e.high, "chance": e.chance, "n": e.n}
        for key, e in result.estimates.items()
    }
    return {
        **more,
        "attack": result.name,
        "adaptive": result.adaptive,
        "figures": figures,
        "details": dict(result.details),
        "attack_seconds": result.seconds,
    }


def add(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Put ``rows`` into the results, in the place of those of the same setting."""
    record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": []}
    keys = ("attack", "preset", "vectors", "beams", "data", "started")

    def setting(one: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(one.get(key) for key in keys)

    new = {setting(one) for one in rows}
    kept = [one for one in record["rows"] if setting(one) not in new]
    record = {"schema": SCHEMA, "machine": platform.machine(), "rows": [*kept, *rows]}
    write_text(path, json.dumps(record, indent=1) + "\n")


def main() -> int:
    """Train, judge, and write the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=190_000)
    parser.add_argument("--held-out", type=int, default=1000)
    parser.add_argument("--preset", choices=("small", "medium", "paper"), default="small")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--minutes", type=float, help="end training after so many minutes")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--protector", type=Path)
    parser.add_argument("--sts", action="store_true", help="learn and judge on STS sentences")
    parser.add_argument("--start-from", type=Path, help="decoder to go on from")
    parser.add_argument("--language-model", type=Path, help="of a zero-shot attack, in place of a decoder")
    parser.add_argument("--work", type=Path, default=Path("reconstruction-work"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()

    encoder = vecveil.load_encoder("minilm")
    if options.sts:
        texts, learn, judge = sts_split(options.data)
    else:
        table = pq.read_table(options.data / "lm" / "sentences.parquet", columns=["text"])
        texts = table.column("text").to_pylist()[: options.texts]
        learn, judge = split(texts, options.held_out)
    X = encoder.encode(texts)
    train = TextVectors(X[learn], [texts[i] for i in learn])
    test = TextVectors(X[judge], [texts[i] for i in judge])
    release, vectors = None, "clean"
    if options.protector is not None:
        protector = vecveil.load(options.protector)
        vectors = protector.method

        def release(Z: Any, rng: np.random.Generator) -> Any:
            return protector.protect(Z, rng=rng)

        test = TextVectors(release(test.X, np.random.default_rng(1)), test.texts)

    seconds = None if options.minutes is None else 60 * options.minutes
    rows = []
    setting = {
        "data": "sts" if options.sts else "sentences",
        "started": "scratch" if options.start_from is None else "decoder of other texts",
        "preset": options.preset,
        "vectors": vectors,
        "texts": len(learn),
    }
    judging = {"judged": options.held_out, "judge_encoder": lambda some: encoder.encode(list(some))}
    if options.language_model is not None:
        model = CausalLanguageModel(options.language_model, device="cpu")
        setting |= {"preset": options.language_model.name, "started": "pretrained", "language_model": model.name}
    for beams in options.beams:
        attack: Any
        if options.language_model is not None:
            attack = ZeroShotAttack(encoder.encode, model, beam=beams, **judging)
        else:
            attack = LongGEIA(
                options.preset,
                epochs=options.epochs,
                seconds=seconds,
                start_from=options.start_from,
                beams=beams,
                **judging,
            )
        folder = options.work / "geia"
        result = attack.run(train, test, release=release, rng=0, checkpoint=folder)
        rows.append(row(result, **setting, beams=beams))
        print(result.name, beams, {key: round(e.value, 4) for key, e in result.estimates.items()})
        add(rows, options.results)
    if release is None and not options.sts and options.language_model is None:
        rotation = np.linalg.qr(np.random.default_rng(2).standard_normal((X.shape[1],) * 2))[0]
        hidden = TextVectors((test.X @ rotation).astype(np.float32), test.texts)
        few = FewShot(options.work / "geia", judged=options.held_out)
        result = few.run(train, hidden, release=lambda Z, rng: (Z @ rotation).astype(np.float32))
        rows.append(row(result, **setting | {"vectors": "rotated"}, beams=1))
        print(result.name, {key: round(e.value, 4) for key, e in result.estimates.items()})
        add(rows, options.results)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
