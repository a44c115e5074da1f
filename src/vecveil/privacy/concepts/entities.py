"""Detect entity types with Presidio, spaCy or a Hugging Face model, without downloads.

Presidio's pattern recognisers (e-mail, phone, credit card, IBAN, ...) need no model. Names of people and places need
one: an installed spaCy pipeline, a token classifier, or the caller's ``AnalyzerEngine``.
"""

from __future__ import annotations

import copy
import functools
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar

from vecveil.errors import InvalidInputError, optional_import, unknown_name, wrong_type
from vecveil.privacy.concepts.matching import Detector, Span
from vecveil.texts.folding import without_surrogates
from vecveil.validation import check_count, check_probability, check_sequence


class EntityDetector:
    """Base class of entity detectors; ``named`` is True if a file can name the detector's model."""

    engine: ClassVar[str]

    def __init__(self, entities: Iterable[str], *, model: Any, owner: str) -> None:
        self.named = model is None or isinstance(model, str | Path)
        types = check_sequence(entities, "a sequence of entity types", owner=owner, param="entities")
        for i, entity in enumerate(types):
            if not isinstance(entity, str) or not entity:
                got = "an empty string" if entity == "" else type(entity).__name__
                got += f" at position {i}"
                raise InvalidInputError(f"`entities` has {got}; it takes strings that are not empty.", param="entities")
        if not types:
            raise InvalidInputError("Name at least one type in `entities`.", param="entities")
        self.entities = tuple(dict.fromkeys(types))
        self._owner = owner
        self._model: str | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.entities)}, model={self._model!r})"

    def describe(self) -> dict[str, Any]:
        """Return kind, engine, model and entity types as JSON-ready values."""
        types = list(self.entities)
        return {"kind": "entities", "engine": self.engine, "model": self._model, "types": types}

    def _check_known(self, known: Iterable[str]) -> None:
        known = set(known)
        missing = [entity for entity in self.entities if entity not in known]
        if missing:
            raise InvalidInputError(
                f"Unknown entity types: {', '.join(sorted(missing))}. Known: {', '.join(sorted(known))}.",
                param="entities",
            )


class PresidioDetector(EntityDetector):
    """Finds entities with Presidio's recognisers.

    Args:
        entities: Presidio's entity types, for example ``["EMAIL_ADDRESS", "PHONE_NUMBER"]``.
        model: None for the pattern recognisers alone; the name or folder of an installed spaCy pipeline, which adds
            PERSON, LOCATION and others; or an ``AnalyzerEngine``.
        language: Two-letter code that the engine supports.
        regions: Two-letter codes of the countries whose phone numbers are found without a country code, for example
            ``["CH", "AT"]``; None takes Presidio's (US, GB, DE, FR, IL, IN, CA, BR). Not valid with an
            ``AnalyzerEngine``.
        min_score: Drops matches with a lower score. Presidio scores bare number patterns (bank accounts, driving
            licences) near 0.01 unless a nearby word supports them; 0 keeps everything, 0.35 drops the unsupported.
    """

    engine = "presidio"

    def __init__(
        self,
        entities: Iterable[str],
        *,
        model: Any = None,
        language: str = "en",
        regions: Iterable[str] | None = None,
        min_score: float = 0.0,
        owner: str = "PresidioDetector",
    ) -> None:
        super().__init__(entities, model=model, owner=owner)
        self.min_score = check_probability(min_score, owner=owner, param="min_score")
        self.language = language
        # Describe an engine object by its type: its settings may contain paths.
        self._model = None if model is None else str(model) if self.named else type(model).__name__
        with optional_import("Finding entities with Presidio", "presidio_analyzer", "presidio"):
            import presidio_analyzer
        self.regions = None if regions is None else _checked_regions(regions, self.entities, owner)
        if isinstance(model, presidio_analyzer.AnalyzerEngine):
            self._engine = model
            if regions is not None:
                raise InvalidInputError("An AnalyzerEngine has its own regions: leave out `regions`.", param="regions")
            if language not in model.supported_languages:
                raise unknown_name(owner, "language", sorted(model.supported_languages), language)
        elif model is None or isinstance(model, str | Path):
            self._engine = _engine(None if model is None else str(model), language, self.regions, owner)
        else:
            constraint = "None, the name of a spaCy pipeline or an AnalyzerEngine"
            raise wrong_type(owner, "model", constraint, model)
        known = set(self._engine.get_supported_entities(language))
        wanting = set(self.entities) - known  # before _check_known: a better message
        if model is None and (wanting := wanting & _model_entities(language)):
            raise InvalidInputError(
                f"Presidio needs a spaCy pipeline as `model` for {', '.join(sorted(wanting))}, and downloads "
                "none. Install one (python -m spacy download en_core_web_lg) and pass its name, or use "
                "engine='huggingface' and a model (vecveil[huggingface]).",
                param="model",
            )
        self._check_known(known)

    def describe(self) -> dict[str, Any]:
        described = super().describe() | {"language": self.language, "min_score": self.min_score}
        return described | ({} if self.regions is None else {"regions": list(self.regions)})

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        pipelines = getattr(self._engine.nlp_engine, "nlp", None) or {}
        _check_lengths(texts, getattr(pipelines.get(self.language), "max_length", None))
        return [
            [
                Span(result.start, result.end, result.entity_type)
                for result in self._engine.analyze(
                    without_surrogates(text),
                    language=self.language,
                    entities=list(self.entities),
                    score_threshold=self.min_score,
                )
                # Some recognisers return empty spans.
                if result.start < result.end
            ]
            if text.strip()
            else []
            for text in texts
        ]


