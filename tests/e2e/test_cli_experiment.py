"""``vecveil experiment``: listed, run, gone on with and shown; one clear error for what is wrong."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from harness.command_line import leftovers, run, spawn
from harness.experiment_data import lsa_folder, small_data
from research.catalogue import EXPERIMENTS

SPEC = """
experiment: tradeoff
encoder: {encoder}
attacks: [linear]
methods: [laplace]
scales: [clean, effective 10]
problems:
  sts12: {{data: sts12, concept: {{terms_file: concepts/sts_terms.json}}}}
quick: {{scales: [effective 10]}}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experiment")
    small_data(folder / "data")
    encoder = lsa_folder(folder / "data", folder / "lsa")
    (folder / "mine.yaml").write_text(SPEC.format(encoder=encoder))
    return folder


@pytest.fixture(scope="module")
def done(place: Path) -> Path:
    found = spawn("experiment", "run", "mine.yaml", "--data", "data", "--out", "out", "--workers", "1", cwd=place)
    assert found.code == 0, found.err
    assert found.out == "tradeoff: 2 cells, 2 measured, 0 kept, 0 failed\n"
    return place / "out"


def test_the_list_names_them_all() -> None:
    found = run("experiment", "list", "--json")
    listed = found.json["experiments"]
    assert [one["name"] for one in listed] == list(EXPERIMENTS)
    assert all(set(one) == {"name", "what", "source"} for one in listed)
    assert len(run("experiment", "list").out.splitlines()) == len(EXPERIMENTS)


def test_a_run_goes_on_and_says_so(done: Path, place: Path) -> None:
    found = run(
        "experiment", "run", place / "mine.yaml", "--data", place / "data", "--out", done, "--workers", 0, "--json"
    )
    assert found.code == 0
    assert found.json["experiments"]["tradeoff"] == {"asked": 2, "kept": 2, "measured": 0, "failed": {}}
    assert not leftovers(done)


def test_the_table_in_every_format(done: Path, tmp_path: Path) -> None:
    markdown = run("experiment", "table", "tradeoff", "--out", done, "--html", tmp_path / "page.html")
    assert markdown.code == 0
    assert markdown.out.startswith("# Experiment `tradeoff`")
    assert "too few to count" in markdown.out
    assert "<br>" not in markdown.out
    assert "  \n  Command: `" in markdown.out
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    rows = list(
        csv.DictReader(io.StringIO(run("experiment", "table", "tradeoff", "--out", done, "--format", "csv").out))
    )
    assert any(row["value"] for row in rows)
    assert r"\begin{tabular}" in run("experiment", "table", "tradeoff", "--out", done, "--format", "latex").out
    assert run("experiment", "table", "tradeoff", "--out", done, "--json").json["cells"]["measured"] == 2
    assert run("experiment", "table", "all", "--out", done, "--format", "html", "--to", tmp_path / "pages").code == 0
    assert [path.name for path in (tmp_path / "pages").iterdir()] == ["tradeoff.html"]


def test_of_all_one_that_cannot_be_run_stops_no_other(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import research

    real = research.run
    empty = tmp_path / "empty"
    empty.mkdir()

    def small(name: str, data: Path, out: Path, **more: object) -> object:
        own = empty if name == "whitebox" else data  # which lacks a data set
        return real(place / "mine.yaml", own, out, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(research, "EXPERIMENTS", ("whitebox", "tradeoff"))
    monkeypatch.setattr(research, "run", small)
    found = run(
        "experiment", "run", "all", "--data", place / "data", "--out", tmp_path / "out", "--workers", 0, "--quick"
    )
    assert found.code == 1
    assert found.out == "tradeoff: 1 cells, 1 measured, 0 kept, 0 failed\nnot run: whitebox\n"
    assert "whitebox: not run: data set 'sts12'" in found.err


def test_the_shipped_specification_can_be_edited_and_run(place: Path, tmp_path: Path) -> None:
    text = run("experiment", "spec", "guarantee").out
    assert "experiment: guarantee" in text
    edited = tmp_path / "edited.yaml"
    edited.write_text(text.replace("methods:", "mehtods:"))
    found = run("experiment", "run", edited, "--data", place / "data", "--out", tmp_path)
    assert found.code == 1
    assert "`mehtods` is an unknown key" in found.errors[0]
    edited.write_text((place / "mine.yaml").read_text().replace("data: sts12", "data: sts99"))
    found = run("experiment", "run", edited, "--data", place / "data", "--out", tmp_path)
    assert ".data` 'sts99' is unknown" in found.errors[0]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("run", "nothing", "--data", ".", "--out", "x"), 1, "experiments are tradeoff"),
        (("run", "sensitivity", "--data", "nowhere", "--out", "x"), 1, "`--data` 'nowhere' is no folder"),
        (("run", "sensitivity", "--data", ".", "--out", "x"), 1, "sts12"),
        (("run", "sensitivity", "--out", "x"), 2, "--data"),
        (("run", "sensitivity", "--data", ".", "--out", "file"), 1, "`--out` 'file' is a file"),
        (("table", "tradeoff", "--out", ".", "--html", "tradeoff/spec.yaml"), 2, "--html is inside the records"),
        (("table", "all", "--out", ".", "--to", "guarantee/cells"), 2, "--to is inside the records"),
        (("table", "tradeoff", "--out", "."), 1, "run `vecveil experiment run tradeoff"),
        (("table", "all", "--out", "."), 2, "No experiment was run"),
        (("table", "nothing", "--out", "."), 1, "one of tradeoff"),
        (("spec", "nothing"), 1, "one of tradeoff"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    arguments: tuple[str, ...], code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    if "--to" in arguments:
        (tmp_path / "guarantee").mkdir()
        (tmp_path / "guarantee" / "spec.yaml").touch()
    found = run("experiment", *arguments)
    assert found.code == code, found.err
    assert words in found.err
    assert "Traceback" not in found.err
    assert found.out == ""


def test_without_a_checkout_the_command_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed from a wheel, the command finds the folder in a checkout around the current folder, and no other."""
    import vecveil.cli.experiment as module

    monkeypatch.setattr(module, "__file__", str(tmp_path / "lib" / "python" / "vecveil" / "cli.py"))
    (tmp_path / "research").mkdir()
    other = tmp_path / "research" / "__init__.py"
    other.write_text("raise SystemExit('somebody else wrote this')\n")
    monkeypatch.chdir(tmp_path)
    found = run("experiment", "list")
    assert found.code == 1
    assert len(found.errors) == len(found.err.splitlines()) == 1
    assert "clone of the repository" in found.err
    monkeypatch.chdir(Path(__file__).parent)
    assert run("experiment", "list", "--json").code == 0
