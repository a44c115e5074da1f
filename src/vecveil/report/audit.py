"""Report an audit as an HTML page, Markdown, a CSV table and a short table for a terminal.

The formats share one wording of the figures and of the verdict (`vecveil.records.verdict`).
"""

from __future__ import annotations

import os
import re
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vecveil.io import write_text
from vecveil.records.audit import (
    AttackRecord,
    AuditRecord,
    GuaranteeRecord,
    LeakageFigure,
    TermRecord,
)
from vecveil.records.verdict import (
    ABOVE_CHANCE,
    GRADES,
    UNPROTECTED,
    WEAK_EPSILON,
    FamilyVerdict,
    Verdict,
    decide,
    grade,
    listed_against_unlisted,
    skipped_without_encoder,
    standing,
    status,
)
from vecveil.report.rendering import render
from vecveil.report.text import (
    MISSING,
    NBSP,
    clean_text,
    count,
    csv_table,
    duration,
    interval,
    moment,
    parameter,
    percent,
    scale,
)

Source = Mapping[str, Any] | str | os.PathLike[str]

FAMILY_WORDS = {
    "token-inference": ("Token inference", "Which concept words are in it?"),
    "probe": ("Concept probe", "Does the text hold the concept?"),
    "candidates": ("Candidate matching", "Which known text is it?"),
    "averaging": ("Averaging", "What do several releases of one text give away?"),
    "alignment": ("Alignment", "Can the vectors be mapped back to clean ones?"),
    "reconstruction": ("Reconstruction", "Can the text be written down again?"),
    "held-out-terms": ("Held-out terms", "What of words that the protection was not fitted on?"),
}
"""Title and question of each family."""
COUNTS_WORDS = ("token-inference", "averaging", "held-out-terms")
"""Families whose ``n`` counts word occurrences; that of the others counts texts."""
SIDES = {"both": "both sides protected", "documents": "documents protected, queries through the map"}
SEARCH = {
    "retrieval": "Retrieval keeps {kept} of {each.metric}.",
    "neighbours": "Search keeps {kept} of the ten nearest neighbours.",
    "sealed_search": "{each.label}: {kept}.",
}
"""Label of each measure of search, by the key of its utility."""
SEARCH_KEPT = 0.9  # below this share a report advises sealed search
KNOWN_TEXT = (
    "Expected near 100 % for candidate matching and alignment: a vector that search can use lies nearest to its own "
    "text, so whoever holds the texts can match it. Accept this, or keep the vectors from people who hold the texts."
)
KNOWN_TEXT_FAMILIES = ("candidates", "alignment")
HOLDS_TEXTS = (
    "This page now contains texts: originals of the audit and what attackers wrote. Keep it where "
    "the texts may be kept."
)
MAPPED = (
    "Which items of the published frameworks these figures bear on. An item is not met or failed "
    "by them: they say what attackers found."
)
EXPLAINED = (
    "R-precision: of the k concept tokens that a text holds, the share among the attack’s k best "
    "guesses. {sides}Over chance: (figure − chance) / (1 − chance), so 0 is guessing and "
    f"100{NBSP}% is certainty."
)
NAMED = "This page names the concept’s terms: keep it where the texts may be kept."
NUMBERED = "The record does not hold the terms, so they are numbered, the most frequent first."
TERM_CHANCE = (
    "Chance of a term is what naming the most frequent terms in every text would recover of it: much of a "
    "frequent term, nothing of a rare one."
)
ABOVE_NAMED = 3  # further figures above chance are counted, not named
COLUMNS = (
    "family", "attack", "metric", "value", "low", "high", "chance", "over_chance", "clean", "clean_low", "clean_high",
    "n", "adaptive", "seconds", "cost",
)  # fmt: skip

