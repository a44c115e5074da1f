import numpy as np
import pytest

from harness.errors import raises
from vecveil.auditing.attacks import split_groups, text_groups
from vecveil.auditing.attacks.attack import normalise_text


def test_near_duplicates_come_out_equal():
    assert normalise_text("Took  IBUPROFEN, 200 mg!") == normalise_text("took ibuprofen 200mg")
    assert normalise_text("Straße") == normalise_text("STRASSE")


def test_groups_by_text():
    assert text_groups(["A b.", "c", "a-B", "d"]).tolist() == [0, 1, 0, 2]
    copies = ["Müller, 400 mg", "Mu\u0308ller, 400\u00a0mg", "Mül\u00adler, 400\nmg", "ＭÜＬＬＥＲ 400mg"]
    assert text_groups(["x", *copies]).tolist() == [0, 1, 1, 1, 1]


def test_texts_without_letters_are_compared_as_they_are():
    assert text_groups(["!!", "??", "!!"]).tolist() == [0, 1, 0]


def test_groups_are_connected_components_of_texts_ids_and_pairs():
    # 0 and 2 agree as texts, 2 and 3 share an id, 3 and 5 are a pair: one group of four.
    texts = ["one", "two", "One!", "three", "four", "five"]
    ids = ["p", None, "q", "q", None, "r"]
    assert text_groups(texts, ids, pairs=[[3, 5]]).tolist() == [0, 1, 0, 0, 2, 0]
    assert text_groups(texts, ids, pairs=[]).tolist() == [0, 1, 0, 0, 2, 3]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"ids": [1]}, "E-INPUT-SHAPE"),
        ({"pairs": [[0, 9]]}, "E-INPUT"),
        ({"pairs": [[0.5, 1.0]]}, "E-INPUT-SHAPE"),
        ({"pairs": [1, 2]}, "E-INPUT-SHAPE"),
    ],
)
def test_bad_groups_are_refused(options, code):
    with raises(code, next(iter(options))):
        text_groups(["a", "b", "c"], **options)


@pytest.mark.parametrize("seed", range(5))
def test_no_group_is_divided_and_every_row_is_in_one_part(seed):
    rng = np.random.default_rng(seed)
    groups = rng.integers(60, size=400)
    parts = split_groups(groups, (0.7, 0.2, 0.1), seed=seed)
    assert sorted(np.concatenate(parts)) == list(range(400))
    for i, part in enumerate(parts):
        for other in parts[i + 1 :]:
            assert not set(groups[part]) & set(groups[other])
    assert [len(part) / 400 for part in parts] == pytest.approx([0.7, 0.2, 0.1], abs=0.05)


def test_split_is_the_same_under_a_seed():
    groups = np.arange(50)
    first, again, other = (split_groups(groups, (1, 1), seed=s)[0].tolist() for s in (1, 1, 2))
    assert first == again != other


def test_a_huge_group_leaves_a_part_for_the_others():
    groups = np.array([0] * 95 + [1, 2, 3, 4, 5])
    kept, held_out = split_groups(groups, (0.9, 0.1))
    assert len(kept) >= 95
    assert len(held_out) >= 1


def test_as_many_groups_as_parts():
    parts = split_groups([5, 5, 7, 9], (0.98, 0.01, 0.01))
    assert sorted(len(part) for part in parts) == [1, 1, 2]


def test_fewer_groups_than_parts_is_refused():
    with raises("E-INPUT", "groups"):
        split_groups([1, 1, 2, 2], (1, 1, 1))


@pytest.mark.parametrize("shares", [(0, 1), (-1, 2), ()])
def test_bad_shares_are_refused(shares):
    with raises("E-INPUT-RANGE", "shares"):
        split_groups([1, 2, 3], shares)
