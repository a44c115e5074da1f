"""A restricted index answers as an index that has no other rows: results, scores, counts, ids, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import raises
from vecveil.errors import VecveilError
from vecveil.index import SealedIndex

KEY = bytes(range(32))
WORDS = ("nausea", "dinner", "pump", "letter", "alpha")
FORCED: list[dict[str, Any]] = [
    {"tenant": "a"},
    {"tenant": {"nin": ["b", "c"]}},
    {"$not": {"tenant": ["b", "c"]}},
    {"$or": [{"tenant": {"eq": "a"}}, {"$and": [{"tenant": "a"}, {"tenant": {"exists": True}}]}]},
]
n = 200  # enough for the last bits of a product by BLAS to depend on the other rows
rng = np.random.default_rng(7)


def rows(tenant: str, count: int) -> list[tuple[str, str, dict[str, Any], np.ndarray]]:
    def record(i: int) -> dict[str, Any]:
        own = {"tenant": tenant, "year": 2000 + i % 5, "tags": [f"t{i % 3}", "x"], "place": {"town": f"p{i % 4}"}}
        # Fields, types and lists that only others have.
        other = {"secret": f"s{i % 2}", "year": f"{i}", "tags": i, "place": {"room": i}, "draft": [True]}
        return own if tenant == "a" else {"tenant": tenant, **(other if i % 2 else own)}

    return [
        (f"{tenant}{i}", " ".join(rng.choice(WORDS[: 3 if tenant == "a" else 5], 6)), record(i), rng.normal(size=n))
        for i in range(count)
    ]


OWN, OTHERS = rows("a", 30), [*rows("b", 40), *rows("c", 20)]


def add(index: SealedIndex, some: list[Any]) -> None:
    ids, texts, metadata, vectors = map(list, zip(*some, strict=True))
    index.add(texts, ids=ids, metadata=metadata, vectors=np.array(vectors))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SealedIndex]:
    log = tmp_path_factory.mktemp("log") / "audit.jsonl"
    with SealedIndex(tmp_path_factory.mktemp("alone"), KEY, audit_log=log) as index:
        add(index, OWN[:12])
        add(index, OWN[12:])
        yield index
    content = log.read_text()
    assert not any(text in content for text in ("nausea", "s0", "p2", "pc.field", "nobody", "secret", "place.room"))
    assert '"year"' in content


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SealedIndex]]:
    with SealedIndex(tmp_path_factory.mktemp("shared"), KEY) as index:
        add(index, OTHERS[:10] + OWN[:12] + OTHERS[10:30])
        add(index, OTHERS[30:50])
        add(index, OTHERS[5:9] + OWN[12:] + OTHERS[50:])  # some of them again
        index.delete([name for name, *_ in OTHERS[40:45]])
        yield [index.restricted(where) for where in FORCED]


VALUES = st.sampled_from(
    ["a", "b", "s0", "t1", "x", "p2", "2001", 2001, 2003.0, 1, True, None, "pc.field('tenant') == 'b'", "\ud800"]
)
FIELDS = st.sampled_from(
    ["tenant", "year", "tags", "place.town", "place.room", "place", "secret", "draft", "absent", "", "$nor", "_index"]
)
OPERATORS = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "exists", "contains", "icontains", "like")
CONDITIONS = st.one_of(
    VALUES,
    st.lists(VALUES, max_size=3),
    st.dictionaries(
        st.sampled_from([*OPERATORS, *(f"${name}" for name in OPERATORS)]),
        st.one_of(VALUES, st.lists(VALUES, max_size=3)),
        min_size=1,
        max_size=2,
    ),
)
FILTERS = st.recursive(
    st.dictionaries(FIELDS, CONDITIONS, max_size=2),
    lambda inner: st.dictionaries(
        st.sampled_from(["$and", "$or", "$not"]), st.one_of(inner, st.lists(inner, max_size=3)), min_size=1, max_size=2
    ),
    max_leaves=6,
)
IDS = st.lists(st.sampled_from([*(row[0] for row in (*OWN[:4], *OTHERS[:4], *OTHERS[40:42])), "nobody"]), max_size=4)


def outcome(work: Callable[[], Any]) -> Any:
    """Return an answer in full, or all that its error shows."""
    try:
        return work()
    except VecveilError as error:
        return type(error), error.code, error.param, str(error)


def shown(hits: Any) -> Any:
    return hits.ids, hits.texts, hits.metadata, np.asarray(getattr(hits, "scores", hits.vectors)).tolist()


@settings(max_examples=300, deadline=None)
@given(
    where=st.none() | FILTERS,
    number=st.integers(0, len(FORCED) - 1),
    query=st.integers(0, 10),
    words=st.sampled_from(["nausea", "letter", "alpha pump", "unknown"]),
    top=st.integers(1, 40),
    ids=IDS,
    missing=st.sampled_from(["raise", "skip"]),
)
def test_others_change_nothing(
    alone: SealedIndex,
    views: list[SealedIndex],
    where: Any,
    number: int,
    query: int,
    words: str,
    top: int,
    ids: list[str],
    missing: Any,
) -> None:
    """Over all operators and joins, malformed filters, fields and words that only others have, ids of others."""
    vector = np.random.default_rng(query).normal(size=n)
    questions: list[Callable[[SealedIndex], Any]] = [
        lambda index: shown(index.search(vector, top=top, where=where)),
        lambda index: shown(index.search(vector, top=top, where=where, mode="hybrid", words=words)),
        lambda index: shown(
            index.read(index.find(vector, top=top, where=where, mode="hybrid", words=words, alpha=0.2))
        ),
        lambda index: shown(index.get(ids, where=where, missing=missing)),
        lambda index: shown(index.get(where=where)),
        lambda index: index.ids(where),
        lambda index: [shown(part) for part in index.iter(where, batch=7)],
        lambda index: index.count(),
    ]
    for ask in questions:
        assert outcome(partial(ask, views[number])) == outcome(partial(ask, alone))


@pytest.mark.parametrize("field", ["tenant", "secret", "absent"])
def test_expressions_are_refused_alike(views: list[SealedIndex], field: str) -> None:
    """The type of a column, and so whether pyarrow evaluates an expression, follows from the rows of all."""
    with raises("E-INPUT-TYPE", "where"):
        views[0].ids(pc.field(field) == "a")


def test_it_changes_nothing(views: list[SealedIndex], alone: SealedIndex) -> None:
    view = views[0]
    for work in (
        lambda: view.add(["x"], ids=["b1"], vectors=np.ones((1, n))),
        lambda: view.delete(["a1"]),
        lambda: view.delete(where={"tenant": "b"}),
        lambda: view.forget(["b1"]),
        view.compact,
        view.reseal,
    ):
        with raises("E-INPUT", "where"):
            work()
    with raises("E-INPUT", "where"):
        alone.restricted({})
    assert view.count() == len(OWN)


def test_what_it_compares_with_are_its_own_rows(views: list[SealedIndex]) -> None:
    """Otherwise the time of a search would show fields and words that only others have."""
    views[0].ids({"year": 2001})
    assert views[0].logged_fields({"$or": [{"secret": "s0"}, {"year": 1}]}) == ["?", "year"]
    view: Any = views[0]
    for part, mask in view._rows(view._snapshot()):
        assert not view._table(part).names & {"secret", "draft", "place.room"}
        words = view._words_of(part)
        assert words.find("alpha") is None
        assert words.find("letter") is None
        assert (words.find("nausea") is not None) == mask.any()


def test_a_second_restriction_widens_nothing(views: list[SealedIndex]) -> None:
    for where in ({"tenant": {"ne": "a"}}, {"$not": {"absent": 1}}, {"year": {"lte": 2001}}, {"tenant": "b"}):
        view = views[0].restricted(where)
        assert view.ids() == view.get().ids == views[0].ids(where)
        assert view.get(["b1", "c1"], missing="skip").ids == []
        assert set(view.search(np.ones(n), top=100, mode="hybrid", words="letter nausea").ids) == set(view.ids())


def test_it_follows_the_index(tmp_path: Path) -> None:
    with SealedIndex(tmp_path / "notes", KEY) as index:
        view = index.restricted({"tenant": "a"})
        assert view.count() == 0
        add(index, OWN[:3] + OTHERS[:3])
        assert view.count() == 3
        add(index, OWN[3:5])
        index.compact()
        index.delete(["a0"])
        assert sorted(view.ids()) == ["a1", "a2", "a3", "a4"]
        view.close()
        assert index.count() == 7


@pytest.mark.parametrize(
    "nothing", [{}, {"tenant": {}}, {"$and": []}, {"$or": [{"tenant": "a"}, {}]}, {"tenant": None}, {"tenant": [None]}]
)
def test_an_empty_filter_and_one_with_null_are_refused(tmp_path: Path, nothing: dict[str, Any]) -> None:
    with SealedIndex(tmp_path, KEY) as index, raises("E-INPUT", "where"):
        index.restricted(nothing)


def test_a_filter_that_changes_afterwards_widens_nothing(tmp_path: Path) -> None:
    where: dict[str, Any] = {"tenant": {"in": ["a"]}}
    with SealedIndex(tmp_path, KEY) as index:
        add(index, OWN[:3] + OTHERS[:3])
        view = index.restricted(where)
        where["tenant"]["in"].append("b")
        assert view.count() == 3