_MORE = "another attack may recover more"
CAVEATS = {
    "above-chance-besides": "Token inference is above chance all the same in: {besides}.",
    "clean-at-chance": "On clean vectors the attack is not above chance either, so this audit cannot show "
    "what protection changes.",
    "no-clean-side": "There are no clean vectors to compare with, so this audit cannot show whether the "
    "{side} vectors leak less than clean ones.",
    "overlaps-clean": "This audit does not show that protection lowers leakage: the intervals with and "
    "without protection overlap.",
    "above-clean": "Leakage is higher with protection than without.",
    "unprotected": "These are the encoder's own vectors, which nothing protects: the figures are those of the "
    f"attacks tried, and {_MORE}.",
    "unknown-protection": "The record does not say how these vectors were made: the figures hold for the attacks "
    f"tried, and {_MORE}.",
    "formal": f"The leakage figure is measured, not part of the guarantee: {_MORE}.",
    "no-formal-guarantee": "The protection is {kind}: nothing but these measurements supports it, and "
    f"{_MORE}.",
    "without-encoder": "Not run without the encoder: {names}. `--encoder NAME` runs them{transplant}.",
    "not-adaptive": "No token-inference attack was adaptive, that is, trained on freshly protected "
    "vectors; an attacker who adapts may recover more.",
    "seeded": "The attacked release has seeded noise, so that the audit can be repeated; vectors to store need fresh "
    "noise, which `protect` draws unless it is given a seed.",
}
"""Sentences for the codes of `vecveil.records.verdict.caveats`."""
STORE_CAVEATS = {
    "overlaps-clean": "This audit does not show that the stored vectors leak less than clean ones: the two "
    "intervals overlap.",
    "above-clean": "The stored vectors leak more than clean ones.",
    "not-adaptive": "No attack could draw fresh releases, as the store comes without its protector; an "
    "attacker who has it may recover more.",
}
TRANSPLANT = "; transplant, which often finds most, if the vectors are that encoder's own"
NO_GUARANTEE = {
    "empirical": "the figures hold for the attacks tried",
    "obfuscation": "protection rests on what an attacker does not know",
}


def render_audit(record: Mapping[str, Any]) -> str:
    """Return the audit record as one HTML page that loads nothing and runs nothing.

    Args:
        record: the content of ``audit.json``, schema ``vecveil.audit/2``. Terms and texts appear on the page only if
            the record holds them.

    Raises:
        InvalidInputError: another schema, or a key is missing or has a wrong value.
    """
    return _html(AuditRecord.read(record, owner="render_audit"))


def render_audit_markdown(record: Mapping[str, Any]) -> str:
    """Return the audit record as GitHub-flavoured Markdown: the page without its charts.

    No text of the record can become a link, a mention or other markup.
    """
    return _markdown(AuditRecord.read(record, owner="render_audit_markdown"))


def render_audit_csv(record: Mapping[str, Any]) -> str:
    """Return a CSV table (RFC 4180) with one row for each attack and metric, the main metric first.

    Missing figures are empty. A text that a spreadsheet would take for a formula gets an apostrophe in front. ``n`` is
    that of the attack's main metric.
    """
    return _csv(AuditRecord.read(record, owner="render_audit_csv"))


def write_audit_html(record_or_path: Source, target: str | os.PathLike[str]) -> Path:
    """Write `render_audit` of a record, or of the ``audit.json`` at a path, to ``target`` atomically.

    Raises:
        InvalidInputError: a record with another schema, or with a missing or wrong key.
        DataFileError: the same for a file, or the file cannot be read or is not JSON.
    """
    write_text(target, _html(AuditRecord.load(record_or_path, owner="write_audit_html")))
    return Path(target)


def write_audit_markdown(record_or_path: Source, target: str | os.PathLike[str]) -> Path:
    """Write `render_audit_markdown` to ``target`` atomically; as `write_audit_html`."""
    write_text(target, _markdown(AuditRecord.load(record_or_path, owner="write_audit_markdown")))
    return Path(target)


def write_audit_csv(record_or_path: Source, target: str | os.PathLike[str]) -> Path:
    """Write `render_audit_csv` to ``target`` atomically; as `write_audit_html`."""
    write_text(target, _csv(AuditRecord.load(record_or_path, owner="write_audit_csv")))
    return Path(target)


def _html(audit: AuditRecord) -> str:
    return render("audit.html", what="audit", generator=audit.vecveil, **_context(audit))


def _markdown(audit: AuditRecord) -> str:
    return render("audit.md", **_context(audit))


def _csv(audit: AuditRecord) -> str:
    return csv_table(
        COLUMNS,
        (
            (
                attack.family, attack.name, figure.metric, figure.value, figure.low, figure.high, figure.chance,
                figure.over_chance, figure.clean, figure.clean_low, figure.clean_high, attack.n, attack.adaptive,
                attack.seconds, attack.cost,
            )
            for attack in audit.attacks
            for figure in attack.figures
        ),
    )  # fmt: skip


