"""The queries that fetched a row tell its words where rows of a subject are fetched together, and else nothing."""

import math

import numpy as np

from harness.errors import raises
from vecveil.auditing.attacks import AccessPatternAttack, KernelAttack, LabelledVectors
from vecveil.stores.visible_rows import read_query_log, visible_accesses

ROWS, QUERIES, WORDS, FETCHED = 600, 150, 6, 40


def log(words, rng, *, planted):
    """Each query fetches 40 rows: of its word where that is planted, before any others."""
    accesses = np.zeros((len(words), QUERIES), dtype=np.float32)
    for query in range(QUERIES):
        order = rng.permutation(len(words))
        if planted:
            order = order[np.argsort((words[order] != query % WORDS) & (rng.random(len(words)) < 0.9), kind="stable")]
        accesses[order[:FETCHED], query] = 1
    return accesses


def _run(accesses, words):
    L, cut = np.eye(WORDS, dtype=np.uint8)[words], 400
    attack = AccessPatternAttack(KernelAttack(rows=512), dimensions=16)
    return attack.run(LabelledVectors(accesses[:cut], L[:cut]), LabelledVectors(accesses[cut:], L[cut:]), rng=0)


def test_a_log_by_subjects_is_read_and_a_random_log_says_nothing():
    """Null: the fetched rows are independent of the words, which are uniform: any guess is right with 1/6.

    False failure: at most 1e-6, by Hoeffding's bound over 200 rows. Power and control: where the rows of a word are
    fetched together the same attack names most of them.
    """
    rng = np.random.default_rng(0)
    words = rng.integers(WORDS, size=ROWS)
    limit = 1 / WORDS + math.sqrt(math.log(1e6) / (2 * 200))
    found = _run(log(words, rng, planted=True), words)
    assert found.name == "access-patterns"
    assert found.value > max(0.7, limit)
    assert _run(log(words, rng, planted=False), words).value <= limit


def test_a_log_file_becomes_a_table_of_rows_and_queries(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('["a", "c", "elsewhere"]\n\n[7]\n', encoding="utf-8")
    read = read_query_log(path)
    assert read == [["a", "c", "elsewhere"], ["7"]]
    assert visible_accesses(read, ["7", "a", "c"]).tolist() == [[0, 1], [1, 0], [1, 0]]
    for content in ("", '{"a": 1}', "[[1]]", "not json"):
        path.write_text(content, encoding="utf-8")
        with raises("E-DATA-FILE", "query_log"):
            read_query_log(path)
