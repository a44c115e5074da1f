"""The four-set table: the controls are what they are called, and a cell measures what was released."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unit.benchmarks.textcrafter_files import Lengths, module, parquet

defences, store, table, vectors = (
    module(name) for name in ("defences", "store", "table", "vectors")
)


def test_options_take_the_radius() -> None:
    assert defences.DEFENCES["gaussian"].options_at(2.0, 16) == {"sigma": 0.5}
    assert defences.DEFENCES["textcrafter"].options_at(2.0, 16)["radius"] == 2.0
    for name, one in defences.DEFENCES.items():
        assert all(
            not isinstance(v, str) or v == "untrained" for v in one.options_at(1, 9).values()
        ), name


def test_the_random_perturbation_is_orthogonal_and_of_the_norm() -> None:
    X = np.random.default_rng(0).standard_normal((200, 24))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    material = vectors.Material(X, X, None, X, np.arange(len(X)))
    defence = defences.make("orthogonal", material, 0.7, 0)
    one, two = (defence.protect(X, np.random.default_rng(seed)) for seed in (1, 2))
    assert np.allclose(np.linalg.norm(one - X, axis=1), 0.7)
    assert np.abs(((one - X) * X).sum(axis=1)).max() < 1e-12
    assert np.abs(one - two).max() > 0.01


def test_the_control_with_a_fixed_direction_is_orthogonal_to_it_and_of_the_norm() -> None:
    n, r = 24, 0.7
    X = np.random.default_rng(0).standard_normal((200, n))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    material = vectors.Material(X, X, None, X, np.arange(len(X)))
    directions = []
    for seed in (0, 1):
        defence = defences.make("orthogonal-fixed", material, r, seed)
        moved = [defence.protect(X, np.random.default_rng(draw)) - X for draw in (1, 2)]
        assert np.allclose(np.linalg.norm(moved, axis=2), r)
        assert np.abs(moved[0] - moved[1]).max() > 0.01
        values, axes = np.linalg.eigh(np.concatenate(moved).T @ np.concatenate(moved))
        assert values[0] < 1e-10 < 1.0 < values[1]  # one direction has none, all others have some
        directions.append(axes[:, 0])
    assert abs(directions[0] @ directions[1]) < 0.99


def test_texts_of_the_base_corpus_are_not_judged(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconstruction = module("reconstruction")
    task = vectors.load_task("sst2", data, (99, 99), Lengths())
    judged: list[list[str]] = []

    class Stopped(Exception):
        pass

    def run_(self: Any, train: Any, test: Any, **options: Any) -> None:
        judged.append(list(test.texts))
        assert len(test.X) == len(test.texts)
        raise Stopped

    monkeypatch.setattr(reconstruction._LongGEIA, "run", run_)
    planted = data / "lm" / "sentences.parquet"
    rows = [
        {"source": "brown", "text": t}
        for t in ("SST test 4: in March?", "other", "sst test 5 in March")
    ]
    parquet(planted, rows)
    defence = defences.make("none", task.material, 1.0, 0)
    for corpus in (frozenset(), reconstruction.corpus_keys(data, 2)):
        with pytest.raises(Stopped):
            reconstruction.sentence_cell(
                task,
                defence,
                data,
                start_from=None,
                seen=1,
                judged=5,
                encoder=Lengths(),
                corpus=corpus,
            )
    every = [task.rows.texts[i] for i in task.rows.test]
    assert judged == [every, [text for text in every if text != "sst test 4 in March"]]


def test_cells_hold_every_figure_of_the_tables(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("torch")
    utility = module("utility")
    task = vectors.load_task("phrasebank", data, (99, 99), Lengths())
    pii = vectors.load_pii(data, None, Lengths())
    defence = defences.make("orthogonal", task.material, 0.5, 0)
    found = utility.task_cell(task, defence, 0)
    assert found["token_inference"]["attacks"] == {}  # ten test texts are too few
    probed = utility.pii_cell(pii, defence, 0)
    assert set(probed["frozen"]) == {"benchmark"}
    kept = store.Store(tmp_path / "cells", "s/1")
    own = {"defence": "orthogonal", "seed": 0, "sizes": task.to_record()}
    rows = [{**found, **own, "set": "phrasebank"}, {**probed, **own, "set": "pii"}]
    kept.gather(
        tmp_path / "textcrafter-utility.json", rows, defences={"orthogonal": "a random direction"}
    )
    (line,) = [x for x in table.leakage(tmp_path).splitlines() if x.startswith("| a random")]
    assert line.startswith("| a random direction | 0.50 |")
    assert "not measured" not in table.pii(tmp_path)
    assert "not measured" not in table.sizes(tmp_path)


def test_a_policy_is_known_by_its_classifier(data: Path) -> None:
    utility = module("utility")
    pytest.importorskip("sklearn")
    pytest.importorskip("torch")
    pii = vectors.load_pii(data, None, Lengths())
    blind = np.zeros(pii.train[0].shape[1] + 1)
    blind[-1] = -50.0  # calls nothing PII, whatever it is shown
    defence = defences.Applied(lambda X, rng: X, None, False, {}, classifier=blind)
    found = utility.pii_cell(pii, defence, 0)["frozen"]["policy"]
    assert found["p_with"] < 1e-20
    assert found["auc"] == 0.5
