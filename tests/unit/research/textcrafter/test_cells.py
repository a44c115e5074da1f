"""The four-set table: the controls are what they are called, and a cell measures what was released."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from research.textcrafter import cells, defences
from research.textcrafter.data import PairedTexts
from research.textcrafter.specification import TextCrafterSpec
from unit.research.textcrafter.files import Lengths, parquet, pii_of, task_of
from vecveil.privacy.textcrafter.policy_settings import DIRECTIONS


def test_options_take_the_radius() -> None:
    assert defences.DEFENCES["gaussian"].options_at(2.0, 16) == {"sigma": 0.5}
    assert defences.DEFENCES["textcrafter"].options_at(2.0, 16)["radius"] == 2.0
    for name, one in defences.DEFENCES.items():
        assert all(not isinstance(v, str) or v in DIRECTIONS for v in one.options_at(1, 9).values()), name


def test_variants_have_the_options_given_and_say_so() -> None:
    spec = TextCrafterSpec(
        experiment="textcrafter",
        defences=("gaussian", "louder", "textcrafter"),
        variants={"louder": "gaussian"},
        options={"louder": {"sigma": 0.25}, "textcrafter": {"epochs": 3.0}},
    )
    assert spec.defence("louder").options_at(1.0, 16) == {"sigma": 0.25}
    assert spec.defence("louder").title.endswith("; sigma = 0.25")
    assert spec.defence("gaussian").options_at(1.0, 16) == {"sigma": 0.25}
    assert spec.defence("gaussian").title == defences.DEFENCES["gaussian"].title
    epochs = spec.defence("textcrafter").options["epochs"]
    assert (epochs, type(epochs)) == (3, int)


def test_the_random_perturbation_is_orthogonal_and_of_the_norm() -> None:
    X = np.random.default_rng(0).standard_normal((200, 24))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    material = PairedTexts(X, X, None, X, np.arange(len(X)))
    defence = defences.make(defences.DEFENCES["orthogonal"], material, 0.7, 0)
    one, two = (defence.protect(X, np.random.default_rng(seed)) for seed in (1, 2))
    assert np.allclose(np.linalg.norm(one - X, axis=1), 0.7)
    assert np.abs(((one - X) * X).sum(axis=1)).max() < 1e-12
    assert np.abs(one - two).max() > 0.01


def test_the_control_with_a_fixed_direction_is_orthogonal_to_it_and_of_the_norm() -> None:
    n, r = 24, 0.7
    X = np.random.default_rng(0).standard_normal((200, n))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    material = PairedTexts(X, X, None, X, np.arange(len(X)))
    directions = []
    for seed in (0, 1):
        defence = defences.make(defences.DEFENCES["orthogonal-fixed"], material, r, seed)
        moved = [defence.protect(X, np.random.default_rng(draw)) - X for draw in (1, 2)]
        assert np.allclose(np.linalg.norm(moved, axis=2), r)
        assert np.abs(moved[0] - moved[1]).max() > 0.01
        values, axes = np.linalg.eigh(np.concatenate(moved).T @ np.concatenate(moved))
        assert values[0] < 1e-10 < 1.0 < values[1]  # one direction has none, all others have some
        directions.append(axes[:, 0])
    assert abs(directions[0] @ directions[1]) < 0.99


def test_texts_of_the_base_corpus_are_not_judged(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of("sst2", data, Lengths())
    judged: list[list[str]] = []

    class Stopped(Exception):
        pass

    def run_(self: Any, train: Any, test: Any, **options: Any) -> None:
        judged.append(list(test.texts))
        assert len(test.X) == len(test.texts)
        raise Stopped

    monkeypatch.setattr(cells.LongGEIA, "run", run_)
    planted = data / "lm" / "sentences.parquet"
    rows = [{"source": "brown", "text": t} for t in ("SST test 4: in March?", "other", "sst test 5 in March")]
    parquet(planted, rows)
    defence = defences.make(defences.DEFENCES["none"], task.material, 1.0, 0)
    seen = cells.corpus_keys(cells.base_sentences("sentences", data, 2))
    for corpus in (frozenset(), seen):
        with pytest.raises(Stopped):
            cells.sentence_cell(
                task, defence, data, start_from=None, seen=1, judged=5, encode=Lengths().encode, corpus=corpus
            )
    every = [task.rows.texts[i] for i in task.rows.test]
    assert judged == [every, [text for text in every if text != "sst test 4 in March"]]


def test_a_policy_is_known_by_its_classifier(data: Path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("torch")
    pii = pii_of(data, Lengths())
    blind = np.zeros(pii.train[0].shape[1] + 1)
    blind[-1] = -50.0  # calls nothing PII, whatever it is shown
    defence = defences.Applied(lambda X, rng: X, None, False, {}, classifier=blind)
    found = cells.pii_cell(pii, defence, 0)["frozen"]["policy"]
    assert found["p_with"] < 1e-20
    assert found["auc"] == 0.5
