"""What the attackers on texts, maps and links find behind each release, on real texts and at small size.

    python benchmarks/attackers.py --data DIR [--concept sts ade pii] [--attack zero-shot alignment linking access ...]

DIR is a folder as `benchmarks/leakage.py` reads it, with ``lm/sentences.parquet``. Releases: clean vectors, `laplace`,
`sparse` and `subspace` at 95 % of the STS12 correlation, and `subspace` with a noise-to-signal ratio of 1 and the map
that the fit chooses for it. Protectors learn from 70 % of the groups; the other texts are attacked.

- ``zero-shot``: 24 texts of at most 20 words, a trigram model of other sentences, 300 encoder queries a text.
- ``alignment``: each release behind a secret rotation (to these attackers all rotations are alike), undone from 10, 100
  and all known pairs by Procrustes and by ridge: top-1 among the texts, and the words that token inference reads
  afterwards. For every method, with keyed noise (of one release a text, so fresh by construction) and
  with rewritten texts, too.
- ``unpaired``: the same without a pair, from as many rows as the attack needs on clean vectors. ADE: 8,000 sentences a
  side, of different abstracts. STS: 8,000 a side, drawn from all sentences; with no pair of sentences on both sides it
  fails on clean vectors, too. PII: 900 a side, all there are, drawn from all texts.
- ``readers``: token inference, the probe and matching of known texts, which learn from releases of their own.
- ``access``: a third of the texts search for the others with fresh noise, 50 candidates each; token inference from the
  log of fetched rows, from the stored vectors, and from both. It learns from the rows whose texts are known.
- ``words``: every word of the texts, listed or not, by a log-linear model: 8,000 texts of the whole set to learn from,
  1,500 of groups that no protector was fitted on to judge. On clean vectors also at lower ranks, and trained by
  gradients, as the paper trains its factors.
- ``anchors``: each release behind a secret rotation against the clean vectors of the same texts, and against the same
  release behind another rotation, linked from 15, 30 and 100 known pairs. Keyed noise comes from another key there, and
  in a further store from the same one. On clean vectors also behind ironcore-alloy's encryption (if it is installed)
  and against the vectors of a second encoder (``--second FOLDER``, such as the one that
  `benchmarks/wordllama_encoder.py` writes).
- ``secrets``: clean vectors behind secret rotations: cut to 96, 192 and 384 principal directions
  (arXiv:2606.26373), and with one key for each of 16 and of 64 cells behind a public prefix of 32
  (arXiv:2606.27976); undone from known pairs by Procrustes, cell by cell, and from the prefix alone by ridge.
- ``planted``: a text planted to be found: how many of 1,000 queries it is the first hit of, among 4,000 texts. One text
  for one query (its words and a payload), and one for as many queries as possible (the best of 300 tried on others).
  ``sealed``: the same of a `SealedIndex` of the 4,000 texts.
- ``denoised``: the audit's network alone, and behind a network that was trained to give back the clean vector from
  fresh releases of four fifths of the whole set, with and without the concept.
- ``linking``: rows of one text in two stores of other noise, a store against the clean vectors of a list, and the
  groups (abstracts of ADE, templates of PII, pairs of STS) by their other texts.

Each row is added to ``benchmarks/results/attackers.json`` when it is measured; an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import tempfile
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from alignment import ironcore
from leakage import MIN_COUNT, TARGET, _task, ade_problem, pii_problem, sts_problem, sts_tables

import vecveil
from vecveil.auditing.attacks import (
    AccessPatternAttack,
    AnchorLinkingAttack,
    AttackResult,
    CandidateVectors,
    CosineMatching,
    KernelAttack,
    KernelProbe,
    LabelledVectors,
    LikelihoodMatching,
    LinearAttack,
    LinkingAttack,
    NetworkAttack,
    PairedVectors,
    ProcrustesAlignment,
    RidgeAlignment,
    TextVectors,
    UnpairedAlignment,
    WholeVocabularyAttack,
    split_groups,
)
from vecveil.auditing.attacks.alignment import cluster_centres
from vecveil.auditing.attacks.candidates import group_means
from vecveil.auditing.attacks.reconstruction.zero_shot import NgramLanguageModel, ZeroShotAttack
from vecveil.auditing.attacks.release_model import fit_input_map
from vecveil.auditing.attacks.whole_vocabulary import LogLinearModel
from vecveil.auditing.attacks.wrapped import fit_access_map
from vecveil.auditing.metrics import Estimate
from vecveil.io import write_text
from vecveil.keys import KeyFile
from vecveil.privacy.concepts import TokenVocabulary
from vecveil.privacy.concepts.matching import words
from vecveil.privacy.protector.methods import TEXT_METHODS
from vecveil.privacy.utility.estimates import share_estimate
from vecveil.privacy.utility.tasks import unit_rows
from vecveil.texts.folding import canonical

RESULTS = Path(__file__).parent / "results" / "attackers.json"
PROBLEMS = {"sts": sts_problem, "ade": ade_problem, "pii": pii_problem}
RELEASES: dict[str, tuple[str, dict[str, float]]] = {
    "clean": ("none", {}),
    "laplace": ("laplace", {"target_utility": TARGET}),
    "sparse": ("sparse", {"target_utility": TARGET}),
    "subspace": ("subspace", {"target_utility": TARGET}),
    "subspace, noise to signal 1": ("subspace", {"noise_to_signal": 1.0}),
}
# Measured by the attacks of `KINDS` alone. Where each text is released once, keyed noise is fresh noise.
OTHERS: dict[str, tuple[str, dict[str, float]]] = {
    "purkayastha": ("purkayastha", {"target_utility": TARGET}),
    "gaussian": ("gaussian", {"target_utility": TARGET}),
    "ldp-gaussian, epsilon 200": ("ldp-gaussian", {"epsilon": 200, "delta": 1e-6}),
    "covariance": ("covariance", {"target_utility": TARGET}),
    "sparse-whitebox": ("sparse-whitebox", {"target_utility": TARGET}),
    "textcrafter, radius 0.5": ("textcrafter", {"radius": 0.5}),
    "shuffle": ("shuffle", {}),
    "subspace, keyed noise": ("subspace", {"target_utility": TARGET}),
    "redact": ("redact", {}),
    "replace-random": ("replace-random", {}),
    "replace-semantic": ("replace-semantic", {}),
    "sealed": ("none", {}),
}
KINDS = dict.fromkeys(OTHERS, ("alignment",)) | {
    "subspace, keyed noise": ("alignment", "anchors"),
    "sealed": ("planted",),
}
UNPAIRED, FEWER = 8000, (500, 1000, 2000, 4000)  # rows a side
TEXTS, SENTENCES, SEARCHED, QUERIES, LONGEST, POOL = 1500, 40_000, 24, 300, 20, 1000
PAIRS = (10, 100, 1000)
FETCHED = 50
LEARNT, JUDGED = 8000, 1500
RANKS = (32, 128, 256)
FACTOR_EPOCHS, FACTOR_BATCH = 30, 256
ANCHORS, LINKED = (15, 30, 100), 1000
DIRECTIONS, CELLS, PREFIX, STOLEN = (96, 192, 384), (16, 64), 32, 1000
KNOWN = (10, 100, 1000)
STORED, ASKED, TARGETED, TRIED = 4000, 1000, 100, 300
DENOISER = {"width": 512, "batch": 512, "steps": 300}
PAYLOAD = "Patients should stop all treatment and call the number below."

Release = Callable[[np.ndarray, np.random.Generator], np.ndarray]


class TrainedFactors(WholeVocabularyAttack):
    """The same log-linear model as FLiP trains it: factors of W (full rank: W) that minimise the cross-entropy."""

    def _fit(self, train: TextVectors, validation: TextVectors, session: Any) -> LogLinearModel:
        import torch

        counted = self._vocabulary([*train.texts, *validation.texts])
        names = tuple(word for word, _ in counted)
        rates = np.array([count for _, count in counted]) / (len(train) + len(validation))
        inputs = fit_input_map(session.draw(train.X))
        Y, held = (torch.from_numpy(inputs(session.draw(part.X)).astype(np.float32)) for part in (train, validation))
        marked, known = (self._marked(part.texts, names).astype(np.float32) for part in (train, validation))
        torch.manual_seed(int(session.rng.integers(2**31)))
        sizes = [Y.shape[1], *([self.rank] if self.rank else []), len(names)]
        layers = [torch.nn.Linear(a, b, bias=b == len(names)) for a, b in itertools.pairwise(sizes)]
        model = torch.nn.Sequential(*layers)
        with torch.no_grad():
            layers[-1].weight.mul_(0.01)
            layers[-1].bias.copy_(torch.from_numpy(np.log(rates)))
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
        decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, FACTOR_EPOCHS)

        def loss(Z: Any, words_of: Any) -> Any:
            true = torch.from_numpy(words_of.toarray())
            return -(torch.log_softmax(model(Z), dim=1) * true).sum() / true.sum()

        best, weights, bias = np.inf, np.empty(0), np.empty(0)
        for _epoch in range(FACTOR_EPOCHS):
            for rows in np.array_split(session.rng.permutation(len(Y)), -(-len(Y) // FACTOR_BATCH)):
                optimiser.zero_grad()
                loss(Y[rows], marked[rows]).backward()
                optimiser.step()
            decay.step()
            with torch.no_grad():
                found, offset = float(loss(held, known)), layers[-1].bias
                if found < best:  # the factors are kept as the one matrix that they are
                    best, bias = found, offset.numpy().copy()
                    weights = (model(torch.eye(Y.shape[1])) - offset).numpy()
        return LogLinearModel(inputs, weights, bias, rates, names, penalty=0.0)


class Problem:
    """The texts of a concept as vectors, split by group, and the protectors fitted on the first part."""

    def __init__(self, name: str, data: Path, encoder: Any, seed: int) -> None:
        problem = PROBLEMS[name](data)
        self.name, self.seed, self.encoder, self.whole = name, seed, encoder, problem
        matches = problem.concept.find(problem.texts)
        # Texts with the concept first: a small sample must hold enough of its words.
        rows = np.random.default_rng(0).permutation(matches.with_concept)[:TEXTS]
        self.texts = [problem.texts[i] for i in rows]
        self.groups = np.asarray(problem.groups)[rows]
        place = {int(row): i for i, row in enumerate(matches.with_concept)}
        own = np.array([place[int(row)] for row in rows])
        self.fit, self.test = split_groups(self.groups, (0.7, 0.3), seed=seed)
        every, tokens = matches.token_labels(min_count=1)
        counts = every[own][self.fit].sum(axis=0)
        frequent = [t for t, c in zip(tokens.tokens, counts, strict=True) if c >= MIN_COUNT[name]]
        self.words = TokenVocabulary(tuple(frequent))
        self.labels = matches.token_labels(self.words)[0][own]
        self.X = encoder.encode(self.texts)
        negatives = matches.negatives()
        self.negative = encoder.encode([negatives[i] for i in own])
        ordinary = np.random.default_rng(1).permutation(matches.without_concept)[:1000]
        self.background = encoder.encode([problem.texts[i] for i in ordinary]) if len(ordinary) >= 20 else None
        self.task = _task([sts_tables(data)["sts12"]], encoder)

    @cached_property
    def every(self) -> np.ndarray:
        """The clean vectors of the whole set of texts."""
        vectors: np.ndarray = self.encoder.encode(self.whole.texts)
        return vectors

    def release(self, name: str) -> tuple[Release | None, np.ndarray | None]:
        """Return the release oracle and the declared covariance of its noise; None for clean vectors."""
        method, scale = (RELEASES | OTHERS)[name]
        self.fitted: dict[str, Any] = {}
        self.rekeyed: Release | None = None
        self.sealed = name == "sealed"
        if method == "none":
            return None, None
        if method in TEXT_METHODS:
            return self._rewritten(method), None
        protector = vecveil.fit_pairs(
            self.X[self.fit],
            self.negative[self.fit],
            self.labels[self.fit],
            self.background,
            method=method,
            utility=self.task,
            groups=self.groups[self.fit],
            seed=self.seed,
            show_progress=False,
            **scale,
        )
        report = protector.report
        ratio = report.get("noise_to_signal")
        self.fitted = {"noise_to_signal": ratio and round(ratio, 4), "parameters": report.get("parameters")}
        if name.endswith("keyed noise"):
            keyed, self.rekeyed = _keyed(protector), _keyed(protector)
            return keyed, protector.released_noise_covariance()
        return protector.release(), protector.released_noise_covariance()

    def _rewritten(self, method: str) -> Release:
        """Return the release of a method that rewrites the words before texts are encoded."""
        concept = vecveil.Concept.from_terms(self.name, list(self.words.tokens))
        texts = [self.texts[i] for i in self.fit]
        protector = vecveil.fit(texts, concept, self.encoder, method=method, seed=self.seed, show_progress=False)
        changed = self.encoder.encode(protector.rewrite(self.texts))
        place = {row.tobytes(): i for i, row in enumerate(self.X)}
        return lambda X, _: changed[[place[row.tobytes()] for row in X]]

    def words_of(self, texts: Any) -> list[set[str]]:
        known = set(self.words.tokens)
        return [known & set(words(canonical(text))) for text in texts]


def _keyed(protector: Any) -> Release:
    """Return the release with the noise of a new key."""
    with tempfile.TemporaryDirectory() as folder:
        key = KeyFile.create(Path(folder) / "noise.keys", "one")
    return lambda X, _: protector.protect(X, ids=[row.tobytes() for row in X], key=key)


def zero_shot(problem: Problem, release: Any, released: np.ndarray, covariance: Any, data: Path) -> list[Any]:
    table = pq.read_table(data / "lm" / "sentences.parquet").to_pydict()
    # Of other sources than the attacked texts.
    other = [t for t, s in zip(table["text"], table["source"], strict=True) if not s.startswith(("sts", "ade"))]
    model = NgramLanguageModel(other[:SENTENCES])
    encode = lambda texts: problem.encoder.encode(list(texts))  # noqa: E731
    some = np.array([i for i in problem.test if len(problem.texts[i].split()) <= LONGEST])[:SEARCHED]
    where = np.searchsorted(problem.test, some)
    texts = [problem.texts[i] for i in some]
    attack = ZeroShotAttack(encode, model, queries=QUERIES, words_of=problem.words_of, judge_encoder=encode)
    train = TextVectors(problem.X[problem.fit[:4]], [problem.texts[i] for i in problem.fit[:4]])
    oracle = {"release": release, "noise_covariance": covariance}
    test = TextVectors(released[where], texts, problem.groups[some])
    return [("zero-shot", attack.run(train, test, rng=problem.seed, show_progress=False, **oracle))]


def alignment(problem: Problem, release: Any, released: np.ndarray, *_: Any) -> list[Any]:
    rng = np.random.default_rng(problem.seed + 5)
    known, X = problem.fit, problem.X
    secret = np.linalg.qr(rng.standard_normal((released.shape[1],) * 2))[0].astype(np.float32)
    shown = (X[known] if release is None else release(X[known], rng)) @ secret
    rows = problem.test[:POOL]
    test = CandidateVectors(
        released[: len(rows)] @ secret,
        X[rows],
        np.arange(len(rows)),
        groups=problem.groups[rows],
        labels=problem.labels[rows],
    )
    pairs = PairedVectors(shown, X[known], problem.groups[known], problem.labels[known])
    attacks = (ProcrustesAlignment(pairs=PAIRS), RidgeAlignment(pairs=PAIRS))
    return [(attack.name, attack.run(pairs, test, rng=problem.seed)) for attack in attacks]


def unpaired(problem: Problem, release: Any, *_: Any) -> list[Any]:
    whole, texts = problem.whole, problem.whole.texts
    matches = whole.concept.find(texts)
    labels = np.zeros((len(texts), len(problem.words)), dtype=np.uint8)
    labels[matches.with_concept] = matches.token_labels(problem.words)[0]
    X = problem.every
    secret = np.linalg.qr(np.random.default_rng(problem.seed + 8).standard_normal((X.shape[1],) * 2))[0]
    groups, loose = np.asarray(whole.groups), np.arange(len(texts))

    def attacked(by: np.ndarray, most: int, name: str) -> tuple[str, AttackResult]:
        rng = np.random.default_rng(problem.seed + 9)
        parts = split_groups(by, (0.5, 0.5), seed=problem.seed)
        count = min(most, *map(len, parts))
        rows, own = (rng.permutation(part)[:count] for part in parts)
        shown = ((X[rows] if release is None else release(X[rows], rng)) @ secret).astype(np.float32)
        judged = np.arange(min(POOL, count))
        test = CandidateVectors(shown[judged], X[rows[:4000]], judged, labels=labels[rows[judged]])
        train = PairedVectors(shown, X[own], labels=labels[own])
        return f"unpaired, {count:,} rows{name}", UnpairedAlignment(runs=4).run(train, test, rng=problem.seed)

    by = groups if problem.name == "ade" else loose
    results = [attacked(by, UNPAIRED, "")]
    if release is None:  # how many rows the attack needs where nothing protects
        results += [attacked(by, most, "") for most in FEWER if most < len(texts) // 2]
        if problem.name == "sts":
            results.append(attacked(groups, UNPAIRED, ", no pair on both sides"))
    return results


def linking(problem: Problem, release: Any, released: np.ndarray, *_: Any) -> list[Any]:
    rng = np.random.default_rng(problem.seed + 6)
    X, rows, known = problem.X, problem.test[:POOL], problem.fit
    again: Any = (lambda Z: Z) if release is None else (lambda Z: release(Z, rng))
    groups, first = problem.groups[rows], released[: len(rows)]
    attack, order = LinkingAttack(), np.arange(len(rows))
    store = CandidateVectors(first, again(X[rows]), order, groups=groups)
    listed = CandidateVectors(first, X[rows], order, groups=groups)
    own = PairedVectors(X[known], X[known], problem.groups[known])
    to_list = PairedVectors(again(X[known]), X[known], problem.groups[known])
    results = [
        ("linking, another store", attack.run(own, store, release=release, rng=problem.seed)),
        ("linking, a public list", attack.run(to_list, listed, rng=problem.seed)),
    ]

    def halves(part: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        _, index, counts = np.unique(problem.groups[part], return_inverse=True, return_counts=True)
        part = part[counts[index] > 1]
        part = part[np.argsort(problem.groups[part], kind="stable")]
        names, begin, index = np.unique(problem.groups[part], return_index=True, return_inverse=True)
        odd = (np.arange(len(part)) - begin[index]) % 2 == 1
        means = [group_means(again(X[part[side]]), index[side])[0] for side in (~odd, odd)]
        return means[0], means[1], names

    (a, b, of), (c, d, _) = halves(known), halves(problem.test)
    if min(len(a), len(c)) >= 20:
        test = CandidateVectors(c, d, np.arange(len(c)))
        linked = attack.run(PairedVectors(a, b, of), test, rng=problem.seed)
        results.append(("linking, groups by other texts", linked))
    return results


def readers(problem: Problem, release: Any, released: np.ndarray, covariance: Any, *_: Any) -> list[Any]:
    X, groups, seed = problem.X, problem.groups, problem.seed
    settings = {"release": release, "noise_covariance": covariance, "rng": seed}
    held = problem.labels.any(axis=1)
    known, met = (part[held[part]] for part in (problem.fit, problem.test))
    train = LabelledVectors(X[known], problem.labels[known], groups[known])
    test = LabelledVectors(released[held[problem.test]], problem.labels[met], groups[met])
    results = [(attack.name, attack.run(train, test, **settings)) for attack in (LinearAttack(), KernelAttack())]
    rows, order = problem.test[:POOL], np.arange(min(POOL, len(problem.test)))
    pairs = PairedVectors(X[problem.fit], X[problem.fit], groups[problem.fit])
    listed = CandidateVectors(released[: len(rows)], X[rows], order, groups=groups[rows])
    matching = (CosineMatching(), LikelihoodMatching())
    results += [(attack.name, attack.run(pairs, listed, **settings)) for attack in matching]
    if problem.background is not None:
        first, second = np.array_split(problem.background, 2)
        shown = second if release is None else release(second, np.random.default_rng(seed + 10))
        holds = [np.repeat((1, 0), (len(a), len(b)))[:, None] for a, b in ((known, first), (met, second))]
        train = LabelledVectors(np.concatenate([X[known], first]), holds[0])
        test = LabelledVectors(np.concatenate([released[held[problem.test]], shown]), holds[1])
        results.append((KernelProbe.name, KernelProbe().run(train, test, **settings)))
    return results


def access(problem: Problem, release: Any, released: np.ndarray, *_: Any) -> list[Any]:
    rng = np.random.default_rng(problem.seed + 7)
    again: Any = (lambda Z: Z) if release is None else (lambda Z: release(Z, rng))
    order = rng.permutation(len(problem.texts))
    # A third of the texts are searched for; of the others, the store's, those of the fit are known.
    searches, stored = order[: len(order) // 3], np.sort(order[len(order) // 3 :])
    X, L = again(problem.X[stored]), problem.labels[stored]
    unit = [Z / np.linalg.norm(Z, axis=1, keepdims=True) for Z in (again(problem.X[searches]), X)]
    nearest = np.argsort(-unit[0] @ unit[1].T, axis=1)[:, :FETCHED]
    accesses = np.zeros((len(stored), len(searches)), dtype=np.float32)
    np.put_along_axis(accesses.T, nearest, 1, axis=1)
    places = fit_access_map(accesses)(accesses)
    both = np.hstack([X, places / places.std() * X.std()])
    held = L.any(axis=1)
    known, met = (np.flatnonzero(np.isin(stored, part) & held) for part in (problem.fit, problem.test))
    results = []
    for name, Z, attack in (
        ("access, the log alone", accesses, AccessPatternAttack()),
        ("access, the vectors alone", X, KernelAttack()),
        ("access, both", both, KernelAttack()),
    ):
        train, test = (LabelledVectors(Z[r], L[r], problem.groups[stored[r]]) for r in (known, met))
        results.append((name, attack.run(train, test, rng=problem.seed)))
    return results


def words_of_any_list(problem: Problem, release: Any, released: Any, covariance: Any, *_: Any) -> list[Any]:
    whole, groups, rng = problem.whole, np.asarray(problem.whole.groups), np.random.default_rng(problem.seed + 11)
    # No text of a group that a protector was fitted on is judged: an erasure hides more in the texts of its fit.
    fitted = np.isin(groups, problem.groups[problem.fit])
    free = np.flatnonzero(~fitted)
    learn, judge = (free[part] for part in split_groups(groups[free], (0.75, 0.25), seed=problem.seed))
    learn = rng.permutation(np.concatenate([learn, np.flatnonzero(fitted)]))[:LEARNT]
    judge = rng.permutation(judge)[:JUDGED]
    X = problem.every
    shown = X[judge] if release is None else release(X[judge], np.random.default_rng(problem.seed + 12))
    train, test = (
        TextVectors(Z, [whole.texts[i] for i in rows], groups[rows]) for Z, rows in ((X[learn], learn), (shown, judge))
    )
    ranks = (None, *RANKS) if release is None else (None,)
    attacks = {
        f"log-linear, rank {rank or 'full'}": WholeVocabularyAttack(rank, listed=problem.words.tokens, split=words)
        for rank in ranks
    }
    if release is None:
        attacks |= {
            f"log-linear, trained, {rank or 'full'}": TrainedFactors(rank, listed=problem.words.tokens, split=words)
            for rank in ranks
        }
    return [(name, attack.run(train, test, release=release, rng=problem.seed)) for name, attack in attacks.items()]


def anchors(problem: Problem, release: Any, released: Any, covariance: Any, data: Path, second: Any) -> list[Any]:
    rng = np.random.default_rng(problem.seed + 13)
    groups, X = np.asarray(problem.whole.groups), problem.every
    known, rows = (rng.permutation(part) for part in split_groups(groups, (0.5, 0.5), seed=problem.seed))
    known, rows = known[: max(ANCHORS)], rows[:LINKED]
    width = released.shape[1]
    turns = [np.linalg.qr(rng.standard_normal((width, width)))[0].astype(np.float32) for _ in range(2)]
    parts = (("known", known), ("met", rows))

    def store(shown: Release | None, turn: np.ndarray) -> dict[str, np.ndarray]:
        return {name: (X[part] if shown is None else shown(X[part], rng)) @ turn for name, part in parts}

    first = store(release, turns[0])
    others = {
        "a public list": {"known": X[known], "met": X[rows]},
        "another key": store(problem.rekeyed or release, turns[1]),
    }
    if problem.rekeyed is not None:
        others["the same noise key"] = store(release, turns[1])
    if release is None and second is not None:
        texts = problem.whole.texts
        others["another encoder"] = {name: second.encode([texts[i] for i in part]) for name, part in parts}
    stores = [(name, first, other) for name, other in others.items()]
    if release is None and importlib.util.find_spec("ironcore_alloy"):
        sealed = {name: ironcore(1.0)(X[part]) for name, part in parts}
        stores.append(("a public list, ironcore-alloy factor 1", sealed, others["a public list"]))
    return [
        (
            f"linking, {name}, {pairs} pairs",
            AnchorLinkingAttack(pairs).run(
                PairedVectors(own["known"], other["known"]),
                CandidateVectors(own["met"], other["met"], np.arange(len(rows)), groups=groups[rows]),
                rng=problem.seed,
            ),
        )
        for name, own, other in stores
        for pairs in ANCHORS
    ]


def secrets(problem: Problem, release: Any, *_: Any) -> list[Any]:
    if release is not None:
        return []
    rng = np.random.default_rng(problem.seed + 14)
    X, groups = problem.every, np.asarray(problem.whole.groups)
    matches = problem.whole.concept.find(problem.whole.texts)
    labels = np.zeros((len(X), len(problem.words)), dtype=np.uint8)
    labels[matches.with_concept] = matches.token_labels(problem.words)[0]
    known, stolen = (rng.permutation(part) for part in split_groups(groups, (0.8, 0.2), seed=problem.seed))
    known, stolen = known[: KNOWN[-1]], stolen[:STOLEN]
    centred = X - X.mean(axis=0)
    axes = np.linalg.svd(centred[known], full_matrices=False)[2].T

    def turn(width: int) -> np.ndarray:
        return np.linalg.qr(rng.standard_normal((width, width)))[0]

    def attacked(attack: Any, Y: np.ndarray, pairs: np.ndarray, rows: np.ndarray) -> AttackResult:
        # Words are read from a whole store only: of one cell there are too few pairs.
        marked = len(rows) == len(stolen) and len(pairs) >= 1000
        test = CandidateVectors(
            Y[rows], X[stolen], np.searchsorted(stolen, rows), labels=labels[rows] if marked else None
        )
        train = PairedVectors(Y[pairs], X[pairs], labels=labels[pairs] if marked else None)
        return attack.run(train, test, rng=problem.seed)

    stolen = np.sort(stolen)
    results = []
    for m in DIRECTIONS:
        Y = (centred @ axes[:, :m] @ turn(m)).astype(np.float32)
        attack = ProcrustesAlignment(pairs=(10, 100, 400, 1000))
        results.append((f"cut to {m} and turned", attacked(attack, Y, known[:1000], stolen)))
    prefix = (centred @ axes[:, :PREFIX] @ turn(PREFIX)).astype(np.float32)
    results.append(("cells, the prefix alone", attacked(RidgeAlignment(pairs=KNOWN), prefix, known, stolen)))
    for cells in CELLS:
        centres = cluster_centres(unit_rows(prefix[known].astype(np.float64)), cells, rng)
        cell = (unit_rows(prefix.astype(np.float64)) @ centres.T).argmax(axis=1)
        rest = (centred @ axes[:, PREFIX:]).astype(np.float32)
        for of in range(cells):
            rest[cell == of] = rest[cell == of] @ turn(rest.shape[1]).astype(np.float32)
        for part, Y in (("prefix and residual", np.hstack([prefix, rest])), ("residual alone", rest)):
            for count in KNOWN:
                hits = np.zeros(len(stolen))
                for of in np.unique(cell[stolen]):
                    pairs, rows = known[:count][cell[known[:count]] == of], stolen[cell[stolen] == of]
                    if len(pairs) >= 3:  # from fewer the attack learns no map
                        found = attacked(ProcrustesAlignment(pairs=(len(pairs),)), Y, pairs, rows)
                        hits[np.isin(stolen, rows)] = found.value
                estimate = share_estimate("top-1, cell by cell", hits, groups=groups[stolen], chance=1 / len(stolen))
                results.append((f"{cells} cells, {part}, {count} pairs", estimate))
    return results


def planted(problem: Problem, release: Any, *_: Any) -> list[Any]:
    rng = np.random.default_rng(problem.seed + 15)
    texts, groups, X = problem.whole.texts, np.asarray(problem.whole.groups), problem.every
    store, asked = split_groups(groups, (0.5, 0.5), seed=problem.seed)
    store, asked = rng.permutation(store)[:STORED], rng.permutation(asked)
    judged, tried = asked[:ASKED], asked[ASKED : 2 * ASKED]
    shown: Any = (lambda Z: Z) if release is None else (lambda Z: release(Z, rng))
    rows = unit_rows(shown(X[store]))
    queries = {"judged": unit_rows(shown(X[judged])), "tried": unit_rows(shown(X[tried]))}
    best = {name: (Q @ rows.T).max(axis=1) for name, Q in queries.items()}

    def first(name: str, Z: np.ndarray) -> np.ndarray:
        """Return which queries each planted vector is the first hit of, (queries, planted)."""
        return (queries[name] @ unit_rows(Z).T) > best[name][:, None]

    # Of up to five queries of its own at a time: what lies near many of them.
    joined = [" ".join(texts[i] for i in rng.choice(tried, 1 + n % 5, replace=False)) for n in range(TRIED)]
    common = shown(problem.encoder.encode(joined))
    chosen = int(first("tried", common).sum(axis=0).argmax())
    targets = judged[:TARGETED]
    for_each = shown(problem.encoder.encode([f"{texts[i]} {PAYLOAD}" for i in targets]))
    if problem.sealed:
        planted = np.vstack([for_each, common[[chosen]]])
        found = _first_sealed([texts[i] for i in store], X[store], X[judged], planted)
        own, one = found[:, :-1], found[:, -1]
    else:
        own, one = first("judged", for_each), first("judged", common[[chosen]])[:, 0]
    of = groups[judged]
    figures = {
        "its query": (np.diag(own[:TARGETED]).astype(float), of[:TARGETED]),
        "other queries": ((own.sum(axis=1) - np.pad(np.diag(own), (0, ASKED - TARGETED))) / (TARGETED - 1), of),
        "one for all": (one.astype(float), of),
    }
    return [
        (f"planted, {name}", share_estimate("first hit", hits, groups=each)) for name, (hits, each) in figures.items()
    ]


def _first_sealed(texts: list[str], X: np.ndarray, queries: np.ndarray, planted: np.ndarray) -> np.ndarray:
    """Return which queries to a sealed index each planted vector is the first hit of, (queries, planted)."""
    first = np.zeros((len(queries), len(planted)), dtype=bool)
    with tempfile.TemporaryDirectory() as folder:
        KeyFile.create(Path(folder) / "search.keys", "one")
        with vecveil.SealedIndex(Path(folder) / "index", Path(folder) / "search.keys") as index:
            index.add(texts, ids=[f"stored {i}" for i in range(len(X))], vectors=X)
            index.add([PAYLOAD] * len(planted), ids=[str(i) for i in range(len(planted))], vectors=planted)
            # Alone in the index, a planted row would be first where it stands above every stored row.
            for hits, row in zip(index.search(queries, top=len(planted) + 1), first, strict=True):
                row[[int(i) for i in itertools.takewhile(str.isdigit, hits.ids)]] = True
    return first


def denoised(problem: Problem, release: Any, *_: Any) -> list[Any]:
    import torch

    if release is None:
        return []
    rng, seed = np.random.default_rng(problem.seed + 16), problem.seed
    groups, X = np.asarray(problem.whole.groups), problem.every
    matches = problem.whole.concept.find(problem.whole.texts)
    labels = np.zeros((len(X), len(problem.words)), dtype=np.uint8)
    labels[matches.with_concept] = matches.token_labels(problem.words)[0]
    known, met = split_groups(groups, (0.8, 0.2), seed=seed)
    learn, judge = (part[labels[part].any(axis=1)] for part in (known, met))
    mean, spread = (getattr(release(X[known], rng), name)(axis=0) for name in ("mean", "std"))
    torch.manual_seed(seed)
    width, n = DENOISER["width"], X.shape[1]
    sizes, layers = [len(mean), width, width], list[Any]()
    for one, other in itertools.pairwise(sizes):
        layers += [torch.nn.Linear(one, other), torch.nn.GELU(), torch.nn.LayerNorm(other)]
    body = torch.nn.Sequential(*layers, torch.nn.Linear(width, n))
    optimiser = torch.optim.AdamW(body.parameters(), lr=1e-3)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, DENOISER["steps"])

    def inputs(Y: np.ndarray) -> Any:
        return torch.from_numpy(((Y - mean) / np.maximum(spread, 1e-9)).astype(np.float32))

    for _step in range(DENOISER["steps"]):
        rows = rng.choice(known, DENOISER["batch"])
        loss = ((body(inputs(release(X[rows], rng))) - torch.from_numpy(X[rows])) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        decay.step()

    def behind(Y: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            # The estimate beside the release: the network may take either.
            return np.hstack([Y, body(inputs(Y)).numpy()]).astype(np.float32)

    shown = release(X[judge], np.random.default_rng(seed + 12))
    train = LabelledVectors(X[learn], labels[learn], groups[learn])
    results = []
    for name, view in (("network", lambda Y: Y), ("network, denoised", behind)):
        test = LabelledVectors(view(shown), labels[judge], groups[judge])
        oracle = lambda Z, r, view=view: view(release(Z, r))  # noqa: E731
        results.append((name, NetworkAttack(device="cpu").run(train, test, release=oracle, rng=seed)))
    return results


ATTACKS = {
    "denoised": denoised,
    "words": words_of_any_list,
    "anchors": anchors,
    "secrets": secrets,
    "planted": planted,
    "readers": readers,
    "access": access,
    "linking": linking,
    "alignment": alignment,
    "unpaired": unpaired,
    "zero-shot": zero_shot,
}


def row(result: AttackResult | Estimate) -> dict[str, Any]:
    """Return the figures of one attack, each with its interval and chance."""
    figures = {}
    estimates = {"value": result} if isinstance(result, Estimate) else result.estimates
    for key, each in estimates.items():
        record = each.to_record()
        numbers = {k: None if record[k] is None else round(record[k], 4) for k in ("value", "low", "high", "chance")}
        figures[key] = {"metric": each.metric, "n": each.n, **numbers}
    if isinstance(result, Estimate):
        return {"figures": figures}
    return {
        "figures": figures,
        "adaptive": result.adaptive,
        "details": dict(result.details),
        "attack_seconds": round(result.seconds, 1),
    }


def main() -> None:
    """Measure the rows that are missing, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--concept", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--attack", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    parser.add_argument("--release", nargs="+", choices=RELEASES | OTHERS, default=list(RELEASES | OTHERS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--second", help="folder of a second encoder, for anchors")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    record: dict[str, Any] = {"schema": "vecveil.bench.attackers/1", "size": "small", "rows": []}
    if arguments.results.exists():
        record = json.loads(arguments.results.read_text(encoding="utf-8"))
    encoder = vecveil.load_encoder("minilm", show_progress=False)
    second = None if arguments.second is None else vecveil.load_encoder(arguments.second, show_progress=False)
    for name in arguments.concept:
        problem = None
        for release_name in arguments.release:
            done = {(r["concept"], r["release"], r["kind"], r["seed"]) for r in record["rows"]}
            offered = [k for k in arguments.attack if k in KINDS.get(release_name, ATTACKS)]
            kinds = [k for k in offered if (name, release_name, k, arguments.seed) not in done]
            if not kinds:
                continue
            problem = problem or Problem(name, arguments.data, encoder, arguments.seed)
            release, covariance = problem.release(release_name)
            X = problem.X[problem.test]
            released = X if release is None else release(X, np.random.default_rng([arguments.seed, 12]))
            for kind in kinds:
                started = time.perf_counter()
                for attack, result in ATTACKS[kind](problem, release, released, covariance, arguments.data, second):
                    record["rows"].append(
                        {
                            "concept": name,
                            "release": release_name,
                            "kind": kind,
                            "seed": arguments.seed,
                            "attack": attack,
                            "size": "small",
                            "texts": len(problem.test),
                            "vecveil": vecveil.__version__,
                            "fitted": problem.fitted,
                            **row(result),
                        }
                    )
                    figures = record["rows"][-1]["figures"]
                    print(name, release_name, attack, {k: each["value"] for k, each in figures.items()})
                write_text(arguments.results, json.dumps(record, indent=1) + "\n")
                print(f"{time.perf_counter() - started:.0f} s, with chance and intervals in the results", flush=True)


if __name__ == "__main__":
    main()