def _context(audit: AuditRecord) -> dict[str, Any]:
    """Return the template variables that HTML and Markdown share."""
    verdict, side = decide(audit), _side(audit)
    encoder = None if audit.encoder is None else audit.encoder.name
    about = (
        "a store, without its protector" if audit.is_store else f"method {audit.method}",
        f"encoder {encoder}" if encoder else "vectors as given",
        moment(audit.created),
    )
    heading = "What leaks from this store about " if audit.is_store else "What protected vectors still say about "
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
        "worst_words": worst_words(audit, verdict),
        "bars": bars(audit, verdict),
        "search": search_words(audit),
        "steps": next_steps(audit, verdict),
        "caveats": caveat_words(audit, verdict),
        "families": [
            (*FAMILY_WORDS[each.family], each, GRADES[each.grade], _besides(each)) for each in _rows(verdict)
        ],
        "known_text": KNOWN_TEXT if any(v.family in KNOWN_TEXT_FAMILIES for v in verdict.others) else "",
        "lists": _lists(audit),
        "explained": EXPLAINED.format(sides=both),
        "utility_caption": f"Utility on clean and on {side} vectors; kept is {side} relative to clean.",
        "guarantee_words": guarantee_words(given),
        "guarantee_facts": [] if given is None else _guarantee_facts(given),
        "covered": [] if given is None else [
            ("Guaranteed", given.promised, "Nothing."),
            ("Not guaranteed", given.not_promised, "The record lists nothing."),
            ("Conditional on", given.conditional_on, "The record lists nothing."),
        ],
        "terms": _terms(audit, side),
        "settings": settings(audit),
        "side_heads": _side_heads,
        "price": _price,
        "status": status,
        "FAMILY_WORDS": FAMILY_WORDS,
        "SIDES": SIDES,
        "HOLDS_TEXTS": HOLDS_TEXTS,
        "MAPPED": MAPPED,
    }  # fmt: skip


def _side(audit: AuditRecord) -> str:
    return "stored" if audit.is_store else "protected"


def _side_heads(audit: AuditRecord, *first: str) -> list[str]:
    clean = ["Clean"] if audit.has_clean else []
    return [*first, *clean, _side(audit).capitalize(), "Chance", "Over chance"]


def _price(attack: AttackRecord) -> str:
    """Return how an attack learns, what it is judged on, its time and its cost."""
    learns = "draws fresh releases while training" if attack.adaptive else "learns from released pairs only"
    unit = "word occurrences" if attack.family in COUNTS_WORDS else "texts"
    parts = [learns, f"{count(attack.n)} {unit}", duration(attack.seconds), attack.cost]
    return " · ".join(part for part in parts if part)


def worst_words(audit: AuditRecord, verdict: Verdict) -> str:
    """Return the figures of the strongest token-inference attack, in a sentence."""
    worst = verdict.worst
    tried = len(audit.members("token-inference"))
    who = "The attack tried" if tried == 1 else f"The strongest of {tried} attacks"
    clean = ", with no clean vectors to compare with"
    if worst.clean is not None:
        clean = f", {percent(worst.clean)} from clean ones ({interval(worst.clean_low, worst.clean_high)})"
    place = "" if verdict.chance == ABOVE_CHANCE else f", {verdict.chance}"
    return (
        f"{who}, {worst.name}, read {percent(worst.value)} of the concept’s words from {_side(audit)} vectors "
        f"({interval(worst.low, worst.high)}){place}{clean}; guessing finds {percent(worst.chance)}."
    )


def bars(audit: AuditRecord, verdict: Verdict) -> list[tuple[str, str, float | None, float | None, float | None]]:
    """Return (name, kind, share, low, high) of clean vectors, protected vectors and chance."""
    worst = verdict.worst
    rows = [
        ("Clean vectors", "clean", worst.clean, worst.clean_low, worst.clean_high),
        (f"{_side(audit).capitalize()} vectors", "protected", worst.value, worst.low, worst.high),
        ("Guessing (chance)", "chance", worst.chance, None, None),
    ]
    return rows[worst.clean is None :]


