"""Write the demo's corpus of synthetic notes, ``src/vecveil/cli/demo/notes.jsonl.gz``. Needs Faker and PyYAML.

    python benchmarks/demo_notes.py notes.jsonl.gz [--count N] [--seed N]

A note is a shape (a list of sentence slots) drawn from its domain's grammar in ``demo_grammar/``. Within one note an
entity keeps its value, and the drug is one that is given for the condition, so that the words around a term say
something about it, as in real notes. Names come from Faker, e-mail addresses have example domains, and telephone
numbers are from ranges kept for fiction.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import io
import json
import random
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from vecveil.cli.demo.corpus import Note, NoteSpan
from vecveil.io import write_bytes

GRAMMAR = Path(__file__).with_name("demo_grammar")
DOMAINS = ("clinic", "support", "finance")
CONCEPT_SHARE = {"clinic": 0.80, "support": 0.58, "finance": 0.58}
"""Share of a domain's notes that name a condition or a drug."""
LOCALES = ("en_US", "en_GB", "en_IN", "es_ES", "fr_FR", "de_DE", "it_IT", "pl_PL")
PLACE_LOCALES = tuple(locale for locale in LOCALES if locale != "it_IT")
"""Faker's Italian towns depend on the hash seed of the process."""
SHORTEST, LONGEST = 12, 42
"""Bounds on the words of a note; a draft outside is written again."""
RETRIES = 200
"""Drafts of one note; the first half must differ from earlier notes in more than values."""

_SLOT = re.compile(r"\{(\w+)(\??)\}")
_SENTENCE_START = re.compile(r"(^|[.?!] )$")


def save_notes(notes: Iterable[Note], path: Path) -> None:
    """Write ``notes`` to ``path`` as gzipped JSON lines; the same notes give the same bytes."""
    lines = "".join(json.dumps(n.to_record(), ensure_ascii=False) + "\n" for n in notes)
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0, compresslevel=9) as file:
        file.write(lines.encode("utf-8"))
    write_bytes(path, buffer.getvalue())


