"""Where members come from: files, Faker, a corpus in the encoder's space, a detector."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from harness.errors import raises
from vecveil.concepts import Span
from vecveil.concepts.expansion import (
    CorpusNeighbourSource,
    DetectorSource,
    ExpansionContext,
    FakerSource,
    MemberSource,
    WordListSource,
    is_plural,
    substituted,
    written_like,
)
from vecveil.concepts.member_sources import centroids_of, cluster_terms, nearest
from vecveil.errors import DataFileError

PLANE = {
    "friday": 0,
    "monday": 5,
    "sunday": 8,
    "paris": 90,
    "rome": 95,
    "oslo": 99,
    "rain": 180,
    "today": 30,
}


class Plane:
    """An encoder of words as directions in a plane, by angle."""

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        angles = np.deg2rad([PLANE.get(text.lower(), 270) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1) * 3


def context(encoder: Any = None, seed: int = 0) -> ExpansionContext:
    listed, groups = ("friday", "monday", "paris", "rome"), np.array([0, 0, 1, 1])
    centroids = None
    if encoder is not None:
        vectors = encoder.encode(listed) / 3
        centroids = centroids_of(vectors, groups)
    return ExpansionContext(listed, ("term",) * 4, groups, centroids, encoder, seed=seed)


# Files -------------------------------------------------------------------------------------------


def test_text_lines_are_one_group_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "towns.txt"
    path.write_text("# from a gazetteer\nOslo\n\n  New York \n", encoding="utf-8")
    assert WordListSource.from_file(path).members(context()) == {"": ["Oslo", "New York"]}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("g.json", '{"town": ["Oslo"], "number": ["nine", "ten"]}'),
        ("g.yaml", "town: [Oslo]\nnumber:\n  - nine\n  - ten\n"),
    ],
)
def test_groups_keep_their_names(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    found = WordListSource.from_file(tmp_path / name).members(context())
    assert found == {"town": ["Oslo"], "number": ["nine", "ten"]}


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.txt", b"", "at least one member"),
        ("a.txt", b"# only a note\n", "at least one member"),
        ("a.txt", b"\xff\xfe", "UTF-8"),
        ("a.json", b"{", "JSON"),
        ("a.json", b'{"town": "Oslo"}', "list"),
        ("a.json", b'{"town": [1]}', "list"),
        ("a.yaml", b"town: [Oslo", "YAML"),
        ("a.yaml", b"a: &x [Oslo]\nb: *x\n", "aliases"),
        ("a.yaml", b"7\n", "list"),
    ],
)
def test_a_file_that_is_no_list_is_refused(
    tmp_path: Path, name: str, content: bytes, why: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataFileError, match=why) as caught:
        WordListSource.from_file(tmp_path / name)
    assert "Oslo" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with raises("E-DATA-FILE", "path"):
        WordListSource.from_file(tmp_path / "towns.txt")
    with raises("E-DATA-FILE", "path"):
        WordListSource.from_file(tmp_path)


# Faker -------------------------------------------------------------------------------------------


def test_faker_draws_from_the_seed_and_leaves_the_global_generator() -> None:
    source = FakerSource({"person": ["first_name"], "town": ["city"]}, locales=["de_DE"], count=30)
    state = random.getstate()
    found = source.members(context(seed=1))
    assert found == source.members(context(seed=1)) != source.members(context(seed=2))
    assert {name: len(set(own)) for name, own in found.items()} == {"person": 30, "town": 30}
    assert random.getstate() == state


def test_a_provider_of_few_values_gives_those() -> None:
    found = FakerSource(["day_of_week"], count=50).members(context())
    assert sorted(found["day_of_week"]) == sorted(
        ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    )


@pytest.mark.parametrize(
    ("arguments", "param"),
    [
        ({"providers": ["no_such_thing"]}, "providers"), ({"providers": ["_hidden"]}, "providers"),
        ({"providers": []}, "providers"), ({"providers": "city"}, "providers"),
        ({"providers": ["city"], "locales": ["xx_XX"]}, "locales"),
        ({"providers": ["city"], "count": 0}, "count"),
    ],
)  # fmt: skip
def test_what_faker_does_not_have_is_refused(arguments: dict[str, Any], param: str) -> None:
    with raises("E-INPUT", param):
        FakerSource(**arguments)


# A corpus ----------------------------------------------------------------------------------------

CORPUS = ["Sunday in Oslo"] * 6 + ["rain on Friday"] * 6 + ["today"] * 6 + ["Oslo"] + ["Sunday's"]


def test_rare_listed_and_far_words_are_no_members() -> None:
    PLANE.update(monday=40, rome=130)
    try:
        often = CorpusNeighbourSource(CORPUS, min_count=7).members(context(Plane()))
        all_words = CorpusNeighbourSource(CORPUS, min_count=6).members(context(Plane()))
        few = CorpusNeighbourSource(CORPUS, min_count=6, most=1).members(context(Plane()))
    finally:
        PLANE.update(monday=5, rome=95)
    assert often == {"near group 0": [], "near group 1": ["Oslo"]}
    assert all_words == {"near group 0": ["today", "Sunday"], "near group 1": ["Oslo"]}
    assert few["near group 0"] == ["today"]  # the nearest: 10 degrees from the mean, Sunday 12


def test_a_corpus_needs_an_encoder() -> None:
    with raises("E-INPUT", "encoder"):
        CorpusNeighbourSource(CORPUS).members(context())


# A detector --------------------------------------------------------------------------------------


class Capitals:
    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        return [[Span(*m.span(), "NAME") for m in re.finditer(r"[A-Z]\w+", t)] for t in texts]


def test_finds_are_members_by_label_the_most_frequent_first() -> None:
    texts = ["Ann met Bob.", "Bob left.", "bob left Cid"]
    assert DetectorSource(Capitals(), texts).members(context()) == {"NAME": ["Bob", "Ann", "Cid"]}
    assert DetectorSource(Capitals(), texts, min_count=2).members(context()) == {"NAME": ["Bob"]}
    assert DetectorSource(Capitals(), texts, most=2).members(context()) == {"NAME": ["Bob", "Ann"]}
    with raises("E-INPUT-TYPE", "detector"):
        DetectorSource(object(), texts)  # type: ignore[arg-type]


def test_every_source_is_one_and_shows_no_member() -> None:
    sources = [
        WordListSource(["Oslo"]),
        FakerSource(["city"]),
        CorpusNeighbourSource(CORPUS),
        DetectorSource(Capitals(), ["Ann"]),
    ]
    assert all(isinstance(source, MemberSource) for source in sources)
    shown = " ".join(map(repr, sources)) + repr(context(Plane()))
    assert not any(word in shown.lower() for word in ("oslo", "sunday", "ann", "friday"))


# Groups and writing ------------------------------------------------------------------------------


def test_terms_that_are_near_share_a_group_and_labels_keep_apart() -> None:
    rng = np.random.default_rng(0)
    angles = np.concatenate([rng.normal(centre, 0.05, 24) for centre in (0.0, 1.5, 3.0)])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    groups = cluster_terms(vectors, ["a"] * 72, seed=0)
    for first in range(0, 72, 24):  # no group spans two of the three heaps
        assert not set(groups[first : first + 24]) & set(
            np.delete(groups, slice(first, first + 24))
        )
    labels = ["a", "b"] * 36
    apart = cluster_terms(vectors, labels, seed=0)
    assert not set(apart[::2]) & set(apart[1::2])
    assert sorted(set(apart)) == list(range(apart.max() + 1))
    assert (nearest(centroids_of(vectors, groups), centroids_of(vectors, groups))[0]
            == np.arange(groups.max() + 1)).all()  # fmt: skip


def test_copies_of_one_term_are_one_group() -> None:
    vectors = np.tile([[1.0, 0.0]], (40, 1))
    assert not cluster_terms(vectors, ["a"] * 40, seed=0).any()


@pytest.mark.parametrize(
    ("member", "original", "plural", "expected"),
    [
        ("oslo", "Paris", False, "Oslo"),
        ("oslo", "PARIS", False, "OSLO"),
        ("Oslo", "paris", False, "Oslo"),
        ("new york", "Paris", False, "New york"),
        ("chilean", "Americans", True, "Chileans"),
        ("country", "americans", True, "countries"),
        ("boss", "americans", True, "boss"),
        ("box", "americans", True, "boxes"),
        ("Chile", "Africa's", False, "Chile's"),
        ("Chile's", "Africa's", False, "Chile's"),
        ("norway", "USA’s", False, "NORWAY’s"),
        ("nine", "7", False, "nine"),
    ],
)
def test_case_plural_and_possessive_are_kept(
    member: str, original: str, plural: bool, expected: str
) -> None:
    assert written_like(member, original, plural=plural) == expected


def test_a_plural_is_known_by_its_singular() -> None:
    known = frozenset({"american", "paris", "country", "box"})
    assert [is_plural(w, known) for w in ("Americans", "paris", "countries", "boxes", "boss")] == [
        True, False, True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "term", "member", "expected"),
    [
        ("an Iraqi town", "Iraqi", "Chilean", "a Chilean town"),
        ("A Chilean town", "Chilean", "Iraqi", "An Iraqi town"),
        ("the Chilean town", "Chilean", "Iraqi", "the Iraqi town"),
        ("data Chilean", "Chilean", "Iraqi", "data Iraqi"),
        ("an hour", "hour", "year", "an year"),
        ("a European", "European", "Iraqi", "a Iraqi"),
    ],
)
def test_an_article_follows_its_word(text: str, term: str, member: str, expected: str) -> None:
    start = text.index(term)
    assert substituted(text, start, start + len(term), member) == expected
