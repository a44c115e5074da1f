"""The main job, as a user runs it: on their own file; the encoder is of their words."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

import vecveil
from harness.command_line import CANARY, ROWS, Outcome, leftovers, run
from harness.documents import ROOT, blocks
from harness.errors import raises
from vecveil.cli.demo import command, demonstration

FILES = ["audit.html", "audit.json", "protected.parquet", "protector.vecveil"]


@pytest.fixture(scope="module")
def demo(notes: Path, lsa: Path) -> tuple[Path, Outcome]:
    """One run with small attacks and few candidates, in the folder of the notes."""
    with contextlib.chdir(notes.parent), pytest.MonkeyPatch.context() as patch:
        patch.setattr(demonstration, "CANDIDATES", 50)
        done = run(
            "demo --input notes.csv --text-column text --concept concept.yaml --out result "
            f"--target-utility 0.8 --seed 3 --encoder {lsa}"
        )
    return notes.parent / "result", done


def test_the_demo_ends_with_a_table_and_says_where_the_files_are(demo: tuple[Path, Outcome]) -> None:
    folder, done = demo
    assert done.code == 0, done.err
    assert done.out.startswith("Mode ")
    for words in (
        "How many of the concept's words an attacker recovers",
        "without protection",
        "guessing (chance)",
        "Utility kept",
        "What is guaranteed",
        "sealed index",
        "a database finds 50 candidates",
        "protected vectors",
        *(f"result/{name}" for name in FILES),
    ):
        assert words in done.out, words
    assert "synthetic" not in done.out
    steps = [line for line in done.err.splitlines() if line[1:3] == f"/{demonstration.STEPS}"]
    assert [line[0] for line in steps] == ["1", "2", "3", "4", "5"]
    assert "Traceback" not in done.err
    assert "Warning" not in done.err
    assert sorted(path.name for path in folder.iterdir() if path.name[0] != ".") == FILES
    assert leftovers(folder.parent) == []


def test_the_readme_shows_lines_that_the_demo_prints(demo: tuple[Path, Outcome]) -> None:
    """Figures, bars and columns aside: the README's run is of other texts."""

    def structure(text: str) -> list[str]:
        return [" ".join(re.sub(r"[\d.]+", "0", line).replace("#", "").split()) for line in text.splitlines()]

    shown = structure(list(blocks((ROOT / "README.md").read_text(encoding="utf-8"), "text"))[1].code)
    assert len(shown) == 6
    assert set(shown) <= set(structure(demo[1].out))


def test_the_files_of_the_demo_are_good(demo: tuple[Path, Outcome], notes: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    folder, _ = demo
    table = pq.read_table(folder / "protected.parquet")
    assert table.column_names == ["id", "domain", "embedding"]
    assert table.num_rows == ROWS
    protector = vecveil.load(folder / "protector.vecveil")
    vectors = np.stack(table.column("embedding").to_numpy(zero_copy_only=False))
    assert vectors.shape == (ROWS, protector.released_dimension)
    record = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    assert record["schema"] == "vecveil.audit/2"
    assert 200 < record["texts"]["total"] < 250  # the half that the fit has not seen
    assert protector.report["texts"]["texts"] + record["texts"]["total"] == ROWS
    assert record["utility"]["similarity"]["relative"] > 0.7
    alone, sealed = (record["utility"][key]["value"] for key in ("neighbours", "sealed_search"))
    assert alone < sealed <= 1
    worst = next(a for a in record["attacks"] if a["name"] == record["worst"])
    assert worst["chance"] < worst["value"] + 0.1
    assert worst["value"] < worst["clean"]
    assert "<html" in (folder / "audit.html").read_text(encoding="utf-8")
    assert CANARY not in (folder / "audit.json").read_text(encoding="utf-8")


def test_protected_vectors_are_not_the_clean_ones(demo: tuple[Path, Outcome], notes: Path, lsa: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    from vecveil.texts.tables import read_texts

    folder, _ = demo
    clean = vecveil.load_encoder(str(lsa)).encode(read_texts(notes, limit=100).texts)
    column = pq.read_table(folder / "protected.parquet").column("embedding")
    released = np.stack(column.slice(0, 100).to_numpy(zero_copy_only=False))
    cosines = np.sum(clean * released, axis=1) / np.linalg.norm(released, axis=1)
    assert cosines.max() < 0.998
    assert np.median(cosines) > 0.2  # row i is text i


def test_a_missing_package_is_named_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "torch" else object())
    done = run(f"demo --out {tmp_path / 'out'}")
    assert done.code == 1
    assert "pip install 'vecveil[demo]'" in done.err
    assert leftovers(tmp_path) == []


def test_too_few_texts_are_refused_before_the_work(notes: Path, lsa: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.csv"
    few.write_text("\n".join(notes.read_text(encoding="utf-8").splitlines()[:81]), encoding="utf-8")
    done = run(
        f"demo --input {few} --text-column text --concept {notes.parent / 'concept.yaml'} --out "
        f"{tmp_path / 'out'} --encoder {lsa}"
    )
    assert done.code == 1
    assert "not enough texts to attack" in done.errors[0]
    assert "2/5" not in done.err


def test_the_demo_may_run_again_but_not_over_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "vecveil-demo"
    with demonstration.staging(folder) as draft:
        for name in demonstration.FILES:
            (draft / name).write_text("made by the demo")
    assert leftovers(tmp_path) == []
    demonstration.check_folder(folder, force=False)  # its own files
    (folder / "notes.txt").write_text("mine")
    demonstration.check_folder(folder, force=False)  # a file of another name is let alone
    (folder / "audit.json").write_text("mine")
    done = run("demo", "--out", folder)
    assert done.code == 1
    assert "audit.json" in done.errors[0]
    assert "--force" in done.errors[0]
    demonstration.check_folder(folder, force=True)
    (tmp_path / "file").write_text("mine")
    with raises("E-DATA-FILE", "out"):
        demonstration.check_folder(tmp_path / "file", force=True)


def test_stopping_the_demo_leaves_nothing(
    tmp_path: Path, notes: Path, lsa: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []

    def stop(*arguments: object, **options: object) -> None:
        seen.append(sorted(path.name for path in tmp_path.rglob("*.parquet")))
        raise KeyboardInterrupt

    monkeypatch.setattr(demonstration, "audit", stop)
    done = run(
        f"demo --input {notes} --concept {notes.with_name('concept.yaml')} --target-utility 0.8 --seed 3 --out "
        f"{tmp_path / 'result'} --encoder {lsa}"
    )
    assert seen == [["protected.parquet"]]  # the run was stopped late
    assert done.code == 130
    assert done.err.splitlines()[-1].startswith("vecveil: stopped by Ctrl-C")
    assert list(tmp_path.iterdir()) == []


def test_bundled_notes_are_said_to_be_synthetic(
    tmp_path: Path, demo: tuple[Path, Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = demo
    result = demonstration.DemoResult(vecveil.AuditResult.load(folder / "audit.json"), folder, 3000, True, 1.0)
    assert "synthetic" in result.summary()
    assert all(name in result.summary() for name in demonstration.FILES)
    assert result.to_record()["synthetic"] is True
    monkeypatch.setattr("vecveil.cli.demo.command.run_demo", lambda *arguments, **options: result)
    done = run("demo", "--json", "--out", tmp_path / "x")
    assert done.code == 0
    assert done.json["audit"]["schema"] == "vecveil.audit/2"
