"""Vec2Text: guess a text from its vector, then correct the guess by its own vector."""

from vecveil.attacks.reconstruction.vec2text.attack import PRESETS, Preset, Vec2TextAttack
from vecveil.attacks.reconstruction.vec2text.published import PublishedCheckpoint
from vecveil.attacks.reconstruction.vec2text.training import Vec2TextState

__all__ = ["PRESETS", "Preset", "PublishedCheckpoint", "Vec2TextAttack", "Vec2TextState"]