def _checked_regions(regions: Iterable[str], entities: tuple[str, ...], owner: str) -> tuple[str, ...]:
    import phonenumbers

    codes = check_sequence(regions, "a sequence of two-letter codes", owner=owner, param="regions")
    known = phonenumbers.SUPPORTED_REGIONS
    for i, code in enumerate(codes):
        if not isinstance(code, str) or code not in known:
            raise InvalidInputError(
                f"`regions` has no known region at position {i}. Use codes such as CH, AT and IT; in YAML, put quotes "
                'around "NO".',
                param="regions",
            )
    if not codes or "PHONE_NUMBER" not in entities:
        raise InvalidInputError("`regions` requires the type PHONE_NUMBER and at least one region.", param="regions")
    return tuple(dict.fromkeys(codes))


def _check_lengths(texts: Sequence[str], limit: int | None) -> None:
    for row, text in enumerate(texts):
        if limit is not None and len(text) > limit:
            raise InvalidInputError(
                f"The text in row {row} has {len(text)} characters; the pipeline takes at most {limit}.", param="texts"
            )


def _model_entities(language: str) -> frozenset[str]:
    """Return the types that Presidio's spaCy recogniser finds with a model."""
    from presidio_analyzer.predefined_recognizers import SpacyRecognizer

    return frozenset(SpacyRecognizer(supported_language=language).supported_entities)


def _engine(model: str | None, language: str, regions: tuple[str, ...] | None, owner: str) -> Any:
    """Return an analyzer engine over a blank spaCy pipeline, or over an installed one."""
    import spacy
    from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
    from presidio_analyzer.nlp_engine import NlpArtifacts, SpacyNlpEngine
    from presidio_analyzer.predefined_recognizers import EmailRecognizer, PhoneRecognizer, SpacyRecognizer

    class BlankEngine(SpacyNlpEngine):
        """Tokeniser only; lower-case words replace lemmas, so that context words still raise scores."""

        def __init__(self) -> None:
            super().__init__(models=[{"lang_code": language, "model_name": "blank"}])
            pipeline = spacy.blank(language)
            pipeline.max_length = sys.maxsize  # the limit is for the memory of a model
            self.nlp: Any = {language: pipeline}

        def load(self) -> None:
            """Do nothing: the parent would download a model."""

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
        """Checks domains against the bundled suffix list; the parent downloads a new one."""

        def validate_result(self, pattern_text: str) -> bool:
            return bool(_suffixes()(pattern_text).fqdn)

    if model is None:
        try:
            engine: Any = BlankEngine()
        except ImportError:
            raise InvalidInputError(
                f"spaCy has no tokenizer for the language {language!r}.", param="language"
            ) from None
    else:
        # Checked first: Presidio would download a missing pipeline.
        if not (spacy.util.is_package(model) or Path(model).exists()):
            raise _not_installed(model, "model")
        engine = SpacyNlpEngine(models=[{"lang_code": language, "model_name": model}])
        try:
            engine.load()
        except (OSError, ValueError):
            raise InvalidInputError(f"The folder {model!r} contains no spaCy pipeline.", param="model") from None
    registry = RecognizerRegistry(supported_languages=[language])
    registry.load_predefined_recognizers(languages=[language])
    # Presidio's e-mail recogniser downloads a suffix list, and spaCy's needs a model.
    registry.recognizers = [
        recognizer
        for recognizer in registry.recognizers
        if not isinstance(recognizer, EmailRecognizer)
        and not (model is None and isinstance(recognizer, SpacyRecognizer))
    ]
    if regions is not None:
        registry.remove_recognizer("PhoneRecognizer")
        registry.add_recognizer(PhoneRecognizer(supported_language=language, supported_regions=regions))
    registry.add_recognizer(OfflineEmailRecognizer(supported_language=language))
    return AnalyzerEngine(registry=registry, nlp_engine=engine, supported_languages=[language])


