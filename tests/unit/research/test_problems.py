"""Problems and tasks: what is read from data sets, what is sampled, what belongs together."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from harness.errors import raises
from harness.experiment_data import TERMS, write_jsonl
from research.problems import make_problem, read_corpus, read_terms
from research.specification import ConceptSpec, ProblemSpec
from research.tasks import read_task, task_texts
from vecveil.auditing.metrics import ClassificationTask, RetrievalTask, StsTask

LISTED = ConceptSpec(terms_file="concepts/sts_terms.json")


def encode(texts: list[str]) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.standard_normal((len(texts), 6)).astype(np.float32)


def test_the_two_sides_of_a_pair_share_a_group(data: Path) -> None:
    from research.datasets import open_dataset

    corpus = read_corpus(["sts12"], data)
    where = {text: i for i, text in enumerate(corpus.texts)}
    pairs = open_dataset("sts12", data)
    assert len(where) == len(corpus.texts)
    assert all(corpus.groups[where[a]] == corpus.groups[where[b]] for a, b in zip(pairs.left, pairs.right, strict=True))


def test_categories_are_the_groups_of_the_terms_file(data: Path) -> None:
    problem = make_problem("p", ProblemSpec(data=("sts12",), concept=LISTED), data)
    assert problem.categories["paris"] == "city"
    assert problem.categories["two"] == "number"
    assert set(problem.categories) <= {word for group in TERMS.values() for word in group}


def test_chosen_groups_alone_are_hidden(data: Path) -> None:
    concept = ConceptSpec(terms_file="concepts/sts_terms.json", groups=("number",))
    problem = make_problem("p", ProblemSpec(data=("sts12",), concept=concept), data)
    assert set(problem.categories) <= set(TERMS["number"])
    unknown = ConceptSpec(terms_file="concepts/sts_terms.json", groups=("x",))
    with raises("E-INPUT", "groups"):
        make_problem("p", ProblemSpec(data=("sts12",), concept=unknown), data)


def test_a_sample_is_the_same_each_time_and_changes_the_digest(data: Path) -> None:
    small = ProblemSpec(data=("sts12",), concept=LISTED, texts=40)
    one, other = (make_problem("p", small, data) for _ in range(2))
    assert one.texts == other.texts
    assert one.digest == other.digest
    assert len(one.matches.with_concept) == len(one.matches.without_concept) == 40
    assert make_problem("p", ProblemSpec(data=("sts12",), concept=LISTED), data).digest != one.digest


def test_annotated_spans_are_kept_with_their_texts(tmp_path: Path) -> None:
    rows = []
    for i in range(60):
        with_drug = f"Patient {i} took aspirin and felt sick on day {i % 7}."
        at = with_drug.index("aspirin")
        span = {"start": at, "end": at + 7, "label": "DRUG", "text": "aspirin"}
        rows.append(
            {
                "id": str(i),
                "split": "train",
                "pmid": str(i // 2),
                "label": i % 2,
                "relations": [],
                "text": with_drug if i % 2 else f"Nothing happened to patient {i}.",
                "spans": [span] if i % 2 else [],
            }
        )
    write_jsonl(tmp_path / "ade" / "ade_corpus_v2.jsonl.gz", rows)
    spec = ProblemSpec(data=("ade",), concept=ConceptSpec(spans=("DRUG",)), texts=20)
    problem = make_problem("ade", spec, tmp_path)
    assert len(problem.matches.with_concept) == 20
    for i in problem.matches.with_concept:
        (span,) = problem.matches.spans[i]
        assert problem.texts[i][span.start : span.end] == "aspirin"
    assert problem.categories == {"aspirin": "DRUG"}
    gazetteer = ConceptSpec(gazetteer={"ade": ("DRUG",)})
    assert len(make_problem("g", ProblemSpec(data=("ade",), concept=gazetteer), tmp_path).matches.with_concept) == 30
    with raises("E-INPUT", "gazetteer"):
        make_problem("g", ProblemSpec(data=("ade",), concept=ConceptSpec(gazetteer={"sts12": ("x",)})), _sts(tmp_path))


def _sts(folder: Path) -> Path:
    from harness.experiment_data import small_data

    small_data(folder / "more")
    (folder / "sts").mkdir()
    (folder / "more" / "sts" / "sts12.parquet").rename(folder / "sts" / "sts12.parquet")
    return folder


def test_no_concept_is_refused(data: Path) -> None:
    with raises("E-INPUT", "concept"):
        make_problem("p", ProblemSpec(data=("sts12",), concept=ConceptSpec()), data)
    with raises("E-INPUT", "spans"):
        make_problem("p", ProblemSpec(data=("sts12",), concept=ConceptSpec(spans=("A",))), data)


def test_terms_files(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("# names\nanna\n\nbob\n")
    (tmp_path / "list.json").write_text('["anna", "bob"]')
    (tmp_path / "groups.yaml").write_text("names: [anna]\ncities: [rome]\n")
    (tmp_path / "wrong.json").write_text('{"names": "anna"}')
    assert read_terms(tmp_path / "lines.txt") == {"terms": ["anna", "bob"]}
    assert read_terms(tmp_path / "list.json") == {"terms": ["anna", "bob"]}
    assert read_terms(tmp_path / "groups.yaml") == {"names": ["anna"], "cities": ["rome"]}
    with raises("E-DATA-FILE", "path"):
        read_terms(tmp_path / "wrong.json")
    with raises("E-DATA-FILE", "path"):
        read_terms(tmp_path / "none.txt")


def test_the_task_of_pairs_is_their_test_part(data: Path) -> None:
    task = read_task("sts12", data, encode)
    assert isinstance(task, StsTask)
    assert len(task.left) == 110
    assert set(task_texts("sts12", data)) <= set(read_corpus(["sts12"], data).texts)


def retrieval(folder: Path, name: str) -> None:
    documents = [{"_id": f"d{i}", "title": "", "text": f"document {i}"} for i in range(30)]
    queries = [{"_id": f"q{i}", "text": f"query {i}", "split": "test" if i < 4 else "dev"} for i in range(6)]
    place = folder / "retrieval" / name
    write_jsonl(place / "corpus.jsonl.gz", documents)
    write_jsonl(place / "queries.jsonl.gz", queries)
    lines = [
        "query-id\tcorpus-id\tscore\tsplit",
        *(f"q{i}\td{i}\t{1 + i % 2}\t{'test' if i < 4 else 'dev'}" for i in range(6)),
    ]
    (place / "qrels.tsv").write_text("\n".join(lines) + "\n")


def test_the_task_of_documents_is_their_test_queries(tmp_path: Path) -> None:
    retrieval(tmp_path, "fiqa_subset")
    task = read_task("fiqa", tmp_path, encode)
    assert isinstance(task, RetrievalTask)
    assert task.queries.shape == (4, 6)
    assert task.documents.shape == (30, 6)
    assert task.relevance.toarray().sum() == 1 + 2 + 1 + 2


def test_labelled_texts_make_a_classification(tmp_path: Path) -> None:
    rows = [
        {
            "id": str(i),
            "split": "train" if i < 30 else "test",
            "pmid": str(i),
            "text": f"text {i}",
            "label": i % 2,
            "spans": [],
            "relations": [],
        }
        for i in range(50)
    ]
    write_jsonl(tmp_path / "ade" / "ade_corpus_v2.jsonl.gz", rows)
    task = read_task("ade", tmp_path, encode)
    assert isinstance(task, ClassificationTask)
    assert (len(task.train.X), len(task.test.X)) == (30, 20)


def test_what_the_cap_leaves_out_is_of_other_groups(data: Path) -> None:
    small = make_problem("p", ProblemSpec(data=("sts12",), concept=LISTED, texts=40), data)
    corpus = read_corpus(["sts12"], data)
    group = dict(zip(corpus.texts, corpus.groups.tolist(), strict=True))
    taken = {group[text] for text in small.texts}
    assert len(small.rest) > 20
    assert all(group[text] not in taken and spans for text, spans in small.rest.items())
    whole = make_problem("p", ProblemSpec(data=("sts12",), concept=LISTED), data)
    assert not whole.rest
