"""Attacks that write texts, as a specification describes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vecveil.attacks.evidence import Knowledge
from vecveil.attacks.reconstruction.base import EncodeTexts
from vecveil.attacks.reconstruction.decoder import PRESETS as GEIA_PRESETS
from vecveil.attacks.reconstruction.geia import GEIAAttack
from vecveil.attacks.reconstruction.vec2text import PRESETS as VEC2TEXT_PRESETS
from vecveil.attacks.reconstruction.vec2text import PublishedCheckpoint, Vec2TextAttack
from vecveil.errors import InvalidInputError
from vecveil.types import Embeddings

__all__ = [
    "WRITERS",
    "DecoderSpec",
    "Geia",
    "Vec2Text",
    "check_decoders",
    "make_attack",
    "published_in",
]

WRITERS = ("geia", "vec2text")
"""Attacks that write texts."""


@dataclass(frozen=True, kw_only=True)
class DecoderSpec:
    """How an attack that writes texts is trained: a base on clean vectors, then anew for each defence.

    Attributes:
        preset: ``small``, ``medium`` (GEIA alone) or ``paper``.
        model: the pretrained network of ``paper``: a name of a hub or a folder; None takes the preset's.
        options: further numbers of the preset, such as layers, width, vocabulary, batch, learning_rate.
        corpus: data set whose texts the base learns from.
        sentences: of them the first so many.
        epochs: of the base.
        start_from: folder of a base that is trained already, seen from where the command runs. It must have learnt
            from no more than the first ``sentences`` texts of ``corpus``: judged texts that copy one are left out.
            For Vec2Text also a folder with published weights: ``hypothesiser``, and for correction ``corrector``, in it
            (`vecveil.attacks.reconstruction.vec2text.PublishedCheckpoint`); what those have learnt is not known here.
        texts: learning texts of the problem that an attack on a defence is trained on, at most.
        fine_tuning_epochs: of that training; every epoch sees the texts freshly protected.
        fine_tuning_rate: its highest learning rate; None takes the base's. A lower one forgets less of the corpus.
        rounds: of Vec2Text's correction; None is the hypothesiser alone.
        beams: texts that decoding keeps at once.
    """

    preset: str = "small"
    model: str | None = None
    options: dict[str, float] = field(default_factory=dict)
    corpus: str = "sentences"
    sentences: int = 100_000
    epochs: int = 1
    start_from: str | None = None
    texts: int = 4000
    fine_tuning_epochs: int = 6
    fine_tuning_rate: float | None = None
    rounds: int | None = None
    beams: int = 1

    @property
    def base(self) -> dict[str, Any]:
        """The settings that decide a base, beside the texts that it learns from."""
        own = ("preset", "model", "options", "epochs", "rounds")
        return {name: getattr(self, name) for name in own}


class Geia(GEIAAttack):
    """GEIA that keeps what it wrote, and is known by its base's name wherever that lies."""

    validation_share = 0.04

    def _settings(self) -> Mapping[str, Any]:
        return _portable(super()._settings())

    def _reconstruct(self, state: Any, X: Embeddings, knowledge: Knowledge) -> list[str]:
        self._written = super()._reconstruct(state, X, knowledge)
        return self._written

    @property
    def written(self) -> list[str]:
        """What was written for the texts judged last."""
        return self._written


class Vec2Text(Vec2TextAttack):
    """Vec2Text, likewise."""

    validation_share = 0.04

    def _settings(self) -> Mapping[str, Any]:
        return _portable(super()._settings())

    def _reconstruct(self, state: Any, X: Embeddings, knowledge: Knowledge) -> list[str]:
        self._written = super()._reconstruct(state, X, knowledge)
        return self._written

    @property
    def written(self) -> list[str]:
        """What was written for the texts judged last."""
        return self._written


def _portable(settings: Mapping[str, Any]) -> dict[str, Any]:
    start = settings["start_from"]
    if isinstance(start, PublishedCheckpoint):
        start = Path(start.hypothesiser).parent
    return {**settings, "start_from": None if start is None else Path(start).name}


def published_in(folder: Path) -> PublishedCheckpoint | None:
    """Return the published weights of Vec2Text in a folder, or None."""
    first, second = folder / "hypothesiser", folder / "corrector"
    if not (first / "config.json").is_file():
        return None
    return PublishedCheckpoint(first, second if second.is_dir() else None)


def make_attack(
    kind: str,
    spec: DecoderSpec,
    *,
    epochs: int,
    start: Path | None,
    encode: EncodeTexts | None,
    rate: float | None = None,
    **judging: Any,
) -> Geia | Vec2Text:
    """Return an attack that writes texts.

    Args:
        kind: one of `WRITERS`.
        start: folder of the decoder to go on from.
        encode: the encoder that made the vectors; only correction needs it.
        rate: the highest learning rate; None takes the one of the description.
        judging: ``judge_encoder``, ``words_of`` and ``judged`` of the attack.

    Raises:
        InvalidInputError: there is no such attack, preset or option, or a value is out of range.
    """
    _one_of(kind, WRITERS, "attack")
    options: dict[str, Any] = {
        k: int(v) if float(v).is_integer() else v for k, v in spec.options.items()
    }
    if rate is not None:
        options["learning_rate"] = rate
    if kind == "geia":
        _one_of(spec.preset, GEIA_PRESETS, "preset")
        if spec.rounds is not None:
            raise InvalidInputError.of(
                "decoders.geia", "rounds", "left out: GEIA does not correct", spec.rounds
            )
        return Geia(
            spec.preset, model=spec.model, epochs=epochs, start_from=start, beams=spec.beams,
            **options, **judging,
        )  # fmt: skip
    _one_of(spec.preset, VEC2TEXT_PRESETS, "preset")
    preset = VEC2TEXT_PRESETS[spec.preset]
    of_recipe = {f.name for f in dataclasses.fields(preset.recipe)}
    of_preset = {f.name for f in dataclasses.fields(preset)} - {"recipe", "model", "rounds", "beam"}
    for name in options:
        _one_of(name, sorted(of_recipe | of_preset), "options")
    own = {k: v for k, v in options.items() if k in of_preset}
    if spec.model is not None:
        own["model"] = spec.model
    recipe = {k: v for k, v in options.items() if k in of_recipe} | {"epochs": epochs}
    made = dataclasses.replace(
        preset, recipe=dataclasses.replace(preset.recipe, **recipe),
        rounds=spec.rounds or 0, beam=spec.beams, **own,
    )  # fmt: skip
    given = start if start is None else published_in(start) or start
    return Vec2Text(encode if spec.rounds else None, made, start_from=given, **judging)


def check_decoders(decoders: Mapping[str, DecoderSpec]) -> None:
    """Refuse a description that no attack can be made from."""
    for kind, spec in decoders.items():
        make_attack(
            kind, spec, epochs=spec.epochs, start=None, encode=_nothing, rate=spec.fine_tuning_rate
        )


def _nothing(texts: Sequence[str]) -> Any:
    raise NotImplementedError  # stands for an encoder that is not asked


def _one_of(given: str, known: Any, param: str) -> None:
    if given not in known:
        wanted = "one of " + ", ".join(known)
        raise InvalidInputError.of("decoders", param, wanted, repr(given)[:40])