def _not_installed(model: str, param: str) -> InvalidInputError:
    return InvalidInputError(
        f"The spaCy pipeline {model!r} is not installed. Install it with: python -m spacy download {model}", param=param
    )


@functools.cache
def _suffixes() -> Any:
    """Return an extractor of domain suffixes that never uses the network."""
    import tldextract

    return tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)


class SpacyDetector(EntityDetector):
    """Finds ``doc.ents`` of a spaCy pipeline.

    Args:
        entities: Labels to keep, for example ``["PERSON", "ORG"]``.
        model: A loaded ``Language``, or the name or folder of an installed pipeline.
        batch_size: Texts per batch; larger batches need more memory.
    """

    engine = "spacy"

    def __init__(
        self, entities: Iterable[str], *, model: Any, batch_size: int = 128, owner: str = "SpacyDetector"
    ) -> None:
        super().__init__(entities, model=model, owner=owner)
        self.batch_size = batch_size
        with optional_import("Finding entities with spaCy", "spacy", "spacy"):
            import spacy
        if isinstance(model, spacy.language.Language):
            self._pipeline = model
            self._model = f"{model.meta.get('lang', '')}_{model.meta.get('name', '')}"
        elif isinstance(model, str | Path):
            self._model = str(model)
            try:
                self._pipeline = spacy.load(model)
            except (OSError, ValueError):
                raise InvalidInputError(
                    f"{self._model!r} is not an installed spaCy pipeline or the folder of one. Install one with: "
                    "python -m spacy download en_core_web_sm",
                    param="model",
                ) from None
        else:
            constraint = "the name or folder of a spaCy pipeline, or a loaded one"
            raise wrong_type(owner, "model", constraint, model)
        finders = [
            name for name in self._pipeline.pipe_names if "doc.ents" in self._pipeline.get_pipe_meta(name).assigns
        ]
        if not finders:
            raise InvalidInputError(
                "The pipeline finds no entities: it needs ner or entity_ruler, and has "
                f"{', '.join(self._pipeline.pipe_names) or 'no component'}.",
                param="model",
            )
        # Only components that write doc.ents can produce entities.
        known = {label for name in finders for label in self._pipeline.pipe_labels.get(name, [])}
        if known:  # an entity ruler may name none
            self._check_known(known)

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        _check_lengths(texts, self._pipeline.max_length)
        types = set(self.entities)
        docs = self._pipeline.pipe(map(without_surrogates, texts), batch_size=self.batch_size)
        return [[Span(e.start_char, e.end_char, e.label_) for e in doc.ents if e.label_ in types] for doc in docs]


class NamedModelDetector:
    """Detector of a protector file that names its model and loads it with the first text.

    Opening a file loads no model, and loading a model runs no code of the file: a spaCy pipeline must be a folder or an
    installed package, and Hugging Face models load without remote code.
    """

    def __init__(self, record: Mapping[str, Any]) -> None:
        engines = {each.engine: each for each in (PresidioDetector, SpacyDetector, HuggingFaceDetector)}
        own = {key: value for key, value in record.items() if key not in ("kind", "engine", "types")}
        known = {"presidio": ("language", "min_score"), "spacy": (), "huggingface": ("min_score",)}
        free = {"regions"} if record["engine"] == "presidio" else set()
        if not isinstance(own["model"], str) or set(own) - free != {"model", *known[record["engine"]]}:
            raise ValueError("entities")
        self._record, self._options, self._engine = dict(record), own, engines[record["engine"]]

    def __repr__(self) -> str:
        return f"NamedModelDetector(model={self._options['model']!r})"

    def describe(self) -> dict[str, Any]:
        return self._record

    @functools.cached_property
    def _loaded(self) -> Detector:
        model = self._options["model"]
        if self._engine is not HuggingFaceDetector and not Path(model).is_dir():
            # Any other package would be imported, which runs its code.
            pipelines = {entry.name for entry in entry_points(group="spacy_models")}
            if model not in pipelines:
                raise _not_installed(model, "detector")
        detector: Detector = self._engine(self._record["types"], owner="Protector.rewrite", **self._options)
        return detector

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        return self._loaded.detect(texts)


_PREFIX = re.compile(r"^[BIESLU]-")  # the tag schemes IOB, BIO, BILUO and IOBES


