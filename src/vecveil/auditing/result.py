"""The result of an audit: its record, assembled from the attacks' results (docs/formats.md)."""

from __future__ import annotations

import datetime
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, cast

import numpy as np
from msgspec.structs import asdict
from scipy.special import expit, logit

from vecveil.auditing.attacks import AttackResult
from vecveil.auditing.case import VALIDATION_SHARE, Case
from vecveil.auditing.metrics.leakage import ANY, FOUND, MEAN, SHARE
from vecveil.auditing.records.audit_record import (
    FAMILIES,
    AnonymityCriterion,
    AnonymityFigure,
    AnonymityRecord,
    AttackRecord,
    AuditRecord,
    Family,
    FamilyRecord,
    FrameworkFinding,
    LeakageFigure,
    LearningPoint,
    LintWarning,
    ReconstructionRecord,
    SkippedAttack,
    SplitCounts,
    TermRecord,
    TextCounts,
    over_chance,
)
from vecveil.auditing.records.verdict import NBSP, against_chance, against_clean, controls, percent, strongest
from vecveil.errors import DataFileError
from vecveil.privacy.utility.estimates import NORMAL, Estimate
from vecveil.version import __version__

Results = Mapping[tuple[str, str], AttackResult]
"""Results by (side, name of the attack)."""

QUICK = "Reconstruction attacks are left out (tier full runs them)."
NOT_CONVERGED = "The network’s training had not converged: {fix}."
TRAIN_LONGER = {
    "quick": "tier full trains it longer and may find more",
    "full": "an attacker who trains longer may find more",
}
FITTED = (
    "An audit on the texts that the protector was fitted on understates what leaks from other texts: "
    "audit texts that the fit has not seen."
)
SINGLE = (
    "Every attack but averaging sees one release of each text; repeated releases let the noise average out "
    "unless they are keyed."
)
RATES = {"TPR at 1 % FPR": ("1 %", "100"), "TPR at 0.1 % FPR": ("0.1 %", "1,000")}
"""False-positive rates of the probes, and the number of texts without the concept needed to set them."""
RARE = (
    "The probes' share of true positives at {rates} false positives is not stated: setting the threshold takes "
    "{texts} texts without the concept among the fifth of the training texts that a probe sets aside."
)
ANONYMITY = (
    "The criteria of anonymity (opinion 05/2014 of the Article 29 Working Party) are measured by the attacks of this "
    "audit. Chance within an interval means that these attacks failed on these texts, not that the data are anonymous."
)
CRITERIA: tuple[tuple[Any, tuple[str, ...], tuple[str, ...]], ...] = (
    ("singling-out", ("decoys-",), (FOUND,)),
    ("linkability", ("linking",), ()),
    ("inference", ("token-inference", "averaging"), (ANY, MEAN, SHARE)),
)
"""Each criterion with the families of its attacks or prefixes of their names, and its metrics per subject."""
FURTHER = "Of {given:,} further texts of the attacker, token inference learnt from {used:,}: {why}."
UNLIKE = "it leaves out texts without an attacked word, and those that equal or resemble a test text"
NOT_RELEASED = "attackers of a store cannot protect texts as its owner does"
NOT_ENCODED = "there is no encoder"
RARE_WORDS = (
    "Words in too few texts are not attacked, and texts without an attacked word are not used; “Words attacked” "
    "states how much of the concept that leaves out."
)
SAMPLE = (
    "The attackers learnt from this sample alone: an attacker with more texts of the store, or with its protector, "
    "may find more."
)
BESIDE = (
    "Attacks whose name ends in -beside also saw the data stored with the vectors: lengths of sealed blobs and filter "
    "tokens, or, of queries, the rows that they fetched. Blobs are under AES-256-GCM-SIV: with the key, an attacker "
    "opens them. Which rows a query fetches is not hidden."
)
ONE_WORD = LintWarning(
    "one-word",
    "A single word of the concept is attacked: of one word, the best guess is always right, so the token-inference "
    "figures mean nothing. The concept probe gives the verdict.",
)
OF_SAMPLE = ("one-word", "long-texts", "attacker-texts")
"""Codes of warnings about the given texts; the others are about the storage of vectors."""
WRITTEN = (
    "Reconstruction attacks were trained from scratch on the texts at hand: published ones start from large "
    "pretrained models and write better."
)
FAMILY_NAMES = {
    "token-inference": "token inference",
    "probe": "concept probe",
    "candidates": "candidate matching",
    "averaging": "averaging of releases",
    "alignment": "alignment",
    "reconstruction": "reconstruction",
    "held-out-terms": "terms held out of the fit",
    "whole-vocabulary": "words on no list",
    "membership": "membership",
}


