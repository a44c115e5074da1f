"""SPARSE, Table 12: what is reconstructed of single texts, and how close it is in meaning under another encoder."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from research.bench import Bench, Material
from research.catalogue.attack_models import WriterSpec, defence_of, label_of
from research.catalogue.case_tables import case_summary
from research.catalogue.grid import Grid
from research.decoder_bases import copied, corpus_digest, corpus_texts, prepare_decoder
from research.decoders import WRITERS
from research.experiment import Cell, Records
from research.points import protector_record, utility
from research.rewriting import (
    Rewritten,
    every_word,
    judged_rows,
    rewrite,
    short,
    target_words,
)
from research.specification import Spec, digest
from research.summary import Summary
from vecveil.encoders.lsa import LsaEncoder
from vecveil.errors import InvalidInputError
from vecveil.metrics.reconstruction import embedding_cosine, reconstruction_leakage
from vecveil.metrics.similarity import pair_cosines

__all__ = ["CaseStudy", "CaseStudySpec"]

LEAST_WORDS = 2  # sensitive words that a text must hold to be shown
LSA = "lsa"
LSA_DIMENSION = 200
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, kw_only=True)
class CaseStudySpec(WriterSpec):
    """Which texts are shown, and who judges their meaning.

    Attributes:
        attack: ``geia`` or ``vec2text``.
        shown: texts drawn by the seed among the judged ones that hold two sensitive words or more.
        given: further texts to show.
        judge: the encoder of the semantic cosine: ``lsa`` is fitted on the problem's texts; else a name or a folder
            for `vecveil.load_encoder`. Another than the attacked one.
        show_texts: whether originals and reconstructions stand in the record; false leaves figures alone.
    """

    attack: str = "geia"
    shown: int = field(default=4, metadata={"least": 0})
    given: tuple[str, ...] = ()
    judge: str = LSA
    show_texts: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attack not in WRITERS:
            wanted = "one of " + ", ".join(WRITERS)
            raise InvalidInputError.of("experiment", "attack", wanted, repr(self.attack)[:40])
        if self.judge == self.encoder:
            raise InvalidInputError.of("experiment", "judge", "another encoder than the attacked one",
                                       "the same", "The attack was trained for that one's vectors.")  # fmt: skip
        if any(not text.strip() for text in self.given):
            raise InvalidInputError.of("experiment", "given", "texts", "one without a letter")


class CaseStudy(Grid):
    """Reconstructions side by side."""

    name = "case-study"
    what = "Texts beside what is reconstructed from their clean and protected vectors, judged by another encoder."
    source = "SPARSE, Table 12"
    spec_type = CaseStudySpec

    def settings(self, spec: Spec, cell: Cell) -> dict[str, Any]:
        """Return what decides a cell."""
        assert isinstance(spec, CaseStudySpec)
        own = ("attack", "shown", "judge", "show_texts")
        return {
            **super().settings(spec, cell), **spec.judging(), "attacks": [], "further": False,
            "decoder": dataclasses.asdict(spec.decoder(spec.attack)), "given": digest(spec.given),
            **{name: getattr(spec, name) for name in own},
        }  # fmt: skip

    def data_digest(self, spec: Spec, bench: Bench, cell: Cell) -> str | None:
        """Return a hash of the problem's texts and of the corpus."""
        assert isinstance(spec, CaseStudySpec)
        own = super().data_digest(spec, bench, cell)
        return digest([own, corpus_digest(bench, spec.decoder(spec.attack))])

    def prepare(self, spec: Spec, bench: Bench, cells: Sequence[Cell]) -> None:
        """Encode the texts, and train the decoder that attacks go on from unless `attacks` has."""
        assert isinstance(spec, CaseStudySpec)
        super().prepare(spec, bench, cells)
        for problem in dict.fromkeys(cell["problem"] for cell in cells):
            prepare_decoder(bench, problem, spec.attack, spec.decoder(spec.attack))

    def measure(self, spec: Spec, cell: Cell, bench: Bench) -> dict[str, Any]:
        """Return what is reconstructed from one defence."""
        assert isinstance(spec, CaseStudySpec)
        material = bench.material(cell["problem"], cell["seed"])
        protector = defence_of(spec, cell, bench, material)
        rows, left_out = judged_rows(bench, material, spec.decoders, spec.judged)
        written = rewrite(
            bench, material, spec.attack, spec.decoder(spec.attack), protector, label_of(cell), rows,
            spec.given,
        )  # fmt: skip
        judge = _judge(spec, bench, material)
        before, after = judge.encode(list(written.texts)), judge.encode(list(written.written))
        groups, words_of = material.case.groups[rows], target_words(material)
        leak = reconstruction_leakage(words_of(written.texts), words_of(written.written), groups)
        return {
            "utility": utility(material.task, protector, material.seed),
            "protector": protector_record(protector),
            "texts": {"judged": len(rows), "left_out": left_out},
            "semantic": short(embedding_cosine(before, after, groups)),
            "leakage": short(leak),
            "shown": _shown(spec, bench, material, written, judge),
            "base": dict(written.base),
            "training": dict(written.tuned),
        }

    def summary(self, spec: Spec, records: Records) -> Summary:
        """Return the texts side by side, and the mean cosine of all judged texts."""
        assert isinstance(spec, CaseStudySpec)
        return case_summary(spec.attack, spec.judge, spec.decoders, records)