def search_words(audit: AuditRecord) -> str:
    """Return what search keeps, in a sentence."""
    measured = [(words, audit.utility[key]) for key, words in SEARCH.items() if key in audit.utility]
    sentences = [
        words.format(kept=percent(each.relative), each=each) for words, each in measured if each.relative is not None
    ]
    return " ".join(sentences) or "What search keeps was not measured."


def next_steps(audit: AuditRecord, verdict: Verdict) -> list[str]:
    """Return at most three steps that follow from the figures, the most urgent first."""
    lists = listed_against_unlisted(audit)
    kept = [audit.utility[key].relative for key in ("neighbours", "retrieval") if key in audit.utility]
    poor = min((each for each in kept if each is not None), default=1.0) < SEARCH_KEPT
    sealed = audit.utility.get("sealed_search")
    unprotected = any(warning.code == UNPROTECTED for warning in audit.lint)
    steps = {
        "Deal with the warnings above first.": bool(audit.lint),
        "Protect the vectors: `vecveil fit`, then `vecveil migrate`.": audit.is_store and unprotected,
        "Audit more texts with the concept: 300 or more.": verdict.grade == "unknown" and audit.has_clean,
        "Fit a stronger protector: `vecveil frontier` shows what each strength costs.": (
            not audit.is_store and verdict.grade in ("part", "little", "not")
        ),
        "For full search quality use sealed search (`vecveil migrate --seal-key`).": poor and sealed is None,
        "For better search fetch more candidates in sealed search (`vecveil search --candidates`).": (
            poor and sealed is not None and (sealed.relative or 0.0) < SEARCH_KEPT
        ),
        "Unlisted words stay readable: list more, or rewrite what a detector finds (`vecveil fit --rewrite`).": (
            lists is not None and grade(lists[0]) in ("part", "little", "not")
        ),
        "Before you decide, attack with `--tier full`, on texts that the protector was not fitted on.": (
            audit.tier == "quick"
        ),
        "Keep the vectors from people who hold the texts.": True,
    }
    return [step for step, applies in steps.items() if applies][:3]


def guarantee_words(given: GuaranteeRecord | None) -> list[str]:
    """Return the guarantee in at most two sentences."""
    if given is None:
        return []
    if given.kind != "formal":
        return [f"There is no formal guarantee ({given.kind}): {NO_GUARANTEE[given.kind]}."]
    worst = given.epsilon_euclidean_worst
    scales = (("ε", given.epsilon), ("μ", given.mu))
    symbol = next((f"{name} = {scale(value)}" for name, value in scales if value is not None), "A formal guarantee")
    lead = f"{symbol} bounds what anybody can learn from {given.unit or 'one release'}."
    if worst is not None and worst > WEAK_EPSILON:
        return [lead, "At this size the bound excludes little: rely on the measured figures."]
    return [lead, "The measured figures are not part of the guarantee: another attack may recover more."]


def _rows(verdict: Verdict) -> list[FamilyVerdict]:
    """Return the verdicts on all families, token inference first."""
    worst = verdict.worst
    return [FamilyVerdict(worst.family, worst, verdict.grade, standing(worst), verdict.besides), *verdict.others]


def _lists(audit: AuditRecord) -> list[tuple[str, LeakageFigure]]:
    """Return the figures of listed and of unlisted words; one attack reads both."""
    pair = listed_against_unlisted(audit)
    if pair is None:
        return []
    return [*([("Listed words", pair[1])] if pair[1] else []), ("Unlisted words", pair[0])]


