"""Entity types through Microsoft Presidio, without fetching anything.

Presidio's pattern recognisers (e-mail, phone, credit card, IBAN, ...) need no model; they get a
blank spaCy engine. Names of people and places need a model: a spaCy pipeline that is installed, or
an ``AnalyzerEngine`` of the user's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vecveil.concepts.entity_types import check_entities, unsupported
from vecveil.concepts.folding import without_surrogates
from vecveil.concepts.spans import Span
from vecveil.errors import InvalidInputError, MissingDependencyError, message
from vecveil.validation import check_probability

__all__ = ["PresidioDetector"]


class PresidioDetector:
    """Finds entities with Presidio's recognisers.

    Args:
        entities: Presidio's entity types, for example ``["EMAIL_ADDRESS", "PHONE_NUMBER"]``.
        model: None for the pattern recognisers alone; the name or folder of an installed spaCy
            pipeline, which adds PERSON, LOCATION and the like; or an ``AnalyzerEngine``.
        language: Two letters; must be one that the engine knows.
        min_score: Finds with a lower score are left out. Presidio gives bare number patterns (bank
            accounts, driving licences) scores near 0.01 unless a word beside them supports them; 0
            keeps everything, 0.35 drops the unsupported.
        owner: The name that error messages begin with.
    """

    def __init__(
        self,
        entities: Iterable[str],
        *,
        model: Any = None,
        language: str = "en",
        min_score: float = 0.0,
        owner: str = "PresidioDetector",
    ) -> None:
        self.entities = check_entities(entities, owner=owner)
        self.min_score = check_probability(min_score, owner=owner, param="min_score")
        self.language = language
        named = model is None or isinstance(model, str)
        self._model = model if named else type(model).__name__
        try:
            import presidio_analyzer
        except ImportError:
            raise MissingDependencyError(
                "Finding entities with Presidio", "presidio_analyzer", "presidio"
            ) from None
        if isinstance(model, presidio_analyzer.AnalyzerEngine):
            self._engine = model
            if language not in model.supported_languages:
                languages = ", ".join(sorted(model.supported_languages))
                raise InvalidInputError.of(
                    owner, "language", f"one of the engine's: {languages}", repr(language)
                )
        elif model is None or isinstance(model, str | Path):
            self._engine = _engine(None if model is None else str(model), language, owner)
        else:
            raise InvalidInputError.of(owner, "model",
                                       "None, the name of a spaCy pipeline or an AnalyzerEngine",
                                       type(model).__name__)  # fmt: skip
        known = set(self._engine.get_supported_entities(language))
        missing = [entity for entity in self.entities if entity not in known]
        if missing and model is None and set(missing) & _model_entities(language):
            wanting = ", ".join(e for e in missing if e in _model_entities(language))
            raise InvalidInputError(
                message(owner, "model", f"a spaCy pipeline for the types {wanting}", None,
                        "Presidio finds these with a model, and fetches none here.",
                        "Install one (python -m spacy download en_core_web_lg) and pass its name, "
                        "or use engine='huggingface' and a model (extra: vecveil[huggingface]).")
            )  # fmt: skip
        if missing:
            raise unsupported(missing, known, owner=owner)

    def __repr__(self) -> str:
        return f"PresidioDetector({list(self.entities)}, model={self._model!r})"

    def describe(self) -> dict[str, Any]:
        """Return kind, engine, model and entity types."""
        return {
            "kind": "entities",
            "engine": "presidio",
            "model": self._model,
            "language": self.language,
            "types": list(self.entities),
            "min_score": self.min_score,
        }

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the entities of each text, labelled with their types."""
        return [
            [
                Span(found.start, found.end, found.entity_type)
                for found in self._engine.analyze(
                    without_surrogates(text),
                    language=self.language,
                    entities=list(self.entities),
                    score_threshold=self.min_score,
                )
                if found.start < found.end
            ]
            if text.strip()
            else []
            for text in texts
        ]


def _model_entities(language: str) -> frozenset[str]:
    """Return the types that Presidio's spaCy recogniser finds when it has a model."""
    from presidio_analyzer.predefined_recognizers import SpacyRecognizer

    return frozenset(SpacyRecognizer(supported_language=language).supported_entities)


def _engine(model: str | None, language: str, owner: str) -> Any:
    """Return an analyzer engine over a blank spaCy pipeline, or over an installed one."""
    import spacy
    from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
    from presidio_analyzer.nlp_engine import NlpArtifacts, SpacyNlpEngine
    from presidio_analyzer.predefined_recognizers import EmailRecognizer, SpacyRecognizer

    class BlankEngine(SpacyNlpEngine):
        """Tokens only: lower-case words stand in for lemmas, so that context words still count."""

        def __init__(self) -> None:
            super().__init__(models=[{"lang_code": language, "model_name": "blank"}])
            self.nlp: Any = {language: spacy.blank(language)}

        def load(self) -> None:
            """Do nothing: the parent would fetch a model."""

        def process_text(self, text: str, language: str) -> Any:
            doc = self.nlp[language].make_doc(text)
            return NlpArtifacts(
                entities=[],
                tokens=doc,
                tokens_indices=[token.idx for token in doc],
                lemmas=[token.lower_ for token in doc],
                nlp_engine=self,
                language=language,
                scores=[],
            )

    class OfflineEmailRecognizer(EmailRecognizer):
        """Checks domains against the bundled suffix list; the parent fetches a new one."""

        def validate_result(self, pattern_text: str) -> bool:
            return bool(_suffixes()(pattern_text).fqdn)

    if model is None:
        try:
            engine: Any = BlankEngine()
        except ImportError:
            raise InvalidInputError.of(
                owner, "language", "one that spaCy has a tokenizer for", repr(language)
            ) from None
    else:
        if not (spacy.util.is_package(model) or Path(model).exists()):
            raise InvalidInputError.of(owner, "model", "an installed spaCy pipeline or its folder", repr(model),
                                       fix=f"Install it with: python -m spacy download {model}")  # fmt: skip
        engine = SpacyNlpEngine(models=[{"lang_code": language, "model_name": model}])
        try:
            engine.load()
        except (OSError, ValueError):
            raise InvalidInputError.of(
                owner, "model", "a folder that holds a spaCy pipeline", repr(model)
            ) from None
    registry = RecognizerRegistry(supported_languages=[language])
    registry.load_predefined_recognizers(languages=[language])
    registry.recognizers = [
        found
        for found in registry.recognizers
        if not isinstance(found, EmailRecognizer)
        and not (model is None and isinstance(found, SpacyRecognizer))
    ]
    registry.add_recognizer(OfflineEmailRecognizer(supported_language=language))
    return AnalyzerEngine(registry=registry, nlp_engine=engine, supported_languages=[language])


_EXTRACTOR: list[Any] = []


def _suffixes() -> Any:
    """Return the one extractor of domain suffixes that never looks at the network."""
    if not _EXTRACTOR:
        import tldextract

        _EXTRACTOR.append(tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None))
    return _EXTRACTOR[0]