def _judge(spec: CaseStudySpec, bench: Bench, material: Material) -> Any:
    if spec.judge != LSA:
        return bench.encoder(spec.judge)

    def fit() -> LsaEncoder:
        texts = material.problem.texts
        held = Counter(word for text in texts for word in set(_WORD.findall(text.casefold())))
        terms = sum(count > 1 for count in held.values())  # those that the encoder has room for
        return LsaEncoder.fit(texts, max(1, min(LSA_DIMENSION, terms // 2, len(texts) // 2)))

    return bench.once(("judge", material.problem.name), fit)


def _shown(
    spec: CaseStudySpec, bench: Bench, material: Material, written: Rewritten, judge: Any
) -> list[dict[str, Any]]:
    """Return what stands in the record of each text that is shown."""
    words_of = every_word(material)
    held = words_of(written.texts)
    rich = [i for i, own in enumerate(held) if len(own) >= LEAST_WORDS]
    count = min(spec.shown, len(rich))
    rng = np.random.default_rng([material.seed, 24])
    chosen = sorted(rng.choice(rich, count, replace=False).tolist()) if count else []
    texts = [*(written.texts[i] for i in chosen), *spec.given]
    guesses = [*(written.written[i] for i in chosen), *written.further]
    if not texts:
        return []
    cosines = pair_cosines(judge.encode(texts), judge.encode(guesses))
    learnt = [False] * count + _learnt(spec, bench, material)
    found = []
    for i, (text, guess) in enumerate(zip(texts, guesses, strict=True)):
        own, other = words_of([text])[0], words_of([guess])[0]
        record: dict[str, Any] = {
            "given": i >= count,
            "learnt": learnt[i],
            "words": len(own),
            "survive": len(own & other),
            "semantic": round(float(cosines[i]), 4),
        }
        if spec.show_texts:
            record |= {"original": text, "reconstruction": guess}
            record |= {"sensitive": sorted(own), "surviving": sorted(own & other)}
        found.append(record)
    return found


def _learnt(spec: CaseStudySpec, bench: Bench, material: Material) -> list[bool]:
    """Return which of the texts given by the user the attack may have learnt, from the corpus or the problem."""
    if not spec.given:
        return []
    encoder, corpus = bench.encoder(), corpus_texts(bench, spec.decoder(spec.attack))
    others = [*corpus, *material.problem.texts]
    found = copied(spec.given, encoder.encode(list(spec.given)), others, encoder.encode(others))
    return [bool(one) for one in found]
