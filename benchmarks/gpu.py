"""Attackers that need a GPU: the ladder's network, with further texts, at other sizes, behind a denoiser; a decoder.

    python benchmarks/gpu.py prepare --data DIR --bundle .gpu [--sentences VECTORS.npy]
    python benchmarks/gpu.py network --bundle .gpu --out FOLDER [--minutes 5] [--workers 5] [--device cuda]

``prepare`` runs on a CPU. It encodes the STS sentences of DIR (as `benchmarks/leakage.py` reads it), splits them as an
audit does, fits three protectors on the training part, finds the listed terms in ``lm/sentences.parquet``, and writes
35 MB that need neither DIR nor an encoder. Sentences that equal a test text are left out. A release is carried as its
law: the affine map, the root of the noise's covariance, and the lengths of 20,000 draws of the noise. Noise of all
three protectors is elliptical, so that length and direction are independent; ``prepare`` checks map and law against
the protector. ``network`` runs in ten minutes on one card, the most important figures first, and writes them as they
come, with the card's name, to ``FOLDER/gpu.json``; copy it to ``benchmarks/results/gpu.json``. Set
OMP_NUM_THREADS=1, or the workers wait for each other. It needs torch, numpy, scipy, safetensors and cryptography.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import platform
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import vecveil
from vecveil.attacks import (
    BayesPosteriorAttack,
    EnsembleAttack,
    FurtherVectors,
    KernelAttack,
    LabelledVectors,
    LinearAttack,
    MLPAttack,
    NearestNeighboursAttack,
    NetworkAttack,
    TransplantAttack,
)
from vecveil.attacks.evidence import normalise_text
from vecveil.io import write_text

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
DRAWS = 20_000
FURTHER = (1.0, 1 / 32, 1 / 8, 1 / 2)
OWN = (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32)
SIZES: dict[str, dict[str, Any]] = {
    "1,024 units, 600 steps of 256": {"width": 1024, "batch": 256, "steps": 600},
    "1,024 units, 2,400 steps of 256": {"width": 1024, "batch": 256, "steps": 2400},
    "1,024 units, 6,000 steps of 256": {"width": 1024, "batch": 256, "steps": 6000},
    "512 units, 6,000 steps of 256": {"width": 512, "batch": 256, "steps": 6000},
    "4,096 units, 4,300 steps of 1,024": {"width": 4096, "batch": 1024, "steps": 4300},
    "4,096 units, dropout 0.5": {"width": 4096, "batch": 1024, "steps": 1500, "dropout": 0.5},
}


class SizedNetwork(NetworkAttack):
    """The network with another size or schedule."""

    def __init__(self, *, width: int, batch: int, steps: int, device: str, **changes: Any) -> None:
        super().__init__(width, device=device)
        self._batch, self._steps, self._changes = batch, steps, changes

    def _training(self, train: LabelledVectors, validation: LabelledVectors) -> Any:
        schedule, further = super()._training(train, validation)
        rows = len(train) + (0 if further is None else min(len(train), len(further)))
        epochs = max(3, round(self._steps / -(-rows // self._batch)))
        return replace(schedule, batch=self._batch, epochs=epochs, **self._changes), further


def prepare(data: Path, bundle: Path, sentences: Path | None) -> None:
    """Write the bundle."""
    import pyarrow.parquet as pq
    from leakage import _task, sts_problem, sts_tables

    from vecveil.auditing.case import Options, _mark, make_case

    problem = sts_problem(data)
    encoder = vecveil.load_encoder("minilm")
    X = encoder.encode(problem.texts)
    matches = problem.concept.find(problem.texts)
    ids = problem.groups.tolist()
    case = make_case(matches, ids, embeddings=X, encode=None, options=Options(groups=ids), min_token_count=None)
    place = {int(row): i for i, row in enumerate(matches.with_concept)}
    negatives = matches.negatives()
    without = encoder.encode([negatives[place[int(row)]] for row in case.train])
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
    written = {
        "train": [problem.texts[i] for i in case.train],
        "test": [problem.texts[i] for i in case.test],
        "further": [table[i] for i in rows],
    }
    with gzip.open(bundle / "texts.json.gz", "wt", encoding="utf-8") as file:
        json.dump(written, file)
    further = np.load(sentences, mmap_mode="r")[rows] if sentences else encoder.encode([table[row] for row in rows])
    arrays: dict[str, np.ndarray] = {
        "train": X[case.train].astype(np.float16),
        "test": X[case.test].astype(np.float16),
        "without": without.astype(np.float16),
        "labels_train": np.packbits(case.labels[case.train], axis=1),
        "labels_test": np.packbits(case.labels[case.test], axis=1),
        "labels_further": np.packbits([label for _, label in found.values()], axis=1),
        "groups_train": case.groups[case.train],
        "groups_test": case.groups[case.test],
        "terms": np.array(len(case.vocabulary)),
    }
    # Eight bits a coordinate: the rounding is a hundredth of a coordinate's spread, and half of the bytes.
    scale = np.abs(further).max(axis=1, keepdims=True).astype(np.float32) / 127
    arrays |= {"further": np.round(further / scale).astype(np.int8), "further_scale": scale}
    train, task = X[case.train], _task([sts_tables(data)["sts12"]], encoder)
    facts: dict[str, Any] = {}
    for i, (name, options) in enumerate(RELEASES.items()):
        if options:
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
    np.savez_compressed(bundle / "network.npz", **arrays)
    about = {
        "vecveil": vecveil.__version__,
        "train": len(train),
        "test": len(case.test),
        "further": len(rows),
        "releases": facts,
    }
    write_text(bundle / "about.json", json.dumps(about, indent=1, default=float) + "\n")
    print(f"{(bundle / 'network.npz').stat().st_size / 1e6:.1f} MB")


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

    def tensor(self, X: np.ndarray, rng: np.random.Generator) -> Any:
        """Return a fresh release as a tensor."""
        torch, generator = self.torch, self.generator.manual_seed(int(rng.integers(2**62)))
        x = torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32)).to(self.device)
        z = torch.randn((len(x), len(self.root)), generator=generator, device=self.device)
        which = torch.randint(len(self.lengths), (len(x),), generator=generator, device=self.device)
        z *= (self.lengths[which] / z.norm(dim=1))[:, None]
        return x @ self.map[:-1] + self.map[-1] + z @ self.root

    def __call__(self, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        released: np.ndarray = self.tensor(X, rng).cpu().numpy()
        return released


_loaded: dict[str, Any] = {}


def _bundle(folder: str) -> dict[str, Any]:
    if not _loaded:
        with np.load(Path(folder) / "network.npz") as arrays:
            _loaded.update(arrays)
        for key in ("train", "test", "without"):
            _loaded[key] = _loaded[key].astype(np.float32)
        _loaded["further"] = _loaded["further"] * _loaded["further_scale"]
        for key in ("labels_train", "labels_test", "labels_further"):
            _loaded[key] = np.unpackbits(_loaded[key], axis=1, count=int(_loaded["terms"])).astype(bool)
    return _loaded


def tasks() -> Iterator[dict[str, Any]]:
    """Yield the runs, the most important first."""
    for name in ("clean", "subspace", "subspace, noise 0.9"):
        yield {"release": name, "kind": "decoder"}
    for name in RELEASES:
        yield {"release": name, "kind": "network"}
    for name in RELEASES:
        yield {"release": name, "kind": "network", "further": 1.0}
    for share in OWN[:3]:
        yield from ({"release": name, "kind": "network", "own": share} for name in RELEASES)
    for size in list(SIZES)[:4]:
        yield from ({"release": name, "kind": "size", "size": size} for name in list(RELEASES)[:1:-1])
    for share in FURTHER[1:]:
        yield from ({"release": name, "kind": "network", "further": share} for name in RELEASES)
    for share in (1.0, 0.0):
        yield from ({"release": name, "kind": "denoised", "further": share} for name in list(RELEASES)[:0:-1])
    for size in list(SIZES)[4:]:
        yield from ({"release": name, "kind": "size", "size": size} for name in list(RELEASES)[2:])
    for share in OWN[3:]:
        yield from ({"release": name, "kind": "network", "own": share} for name in RELEASES)
    for name in RELEASES:
        yield {"release": name, "kind": "ladder"}


def run(task: dict[str, Any], folder: str, device: str, minutes: float, quick: bool) -> dict[str, Any]:
    """Return the record of one run; a decoder is trained for ``minutes``."""
    import torch

    torch.set_num_threads(1)
    if task["kind"] == "decoder":
        return task | decode(task["release"], folder, device, minutes, quick)
    started, b = time.perf_counter(), _bundle(folder)
    rng = np.random.default_rng(0)
    number = list(RELEASES).index(task["release"])
    parts = [b.get(f"{key}{number}") for key in ("map", "root", "lengths")]
    law = None if task["release"] == "clean" else Law(*parts, device)  # type: ignore[arg-type]
    judged = b["test"] if law is None else law(b["test"], np.random.default_rng(99))
    names = np.unique(b["groups_train"])
    kept = np.isin(b["groups_train"], rng.permutation(names)[: round(task.get("own", 1.0) * len(names))])
    further, share = None, task.get("further", 0.0)
    if share:
        some = rng.permutation(len(b["further"]))[: round(share * len(b["further"]))]
        ones = np.ones(len(some))
        further = FurtherVectors(b["further"][some], b["labels_further"][some], ones, -ones.astype(int))
    own = (b[key][kept] for key in ("train", "labels_train", "groups_train", "without"))
    train = LabelledVectors(*own, further)
    test = LabelledVectors(judged, b["labels_test"], b["groups_test"])
    release: Callable[..., Any] | None = law
    covariance = None if law is None else law.covariance
    if task["kind"] == "denoised":
        assert law is not None
        release = _denoiser(law, np.concatenate([train.X, *([] if further is None else [further.X])]), device, quick)
        test, covariance = replace(test, X=release.tensor_of(judged)), None
    size = dict(SIZES[task["size"]]) if "size" in task else {"width": 4096, "batch": 1024, "steps": 1500}
    if quick:
        size |= {"width": 32, "steps": 6} | ({"hidden": (32,)} if "hidden" in size else {})
    attacks: list[Any] = [SizedNetwork(**size, device=device)]
    if task["kind"] == "ladder":
        attacks = (
            [LinearAttack(), KernelAttack(rows=99)]
            if quick
            else [
                LinearAttack(),
                KernelAttack(),
                TransplantAttack(),
                EnsembleAttack(),
                NearestNeighboursAttack(),
                BayesPosteriorAttack(),
                MLPAttack(device="cpu"),
            ]
        )
    found = []
    for attack in attacks:
        result = attack.run(train, test, release=release, noise_covariance=covariance, rng=0, show_progress=False)
        value = result.estimates["r_precision"]
        found.append(
            {
                "attack": attack.name,
                "value": value.value,
                "low": value.low,
                "high": value.high,
                "chance": value.chance,
                "seconds": result.seconds,
                "details": dict(result.details),
            }
        )
    return {
        **task,
        "texts": len(train),
        "further_texts": 0 if further is None else len(further),
        "judged": len(test),
        "seconds": time.perf_counter() - started,
        "attacks": found,
    }


def decode(name: str, folder: str, device: str, minutes: float, quick: bool) -> dict[str, Any]:
    """Return what a decoder writes of the test texts; it learns from the training and the further texts."""
    from vecveil.attacks import TextVectors
    from vecveil.attacks.reconstruction.geia import GEIAAttack

    b = _bundle(folder)
    with gzip.open(Path(folder) / "texts.json.gz", "rt", encoding="utf-8") as file:
        texts = json.load(file)
    number = list(RELEASES).index(name)
    law = None
    if name != "clean":
        law = Law(*(b[f"{key}{number}"] for key in ("map", "root", "lengths")), device)
    X = np.concatenate([b["train"], b["further"]]).astype(np.float32)
    learnt = TextVectors(X, texts["train"] + texts["further"])
    if quick:
        learnt = TextVectors(learnt.X[:200], learnt.texts[:200])
    judged = b["test"] if law is None else law(b["test"], np.random.default_rng(99))
    attack = GEIAAttack("small" if quick else "medium", seconds=60 * minutes, judged=300, device=device)
    result = attack.run(learnt, TextVectors(judged, texts["test"]), release=law, rng=0, show_progress=False)
    figures = {
        key: {"value": e.value, "low": e.low, "high": e.high, "chance": e.chance, "n": e.n}
        for key, e in result.estimates.items()
    }
    return {"texts": len(learnt), "seconds": result.seconds, "details": dict(result.details), "figures": figures}


def _denoiser(law: Law, X: np.ndarray, device: str, quick: bool) -> Any:
    """Return the release behind a network that was trained to give back the clean vector, with fresh noise."""
    import torch

    torch.manual_seed(0)
    rng, nn, width = np.random.default_rng(5), torch.nn, 64 if quick else 2048
    first = law.tensor(X[:8192], rng)
    mean, spread = first.mean(0), first.std(0) + 1e-9
    n, m = X.shape[1], first.shape[1]
    body = nn.Sequential(
        nn.Linear(m, width),
        nn.GELU(),
        nn.LayerNorm(width),
        nn.Linear(width, width),
        nn.GELU(),
        nn.LayerNorm(width),
        nn.Linear(width, n),
    ).to(device)
    steps = 5 if quick else 3000
    optimiser = torch.optim.AdamW(body.parameters(), lr=1e-3)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        rows = rng.integers(0, len(X), 1024)
        target = torch.from_numpy(X[rows]).to(device)
        loss = ((body((law.tensor(X[rows], rng) - mean) / spread) - target) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        decay.step()

    class Behind:
        def tensor_of(self, Y: np.ndarray) -> np.ndarray:
            with torch.no_grad():
                y = torch.from_numpy(Y).to(device)
                # The estimate beside the release: the reader may take either.
                estimate = body((y - mean) / spread)
                return torch.cat([y, estimate], dim=1).cpu().numpy()

        def __call__(self, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            return self.tensor_of(law(X, rng))

    return Behind()


def main() -> None:
    """Prepare the bundle, or run what it holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["prepare", "network"])
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sentences", type=Path, help="vectors of lm/sentences.parquet, in the file's order")
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="+", help="kinds of runs")
    parser.add_argument("--done", type=Path, help="record of an earlier call, whose runs are not repeated")
    parser.add_argument("--quick", action="store_true", help="tiny networks: a check of the script")
    arguments = parser.parse_args()
    started = time.monotonic()
    if arguments.part == "prepare":
        prepare(arguments.data, arguments.bundle, arguments.sentences)
        return
    import torch

    card = torch.cuda.get_device_name(0) if arguments.device != "cpu" else platform.processor() or "CPU"
    about = json.loads((arguments.bundle / "about.json").read_text(encoding="utf-8"))
    record: dict[str, Any] = {
        "schema": "vecveil.bench.gpu/1",
        "card": card,
        "torch": torch.__version__,
        **about,
        "runs": [],
    }
    if arguments.done:
        record["runs"] = json.loads(arguments.done.read_text(encoding="utf-8"))["runs"]
    done = [
        {key: each[key] for key in ("release", "kind", "further", "own", "size") if key in each}
        for each in record["runs"]
    ]
    chosen = [
        task for task in tasks() if task not in done and (arguments.only is None or task["kind"] in arguments.only)
    ]
    deadline = started + 60 * arguments.minutes
    pool = ProcessPoolExecutor(arguments.workers, mp_context=multiprocessing.get_context("spawn"))
    # A decoder is judged for about a minute after its training.
    settings = (str(arguments.bundle), arguments.device, max(0.1, arguments.minutes - 1.5), arguments.quick)
    futures = [pool.submit(run, task, *settings) for task in chosen]
    try:
        for future in as_completed(futures, timeout=max(1.0, deadline - time.monotonic())):
            result = future.result()
            record["runs"].append(result)
            what = {key: result[key] for key in ("kind", "release", "further", "own", "size") if key in result}
            figures = {each["attack"]: each["value"] for each in result.get("attacks", [])} or {
                key: figure["value"] for key, figure in result["figures"].items()
            }
            print(*what.values(), f"{result['seconds']:.0f} s", figures, flush=True)
            write_text(arguments.out / "gpu.json", json.dumps(record, indent=1, default=float) + "\n")
    except TimeoutError:
        print(f"{len(chosen) + len(done) - len(record['runs'])} runs were left out", flush=True)
    for process in (pool._processes or {}).values():
        process.terminate()


if __name__ == "__main__":
    main()
