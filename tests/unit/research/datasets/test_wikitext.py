"""WikiText-2: the tokens, the raw form, and a table of its lines."""

from __future__ import annotations

import pytest

from research.datasets import open_dataset
from research.datasets.texts import detokenised

LINES = """ \n = Lobster = \n \n The lobster , a <unk> , is well @-@ known ( 24 in ) . \n \n = = Name = = \n
 It is = blue = .\n \n = Boats = \n \n They float .\n"""
TEXTS = ("The lobster, a <unk>, is well-known (24 in).", "It is = blue =.", "They float.")


@pytest.mark.parametrize(
    "files",
    [
        ("wikitext-2/wiki.valid.tokens", "wikitext-2/wiki.test.tokens"),
        ("wikitext-2-raw/wiki.valid.raw", "wikitext-2-raw/wiki.test.raw"),
        ("wikitext2/valid.txt", "wikitext2/test.txt"),
    ],
)
def test_the_files(data, files):
    for file in files:
        data.text(file, LINES)
    found = open_dataset("wikitext2", data.path)
    assert found.texts == TEXTS * 2
    assert found.split == ("dev",) * 3 + ("test",) * 3
    assert found.groups.tolist() == [1, 1, 2, 3, 3, 4]


def test_the_table(data):
    texts = ["= Lobster =", "It , <unk> .", "= = Name = =", "Red ."]
    joined = ["= Lobster =", "It, <unk>.", "= = Name = =", "Red."]
    columns = {"split": ["valid"] * 3 + ["test"], "text": texts, "text_detok": joined}
    data.parquet("lm/wikitext2_valid_test.parquet", columns)
    found = open_dataset("wikitext2", data.path)
    assert (found.texts, found.split) == (("It, <unk>.", "Red."), ("dev", "test"))
    assert found.groups.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 @,@ 000 @.@ 5 and well @-@ known", "1,000.5 and well-known"),
        ('called " red lobster " here', 'called "red lobster" here'),
        ("the boat 's sail , and did n't", "the boat's sail, and didn't"),
        ("( a [ b ] ) : 5 % ; yes !", "(a [b]): 5%; yes!"),
        ("the boats ' sails", "the boats ' sails"),
    ],
)
def test_marks_are_joined(text, expected):
    assert detokenised(text) == expected
