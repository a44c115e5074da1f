"""Entities of a Hugging Face token-classification model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vecveil.concepts.entity_types import check_entities, unsupported
from vecveil.concepts.folding import without_surrogates
from vecveil.concepts.spans import Span
from vecveil.errors import InvalidInputError, MissingDependencyError, message
from vecveil.validation import check_count, check_probability

__all__ = ["HuggingFaceDetector"]

_PREFIX = re.compile(r"^[BIESLU]-")


class HuggingFaceDetector:
    """Finds entities with a token-classification model; the tags are joined to character spans.

    Texts longer than the model's window are read in overlapping windows. A span that begins or ends
    inside a word grows to the whole word, so that no piece of it stays behind.

    Args:
        entities: The labels to keep, without ``B-`` and ``I-``, for example ``["PER", "ORG"]``.
        model: The name or folder of a model with its tokenizer, or a loaded pipeline. A name that
            is not in the local cache is fetched by transformers.
        batch_size: Windows that the model takes at once.
        min_score: Finds with a lower mean probability are left out; 0 keeps everything.
        owner: The name that error messages begin with.
    """

    def __init__(
        self,
        entities: Iterable[str],
        *,
        model: Any,
        batch_size: int = 8,
        min_score: float = 0.0,
        owner: str = "HuggingFaceDetector",
    ) -> None:
        self.entities = check_entities(entities, owner=owner)
        self.batch_size = check_count(batch_size, owner=owner, param="batch_size")
        self.min_score = check_probability(min_score, owner=owner, param="min_score")
        try:
            import transformers
        except ImportError:
            raise MissingDependencyError(
                "Finding entities with Hugging Face", "transformers", "huggingface"
            ) from None
        if isinstance(model, transformers.TokenClassificationPipeline):
            self._pipeline: Any = model
            path = str(getattr(model.model.config, "_name_or_path", ""))
            self._model = path or type(model.model).__name__
        elif isinstance(model, str | Path):
            self._model = str(model)
            try:
                self._pipeline = transformers.pipeline("token-classification", model=self._model)
            except (OSError, ValueError, KeyError):
                raise InvalidInputError(
                    message(owner, "model", "a token-classification model with its tokenizer",
                            repr(self._model), "It cannot be loaded.",
                            "Give the folder of a saved model, or a name that can be fetched.")
                ) from None  # fmt: skip
        else:
            raise InvalidInputError.of(owner, "model", "the name or folder of a model, or a loaded pipeline",
                                       "None" if model is None else type(model).__name__)  # fmt: skip
        tokenizer, config = self._pipeline.tokenizer, self._pipeline.model.config
        if not getattr(tokenizer, "is_fast", False):
            raise InvalidInputError.of(owner, "model", "one with a fast tokenizer", type(tokenizer).__name__,
                                       "Only fast tokenizers say where in the text a token is.")  # fmt: skip
        known = {_PREFIX.sub("", str(label)) for label in config.id2label.values()} - {"O"}
        missing = [entity for entity in self.entities if entity not in known]
        if missing:
            raise unsupported(missing, known, owner=owner)
        # Tokenizers without a limit of their own report 1e30; some models reserve two positions.
        positions = int(getattr(config, "max_position_embeddings", 514) or 514)
        limit = int(tokenizer.model_max_length)
        self._window = limit if 8 <= limit <= positions else max(positions - 2, 8)

    def __repr__(self) -> str:
        return f"HuggingFaceDetector({list(self.entities)}, model={self._model!r})"

    def describe(self) -> dict[str, Any]:
        """Return kind, engine, model and entity types."""
        return {
            "kind": "entities",
            "engine": "huggingface",
            "model": self._model,
            "types": list(self.entities),
            "min_score": self.min_score,
        }

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the entities of each text, labelled with their types."""
        result: list[list[Span]] = [[] for _ in texts]
        rows = [row for row, text in enumerate(texts) if text.strip()]
        if not rows:
            return result
        tokenizer = self._pipeline.tokenizer
        before, tokenizer.model_max_length = tokenizer.model_max_length, self._window
        try:
            found = self._pipeline(
                [without_surrogates(texts[row]) for row in rows],
                aggregation_strategy="simple",
                stride=self._window // 4,
                batch_size=self.batch_size,
            )
        finally:
            tokenizer.model_max_length = before
        wanted = set(self.entities)
        for row, entities in zip(rows, found, strict=True):
            for entity in entities:
                if entity["entity_group"] in wanted and entity["score"] >= self.min_score:
                    start, end = _whole_words(texts[row], int(entity["start"]), int(entity["end"]))
                    if start < end:
                        result[row].append(Span(start, end, entity["entity_group"]))
        return result


def _whole_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span without whitespace at its ends, grown to whole runs of letters and digits."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    if start < end:
        while start and text[start - 1].isalnum() and text[start].isalnum():
            start -= 1
        while end < len(text) and text[end - 1].isalnum() and text[end].isalnum():
            end += 1
    return start, end