@dataclass(frozen=True, eq=False, repr=False)
class AuditResult:
    """The result of an audit: the typed record ``audit``, and the files drawn from it."""

    audit: AuditRecord

    @cached_property
    def record(self) -> Mapping[str, Any]:
        """The content of ``audit.json`` (docs/formats.md)."""
        return self.audit.to_record()

    @property
    def worst(self) -> Mapping[str, Any]:
        """The token-inference attack with the highest R-precision on protected vectors."""
        worst: Mapping[str, Any] = next(each for each in self.record["attacks"] if each["name"] == self.audit.worst)
        return worst

    def to_record(self) -> dict[str, Any]:
        """Return the record as a dictionary."""
        return dict(self.record)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``audit.json`` atomically."""
        self.audit.save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AuditResult:
        """Return the audit saved at ``path``; raise `DataFileError` for an unreadable file or a different schema."""
        try:
            return cls(AuditRecord.load(path))
        except DataFileError as error:
            raise DataFileError(str(error), param="path") from None

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the report as one self-contained HTML page."""
        _report().write_audit_html(self.audit, path)

    def to_markdown(self, path: str | os.PathLike[str]) -> None:
        """Write the report as Markdown."""
        _report().write_audit_markdown(self.audit, path)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write every figure of every attack as CSV, one row each."""
        _report().write_audit_csv(self.audit, path)

    def summary(self) -> str:
        """Return a short table for a terminal."""
        return str(_report().summary_table(self.audit))

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        worst = self.audit.worst_attack
        what = self.audit.method or self.audit.kind
        clean = "" if worst.clean is None else f", clean {worst.clean:.1%}"
        return (
            f"AuditResult({what!r}, worst {worst.name!r}: "
            f"{worst.value:.1%} of concept tokens{clean}, chance {worst.chance:.1%})"
        )


def _report() -> ModuleType:
    # Imported on use: reports draw records, and an audit needs none of them.
    from vecveil.auditing import report

    return report


def assemble(
    case: Case,
    results: Results,
    skipped: Sequence[SkippedAttack],
    curve: Sequence[LearningPoint],
    *,
    started: float,
    lint: Sequence[Mapping[str, str]] = (),
    **about: Any,
) -> AuditResult:
    """Return the result of an audit, with the strongest attack's ``curve`` and other fields of `AuditRecord`."""
    o, is_store = case.options, about["kind"] == "store"
    protected = [result for (side, _), result in results.items() if side == "protected"]
    # A stable sort: within a family attacks keep the order in which they were planned.
    protected.sort(key=lambda result: FAMILIES.index(result.family))
    attacks = [_attack(result, _clean_result(result, results)) for result in protected]
    leading = strongest(attacks)
    # Token inference cannot be skipped, so that every audit has a verdict.
    worst = leading["token-inference"].name
    warnings = [*(LintWarning(**each) for each in (*o.lint, *lint)), *([ONE_WORD] * (len(case.vocabulary) == 1))]
    # The curve counts training texts and further ones.
    learnt = curve[-1].texts - len(case.train) if curve else 0
    why = NOT_ENCODED if case.encode is None else NOT_RELEASED if is_store and not learnt else UNLIKE
    further = [FURTHER.format(given=len(o.attacker_texts), used=learnt, why=why)] * bool(o.attacker_texts)
    warnings += [LintWarning("attacker-texts", each) for each in further if not learnt]
    record = AuditRecord(
        vecveil=__version__,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        command=o.command,
        texts=_text_counts(case),
        split=_split_counts(case),
        attacks=tuple(attacks),
        worst=worst,
        learning_curve=tuple(curve),
        forecast=forecast(curve),
        families=tuple(FamilyRecord(attack.family, attack.name) for attack in leading.values()),
        anonymity=_anonymity(case, attacks, protected, skipped),
        terms=tuple(_terms(results["protected", worst], results.get(("clean", worst)), case)),
        skipped=tuple(skipped),
        lint=tuple(warnings),
        frameworks=tuple(framework_findings(attacks, is_store=is_store, lint=warnings)),
        reconstructions=tuple(_reconstructions(protected, results)) if o.show_reconstructions else (),
        limits=tuple(_limits(case, results, is_store, further if learnt else [])),
        seed=o.seed,
        tier=o.tier,
        seconds=time.perf_counter() - started,
        **about,
    )
    return AuditResult(AuditRecord.of(record))


