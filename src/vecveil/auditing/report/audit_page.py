"""Report an audit as an HTML page, Markdown, a CSV table and a short table for a terminal, in one wording."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vecveil.auditing.records.audit_record import (
    COUNTS_WORDS,
    AttackRecord,
    AuditRecord,
    GuaranteeRecord,
    LeakageFigure,
    TermRecord,
)
from vecveil.auditing.records.verdict import (
    ABOVE_CHANCE,
    GRADES,
    UNPROTECTED,
    WEAK_EPSILON,
    FamilyVerdict,
    Verdict,
    against_chance,
    decide,
    grade,
    judged,
    listed_against_unlisted,
    skipped_without_encoder,
    standing,
)
from vecveil.auditing.report.charts import learning_chart
from vecveil.auditing.report.rendering import render, words, write_report
from vecveil.auditing.report.text import (
    MISSING,
    NBSP,
    count,
    csv_table,
    duration,
    interval,
    moment,
    parameter,
    percent,
    scale,
)

Source = AuditRecord | Mapping[str, Any] | str | os.PathLike[str]

WORDS = words("audit")
FAMILY_WORDS = WORDS["families"]
SEARCH_KEPT = 0.9  # below this share a report advises sealed search
KNOWN_TEXT_FAMILIES = ("candidates", "alignment", "membership")
EXPECTED = "above chance; below clean"
"""Position of a family that the terminal omits, so that exceptions are visible."""
ABOVE_NAMED = 3  # further figures above chance are counted, not named
COLUMNS = (
    "family",
    "attack",
    "metric",
    "value",
    "low",
    "high",
    "chance",
    "over_chance",
    "clean",
    "clean_low",
    "clean_high",
    "n",
    "adaptive",
    "seconds",
    "cost",
)


def render_audit(record: Source) -> str:
    """Return an audit as one HTML page without scripts or external resources.

    Args:
        record: an audit record, its content as a JSON object, or the path of ``audit.json``. Terms and texts appear on
            the page only if the record contains them.

    Raises:
        InvalidInputError: a record with a different schema, or with a missing or invalid key.
        DataFileError: the same for a file, or the file cannot be read or is not JSON.
    """
    audit = AuditRecord.load(record, owner="render_audit")
    return render("audit.html", what="audit", generator=audit.vecveil, **_context(audit))


def render_audit_markdown(record: Source) -> str:
    """Return an audit as GitHub-flavoured Markdown: the page without its charts. As `render_audit`.

    No text of the record can become a link, a mention or other markup.
    """
    return render("audit.md", **_context(AuditRecord.load(record, owner="render_audit_markdown")))


def render_audit_csv(record: Source) -> str:
    """Return a CSV table (RFC 4180) with one row for each attack and metric, the main metric first.

    Missing figures are empty. A text that a spreadsheet would interpret as a formula gets a leading apostrophe. The
    ``n`` column repeats the count of the main metric.
    """
    audit = AuditRecord.load(record, owner="render_audit_csv")

    def cell(attack: AttackRecord, figure: LeakageFigure, column: str) -> Any:
        if column == "attack":
            return attack.name
        if column == "over_chance":
            return figure.position
        return getattr(figure if hasattr(figure, column) else attack, column)

    pairs = ((attack, figure) for attack in audit.attacks for figure in attack.figures)
    return csv_table(COLUMNS, ([cell(*pair, column) for column in COLUMNS] for pair in pairs))


def write_audit_html(record_or_path: Source, target: str | os.PathLike[str]) -> Path:
    """Write `render_audit` to ``target`` atomically, and return its path."""
    return write_report(target, render_audit(record_or_path))


def write_audit_markdown(record_or_path: Source, target: str | os.PathLike[str]) -> Path:
    """Write `render_audit_markdown` to ``target`` atomically, and return its path."""
    return write_report(target, render_audit_markdown(record_or_path))


def write_audit_csv(record_or_path: Source, target: str | os.PathLike[str]) -> Path:
    """Write `render_audit_csv` to ``target`` atomically, and return its path."""
    return write_report(target, render_audit_csv(record_or_path))


def summary_table(record: Source) -> str:
    """Return the figures and reservations of an audit as a table of at most 80 terminal columns."""
    audit = AuditRecord.load(record, owner="summary_table")
    return render("sealed.txt" if audit.is_sealed else "audit.txt", EXPECTED=EXPECTED, **_context(audit))


def _context(audit: AuditRecord) -> dict[str, Any]:
    """Return the template variables of all formats."""
    verdict, side = decide(audit), _side(audit)
    encoder = None if audit.encoder is None else audit.encoder.name
    texts = audit.texts
    about = (
        ("a sealed index, by attackers without its key" if audit.is_sealed else "a store, without its protector")
        if audit.is_store
        else f"method {audit.method}",
        f"encoder {encoder}" if encoder else "vectors as given",
        f"{count(texts.vocabulary)} of {count(texts.words)} words attacked",
        f"attacks judged on {count(audit.split.test)} of {count(texts.with_concept)} texts with the concept, "
        f"{count(texts.total)} in all",
        moment(audit.created),
    )
    heading = "What leaks from this store about " if audit.is_store else "What protected vectors still say about "
    if audit.is_sealed:
        heading = "What the storage of this index reveals about the "
    # A store's attacks run on clean vectors only if its encoder is known.
    both = "" if audit.is_store else "Each attack ran on clean and on protected vectors with the same split. "
    given = audit.guarantee
    return {
        "audit": audit,
        "side": side,
        "heading": heading,
        "about": " · ".join(about),
        "warnings": "Warning" if len(audit.lint) == 1 else f"{len(audit.lint)} warnings",
        "word": verdict.words,
        "verdict": verdict,
        "tried": _tried(audit).lower(),
        "worst_words": worst_words(audit, verdict),
        "ahead": ahead_words(audit, verdict),
        "curve": learning_chart(audit),
        "evidence": _evidence(verdict.worst) or "the vectors",
        "bars": bars(audit, verdict),
        "search": search_words(audit),
        "steps": next_steps(audit, verdict),
        "caveats": caveat_words(audit, verdict),
        "families": [(*FAMILY_WORDS[each.family], each, GRADES[each.grade], _besides(each)) for each in _rows(verdict)],
        "known_text": WORDS["known_text"]
        if (not audit.is_sealed and any(v.family in KNOWN_TEXT_FAMILIES for v in verdict.others))
        else "",
        "lists": _lists(audit),
        "explained": WORDS["explained"].format(sides=both),
        "utility_caption": f"Utility on clean and on {side} vectors; kept is {side} relative to clean.",
        "guarantee_words": guarantee_words(given),
        "guarantee_facts": [] if given is None else _guarantee_facts(given),
        "covered": []
        if given is None
        else [
            ("Guaranteed", given.promised, "Nothing."),
            ("Not guaranteed", given.not_promised, "The record lists nothing."),
            ("Conditional on", given.conditional_on, "The record lists nothing."),
        ],
        "terms": _terms(audit, side),
        "settings": settings(audit),
        "side_heads": _side_heads,
        "price": _price,
        "anonymity": audit.anonymity.criteria,
        "words": WORDS,
    }


def _side(audit: AuditRecord) -> str:
    return "stored" if audit.is_store else "protected"


def _side_heads(audit: AuditRecord, *first: str) -> list[str]:
    clean = ["Clean"] if audit.has_clean else []
    return [*first, *clean, _side(audit).capitalize(), "Chance", "Over chance"]


def _price(attack: AttackRecord) -> str:
    """Return how an attack learns, its test data, its time and its cost."""
    learns = "draws fresh releases while training" if attack.adaptive else "learns from released pairs only"
    unit = "word occurrences" if attack.family in COUNTS_WORDS else "texts"
    trained = {None: "", True: "converged", False: "not converged: longer training may find more"}[attack.converged]
    parts = [learns, f"{count(attack.n)} {unit}", duration(attack.seconds), attack.cost, trained]
    return " · ".join(part for part in parts if part)


def worst_words(audit: AuditRecord, verdict: Verdict) -> str:
    """Return sentences on the strongest attack on one release, and on a stronger one on several."""
    worst, more = verdict.worst, verdict.repeated
    clean = "" if audit.is_sealed else ", with no clean vectors to compare with"
    if worst.clean is not None and not audit.is_sealed:
        clean = f", {percent(worst.clean)} from clean ones ({interval(worst.clean_low, worst.clean_high)})"
    place = "" if verdict.chance == ABOVE_CHANCE else f", {verdict.chance}"
    source = _evidence(worst) or ("the ciphertext" if audit.is_sealed else f"{_side(audit)} vectors")
    sentence = (
        f"{_tried(audit)}, {worst.name}, recovered {percent(worst.value)} of the concept’s words from {source} "
        f"({interval(worst.low, worst.high)}){place}{clean}; guessing finds {percent(worst.chance)}."
    )
    sentence += f" {ahead}" if (ahead := ahead_words(audit, verdict)) else ""
    if more is None:
        return sentence
    return (
        f"{sentence} The worst figure for these words: {more.name} recovered {percent(more.value)} "
        f"({interval(more.low, more.high)}) from several releases of one text."
    )


def ahead_words(audit: AuditRecord, verdict: Verdict) -> str:
    """Return a sentence on what an attacker with more texts is expected to recover, and what of it the verdict uses."""
    point = audit.forecast
    if point is None:
        return "The texts are too few to forecast what an attacker with more of them recovers."
    times = round(point.texts / audit.learning_curve[-1].texts)
    factor = "ten" if times == 10 else str(times)
    used = ""
    high = verdict.worst.high
    if (
        not audit.is_sealed
        and verdict.grade in ("most", "part", "little")
        and high is not None
        and point.cautious > high
    ):
        used = f"; the verdict uses {100 * point.cautious:.0f}{NBSP}%"
    return (
        f"With {factor} times your texts ({count(point.texts)}) an attacker recovers about "
        f"{100 * point.value:.0f}{NBSP}% "
        f"({interval(point.low, point.high)}){used}."
    )


def _evidence(attack: AttackRecord) -> str | None:
    """Return the evidence of an attack besides vectors, or in their place; None for vectors alone."""
    if attack.name == "access-patterns":
        return "the log of queries"
    return "stored vectors and the data stored with them" if attack.name.endswith("-beside") else None


def _tried(audit: AuditRecord) -> str:
    tried = len(audit.members("token-inference"))
    return "The attack tried" if tried == 1 else f"The strongest of {tried} attacks on one release of a text"


def bars(audit: AuditRecord, verdict: Verdict) -> list[tuple[str, str, float | None, float | None, float | None]]:
    """Return (name, kind, share, low, high) of clean vectors, protected vectors and chance."""
    worst = verdict.worst
    if audit.is_sealed:
        return [
            ("With the key", "clean", 1.0, None, None),
            ("Ciphertext", "protected", worst.value, worst.low, worst.high),
            ("Guessing (chance)", "chance", worst.chance, None, None),
        ]
    rows = [
        ("Clean vectors", "clean", worst.clean, worst.clean_low, worst.clean_high),
        (f"{_side(audit).capitalize()} vectors", "protected", worst.value, worst.low, worst.high),
        ("Guessing (chance)", "chance", worst.chance, None, None),
    ]
    return rows[worst.clean is None :]


def search_words(audit: AuditRecord) -> str:
    if audit.is_sealed:
        return "Search ranks exact vectors in memory and loses nothing."
    measured = [(sentence, audit.utility[key]) for key, sentence in WORDS["search"].items() if key in audit.utility]
    sentences = [
        sentence.format(kept=percent(each.relative), each=each)
        for sentence, each in measured
        if each.relative is not None
    ]
    return " ".join(sentences) or "What search keeps was not measured."


def next_steps(audit: AuditRecord, verdict: Verdict) -> list[str]:
    """Return at most three steps that follow from the figures, the most urgent first."""
    if audit.is_sealed:
        return list(WORDS["sealed_steps"])
    lists = listed_against_unlisted(audit)
    kept = [audit.utility[key].relative for key in ("neighbours", "retrieval") if key in audit.utility]
    poor = min((each for each in kept if each is not None), default=1.0) < SEARCH_KEPT
    sealed = audit.utility.get("sealed_search")
    sealed_share = "" if sealed is None else percent(sealed.relative)
    unprotected = any(warning.code == UNPROTECTED for warning in audit.lint)
    steps = {
        "Deal with the warnings above first.": bool(audit.lint),
        "If you hold a key where you search, use a sealed index (`vecveil migrate SOURCE sealed:FOLDER`).": (
            poor or verdict.grade != "hidden"
        ),
        "Protect the vectors: `vecveil fit`, then `vecveil migrate`.": audit.is_store and unprotected,
        "Audit more texts with the concept: 300 or more.": verdict.grade == "unknown" and audit.has_clean,
        "Fit a stronger protector: `vecveil frontier` shows what each strength costs.": (
            not audit.is_store and verdict.grade in ("part", "little", "not")
        ),
        "For full search quality use sealed search (`vecveil migrate --seal-key`).": poor and sealed is None,
        f"Use sealed search (`vecveil migrate --seal-key`), which keeps {sealed_share}; more candidates keep more.": (
            poor and sealed is not None
        ),
        "Unlisted words stay readable: list more, or rewrite what a detector finds (`vecveil fit --rewrite`).": (
            lists is not None and grade(lists[0]) in ("part", "little", "not")
        ),
        "Before you decide, audit with `--tier full`, and on other texts if the protector was fitted on these.": (
            audit.tier == "quick"
        ),
        "Keep the vectors from people who have the texts.": True,
    }
    return [step for step, applies in steps.items() if applies][:3]


def guarantee_words(given: GuaranteeRecord | None) -> list[str]:
    if given is None:
        return []
    if given.kind != "formal":
        return [f"There is no formal guarantee ({given.kind}): {WORDS['no_guarantee'][given.kind]}."]
    worst = given.epsilon_euclidean_worst
    scales = (("ε", given.epsilon), ("μ", given.mu))
    symbol = next((f"{name} = {scale(value)}" for name, value in scales if value is not None), "A formal guarantee")
    lead = f"{symbol} bounds what anybody can learn from {given.unit or 'one release'}."
    if worst is None or worst <= WEAK_EPSILON:
        return [lead]
    return [lead, "At this size the bound excludes little: rely on the measured figures."]


def _rows(verdict: Verdict) -> list[FamilyVerdict]:
    """Return the verdicts on all families, token inference first."""
    worst = verdict.worst
    return [FamilyVerdict(worst.family, worst, verdict.grade, standing(worst), verdict.besides), *verdict.others]


def _lists(audit: AuditRecord) -> list[tuple[str, LeakageFigure]]:
    """Return the figures of listed and of unlisted words; one attack recovers both."""
    pair = listed_against_unlisted(audit)
    if pair is None:
        return []
    return [*([("Listed words", pair[1])] if pair[1] else []), ("Unlisted words", pair[0])]


def caveat_words(audit: AuditRecord, verdict: Verdict) -> list[str]:
    names = skipped_without_encoder(audit)
    figures = [figure for attack in audit.attacks for figure in judged(attack) if against_chance(figure)]
    sentences = WORDS["caveats"] | (WORDS["store_caveats"] if audit.is_store else {})
    return [
        # Every sentence gets all values: `format` ignores those that it does not name.
        sentences[code].format(
            besides=_named(verdict.besides),
            chance=percent(verdict.worst.chance),
            side=_side(audit),
            kind="" if audit.guarantee is None else audit.guarantee.kind,
            names=", ".join(names),
            figures=len(figures),
            above=sum(against_chance(figure) == ABOVE_CHANCE for figure in figures),
            transplant=WORDS["transplant"] if "transplant" in names else "",
        )
        for code in verdict.caveats
    ]


def _named(figures: Sequence[tuple[AttackRecord, LeakageFigure]]) -> str:
    """Return the first figures by name, and the number of the others."""
    named = [
        f"{figure.metric} of {attack.name} ({percent(figure.value)}, chance {percent(figure.chance)})"
        for attack, figure in figures[:ABOVE_NAMED]
    ]
    rest = len(figures) - len(named)
    return "; ".join([*named, f"and {rest} more"] if rest else named)


def _besides(family: FamilyVerdict) -> list[str]:
    return [f"Above chance all the same: {_named(family.besides)}."] if family.besides else []


def _guarantee_facts(given: GuaranteeRecord) -> list[tuple[str, str | None]]:
    worst, hidden = given.epsilon_euclidean_worst, given.hidden_directions
    return [
        ("Kind", given.kind),
        ("ε", None if given.epsilon is None else scale(given.epsilon)),
        ("Unit", given.unit),
        ("Metric", given.metric),
        ("Neighbours", given.neighbours),
        ("ε in the worst Euclidean direction", None if worst is None else scale(worst)),
        ("Directions hidden", None if hidden is None else count(hidden)),
    ]


def _terms(audit: AuditRecord, side: str) -> dict[str, Any]:
    has_clean = any(term.clean is not None for term in audit.terms)
    has_names = any(term.term is not None for term in audit.terms)
    caption = f"Share of a term’s test occurrences that {audit.worst} ranked among the k best of the text."

    def label(term: TermRecord, index: int) -> str:
        return f"term {index + 1}" if term.term is None else term.term

    return {
        "clean": has_clean,
        "note": f"{WORDS['named' if has_names else 'numbered']} {WORDS['term_chance']}",
        "caption": caption,
        "heads": ["Term", "Count", *["Clean", side.capitalize(), "Chance"][not has_clean :]],
        "labelled": [(term, label(term, i)) for i, term in enumerate(audit.terms)],
    }


def settings(audit: AuditRecord) -> list[tuple[str, str | None]]:
    """Return method, texts, split, seed and versions, as names and values."""
    parameters = ", ".join(f"{name} = {parameter(value)}" for name, value in audit.parameters.items())
    texts, split, encoder = audit.texts, audit.split, audit.encoder
    # `emptied` counts texts of which nothing remains without the concept.
    alone = f", and {count(texts.emptied)} consist of it alone" if texts.emptied else ""
    known = "not recorded: the audit was given vectors"
    if encoder is not None:
        mark = f"fingerprint {encoder.fingerprint}" if encoder.fingerprint else None
        known = ", ".join(part for part in (encoder.name, encoder.precision, mark) if part)
    share = percent(texts.token_instances / texts.word_occurrences) if texts.word_occurrences else MISSING
    used = split.train + split.validation + split.test
    return [
        ("Method", audit.method),
        ("Parameters", parameters or "none"),
        ("Encoder", known),
        (
            "Texts",
            f"{count(texts.total)}, of which {count(texts.with_concept)} contain the concept and "
            f"{count(texts.without_concept)} do not{alone}",
        ),
        (
            "Words attacked",
            f"{count(texts.vocabulary)} of {count(texts.words)} words of the concept, those in enough texts: "
            f"{share} of their occurrences ({count(texts.token_instances)} of {count(texts.word_occurrences)}, a word "
            f"counted once in a text). Texts without an attacked word are not used: {count(used)} of the "
            f"{count(texts.with_concept)} with the concept are",
        ),
        (
            "Split",
            f"by {split.unit}, {count(split.groups)} groups: {count(split.train)} texts to train, "
            f"{count(split.validation)} to validate, {count(split.test)} to test",
        ),
        ("Seed", str(audit.seed)),
        ("Noise of the audited release", audit.randomness),
        ("Tier", audit.tier),
        ("Time taken", duration(audit.seconds)),
        ("Made", f"{audit.created} with vecveil {audit.vecveil}"),
    ]
