"""The ladder of token-inference attacks, weak to strong; the strongest decides the verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, Unpack

from vecveil.auditing.attacks.attack import Attack, AttackResult, FurtherVectors, LabelledVectors
from vecveil.auditing.attacks.perceptrons import MLCAttack, MLPAttack, NetworkAttack
from vecveil.auditing.attacks.token_inference import (
    BayesPosteriorAttack,
    EnsembleAttack,
    FaintDirectionsAttack,
    FurtherKernelAttack,
    KernelAttack,
    LinearAttack,
    NearestNeighboursAttack,
    TokenInferenceAttack,
    TransplantAttack,
)
from vecveil.errors import InvalidInputError, wrong_type
from vecveil.types import Embeddings, Groups, Matrix, Release, TokenLabels
from vecveil.validation import check_seed

FULL_EFFORT = 4.0  # steps of the network in tier full, relative to tier quick

Tier = Literal["quick", "full"]


@dataclass(frozen=True, eq=False)
class LadderResult:
    """Results of the attacks, one each, in the order of the ladder."""

    results: tuple[AttackResult, ...]

    @property
    def worst(self) -> AttackResult:
        """Return the attack with the highest R-precision; the maximum of noisy figures errs on the side of caution."""
        return max(self.results, key=lambda result: result.value)

    def __getitem__(self, name: str) -> AttackResult:
        for result in self.results:
            if result.name == name:
                return result
        raise KeyError(name)


def ladder_attacks(tier: Tier = "quick", *, device: str = "auto") -> tuple[Attack[LabelledVectors, Any], ...]:
    """Return the attacks of a tier: ``"quick"``, or ``"full"``, which trains the network longer."""
    quick: tuple[Attack[LabelledVectors, Any], ...] = (
        LinearAttack(),
        FaintDirectionsAttack(),
        KernelAttack(),
        TransplantAttack(),
        FurtherKernelAttack(),
        EnsembleAttack(),
        NearestNeighboursAttack(),
        BayesPosteriorAttack(),
        MLPAttack(device=device),
        MLCAttack(device=device),
    )
    if tier in ("quick", "full"):
        return (*quick, NetworkAttack(effort=1.0 if tier == "quick" else FULL_EFFORT, device=device))
    raise InvalidInputError(f"tier is 'quick' or 'full', not {str(tier)[:40]!r}.", param="tier")


_own: dict[str, Callable[[], TokenInferenceAttack]] = {}


def register_attack(make: Callable[[], TokenInferenceAttack]) -> None:
    """Register an attack of your own, so that experiments find it by its name.

    ``make`` returns the attack and is called for each run; a class is enough. Raises `InvalidInputError` if it returns
    no token-inference attack, or one with the name of an attack of the ladder.
    """
    attack = make()
    if not isinstance(attack, TokenInferenceAttack):
        expected = "a callable that returns a TokenInferenceAttack"
        raise wrong_type("register_attack", "make", expected, attack)
    # Names identify attacks in records, so they must be unique.
    if attack.name in {each.name for each in ladder_attacks("full", device="cpu")}:
        raise InvalidInputError(
            f"The ladder has an attack with the name {attack.name!r} already.", code="E-INPUT-NAME", param="make"
        )
    _own[attack.name] = make


def own_attacks() -> dict[str, TokenInferenceAttack]:
    return {name: make() for name, make in _own.items()}


class LadderOptions(TypedDict, total=False):
    """Knowledge of an attacker in addition to labelled vectors.

    Attributes:
        groups_train: (N,) text groups; duplicates must share one. None: independent texts.
        groups_test: (M,) text groups, for the intervals.
        release: The oracle ``release(X, rng) -> Y`` for attacks that draw fresh noise; the network needs it.
        noise_covariance: (m, m) declared covariance of the released noise.
        without_train: Vectors of the training texts with the concept removed, in the space of ``X_train``, for the
            transplant attack, the strongest on few texts.
        further_train: Vectors of texts that the attacker has generated or collected, in the space of ``X_train``, for
            the kernel attack with further texts.
    """

    groups_train: Groups | None
    groups_test: Groups | None
    release: Release | None
    noise_covariance: Matrix | None
    without_train: Embeddings | None
    further_train: FurtherVectors | None
    show_progress: bool | None


def token_inference_ladder(
    X_train: Embeddings,
    L_train: TokenLabels,
    X_test: Embeddings,
    L_test: TokenLabels,
    *,
    tier: Tier = "quick",
    device: str = "auto",
    seed: int = 0,
    **options: Unpack[LadderOptions],
) -> LadderResult:
    """Return the result of each token-inference attack; ``.worst.value`` is the strongest R-precision.

    ``X_train`` should be of texts that the protector was not fitted on: an erasure removes more from its own texts, so
    an attack trained on them understates the leakage.

    Args:
        X_train: (N, m) released vectors; with ``release``, (N, n) clean ones.
        L_train: (N, V) 0/1, which tokens each text contains.
        X_test, L_test: The same of M test texts, always released vectors.
        tier: ``"quick"`` (about a minute for 5,000 texts on one core) or ``"full"`` (about three).
        seed: The same seed gives the same result.
        **options: The attacker's further knowledge, as in `LadderOptions`, and ``show_progress``.

    Raises:
        MissingDependencyError: torch is not installed.
    """
    seed = check_seed(seed, owner="token_inference_ladder")
    known: dict[str, Any] = dict(options)
    groups, without, further = (known.pop(f"{name}_train", None) for name in ("groups", "without", "further"))
    train = LabelledVectors(X_train, L_train, groups, without, further)
    test = LabelledVectors(X_test, L_test, known.pop("groups_test", None))
    # One seed for all attacks: omitting one does not change the others.
    results = [
        attack.run(train, test, rng=seed, **known)
        for attack in ladder_attacks(tier, device=device)
        if not (isinstance(attack, TransplantAttack) and without is None)
        and not (isinstance(attack, FurtherKernelAttack) and further is None)
        and not (isinstance(attack, NetworkAttack) and known.get("release") is None)
    ]
    return LadderResult(tuple(results))