def _attack(result: AttackResult, clean: AttackResult | None) -> AttackRecord:
    known = {} if clean is None else clean.estimates
    main, *also = (_figure(estimate, known.get(key)) for key, estimate in result.estimates.items())
    return AttackRecord(
        **asdict(main),
        name=result.name,
        family=cast(Family, result.family),
        n=result.main.n,
        adaptive=result.adaptive,
        seconds=result.seconds,
        description=result.description,
        cost=result.cost,
        also=tuple(also),
        over_chance=over_chance(main.value, main.chance),
        clean_over_chance=over_chance(main.clean, main.chance),
        converged=result.details.get("converged"),
    )


def _figure(estimate: Estimate, clean: Estimate | None) -> LeakageFigure:
    """Return the figures on protected and on clean vectors; one that is not finite is None."""
    measured = [estimate.value, estimate.low, estimate.high, estimate.chance]
    measured += [None] * 3 if clean is None else [clean.value, clean.low, clean.high]
    value, low, high, chance, *beside = (None if x is None or not math.isfinite(x) else float(x) for x in measured)
    clean_value, clean_low, clean_high = beside
    return LeakageFigure(
        metric=estimate.metric,
        value=value,
        low=low,
        high=high,
        chance=chance,
        clean=clean_value,
        clean_low=clean_low,
        clean_high=clean_high,
    )


def _clean_result(result: AttackResult, results: Results) -> AttackResult | None:
    """Return the result of the same attack on clean vectors, if it ran."""
    # Clean vectors have no noise to average: one result serves every number of releases.
    return results.get(("clean", result.name)) or (
        results.get(("clean", "averaging")) if result.family == "averaging" else None
    )


def _anonymity(
    case: Case, attacks: Sequence[AttackRecord], results: Sequence[AttackResult], skipped: Sequence[SkippedAttack]
) -> AnonymityRecord:
    """Return the attacks' figures by the criterion that they measure, the strongest of each kind."""
    sizes = {(result.name, each.metric): each.n for result in results for each in result.estimates.values()}
    criteria = []
    for criterion, members, by_subject in CRITERIA:
        tried = [attack for attack in attacks if attack.name.startswith(members) or attack.family in members]
        # Linking of groups has a row for each subject, all other main figures are of texts.
        of_groups = [attack for attack in tried if attack.name.endswith("-groups")]
        mains = [*strongest(each for each in tried if each not in of_groups).values()]
        mains += of_groups if case.options.by_subject else []
        measured: list[tuple[LeakageFigure, AttackRecord]] = [(each, each) for each in mains]
        for metric in by_subject:
            rivals = [(each, attack) for attack in tried for each in attack.also if each.metric == metric]
            measured += sorted(rivals, key=lambda pair: pair[0].position or 0.0)[-1:]
        figures = [
            _anonymity_figure(
                figure,
                attack,
                "text" if figure is attack and attack not in of_groups else "subject",
                sizes[attack.name, figure.metric],
            )
            for figure, attack in measured
            if figure.value is not None
        ]
        reasons = [each.reason for each in skipped if each.attack.startswith(members) or each.family in members]
        missing = None if figures else (reasons or ["No attack of this kind was run."])[0]
        criteria.append(AnonymityCriterion(criterion, tuple(figures), missing))
    subjects = case.subjects_of(np.concatenate([case.test, case.ordinary_test]))
    count = None if subjects is None else len(set(subjects[subjects >= 0].tolist()))
    return AnonymityRecord(count, tuple(criteria))


