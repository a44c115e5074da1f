"""What the records of `case-study` say: texts side by side, and how much of the meaning is kept on average."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from research.catalogue.attack_findings import ATTACK_NAMES, above_chance, epsilon_of
from research.catalogue.claims import beside, findings_of
from research.catalogue.point_tables import METHOD_NAMES
from research.catalogue.tradeoff import AXES
from research.decoders import DecoderSpec
from research.experiment import Records
from research.published import published
from research.summary import Cell, Column, Finding, Number, Summary, Table
from research.summary import number as mean_of

__all__ = ["case_summary"]

PUBLISHED = "sparse-table-12"
ONE_TEXT = (
    "The paper's figures are of one sentence each (age at ε = 5, a disease at ε = 10, clinical notes, Vec2Text on "
    "GTR-base); ours are means over all judged texts, of other data, another encoder and another attack."
)


def case_summary(
    attack: str, judge: str, decoders: Mapping[str, DecoderSpec], records: Records
) -> Summary:
    """Return tables and findings."""
    names = records.values("problem")
    rows = _rows(records)
    encoder = (
        "an LSA encoder fitted on the problem's texts" if judge == "lsa" else f"the encoder {judge}"
    )
    spec = decoders.get(attack, DecoderSpec())
    given = " that was given" if spec.start_from else ""
    notes = [
        AXES,
        ONE_TEXT,
        f"Semantic cosine: of original and reconstruction under {encoder}. Attack: {ATTACK_NAMES[attack]}, preset "
        f"{spec.preset}, from a base{given} of `{spec.corpus}`, trained on for each defence.",
    ]
    if any("original" in text for r in records for text in r["found"]["shown"]):
        notes.append(
            "Texts are shown because the specification says so; show_texts: false leaves them out."
        )
    return Summary(
        tables=[t for name in names for t in (*_sides(records, name), _means(records, name))],
        findings=[
            *findings_of("case-study", rows, ("dataset", "epsilon", "method"), difference=ONE_TEXT),
            *_hidden(records),
        ],
        notes=notes,
    )


def _sides(records: Records, problem: str) -> list[Table]:
    """Return a table for each text of the first seed: a row for each defence."""
    own = records.where(problem=problem)
    if not len(own):
        return []
    first = own.where(seed=own[0]["cell"]["seed"])
    columns = [
        Column("Scale", text=True), Column("Method", text=True), Column("Reconstruction", text=True),
        Column("Sensitive words that survive", text=True), Column("Semantic cosine"),
    ]  # fmt: skip
    found = []
    for i, text in enumerate(first[0]["found"]["shown"]):
        rows: list[Sequence[Cell]] = []
        for (scale, method), at in _ordered(first):
            shown = at[0]["found"]["shown"][i]
            kept = f"{shown['survive']} of {shown['words']}"
            if shown.get("surviving"):
                kept += f": {', '.join(shown['surviving'])}"
            rows.append([
                scale, METHOD_NAMES.get(method, method), shown.get("reconstruction"), kept,
                Number(shown["semantic"], digits=2, percent=False),
            ])  # fmt: skip
        where = "given by the user" if text["given"] else "drawn by the seed"
        learnt = "; the attack may have learnt it or a near copy" if text["learnt"] else ""
        original = f" {text['original']}" if "original" in text else ""
        words = f" Sensitive: {', '.join(text['sensitive'])}." if text.get("sensitive") else ""
        caption = f"Original ({where}{learnt}):{original or ' not shown.'}{words}"
        found.append(Table(f"{problem}: text {i + 1}", columns, rows, caption))
    return found


def _ordered(own: Records) -> list[tuple[tuple[str, str], Records]]:
    scales = own.values("scale")
    return sorted(own.each("scale", "method"), key=lambda row: scales.index(row[0][0]))


def _means(records: Records, problem: str) -> Table:
    own = records.where(problem=problem)
    columns = [
        Column("Scale", text=True), Column("Method", text=True), Column("Semantic cosine, mean"), Column("Chance"),
        Column("Leakage (Eq. 13)", "%"), Column("Chance of leakage", "%"), Column("Utility kept", "%"),
    ]  # fmt: skip
    rows: list[Sequence[Cell]] = []
    for (scale, method), at in _ordered(own):
        epsilon = epsilon_of(scale)
        theirs = (
            None
            if epsilon is None
            else beside([PUBLISHED], "semantic", epsilon=epsilon, method=method)
        )
        rows.append([
            scale, METHOD_NAMES.get(method, method),
            mean_of(
                at.figures("semantic", "value"), low=at.figures("semantic", "low"),
                high=at.figures("semantic", "high"), digits=2, percent=False, published=theirs,
            ),
            mean_of(at.figures("semantic", "chance"), digits=2, percent=False),
            mean_of(
                at.figures("leakage", "value"), low=at.figures("leakage", "low"),
                high=at.figures("leakage", "high"),
            ),
            mean_of(at.figures("leakage", "chance")),
            mean_of(at.figures("utility", "relative")),
        ])  # fmt: skip
    judged = sorted({int(n) for n in own.figures("texts", "judged")})
    caption = f"Means over {' or '.join(map(str, judged))} judged texts; published is the paper's one text."
    return Table(f"{problem}: all judged texts", columns, rows, caption)


def _rows(records: Records) -> list[dict[str, Any]]:
    """Return our means with the paper's keys and units; a scale at which all are at chance is left out."""
    found = []
    for (problem, scale, method), at in records.each("problem", "scale", "method"):
        epsilon, semantic = epsilon_of(scale), mean_of(at.figures("semantic", "value"))
        same = records.where(problem=problem, scale=scale).each("method")
        told = any(above_chance(rows, "semantic") for _, rows in same)
        if told and epsilon is not None and semantic is not None:
            found.append(
                {
                    "dataset": problem,
                    "epsilon": epsilon,
                    "method": method,
                    "semantic": semantic.value,
                }
            )
    return found


def _hidden(records: Records) -> list[Finding]:
    """Return in how many of the shown texts SPARSE hides every sensitive word, as it does in the paper's two."""
    texts = [
        text
        for r in records.where(method="sparse")
        if epsilon_of(r["cell"]["scale"]) is not None
        for text in r["found"]["shown"]
        if text["words"] and not text["learnt"]
    ]
    if not texts:
        return []
    hidden = sum(text["survive"] == 0 for text in texts)
    table = published(PUBLISHED)
    theirs = [row["hidden"] for row in table.rows if row["method"] == "sparse"]
    share = hidden / len(texts)
    return [
        Finding(
            "Reconstructions from SPARSE's vectors lack the sensitive words.", table.source,
            "agrees" if share >= 0.8 else "disagrees" if share <= 0.5 else "unclear",
            f"no sensitive word survives in {hidden} of {len(texts)} reconstructions",
            f"in {sum(theirs)} of {len(theirs)}", ONE_TEXT,
        )
    ]  # fmt: skip
