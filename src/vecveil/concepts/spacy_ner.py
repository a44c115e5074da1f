"""Entities of a spaCy pipeline: a trained NER model, an entity ruler, or both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vecveil.concepts.entity_types import check_entities, unsupported
from vecveil.concepts.folding import without_surrogates
from vecveil.concepts.spans import Span
from vecveil.errors import InvalidInputError, MissingDependencyError, message

__all__ = ["SpacyDetector"]


class SpacyDetector:
    """Finds ``doc.ents`` of a spaCy pipeline.

    Args:
        entities: The labels to keep, for example ``["PERSON", "ORG"]``.
        model: The name of an installed pipeline, its folder, or a loaded ``Language``.
        batch_size: Texts that the pipeline takes at once; more needs more memory.
        owner: The name that error messages begin with.
    """

    def __init__(
        self,
        entities: Iterable[str],
        *,
        model: Any,
        batch_size: int = 128,
        owner: str = "SpacyDetector",
    ) -> None:
        self.entities = check_entities(entities, owner=owner)
        self.batch_size = batch_size
        self._owner = owner
        try:
            import spacy
        except ImportError:
            raise MissingDependencyError("Finding entities with spaCy", "spacy", "spacy") from None
        if isinstance(model, spacy.language.Language):
            self._pipeline = model
            self._model = f"{model.meta.get('lang', '')}_{model.meta.get('name', '')}"
        elif isinstance(model, str | Path):
            self._model = str(model)
            try:
                self._pipeline = spacy.load(model)
            except (OSError, ValueError):
                raise InvalidInputError(
                    message(owner, "model", "a spaCy pipeline that is installed, or its folder",
                            repr(self._model),
                            fix="Install one with: python -m spacy download en_core_web_sm")
                ) from None  # fmt: skip
        else:
            raise InvalidInputError.of(owner, "model",
                                       "the name or folder of a spaCy pipeline, or a loaded one",
                                       "None" if model is None else type(model).__name__)  # fmt: skip
        finders = [
            name
            for name in self._pipeline.pipe_names
            if "doc.ents" in self._pipeline.get_pipe_meta(name).assigns
        ]
        if not finders:
            raise InvalidInputError(
                message(owner, "model", "a pipeline with ner, entity_ruler or the like",
                        f"one with {', '.join(self._pipeline.pipe_names) or 'no component'}")
            )  # fmt: skip
        known = {label for name in finders for label in self._pipeline.pipe_labels.get(name, [])}
        missing = [entity for entity in self.entities if entity not in known]
        if missing and known:
            raise unsupported(missing, known, owner=owner)

    def __repr__(self) -> str:
        return f"SpacyDetector({list(self.entities)}, model={self._model!r})"

    def describe(self) -> dict[str, Any]:
        """Return kind, engine, model and entity types."""
        return {
            "kind": "entities",
            "engine": "spacy",
            "model": self._model,
            "types": list(self.entities),
        }

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the entities of each text, labelled with their types."""
        for row, text in enumerate(texts):
            if len(text) > self._pipeline.max_length:
                limit = self._pipeline.max_length
                raise InvalidInputError(
                    message(self._owner, "texts", f"at most {limit} characters long each",
                            f"{len(text)} in row {row}", "The pipeline takes no longer texts.")
                )  # fmt: skip
        wanted = set(self.entities)
        docs = self._pipeline.pipe(map(without_surrogates, texts), batch_size=self.batch_size)
        return [
            [Span(e.start_char, e.end_char, e.label_) for e in doc.ents if e.label_ in wanted]
            for doc in docs
        ]
