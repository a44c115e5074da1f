"""Vec2Text: guess a text from its vector, then correct the guess by its own vector."""

from vecveil.attacks.reconstruction.vec2text.attack import PRESETS, Preset, Vec2TextAttack, Vec2TextState
from vecveil.attacks.reconstruction.vec2text.published import PublishedCheckpoint

__all__ = ["PRESETS", "Preset", "PublishedCheckpoint", "Vec2TextAttack", "Vec2TextState"]