def generate_notes(count: int = 3000, seed: int = 0) -> list[Note]:
    """Return ``count`` synthetic notes, a third from each domain, in random order.

    The same seed gives the same notes with the same version of Faker.
    """
    rng = random.Random(seed)
    people = _People(rng, seed)
    fields = _read_grammar("vocabulary")
    grammars = {domain: _read_grammar(domain) for domain in DOMAINS}
    notes: list[Note] = []
    seen: set[str] = set()
    numbers = dict.fromkeys(DOMAINS, 0)
    order = [DOMAINS[i % len(DOMAINS)] for i in range(count)]
    rng.shuffle(order)
    for domain in order:
        with_concept = rng.random() < CONCEPT_SHARE[domain]
        for attempt in range(RETRIES):
            draft = _Draft(rng, people, fields, grammars[domain], domain)
            text, spans = draft.write(with_concept)
            pattern = _without_values(text, spans)
            fits = SHORTEST <= len(text.split()) <= LONGEST
            if fits and (pattern not in seen or attempt >= RETRIES // 2):
                break
        seen.add(pattern)
        numbers[domain] += 1
        notes.append(Note(f"{domain}-{numbers[domain]:04d}", domain, text, spans))
    return notes


def _without_values(text: str, spans: Sequence[NoteSpan]) -> str:
    """Return ``text`` with its spans replaced by their labels: what notes of one pattern share."""
    for span in reversed(spans):
        text = f"{text[: span.start]}{span.label}{text[span.end :]}"
    return text


def _read_grammar(name: str) -> dict[str, Any]:
    grammar: dict[str, Any] = yaml.safe_load((GRAMMAR / f"{name}.yaml").read_text(encoding="utf-8"))
    return grammar


class _People:
    """Names, places and numbers that belong to nobody: Faker, example domains, reserved numbers."""

    def __init__(self, rng: random.Random, seed: int) -> None:
        self.rng = rng
        from faker import Faker  # its import takes a second

        self._faker = Faker(list(LOCALES))
        self._faker.seed_instance(seed)
        self.staff = [f"Dr {self._pick().last_name()}" for _ in range(60)]
        self.colleagues = [self.name() for _ in range(60)]

    def _pick(self) -> Any:
        return self._faker[self.rng.choice(LOCALES)]

    def name(self) -> str:
        faker, style = self._pick(), self.rng.random()
        first, last = str(faker.first_name()), str(faker.last_name())
        if style < 0.6:
            return f"{first} {last}"
        return f"{self.rng.choice(['Mr', 'Ms', 'Mrs'])} {last}" if style < 0.85 else first

    def place(self) -> str:
        return str(self._faker[self.rng.choice(PLACE_LOCALES)].city())

    def organisation(self) -> str:
        return str(self._pick().company())

    def email(self) -> str:
        faker = self._pick()
        name = f"{faker.first_name()}.{faker.last_name()}".lower().replace(" ", "")
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
        return f"{plain}@example.{self.rng.choice(['com', 'org', 'net'])}"

    def phone(self) -> str:
        if self.rng.random() < 0.5:  # ranges that the regulators keep free for fiction
            return f"{self.rng.randint(201, 989)}-555-01{self.rng.randint(0, 99):02d}"
        return f"020 7946 0{self.rng.randint(0, 999):03d}"

    def date(self) -> str:
        faker, style = self._faker["en_GB"], self.rng.random()
        day = faker.date_between_dates(datetime.date(2022, 1, 1), datetime.date(2025, 12, 31))
        if style < 0.5:
            return f"{day.day} {day:%B}"
        if style < 0.7:
            return f"{day.day} {day:%B} {day.year}"
        return f"{day:%B} {day.day}" if style < 0.85 else f"{day:%A}"

    def amount(self, decades: float) -> str:
        value = round(10 ** self.rng.uniform(1.0, 1.0 + decades), 2)
        figure = f"{value:,.2f}" if self.rng.random() < 0.4 else f"{value:,.0f}"
        return f"{self.rng.choice(['$', '€', '£'])}{figure}"

    def account(self) -> str:
        digits = f"{self.rng.randint(0, 999_999):06d}"
        return self.rng.choice([f"AC-{digits}", f"#{digits}", f"P-{digits[:5]}-K", f"{digits}-01"])


class _Draft:
    """One note in the making: the entities it has fixed, its text so far and the spans in it."""

    def __init__(
        self, rng: random.Random, people: _People, fields: dict[str, Any], grammar: dict[str, Any], domain: str
    ) -> None:
        self.rng = rng
        self.grammar = grammar
        self.text = ""
        self.spans: list[NoteSpan] = []
        self.used: dict[str, list[str]] = {}
        field, condition = self._choose_condition(fields)
        self.signs = field["signs"]
        drug, other = self._choose_drugs(field, condition)
        elsewhere = self.rng.choice(list(fields.values()))["conditions"]
        second = self.rng.choice([c for c in elsewhere if c != condition])
        self.values = {"CONDITION": condition, "CONDITION2": second, "DRUG": drug, "DRUG2": other}
        self.makers: dict[str, Callable[[], str]] = {
            "PERSON": people.name,
            "PERSON2": lambda: rng.choice(people.staff if domain == "clinic" else people.colleagues),
            "LOCATION": people.place,
            "ORGANISATION": people.organisation,
            "DATE": people.date,
            "AMOUNT": lambda: people.amount(3.4 if domain == "finance" else 1.6),
            "ACCOUNT": people.account,
            "PHONE": people.phone,
            "EMAIL": people.email,
        }

    def _choose_condition(self, fields: dict[str, Any]) -> tuple[dict[str, Any], str]:
        choices = [
            (field, condition, (1 + 0.4 * len(drugs)) / (1 + 0.1 * position))
            for field in fields.values()
            for position, (condition, drugs) in enumerate(field["conditions"].items())
        ]
        field, condition, _ = self.rng.choices(choices, weights=[c[2] for c in choices])[0]
        return field, condition

    def _choose_drugs(self, field: dict[str, Any], condition: str) -> tuple[str, str]:
        given: list[str] = field["conditions"][condition]
        all_drugs = sorted({d for drugs in field["conditions"].values() for d in drugs})
        own = given or all_drugs
        drug = self.rng.choices(own, weights=[1 / (1 + 0.5 * i) for i in range(len(own))])[0]
        others = [d for d in given if d != drug] or [d for d in all_drugs if d != drug]
        return drug, self.rng.choice(others)

    def write(self, with_concept: bool) -> tuple[str, tuple[NoteSpan, ...]]:
        """Return the text of a note and its gold spans."""
        for slot in self.rng.choice(self.grammar["concept" if with_concept else "plain"]):
            if slot.endswith("?") and self.rng.random() < 0.5:
                continue
            if self.text:
                self._add(" ")
            self._expand(self._fill(slot.rstrip("?")))
        return self.text, tuple(self.spans)

    def _expand(self, template: str) -> None:
        at = 0
        for match in _SLOT.finditer(template):
            self._add(template[at : match.start()])
            at = match.end()
            name, optional = match.groups()
            if optional and self.rng.random() < 0.5:
                continue
            if name.isupper():
                self._add_entity(name)
            else:
                self._expand(self._fill(name))
        self._add(template[at:])

    def _fill(self, slot: str) -> str:
        """Return a filling of ``slot`` that this note has not used yet."""
        fillings = self.signs if slot in ("sign", "sign2") else self.grammar[slot]
        used = self.used.setdefault(slot.rstrip("2"), [])
        filling = str(self.rng.choice([f for f in fillings if f not in used] or fillings))
        used.append(filling)
        return filling

    def _add_entity(self, name: str) -> None:
        maker = self.makers.get(name) or self.makers.get(name.rstrip("2"))
        label = name.rstrip("2")
        if name not in self.values and maker is not None:
            self.values[name] = maker()
        start = len(self.text)
        self._add(self.values[name])
        self.spans.append(NoteSpan(start, len(self.text), label, self.text[start:]))

    def _add(self, piece: str) -> None:
        if _SENTENCE_START.search(self.text):
            piece = piece[:1].upper() + piece[1:]
        self.text += piece


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the corpus to a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="file to write, such as notes.jsonl.gz")
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    notes = generate_notes(options.count, options.seed)
    save_notes(notes, options.out)
    sys.stderr.write(f"{len(notes)} synthetic notes, {options.out.stat().st_size:,} bytes\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
