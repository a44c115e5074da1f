"""The filter is the analytic one, and it stands in front of attacks of any family."""

from dataclasses import dataclass

import numpy as np
import pytest

from harness.errors import raises
from unit.auditing.attacks.planted import planted
from vecveil.auditing.attacks import (
    Attack,
    CandidateVectors,
    Knowledge,
    LabelledVectors,
    LinearAttack,
    MLPAttack,
    PairedVectors,
    TextVectors,
)
from vecveil.auditing.attacks.attack import AttackFinding
from vecveil.auditing.attacks.candidates import CosineMatching
from vecveil.auditing.attacks.wrapped import Denoised, fit_denoiser
from vecveil.privacy.utility.estimates import Estimate

n = 6
SPREADS = np.array([3.0, 2.0, 1.0, 1.0, 0.5, 0.2])
MIX = np.linalg.qr(np.random.default_rng(0).standard_normal((n, n)))[0]
K = MIX @ np.diag(SPREADS**2) @ MIX.T
NOISE = np.diag([0.1, 2.0, 0.1, 2.0, 1.0, 1.0])


def _gaussian(rows, seed):
    return np.random.default_rng(seed).standard_normal((rows, n)) * SPREADS @ MIX.T + 5.0


def _noisy(X, rng):
    return X + rng.standard_normal(X.shape) @ np.sqrt(NOISE)


WIENER = np.linalg.solve(K + NOISE, K)


@pytest.mark.parametrize("declared", [True, False])
def test_equals_the_analytic_wiener_filter(declared):
    X = _gaussian(60_000, 1)
    knowledge = Knowledge(n, _noisy, NOISE if declared else None)
    found = fit_denoiser(X, _gaussian(5000, 2), knowledge, np.random.default_rng(3))
    assert found.weights == pytest.approx(WIENER, abs=0.03)
    assert found.mean == pytest.approx(np.full(n, 5.0), abs=0.1)
    assert found.centre == pytest.approx(np.full(n, 5.0), abs=0.1)


def test_released_vectors_and_a_declared_covariance_suffice():
    Y = _noisy(_gaussian(60_000, 1), np.random.default_rng(4))
    found = fit_denoiser(Y, Y[:10], Knowledge(n, None, NOISE), np.random.default_rng(3))
    assert found.weights == pytest.approx(WIENER, abs=0.05)
    blind = fit_denoiser(Y, Y[:10], Knowledge(n), np.random.default_rng(3))
    assert blind(Y) == pytest.approx(Y)


def test_no_linear_estimate_has_a_smaller_error_and_maps_are_undone():
    X, held = _gaussian(20_000, 1), _gaussian(5000, 2)
    down = np.random.default_rng(5).standard_normal((n, 9))

    def release(X, rng):
        return _noisy(X, rng) @ down

    found = fit_denoiser(X, held[:1000], Knowledge(9, release), np.random.default_rng(3))
    error = ((found(release(held, np.random.default_rng(8))) - held) ** 2).sum(axis=1).mean()
    least = np.trace(K - K @ np.linalg.solve(K + NOISE, K))
    assert error == pytest.approx(least, rel=0.05)


def _release32(X, rng):
    scales = np.where(np.arange(X.shape[1]) % 2, 1.0, 0.05).astype(np.float32)
    return X + scales * rng.standard_normal(X.shape).astype(np.float32)


COVARIANCE = np.diag(np.where(np.arange(12) % 2, 1.0, 0.0025))
INNER = [LinearAttack(), MLPAttack((32,), epochs=15, batch=16)]


@pytest.mark.parametrize("inner", INNER, ids=lambda attack: attack.name)
@pytest.mark.parametrize("known", ["arrays", "arrays and covariance", "oracle"])
def test_token_inference_behind_the_filter(inner, known):
    train, test = planted(seed=0), planted(seed=1)
    released = LabelledVectors(_release32(test.X, np.random.default_rng(7)), test.L)
    if known != "oracle":
        train = LabelledVectors(_release32(train.X, np.random.default_rng(8)), train.L)
    found = Denoised(inner).run(
        train,
        released,
        release=_release32 if known == "oracle" else None,
        noise_covariance=None if known == "arrays" else COVARIANCE,
        show_progress=False,
    )
    assert found.name == f"denoised-{inner.name}"
    assert found.family == "token-inference"
    assert found.value > 0.55
    assert "denoiser_penalty" in found.details


