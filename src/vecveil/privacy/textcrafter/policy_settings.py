"""Settings of a policy: shape, reward and training."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from vecveil.errors import InvalidInputError
from vecveil.privacy.mechanisms.textcrafter import check_radius
from vecveil.validation import check_count, check_positive, check_probability

DIRECTIONS = ("learnt", "untrained", "embedding", "reparametrised")
CLUSTER_CHOICES = ("nearest", "fixed")


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """All settings of a policy besides the data and the seed.

    The paper prints none of these numbers; the defaults are ours. Two of its terms are constants that no policy depends
    on, and are omitted: α‖e' − e‖ = αr of the reward, and the offset of the baseline.

    Attributes:
        radius: r > 0, the norm of every perturbation. Vectors have norm 1, so r = 1 moves each by its length.
        tokens: T, the number of equal chunks of a vector; must divide n. 1 is the literal reading, for which attention
            is the identity.
        heads: of the attention; must divide n/T. None takes the largest of 8, 4, 2, 1 that does.
        expansion: hidden units of the feed-forward part over n/T.
        dropout: of attention and feed-forward part in training.
        beta: β ≥ 0, weight of p(e'), the classifier's probability of PII.
        gamma: γ ≥ 0, weight of ‖e' − c‖, c the centroid of a cluster of plain texts.
        clusters: k of k-means on plain embeddings.
        cluster: c is the ``nearest`` centroid to e, or one ``fixed`` for all: the one with the lowest p.
        baseline_scale: a of the baseline b = a · R(e).
        entropy: weight ≥ 0 of the entropy of N(μ, σ²), added to the objective.
        normalise_advantage: scale the advantages of a batch to mean 0 and deviation 1.
        direction: log π(d | e) does not depend on v, so the policy gradient alone leaves its branch as initialised:
            ``untrained``, the literal reading, whose loss is −E[(R − b) log π(d | e)], R − b held fixed. ``learnt``
            adds −E[R], whose gradient is taken with respect to v alone, d held fixed: through p(e') and ‖e' − c‖.
            ``embedding`` is the abstract's reading, v = e: noise is orthogonal to the vector that it protects.
            ``reparametrised`` reads "structured re-parameterization" as the estimator: the loss is −E[R] alone, with
            the gradient through d = μ + σz to μ, σ and v, and no baseline.
        draws: perturbations for each vector and step.
        epochs, batch_size, learning_rate: of Adam.
        initial_log_sigma: initial log σ of every coordinate.
        device: ``auto``, ``cpu``, ``cuda``, ...
    """

    radius: float
    tokens: int = 1
    heads: int | None = None
    expansion: int = 2
    dropout: float = 0.1
    beta: float = 1.0
    gamma: float = 1.0
    clusters: int = 8
    cluster: Literal["nearest", "fixed"] = "nearest"
    baseline_scale: float = 1.0
    entropy: float = 0.0
    normalise_advantage: bool = True
    direction: Literal["learnt", "untrained", "embedding", "reparametrised"] = "learnt"
    draws: int = 4
    epochs: int = 10
    batch_size: int = 256
    learning_rate: float = 1e-3
    initial_log_sigma: float = 0.0
    device: str = "auto"

    def __post_init__(self) -> None:
        owner = "PolicySettings"
        check_radius(self.radius, owner=owner)
        check_positive(self.learning_rate, owner=owner, param="learning_rate")
        for name in ("beta", "gamma", "entropy"):
            check_positive(getattr(self, name), owner=owner, param=name, allow_zero=True)
        for name in ("tokens", "expansion", "clusters", "draws", "epochs", "batch_size"):
            check_count(getattr(self, name), owner=owner, param=name)
        if self.heads is not None:
            check_count(self.heads, owner=owner, param="heads")
        dropout = check_probability(self.dropout, owner=owner, param="dropout")
        if dropout >= 1:
            raise InvalidInputError(f"dropout must be below 1, not {dropout}.", param="dropout")
        for name in ("baseline_scale", "initial_log_sigma"):
            value = getattr(self, name)
            # bool is an int in Python: True would pass as 1.
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e6:
                raise InvalidInputError(f"{name} must be a finite number.", param=name)
        for name, choices in (("direction", DIRECTIONS), ("cluster", CLUSTER_CHOICES)):
            if getattr(self, name) not in choices:
                listed = " or ".join(repr(choice) for choice in choices)
                raise InvalidInputError(f"{name} is {listed}, not {str(getattr(self, name))[:40]!r}.", param=name)
        if not isinstance(self.normalise_advantage, bool):
            raise InvalidInputError("normalise_advantage is True or False.", param="normalise_advantage")

    def heads_for(self, dimension: int) -> int:
        if dimension % self.tokens:
            raise InvalidInputError(f"{self.tokens} tokens do not divide the dimension {dimension}.", param="tokens")
        width = dimension // self.tokens
        if self.heads is None:
            return next(heads for heads in (8, 4, 2, 1) if width % heads == 0)
        if width % self.heads:
            raise InvalidInputError(f"{self.heads} heads do not divide n/T = {width}.", param="heads")
        return self.heads

    def to_record(self) -> dict[str, Any]:
        return asdict(self)
