"""The audit record, read strictly: every key is checked before a report shows anything of it.

An error names the key (``attacks[2].clean_low``) and the kind of value found, never a text.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vecveil.errors import DataFileError, InvalidInputError, VecveilError
from vecveil.report.reading import Node, Said
from vecveil.report.record_parts import (
    FAMILIES,
    Attack,
    Figure,
    Framework,
    Guarantee,
    Lint,
    Reconstruction,
    Skipped,
    Term,
    Utility,
    read_attack,
    read_family,
    read_framework,
    read_guarantee,
    read_reconstruction,
    read_term,
    read_utility,
)

__all__ = [
    "FAMILIES",
    "SCHEMA",
    "Attack",
    "Audit",
    "Figure",
    "Framework",
    "Guarantee",
    "Lint",
    "Reconstruction",
    "Skipped",
    "Term",
    "Utility",
    "parse",
    "read",
    "source",
]

SCHEMA = "vecveil.audit/2"
KINDS = ("protector", "store")
_TEXTS = (
    "total",
    "with_concept",
    "without_concept",
    "words",
    "word_occurrences",
    "vocabulary",
    "token_instances",
)
_NEEDED = ("value", "low", "high", "chance")
_CLEAN = ("clean", "clean_low", "clean_high")


@dataclass(frozen=True, slots=True)
class Audit:
    """A checked audit record. ``method`` and ``guarantee`` are None for a store."""

    vecveil: str
    created: str
    command: str | None
    kind: str
    concept: str
    method: str | None
    parameters: Mapping[str, Any]
    encoder: Mapping[str, Any] | None
    randomness: str | None
    texts: Mapping[str, int]
    split: Mapping[str, Any]
    guarantee: Guarantee | None
    utility: tuple[Utility, ...]
    attacks: tuple[Attack, ...]
    worst: Attack
    families: Mapping[str, Attack]
    terms: tuple[Term, ...]
    lint: tuple[Lint, ...]
    frameworks: tuple[Framework, ...]
    reconstructions: tuple[Reconstruction, ...]
    skipped: tuple[Skipped, ...]
    limits: tuple[str, ...]
    seed: int
    tier: str
    seconds: float

    @property
    def is_store(self) -> bool:
        """Whether vectors were audited that no protector is known of."""
        return self.kind == "store"

    @property
    def has_clean(self) -> bool:
        """Whether any figure was measured on clean vectors too."""
        return any(f.clean is not None for attack in self.attacks for f in attack.figures)

    def members(self, family: str) -> tuple[Attack, ...]:
        """Return the attacks of a family, its strongest first, then by their main figure."""
        of_family = [attack for attack in self.attacks if attack.family == family]
        worst = self.families.get(family)
        of_family.sort(key=lambda a: (a is not worst, -a.strength))
        return tuple(of_family)


def _exceeds(one: Figure, other: Figure) -> bool:
    return one.value is not None and other.value is not None and one.value > other.value + 1e-12


def _worst(root: Node, attacks: tuple[Attack, ...]) -> Attack:
    """Return the attack that ``worst`` names, having checked that no other one did better."""
    name = root.text("worst")
    named = [a for a in attacks if a.name == name and a.family == "token-inference"]
    if len(named) != 1:
        raise root.fail(
            "worst", "the name of one token-inference attack", Said(f"{len(named)} such attacks")
        )
    worst = named[0]
    any_clean = any(getattr(worst.figure, key) is not None for key in _CLEAN)
    for missing in (*_NEEDED, *(_CLEAN if any_clean else ())):
        if getattr(worst.figure, missing) is None:
            key = f"attacks[{attacks.index(worst)}].{missing}"
            raise root.fail(key, "a number for the attack that `worst` names", None)
    for other in attacks:
        figures = other.figures if other.family == "token-inference" else ()
        for figure in figures:
            if figure.metric == worst.figure.metric and _exceeds(figure, worst.figure):
                raise root.fail(
                    "worst",
                    "the token-inference attack with the highest value",
                    Said("an attack that another one exceeds"),
                )
    return worst


def _families(root: Node, attacks: tuple[Attack, ...], worst: Attack) -> dict[str, Attack]:
    """Return the strongest attack of each family, having checked that none exceeds it."""
    found = {"token-inference": worst}
    for i, node in enumerate(nodes := root.children("families")):
        family, name = read_family(node), node.text("worst")
        if family in [read_family(earlier) for earlier in nodes[:i]]:
            raise node.fail("family", "another one than those before", Said("one of them again"))
        named = [a for a in attacks if a.name == name and a.family == family]
        if not named:
            raise node.fail("worst", "the name of an attack of the family", Said("another name"))
        rivals = [a for a in attacks if a.family == family]
        if any(a.strength > named[0].strength + 1e-12 for a in rivals):
            constraint = "the attack of its family that comes farthest from chance to certainty"
            raise node.fail("worst", constraint, Said("an attack that another one exceeds"))
        if family == "token-inference" and named[0] is not worst:
            raise node.fail("worst", "the attack that `worst` names", Said("another one"))
        found[family] = named[0]
    for attack in attacks:
        if attack.family not in found:
            constraint = "a list with one entry for every family that was tried"
            raise root.fail("families", constraint, Said(f"a list without {attack.family}"))
    return {family: found[family] for family in FAMILIES if family in found}


def _kind(root: Node) -> str:
    kind = root.text("kind")
    if kind not in KINDS:
        raise root.fail("kind", "'protector' or 'store'", Said("another value"))
    if kind == "store":
        for key in ("method", "guarantee", "concept_distance"):
            if root.get(key) is not None:
                raise root.fail(key, "null in the audit of a store", root.get(key))
    return kind


def _check_schema(root: Node) -> None:
    schema = root.text("schema")
    if schema == SCHEMA:
        return
    known = schema if re.fullmatch(r"vecveil\.[a-z]{1,20}/\d{1,4}", schema) else "another schema"
    fix = (
        "Audit again with this version of vecveil."
        if schema == "vecveil.audit/1"
        else "Use the version of vecveil that wrote the record."
    )
    raise root.fail("schema", SCHEMA, Said(known), fix)


def _encoder(root: Node) -> dict[str, str | None] | None:
    if root.get("encoder") is None:
        return None
    node = root.child("encoder")
    return {key: node.maybe(key, node.text) for key in ("name", "fingerprint", "precision")}


def _attacks(root: Node) -> tuple[Attack, ...]:
    attacks = tuple(read_attack(node) for node in root.children("attacks"))
    names = [attack.name for attack in attacks]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise root.fail(f"attacks[{i}].name", "unique", Said("the name of an earlier attack"))
    return attacks


def parse(
    record: Any, *, owner: str = "render_audit", error: type[VecveilError] = InvalidInputError
) -> Audit:
    """Return the checked record; raises ``error`` with the key of the first thing that is wrong."""
    root = Node(record, "", owner, error)
    _check_schema(root)
    store = (kind := _kind(root)) == "store"
    texts, split, utility = root.child("texts"), root.child("split"), root.child("utility")
    attacks = _attacks(root)
    names = {attack.name for attack in attacks}
    worst = _worst(root, attacks)
    return Audit(
        vecveil=root.text("vecveil"),
        created=root.text("created"),
        command=root.maybe("command", root.text),
        kind=kind,
        concept=root.text("concept"),
        method=None if store else root.text("method"),
        parameters=root.child("parameters").data,
        encoder=_encoder(root),
        randomness=root.maybe("randomness", root.text) if store else root.text("randomness"),
        texts={
            key: texts.count(key) for key in (*_TEXTS, "emptied") if key in (*_TEXTS, *texts.data)
        },
        split={
            "unit": split.text("unit"),
            **{key: split.count(key) for key in ("groups", "train", "validation", "test")},
        },
        guarantee=None if store else read_guarantee(root.child("guarantee")),
        utility=tuple(read_utility(str(key), utility.child(key)) for key in utility.data),
        attacks=attacks,
        worst=worst,
        families=_families(root, attacks, worst),
        terms=tuple(read_term(node) for node in root.children("terms")),
        lint=tuple(Lint(n.text("code"), n.text("message")) for n in root.children("lint")),
        frameworks=tuple(read_framework(node, names) for node in root.children("frameworks")),
        reconstructions=tuple(
            read_reconstruction(node, names) for node in root.children("reconstructions")
        ),
        skipped=tuple(
            Skipped(node.text("attack"), read_family(node), node.text("reason"))
            for node in root.children("skipped")
        ),
        limits=root.texts("limits"),
        seed=int(root.number("seed")),
        tier=root.text("tier"),
        seconds=root.number("seconds", low=0),
    )


def read(path: str | os.PathLike[str], *, owner: str = "write_audit_html") -> Audit:
    """Return the checked record in the file ``path``.

    Raises:
        DataFileError: the file cannot be read, is not UTF-8 JSON, or a key is missing or wrong.
    """
    fix = "Pass the audit.json that vecveil wrote."
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        why = problem.strerror or type(problem).__name__
        raise DataFileError.of(owner, "record", "a readable file", why, fix=fix) from None
    except (ValueError, RecursionError):
        raise DataFileError.of(
            owner, "record", "a UTF-8 JSON file", "a file that is not", fix=fix
        ) from None
    return parse(record, owner=owner, error=DataFileError)


def source(record_or_path: Mapping[str, Any] | str | os.PathLike[str], *, owner: str) -> Audit:
    """Return the checked record, given as it is or as the path of its file."""
    if isinstance(record_or_path, str | os.PathLike):
        return read(record_or_path, owner=owner)
    return parse(record_or_path, owner=owner)
