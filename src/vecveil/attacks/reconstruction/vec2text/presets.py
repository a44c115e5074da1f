"""How large the networks of Vec2Text are, how they are trained and how hard they search."""

from __future__ import annotations

from dataclasses import dataclass

from vecveil.attacks.reconstruction.recipe import Recipe
from vecveil.validation import check_count

__all__ = ["PRESETS", "Preset"]


@dataclass(frozen=True, slots=True)
class Preset:
    """A preset.

    Attributes:
        recipe: How both networks are trained.
        model: Name at a hub, or folder, of the T5 to start from; None trains one from scratch.
        repeat: Pseudo tokens that a vector is projected to.
        width: Width of a T5 trained from scratch; its heads are 64 wide, or one.
        layers: Layers of its encoder and of its decoder.
        vocabulary: Tokens of the byte-pair encoding trained with it, at most.
        rounds: Rounds of correction.
        beam: Texts that are kept for each target, and that are proposed for each of them.
    """

    recipe: Recipe
    model: str | None = None
    repeat: int = 16
    width: int = 256
    layers: int = 3
    vocabulary: int = 8000
    rounds: int = 5
    beam: int = 4

    def __post_init__(self) -> None:
        for name in ("repeat", "width", "layers", "beam"):
            check_count(getattr(self, name), owner="Preset", param=name)
        check_count(self.vocabulary, owner="Preset", param="vocabulary", minimum=257)
        check_count(self.rounds, owner="Preset", param="rounds", minimum=0)

    @property
    def heads(self) -> int:
        """Attention heads of a T5 trained from scratch."""
        return max(1, self.width // 64)


PRESETS = {
    "small": Preset(
        Recipe(epochs=40, batch=64, learning_rate=1e-3, max_tokens=40), repeat=8, rounds=5, beam=4
    ),
    # Fine-tuning on protected vectors as in SPARSE's appendix; search as in Morris et al. 2023.
    "paper": Preset(
        Recipe(epochs=50, batch=32, learning_rate=5e-5, max_tokens=32, weight_decay=0.0),
        model="t5-base", repeat=16, rounds=20, beam=8,
    ),
}  # fmt: skip