def test_distances_gain_where_noise_differs_by_direction():
    clean = np.random.default_rng(0).standard_normal((500, 12)).astype(np.float32)
    pool = np.random.default_rng(1).standard_normal((300, 12)).astype(np.float32)
    test = CandidateVectors(_release32(2 * pool[:150], np.random.default_rng(2)), 2 * pool, np.arange(150))
    train = PairedVectors(2 * clean, 2 * clean)
    given = {"release": _release32, "noise_covariance": COVARIANCE}
    behind = Denoised(CosineMatching()).run(train, test, **given)
    assert behind.family == "candidates"
    assert behind.value >= CosineMatching().run(train, test, **given).value


@dataclass(frozen=True)
class _Own:
    number: float

    def save(self, folder):
        folder.mkdir(exist_ok=True)
        (folder / "own.txt").write_text(str(self.number))

    @classmethod
    def load(cls, folder):
        return cls(float((folder / "own.txt").read_text()))


class _Reconstruction(Attack):
    """An attack of another family, whose state writes its own files and which keeps its progress."""

    name, description, cost, source = "own", "An attack.", "nothing", "a test"
    family = "reconstruction"
    state_type = _Own
    validation_share = 0.25

    def _fit(self, train, validation, session):
        assert len(validation) == 25
        assert session.draw(train.X).shape == (75, 12)
        if session.checkpoint is not None:
            (session.checkpoint.make() / "progress").write_text("half")
        return _Own(4.0)

    def _judge(self, state, train, test, session):
        assert test.X.shape == (len(test.texts), 12)
        estimate = Estimate("BLEU", state.number, 0.0, 9.0, len(test))
        return AttackFinding({"bleu": estimate}, examples=(("a", "b"),))


def test_a_state_of_its_own_and_its_progress_are_kept(tmp_path, monkeypatch):
    train = TextVectors(planted(100).X, ["text"] * 100)
    test = TextVectors(planted(10, seed=1).X[:, :5], ["text"] * 10)
    given = {"release": lambda X, rng: X[:, :5], "checkpoint": tmp_path}
    attack = Denoised(_Reconstruction())
    first = attack.run(train, test, **given)
    assert (tmp_path / "inner" / "progress").read_text() == "half"
    monkeypatch.setattr(_Reconstruction, "_fit", None)  # whoever learns again fails
    again = attack.run(train, test, **given)
    assert first.value == again.value == 4.0
    assert again.examples == (("a", "b"),)
    (tmp_path / "inner" / "attack.json").unlink()
    with raises("E-CHECKPOINT", "checkpoint"):
        attack.run(train, test, **given)


def test_texts_without_the_concept_are_denoised_too():
    seen = {}

    class Spy(LinearAttack):
        def _fit(self, train, validation, session):
            seen["without"] = train.without
            return super()._fit(train, validation, session)

    data = planted(100)
    Y = _release32(data.X, np.random.default_rng(0))
    train = LabelledVectors(Y, data.L, None, Y)
    Denoised(Spy()).run(train, data, noise_covariance=COVARIANCE)
    assert seen["without"].shape == (90, 12)
    assert not np.allclose(seen["without"], Y[:90])
    train = LabelledVectors(data.X, data.L, None, data.X)
    Denoised(Spy()).run(train, data, release=_release32)
    assert np.isin(seen["without"], data.X).all()  # clean, with an oracle


def test_what_the_inner_attack_refuses_is_refused():
    with raises("E-INPUT", "test"):
        Denoised(LinearAttack()).run(planted(60), planted(60, tokens=5))