def caveat_words(audit: AuditRecord, verdict: Verdict) -> list[str]:
    """Return the reservations about the verdict, as sentences."""
    names = skipped_without_encoder(audit)
    words = CAVEATS | (STORE_CAVEATS if audit.is_store else {})
    return [
        # Every sentence gets all values: `format` ignores those that it does not name.
        words[code].format(
            besides=_named(verdict.besides),
            side=_side(audit),
            kind="" if audit.guarantee is None else audit.guarantee.kind,
            names=", ".join(names),
            transplant=TRANSPLANT if "transplant" in names else "",
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
        "note": f"{NAMED if has_names else NUMBERED} {TERM_CHANCE}",
        "caption": caption,
        "heads": ["Term", "Count", *["Clean", side.capitalize(), "Chance"][not has_clean :]],
        "labelled": [(term, label(term, i)) for i, term in enumerate(audit.terms)],
    }


def settings(audit: AuditRecord) -> list[tuple[str, str | None]]:
    """Return method, texts, split, seed and versions, as names and values."""
    parameters = ", ".join(f"{name} = {parameter(value)}" for name, value in audit.parameters.items())
    texts, split, encoder = audit.texts, audit.split, audit.encoder
    # `emptied` counts texts of which nothing remains without the concept; earlier records lack it.
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
            f"{count(texts.total)}, of which {count(texts.with_concept)} hold the concept and "
            f"{count(texts.without_concept)} do not{alone}",
        ),
        (
            "Words attacked",
            f"{count(texts.vocabulary)} of {count(texts.words)} words of the concept, those that enough texts hold: "
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


WIDTH = 80
BAR = 28
EXPECTED = "above chance; below clean"
LARGER = (
    "The quick tier runs small attackers: larger networks (up to 8 points more behind erasure; --tier full runs "
    "them), more texts and pretrained decoders find more."
)


def summary_table(record: Mapping[str, Any]) -> str:
    """Return the figures and reservations of an audit record as a table of at most 80 terminal columns."""
    audit = AuditRecord.read(record, owner="summary_table")
    verdict = decide(audit)
    of = "a store" if audit.is_store else f"method {audit.method}"
    blocks = [
        [_fit(f'Audit of the concept "{audit.concept}", {of}', WIDTH).rstrip()],
        [line for each in audit.lint for line in _wrapped(each.message, "  ", "WARNING: ")],
        _wrapped(f"{verdict.words}. {verdict.sentence}", ""),
        _leakage_lines(audit, verdict),
        _family_lines(audit, verdict),
        _anonymity_lines(audit),
        _utility_lines(audit),
        _guarantee_lines(audit.guarantee),
        ["Read this with the figures"]
        + [line for note in caveat_words(audit, verdict) for line in _wrapped(note, "    ", "  - ")],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _columns(character: str) -> int:
    # Terminals draw combining marks over the letter before, and East Asian wide characters over two columns.
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _fit(text: str, width: int) -> str:
    """Return ``text`` on one line, padded or cut to ``width`` terminal columns."""
    text = " ".join(clean_text(text).split())
    used, kept = 0, []
    total = sum(map(_columns, text))
    for character in text:
        if total > width and used + _columns(character) > width - 3:
            kept.append("...")
            used += 3
            break
        kept.append(character)
        used += _columns(character)
    return "".join(kept) + " " * (width - used)


def _wrapped(text: str, indent: str = "  ", first: str | None = None) -> list[str]:
    """Return ``text`` as lines of at most 80 terminal columns."""
    # A no-break space survives until after wrapping, so that a figure and its percent sign stay together.
    text = re.sub(r"[^\S\xa0]+", " ", clean_text(text))
    # textwrap counts characters: half the width is enough even if every one takes two columns.
    width = WIDTH // 2 if any(_columns(character) == 2 for character in text) else WIDTH
    lead = indent if first is None else first
    lines = textwrap.wrap(text, width, initial_indent=lead, subsequent_indent=indent)
    return [line.replace(NBSP, " ") for line in lines]


# Terminals with another encoding than UTF-8 would fail on these characters, or show others.
def _ascii(share: float | None) -> str:
    return percent(share).replace(NBSP, " ").replace("\u2212", "-").replace(MISSING, "-")


def _bounds(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"({100 * low:.1f} to {100 * high:.1f})"


def _leakage_lines(audit: AuditRecord, verdict: Verdict) -> list[str]:
    worst = verdict.worst
    tried = sum(attack.family == "token-inference" for attack in audit.attacks)
    which = f"the worst of {tried} attacks" if tried > 1 else "the one attack tried"
    names = ("clean vectors", "stored vectors") if audit.is_store else ("without protection", "with protection")
    same = "the encoder's vectors" if audit.is_store else "clean vectors"
    bare = "" if worst.clean is None else f"; {names[0]}: the same attack on {same}"
    rows = [
        (names[0], worst.clean, worst.clean_low, worst.clean_high),
        (names[1], worst.value, worst.low, worst.high),
        ("guessing (chance)", worst.chance, None, None),
    ]
    lines = ["How many of the concept's words an attacker reads from the vectors"]
    lines += _wrapped(f"({which}: {worst.name}{bare}; brackets: 95{NBSP}% interval)")
    for name, share, low, high in rows[worst.clean is None :]:
        # Clipped: a figure outside [0, 1] must not push the bar over the line.
        bar = "#" * round(BAR * min(max(share or 0.0, 0.0), 1.0))
        lines.append(f"  {name:<19}{_ascii(share):>7} {_bounds(low, high):<15} {bar}".rstrip())
    # "x % of the way from chance to certainty" would read as leakage where the interval holds chance.
    if verdict.chance != ABOVE_CHANCE:
        where = "From the stored vectors" if audit.is_store else "With protection"
        lines.append(f"  {where} the attack is {verdict.chance}.")
    elif worst.over_chance is not None:
        before = worst.clean_over_chance
        beside = "" if before is None else f" (clean: {_ascii(before)})"
        lines.append(f"  From chance to certainty that is {_ascii(worst.over_chance)}{beside}.")
    return lines


def _family_lines(audit: AuditRecord, verdict: Verdict) -> list[str]:
    lines = []
    if verdict.others:
        lines.append(f"{'Strongest attack of each other kind':<37}{'value':>8} {'':<15}{'chance':>9}{'clean':>9}")
    for each in verdict.others:
        attack = each.attack
        name = _fit(f"{FAMILY_WORDS[each.family][0]}, {attack.metric}", 35)
        lines.append(
            f"  {name}{_ascii(attack.value):>8} {_bounds(attack.low, attack.high):<15}"
            f"{_ascii(attack.chance):>9}{_ascii(attack.clean):>9}"
        )
        # The usual case is left unsaid, so that exceptions stand out.
        for note in [*([f"{each.words}."] if each.words != EXPECTED else []), *_besides(each)]:
            lines += _wrapped(note, "    ")
        if each.family == "held-out-terms" and len(pair := _lists(audit)) == 2:
            value, chance = (percent(share) for share in (pair[0][1].value, pair[0][1].chance))
            lines += _wrapped(f"listed words, same attack: {value} (chance {chance})", "    ")
    adaptive = sum(attack.adaptive for attack in audit.attacks)
    lines += _wrapped(
        f"{len(audit.attacks)} attacks, in {duration(audit.seconds)} with encoding; {adaptive} drew fresh "
        "releases to learn from (adaptive), the others had released pairs only. The report has what each cost."
    )
    if number := len(audit.skipped):
        lines.append(f"  {number} attack{'s' * (number != 1)} not run; the report says why.")
    return lines + (_wrapped(LARGER) if audit.tier == "quick" else [])


def _anonymity_lines(audit: AuditRecord) -> list[str]:
    if audit.anonymity is None:
        return []
    lines = [f"{'Criteria of anonymity (WP29 opinion 05/2014)':<45}{'value':>8} {'':<15}{'chance':>9}"]
    for each in audit.anonymity.criteria:
        name = each.criterion.replace("-", " ")
        for figure in each.figures:
            lines.append(
                f"  {_fit(f'{name}: {figure.metric}', 43)}{_ascii(figure.value):>8} "
                f"{_bounds(figure.low, figure.high):<15}{_ascii(figure.chance):>9}"
            )
            lines += _wrapped(f"({figure.attack}, n = {figure.n:,}) {status(figure)}", "    ")
        if each.missing is not None:
            lines += _wrapped(f"{name}: not measured. {each.missing}")
    return lines


def _utility_lines(audit: AuditRecord) -> list[str]:
    if not audit.utility:
        return [] if audit.is_store else ["Utility kept", "  not measured"]
    lines = ["Utility kept (100 % is as good as without protection)"]
    for each in audit.utility.values():
        side = "" if each.sides == "both" else ", documents only"
        lines.append(f"  {_fit(f'{each.label}{side}', 48)} {_ascii(each.relative):>8}")
    return lines


def _guarantee_lines(given: GuaranteeRecord | None) -> list[str]:
    return [] if given is None else ["What is guaranteed", *_wrapped(" ".join(guarantee_words(given)))]
