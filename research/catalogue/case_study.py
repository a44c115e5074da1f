"""SPARSE, Table 12: reconstructions of single texts, and their semantic similarity under another encoder."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import numpy as np

from research import tables as draw
from research.bench import Bench, Material
from research.catalogue.attacks import ATTACK_NAMES, WriterGrid, WriterSpec, judged_texts, label_of
from research.catalogue.tradeoff import AXES
from research.decoders import WRITERS, Rewritten, copied, corpus_texts, every_word, rewrite, target_words
from research.experiment import Cell, Records, note
from research.judging import Tally, verdict
from research.points import short
from research.published import published
from research.results import ClaimFinding, Number, Summary, Table
from research.specification import check_names, digest, wrong
from vecveil.auditing.metrics.text_similarity import reconstruction_leakage
from vecveil.privacy.utility.tasks import embedding_cosine, pair_cosines
from vecveil.texts.encoders.lsa import LsaEncoder

LEAST_WORDS = 2  # sensitive words that a text must hold to be shown
LSA = "lsa"
LSA_DIMENSION = 200
_WORD = re.compile(r"\w+")


class CaseStudySpec(WriterSpec, frozen=True, kw_only=True):
    """Which texts are shown, and which encoder compares their meaning.

    Attributes:
        attack: ``geia`` or ``vec2text``.
        shown: number of judged texts to show, drawn by the seed among those with two or more sensitive words.
        given: further texts to show.
        judge: encoder of the semantic cosine, not the attacked one: ``lsa`` (fitted on the problem's texts), or a name
            or folder for `vecveil.load_encoder`.
        show_texts: store originals and reconstructions in the record, not only figures.
    """

    attack: str = "geia"
    shown: Annotated[int, msgspec.Meta(ge=0)] = 4
    given: tuple[str, ...] = ()
    judge: str = LSA
    show_texts: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("attack", [self.attack], WRITERS)
        if self.judge == self.encoder:
            raise wrong(
                "judge", "`judge` is the attacked encoder, on whose vectors the attack was trained. Name another."
            )
        if any(not text.strip() for text in self.given):
            raise wrong("given", "`given` has an empty text.")


class CaseStudy(WriterGrid[CaseStudySpec]):
    """Reconstructions side by side."""

    name = "case-study"
    what = "Texts and their reconstructions from clean and protected vectors, compared by a second encoder."
    source = "SPARSE, Table 12"
    spec_type = CaseStudySpec

    def writer(self, spec: CaseStudySpec, cell: Cell) -> str:
        return spec.attack

    def settings(self, spec: CaseStudySpec, cell: Cell) -> dict[str, Any]:
        own = {name: getattr(spec, name) for name in ("attack", "shown", "judge", "show_texts")}
        return {**super().settings(spec, cell), **own, "given": digest(spec.given)}

    def measure(self, spec: CaseStudySpec, cell: Cell, bench: Bench) -> dict[str, Any]:
        material, protector, rows, common = self.defended(spec, cell, bench)
        written = rewrite(
            bench, material, spec.attack, spec.decoder(spec.attack), protector, label_of(cell), rows, spec.given
        )
        judge = _judge(spec, bench, material)
        before, after = judge.encode(list(written.texts)), judge.encode(list(written.written))
        groups, words_of = material.case.groups[rows], target_words(material)
        leak = reconstruction_leakage(words_of(written.texts), words_of(written.written), groups)
        return {
            **common,
            "semantic": short(embedding_cosine(before, after, groups)),
            "leakage": short(leak),
            "shown": _shown(spec, bench, material, written, judge),
            "base": dict(written.base),
            "training": dict(written.tuned),
        }

    def summary(self, spec: CaseStudySpec, records: Records) -> Summary:
        names = records.values("problem")
        judge = "an LSA encoder fitted on the problem's texts" if spec.judge == LSA else f"the encoder {spec.judge}"
        decoder = spec.decoder(spec.attack)
        given = " (given)" if decoder.start_from else ""
        notes = [
            AXES,
            ONE_TEXT,
            f"Semantic cosine: of original and reconstruction under {judge}. Attack: {ATTACK_NAMES[spec.attack]}, "
            f"preset {decoder.preset}, from a base{given} of `{decoder.corpus}`, fine-tuned for each defence.",
        ]
        if any("original" in text for r in records for text in r["found"]["shown"]):
            notes.append("The specification shows texts; `show_texts: false` leaves them out.")
        keys = ("dataset", "epsilon", "method")
        return Summary(
            tables=[t for name in names for t in (*_sides(records, name), _means(records, name))],
            findings=[*draw.findings_of(self.name, _rows(records), keys, difference=ONE_TEXT), *_hidden(records)],
            notes=notes,
        )


def _judge(spec: CaseStudySpec, bench: Bench, material: Material) -> Any:
    if spec.judge != LSA:
        return bench.encoder(spec.judge)

    def fit() -> LsaEncoder:
        texts = material.problem.texts
        held = Counter(word for text in texts for word in set(_WORD.findall(text.casefold())))
        terms = sum(count > 1 for count in held.values())  # those that fit into the encoder's window
        return LsaEncoder.fit(texts, max(1, min(LSA_DIMENSION, terms // 2, len(texts) // 2)))

    return bench.once(("judge", material.problem.name), fit)


def _shown(
    spec: CaseStudySpec, bench: Bench, material: Material, written: Rewritten, judge: Any
) -> list[dict[str, Any]]:
    """Return the record of each shown text."""
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
    """Return for each user-given text whether the attack may have learnt it or a near copy."""
    if not spec.given:
        return []
    encoder, corpus = bench.encoder(), corpus_texts(bench, spec.decoder(spec.attack))
    others = [*corpus, *material.problem.texts]
    found = copied(spec.given, encoder.encode(list(spec.given)), others, encoder.encode(others))
    return [bool(one) for one in found]


PUBLISHED = "sparse-table-12"
ONE_TEXT = note("case-study")


def _sides(records: Records, problem: str) -> list[Table]:
    """Return a table for each text of the first seed: a row for each defence."""
    own = records.where(problem=problem)
    if not len(own):
        return []
    first = own.where(seed=own[0]["cell"]["seed"])
    found = []
    for i, text in enumerate(first[0]["found"]["shown"]):
        where = "given by the user" if text["given"] else "drawn at random"
        learnt = "; the attack may have learnt this text or a near copy" if text["learnt"] else ""
        original = f" {text['original']}" if "original" in text else ""
        sensitive = f" Sensitive: {', '.join(text['sensitive'])}." if text.get("sensitive") else ""
        caption = f"Original ({where}{learnt}):{original or ' not shown.'}{sensitive}"
        groups = [((*key, at[0]["found"]["shown"][i]), at) for key, at in draw.by_scale(first, "scale", "method")]
        found.append(
            draw.table(
                f"{problem}: text {i + 1}",
                groups,
                [
                    draw.axis("Scale", 0),
                    draw.axis("Method", 1, draw.method_name),
                    draw.column("Reconstruction", lambda key, _: key[2].get("reconstruction"), text=True),
                    draw.axis("Sensitive words that survive", 2, _surviving),
                    draw.column("Semantic cosine", lambda key, _: Number(key[2]["semantic"], digits=2, percent=False)),
                ],
                caption,
            )
        )
    return found


def _surviving(shown: Mapping[str, Any]) -> str:
    kept = f"{shown['survive']} of {shown['words']}"
    return f"{kept}: {', '.join(shown['surviving'])}" if shown.get("surviving") else kept


def _means(records: Records, problem: str) -> Table:
    own = records.where(problem=problem)

    def cosine(key: tuple[str, str], at: Records) -> Number | None:
        epsilon = draw.epsilon_of(key[0])
        theirs = (
            None
            if epsilon is None or draw.few_texts(own)
            else draw.beside([PUBLISHED], "semantic", epsilon=epsilon, method=key[1])
        )
        return at.estimate("semantic", digits=2, percent=False, published=theirs)

    return draw.table(
        draw.marked(own, f"{problem}: all judged texts"),
        draw.by_scale(own, "scale", "method"),
        [
            draw.axis("Scale", 0),
            draw.axis("Method", 1, draw.method_name),
            draw.column("Semantic cosine, mean", cosine),
            draw.plain("Chance", "semantic", "chance", digits=2),
            draw.estimate("Leakage (Eq. 13)", "leakage"),
            draw.percent("Chance of leakage", "leakage", "chance"),
            draw.percent("Utility kept", "utility", "relative"),
        ],
        f"Means over {judged_texts(own)} judged texts; published is the paper's one text.",
    )


def _rows(records: Records) -> list[dict[str, Any]]:
    """Return our means with the paper's keys and units, and their errors, if the attack works on clean vectors.

    ``hidden`` is minus the leakage.
    """
    rows = []
    for (problem,), own in draw.counted(records).each("problem"):
        figures = {"semantic": ("semantic", 1.0), "hidden": ("leakage", -100.0)}
        clean = own.where(scale="clean")
        live = {name: one for name, one in figures.items() if draw.above_chance(clean, one[0])}
        for (scale, method), at in own.each("scale", "method"):
            if (epsilon := draw.epsilon_of(scale)) is not None:
                row = {name: at.measured(key, factor=factor) for name, (key, factor) in live.items()}
                rows.append({"dataset": problem, "epsilon": epsilon, "method": method, **row})
    return rows


def _hidden(records: Records) -> list[ClaimFinding]:
    """Return in how many of the shown texts SPARSE hides every sensitive word, as in the paper's two."""
    texts = [
        text
        for _, own in draw.counted(records).each("problem")
        if draw.above_chance(own.where(scale="clean"), "leakage")
        for r in own.where(method="sparse")
        if draw.epsilon_of(r["cell"]["scale"]) is not None
        for text in r["found"]["shown"]
        if text["words"] and not text["learnt"]
    ]
    if not texts:
        return []
    hidden = sum(text["survive"] == 0 for text in texts)
    paper = published(PUBLISHED)
    theirs = [row["hidden"] for row in paper.rows if row["method"] == "sparse"]
    return [
        ClaimFinding(
            "Reconstructions from SPARSE's vectors lack the sensitive words.",
            paper.source,
            verdict(Tally(hidden, len(texts) - hidden, len(texts))),
            f"no sensitive word survives in {hidden} of {len(texts)} reconstructions",
            f"in {sum(theirs)} of {len(theirs)}",
            ONE_TEXT,
        )
    ]