class HuggingFaceDetector(EntityDetector):
    """Finds entities with a token-classification model and joins its tags to character spans.

    Texts longer than the model's window are read in overlapping windows. A span that begins or ends inside a word grows
    to the whole word.

    Args:
        entities: Labels to keep, without ``B-`` and ``I-``, for example ``["PER", "ORG"]``.
        model: The folder of a model with its tokenizer, the name of one in the local hub cache, or a loaded pipeline.
            Folders and names need weights as safetensors.
        batch_size: Windows per batch.
        min_score: Drops matches with a lower mean probability; 0 keeps everything.
    """

    engine = "huggingface"

    def __init__(
        self,
        entities: Iterable[str],
        *,
        model: Any,
        batch_size: int = 8,
        min_score: float = 0.0,
        owner: str = "HuggingFaceDetector",
    ) -> None:
        super().__init__(entities, model=model, owner=owner)
        self.batch_size = check_count(batch_size, owner=owner, param="batch_size")
        self.min_score = check_probability(min_score, owner=owner, param="min_score")
        with optional_import("Finding entities with Hugging Face", "transformers", "huggingface"):
            import transformers
        if isinstance(model, transformers.TokenClassificationPipeline):
            self._pipeline: Any = model
            path = str(getattr(model.model.config, "_name_or_path", ""))
            self._model = path or type(model.model).__name__
        elif isinstance(model, str | Path):
            self._model = str(model)
            try:
                # The name may come from an untrusted file: no download, no pickled weights, no remote code.
                folder = _local_folder(self._model)
                local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
                weights = transformers.AutoModelForTokenClassification.from_pretrained(
                    folder, use_safetensors=True, **local
                )
                words = transformers.AutoTokenizer.from_pretrained(folder, **local)
                self._pipeline = transformers.pipeline("token-classification", model=weights, tokenizer=words)
            except (OSError, ValueError, KeyError) as error:
                raise InvalidInputError(
                    f"{self._model!r} is not a local token-classification model with a tokenizer and safetensors. "
                    "Pass the folder of a saved model, or download it with `hf download NAME`.",
                    param="model",
                ) from error
        else:
            constraint = "the name or folder of a model, or a loaded pipeline"
            raise wrong_type(owner, "model", constraint, model)
        tokenizer, config = self._pipeline.tokenizer, self._pipeline.model.config
        if not getattr(tokenizer, "is_fast", False):
            raise InvalidInputError(
                f"The tokenizer of the model ({type(tokenizer).__name__}) is not a fast one; only fast tokenizers "
                "return character offsets.",
                param="model",
            )
        labels = [str(label) for label in config.id2label.values()]
        # Without a tag scheme, "E-MAIL" is a whole type.
        tagged = any(label.startswith(("B-", "I-")) for label in labels)
        self._types = {label: _PREFIX.sub("", label) if tagged else label for label in labels}
        self._check_known(set(self._types.values()) - {"O"})
        # Tokenizers without a limit report 1e30; some models (RoBERTa) reserve two positions.
        positions = int(getattr(config, "max_position_embeddings", 514) or 514)
        limit = int(tokenizer.model_max_length)
        self._window = limit if 8 <= limit <= positions else max(positions - 2, 8)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"min_score": self.min_score}

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        result: list[list[Span]] = [[] for _ in texts]
        rows = [row for row, text in enumerate(texts) if text.strip()]
        if not rows:
            return result
        pipeline, group = copy.copy(self._pipeline), self._pipeline.group_sub_entities
        # Transformers names a group by what follows the first hyphen: NAME for PERSON-NAME.
        pipeline.group_sub_entities = lambda tokens: {
            **group(tokens),
            "entity_group": self._types[str(tokens[0]["entity"])],
        }
        tokenizer = pipeline.tokenizer
        # The pipeline reads the window from the tokenizer, which the user may share; restore it.
        before, tokenizer.model_max_length = tokenizer.model_max_length, self._window
        try:
            predictions = pipeline(
                [without_surrogates(texts[row]) for row in rows],
                aggregation_strategy="simple",
                # A quarter of the window overlaps: an entity at the edge of one lies inside the next.
                stride=self._window // 4,
                batch_size=self.batch_size,
            )
        finally:
            tokenizer.model_max_length = before
        types = set(self.entities)
        for row, entities in zip(rows, predictions, strict=True):
            for entity in entities:
                if entity["entity_group"] in types and entity["score"] >= self.min_score:
                    start, end = _whole_words(texts[row], int(entity["start"]), int(entity["end"]))
                    if start < end:
                        result[row].append(Span(start, end, entity["entity_group"]))
        return result


def _local_folder(model: str) -> str:
    """Return the folder of a model: ``model`` itself, or its folder in the local hub cache."""
    if Path(model).is_dir():
        return model
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(model, "config.json")  # ValueError for what is no name
    if not isinstance(config, str):
        raise FileNotFoundError(model)
    return str(Path(config).parent)


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
