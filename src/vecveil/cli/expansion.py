"""The options of ``vecveil fit`` that expand the concept: where members come from that it does not list."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vecveil.cli.options import FILE, stacked

if TYPE_CHECKING:
    from vecveil.concepts import Concept
    from vecveil.concepts.expansion import Expansion, MemberSource

__all__ = ["check_expansion_options", "expansion_of", "expansion_options"]

SOURCES = ("expand", "expand_corpus", "expand_faker", "expand_entity")

expansion_options = stacked(
    click.option(
        "--expand",
        type=FILE,
        multiple=True,
        help="Word list of further members: text lines, or JSON or YAML with groups; may be repeated.",
    ),
    click.option(
        "--expand-corpus",
        type=FILE,
        help="Texts whose words near the concept's terms are further members.",
    ),
    click.option(
        "--expand-faker",
        metavar="PROVIDER",
        multiple=True,
        help="Members that Faker makes up, such as first_name or city; may be repeated.",
    ),
    click.option(
        "--expand-locale",
        metavar="LOCALE",
        multiple=True,
        help="Of --expand-faker, such as de_DE; may be repeated [default: en_US].",
    ),
    click.option(
        "--expand-entity",
        metavar="TYPE",
        multiple=True,
        help="Members that Presidio finds in the corpus, or in INPUT without one; may be repeated.",
    ),
    click.option(
        "--expand-members",
        type=click.IntRange(min=1),
        default=2000,
        show_default=True,
        help="Further members at most.",
    ),
    click.option(
        "--expand-substitutions",
        type=click.IntRange(min=0),
        help="Texts to make with members in them; 0 takes only those of INPUT that hold one "
        "[default: as many as hold the concept, from 2,000 to 20,000].",
    ),
)


def check_expansion_options(input: Path | None, given: dict[str, Any]) -> None:
    """Refuse sources of members without texts to put them into, and a locale without Faker."""
    named = [name for name in SOURCES if given[name]]
    if input is None and named:
        option = named[0].replace("_", "-")
        raise click.UsageError(f"--{option} needs INPUT with texts; vectors have none.")
    if given["expand_substitutions"] is not None and not named:
        raise click.UsageError(
            "--expand-substitutions belongs to a source of members, such as --expand."
        )
    if given["expand_locale"] and not given["expand_faker"]:
        raise click.UsageError("--expand-locale belongs to --expand-faker.")


def expansion_of(
    concept: Concept, texts: Sequence[str], encoder: Any, given: dict[str, Any]
) -> Expansion | None:
    """Return the expansion that the options ask for, or None."""
    sources = _sources(texts, given)
    if not sources:
        return None
    return concept.expand(
        texts,
        sources=sources,
        encoder=encoder,
        members=given["expand_members"],
        substitutions=given["expand_substitutions"],
        min_texts=given["min_texts"],
        seed=given["seed"],
    )


def _sources(texts: Sequence[str], given: dict[str, Any]) -> list[MemberSource]:
    from vecveil.concepts.expansion import (
        CorpusNeighbourSource,
        DetectorSource,
        FakerSource,
        WordListSource,
    )

    sources: list[MemberSource] = [WordListSource.from_file(path) for path in given["expand"]]
    corpus = texts
    if given["expand_corpus"] is not None:
        from vecveil.data import read_texts

        corpus = read_texts(given["expand_corpus"]).texts
    if given["expand_entity"]:
        from vecveil.concepts import PresidioDetector

        detector = PresidioDetector(given["expand_entity"], owner="--expand-entity")
        sources.append(DetectorSource(detector, corpus))
    if given["expand_faker"]:
        locales = given["expand_locale"] or ("en_US",)
        sources.append(FakerSource(given["expand_faker"], locales=locales))
    if given["expand_corpus"] is not None:  # last: what a list names better, the list names
        sources.append(CorpusNeighbourSource(corpus))
    return sources