def _anonymity_figure(figure: LeakageFigure, attack: AttackRecord, unit: Any, n: int) -> AnonymityFigure:
    named = {name: getattr(figure, name) for name in LeakageFigure.__struct_fields__}
    return AnonymityFigure(**named, attack=attack.name, unit=unit, n=n)


def _text_counts(case: Case) -> TextCounts:
    report, words = case.matches.report(), case.matches.tokens()
    return TextCounts(
        total=len(case.texts),
        with_concept=report["with_concept"],
        without_concept=report["without_concept"],
        emptied=report["emptied"],
        words=len({word for held in words for word in held}),
        word_occurrences=sum(len(held) for held in words),
        vocabulary=len(case.vocabulary),
        token_instances=int(case.labels.sum()),
    )


def _split_counts(case: Case) -> SplitCounts:
    # Each attack sets aside its own validation texts, this share of the training texts.
    held_out = round(VALIDATION_SHARE * len(case.train))
    unit = "group of equal texts" if case.options.groups is None else "group of texts with one id"
    return SplitCounts(
        unit="subject" if case.options.by_subject else unit,
        groups=len(set(case.groups[[*case.train, *case.test]].tolist())),
        train=len(case.train) - held_out,
        validation=held_out,
        test=len(case.test),
    )


def _terms(worst: AttackResult, clean: AttackResult | None, case: Case) -> list[TermRecord]:
    if worst.terms is None:
        return []
    before: dict[int, float] = {}
    if clean is not None and clean.terms is not None:
        before = {term["token"]: term["value"] for term in clean.terms.to_records()}
    # The concept's words may be secret themselves: the record names them only with the user's consent.
    tokens = case.vocabulary.tokens if case.options.show_terms else None
    return [
        TermRecord(
            term=None if tokens is None else tokens[term["token"]],
            count=term["count"],
            clean=before.get(term["token"]),
            value=term["value"],
            chance=term["chance"],
        )
        for term in worst.terms.to_records()
    ]


def _reconstructions(protected: Sequence[AttackResult], results: Results) -> list[ReconstructionRecord]:
    texts = []
    for result in protected:
        other = results.get(("clean", result.name))
        clean = dict(other.examples) if other is not None else {}
        texts += [
            ReconstructionRecord(result.name, text, clean.get(text), written) for text, written in result.examples
        ]
    return texts


def _limits(case: Case, results: Results, is_store: bool, further: Sequence[str]) -> list[str]:
    """Return the limits of the audit, as sentences."""
    families = {result.family for result in results.values()}
    stopped_early = any(side == "protected" and r.details.get("converged") is False for (side, _), r in results.items())
    return [
        *([QUICK] if case.options.tier == "quick" else []),
        *([NOT_CONVERGED.format(fix=TRAIN_LONGER[case.options.tier])] if stopped_early else []),
        *([WRITTEN] if "reconstruction" in families else []),
        *_unstated_rates(results),
        *([SAMPLE] if is_store else [FITTED, SINGLE]),
        *further,
        *([BESIDE] if any(name.endswith("-beside") for _, name in results) else []),
        RARE_WORDS,
        ANONYMITY,
    ]


def _unstated_rates(results: Results) -> list[str]:
    """Return the reason for missing probe figures at low false-positive rates."""
    probes = [result for result in results.values() if result.family == "probe"]
    stated = {estimate.metric for result in probes for estimate in result.estimates.values()}
    missing = [words for metric, words in RATES.items() if metric not in stated]
    if not probes or not missing:
        return []
    rates, texts = (" and ".join(each) for each in zip(*missing, strict=True))
    return [RARE.format(rates=rates, texts=texts)]


def framework_findings(
    attacks: Sequence[AttackRecord], *, is_store: bool, lint: Sequence[LintWarning]
) -> list[FrameworkFinding]:
    """Return a finding for each item of the published frameworks: relevant and missing figures, without a decision."""
    # An attack without a figure (one class absent) must not represent a measured family.
    leading = strongest(attack for attack in attacks if attack.value is not None)
    vectors = "stored vectors" if is_store else "protected vectors"
    findings = []
    codes = ", ".join(warning.code for warning in lint if warning.code not in OF_SAMPLE)
    for item in controls():
        tested = [leading[family] for family in item["families"] if family in leading]
        missing = ", ".join(FAMILY_NAMES[f] for f in item["families"] if f not in leading)
        sentences = []
        if tested:
            figures = "; ".join(f"{FAMILY_NAMES[each.family]} {_compared(each)}" for each in tested)
            lead = f"{item['bearing']}, from {vectors} (95{NBSP}% intervals)"
            sentences.append(f"{lead}: {figures}.")
            if missing:
                sentences.append(f"Not tested: {missing}.")
        else:
            sentences.append(f"Not tested: no attack of the kind was run ({missing}).")
        if item["lint"] and codes:
            sentences.append(f"Warnings about how the store is kept: {codes}.")
        names = [attack.name for attack in tested]
        head = (item["framework"], item["item"], item["title"])
        findings.append(FrameworkFinding(*head, " ".join(sentences), tuple(names)))
    return findings


def _compared(attack: AttackRecord) -> str:
    """Return the main figure with interval, chance and clean value, and its position to them."""
    known = attack.low is not None and attack.high is not None
    shown = [f"{percent(attack.low)} to {percent(attack.high)}" if known else "no interval"]
    shown.append("chance not stated" if attack.chance is None else f"chance {percent(attack.chance)}")
    if attack.clean is not None:
        shown.append(f"clean {percent(attack.clean)}")
    places = [against_chance(attack) or "not comparable with chance"]
    if place := against_clean(attack):
        # Only the words before the colon: "not clearly below clean: the intervals overlap".
        places.append(place.partition(":")[0])
    return f"{percent(attack.value)} {attack.metric} ({', '.join(shown)}): {', '.join(places)}"


AHEAD = 10.0
_EDGE = 2e-3  # R-precision this close to 0 or 1 has no useful logit
_STEADY = 0.5  # least error of a point relative to the error of the test texts, which all points share


def forecast(curve: Sequence[LearningPoint], ahead: float = AHEAD) -> LearningPoint | None:
    """Return the curve's figure for ``ahead`` times as many texts, with a 95 % interval; None under three points.

    A line is fitted to the logit of R-precision against the logarithm of the number of texts. The upper end of the
    interval continues the line, for texts like the audited ones; the lower end is what the attack recovers already. The
    figure lets every doubling teach half as much as the one before, as sentences of other sources did
    (benchmarks/results/gpu.json). Both ends include the error of the test texts, which all points share; the upper end
    also the error of the line.
    """
    texts = np.array([point.texts for point in curve], dtype=float)
    if len(np.unique(texts)) < 3:
        return None
    values = np.clip([point.value for point in curve], _EDGE, 1 - _EDGE)
    widths = np.array([point.high - point.low for point in curve])
    shared = float(np.mean(widths / (2 * NORMAL * values * (1 - values))))
    x, y = np.log2(texts), logit(values)
    slope, level = np.polyfit(x - x.mean(), y, 1)
    # More texts never teach less: a falling line is noise.
    slope, beyond = max(slope, 0.0), x[-1] + np.log2(ahead) - x.mean()
    rest = y - level - slope * (x - x.mean())
    error = max(float(np.sqrt((rest**2).sum() / (len(x) - 2))), _STEADY * shared)
    spread = NORMAL * np.sqrt(shared**2 + error**2 * (1 / len(x) + beyond**2 / ((x - x.mean()) ** 2).sum()))
    # Half as much with every doubling: 1/2 + 1/4 + ... for log2(ahead) doublings.
    middle = y[-1] + slope * (1 - 1 / ahead)
    ends = (middle, y[-1] - NORMAL * shared, max(middle + NORMAL * shared, level + slope * beyond + spread))
    return LearningPoint(round(ahead * texts[-1]), *(float(expit(each)) for each in ends))
