"""The README is true: its code runs, its commands and extras exist, its tables are the results."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import tomllib
from functools import cache
from pathlib import Path
from pkgutil import resolve_name as resolve
from types import ModuleType
from typing import Any

import pytest

from harness.command_line import run
from harness.documents import ROOT, blocks, run_python
from harness.small_attacks import small_audits

README = (ROOT / "README.md").read_text(encoding="utf-8")
INDEX = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
DOCUMENTS = ["README.md", "docs/index.md", "docs/how-to/files.md"]

needs_cli = pytest.mark.skipif(
    importlib.util.find_spec("vecveil.cli.__main__") is None, reason="there is no command line yet"
)


def _load_tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tables", ROOT / "benchmarks" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tables: Any = _load_tables()


def commands(markdown: str) -> list[list[str]]:
    """Return the calls of vecveil in the console blocks of a document, as words."""
    lines = [line for block in blocks(markdown, "console") for line in block.code.replace("\\\n", " ").splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("vecveil ")]


@cache
def help_of(command: str | None) -> str:
    """Return what ``vecveil [command] --help`` prints, with every option."""
    done = run(*([] if command is None else [command]), "--help")
    if "--help-all" in done.out:
        done = run(command, "--help-all")
    assert done.code == 0, done.err
    return done.out


def unknown_words(words: list[str]) -> list[str]:
    """Return the command or the options of one call that ``--help`` does not know."""
    name = words[1]
    if not re.search(rf"^  {re.escape(name)}\b", help_of(None), re.MULTILINE):
        return [name]
    text = help_of(name)
    options = [word.partition("=")[0] for word in words[2:] if re.match(r"--?[a-z]", word)]
    return [option for option in options if not re.search(rf"(?<!\S){option}(?![\w-])", text)]


def test_the_code_runs_and_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with small_audits():
        assert run_python(README, "README.md") == 2
    assert capsys.readouterr().out.startswith(next(blocks(README, "text")).code)


@needs_cli
@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_commands_of_a_document_exist(document: str) -> None:
    called = commands((ROOT / document).read_text(encoding="utf-8"))
    assert called
    assert [unknown_words(words) for words in called] == [[]] * len(called)


@needs_cli
def test_an_unknown_command_or_option_is_noticed() -> None:
    assert unknown_words(["vecveil", "conceal", "x.csv"]) == ["conceal"]
    assert unknown_words(["vecveil", "fit", "x.csv", "--target", "1", "-o", "y"]) == ["--target"]


def test_the_extras_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    section = INDEX.split("## Install")[1].split("## ")[0]
    named = {
        name
        for line in section.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([a-z0-9-]+)`", line.split("|")[1])
    }
    assert named == set(project["optional-dependencies"])


def test_the_concept_file_can_be_read(tmp_path: Path) -> None:
    from vecveil.privacy.concepts import Concept

    path = tmp_path / "concept.yaml"
    path.write_text(next(blocks(INDEX, "yaml")).code, encoding="utf-8")
    assert [len(row) for row in Concept.from_file(path).detect(["Asthma: 5 mg.", "None."])] == [2, 0]


def demo_settings() -> list[dict[str, Any]]:
    record = json.loads((ROOT / "benchmarks/results/demo.json").read_text(encoding="utf-8"))
    settings: list[dict[str, Any]] = record["settings"]
    return settings


def test_the_output_of_the_demo_is_of_the_record() -> None:
    demo = demo_settings()[0]
    shown = list(blocks(README, "text"))[1].code.splitlines()
    figures = [re.findall(r"\d+%", line) for line in shown]
    listed = [f"{demo[key]:.0%}" for key in ("clean", "protected", "protected", "chance")]
    recalls = ["100%", "100%", f"{demo['sealed']:.0%}", f"{demo['store_alone']:.0%}"]
    assert figures[1:] == [
        [listed[0], recalls[0]],
        [recalls[1]],
        [listed[1], recalls[2]],
        [listed[2], recalls[3]],
        [listed[3]],
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_picture_is_of_the_record(theme: str) -> None:
    drawn = (ROOT / f"docs/assets/demo-{theme}.svg").read_text(encoding="utf-8")
    names = ("clean", "protected", "chance", "store_alone", "sealed")
    expected = sorted(f"{100 * setting[name]:.0f} %" for setting in demo_settings() for name in names)
    assert sorted(re.findall(r">(\d+ %)</text>", drawn)) == expected, "run make figures"
    assert f"docs/assets/demo-{theme}.svg" in README


@pytest.mark.parametrize("document", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_lead_somewhere(document: str) -> None:
    """Those of docs/ are checked by ``mkdocs build --strict``."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / document).read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


TABLED = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", ROOT / "docs/llms.txt", *(ROOT / "docs").rglob("*.md"))
    if "<!-- table: " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("document", TABLED)
def test_the_tables_are_those_of_the_results(document: str) -> None:
    assert {"README.md", "docs/llms.txt", "docs/results.md", "docs/scale.md"} <= set(TABLED)
    text = (ROOT / document).read_text(encoding="utf-8")
    assert tables.updated(text) == text, "run python benchmarks/tables.py --write"


def test_a_figure_that_differs_is_noticed(tmp_path: Path) -> None:
    record = {"rows": [{"case": "sealed", "rows": 10, "bytes_a_row": 99.0}]}
    (tmp_path / "sealed-store.json").write_text(json.dumps(record), encoding="utf-8")
    text = tables.updated("<!-- table: scale-sealed -->\n<!-- end table -->\n", tmp_path)
    assert "| 10 | `ProtectedCollection` | not measured | not measured | 99 |" in text
    assert tables.updated(text, tmp_path) == text
    assert tables.updated(text.replace("| 99 |", "| 9 |"), tmp_path) == text


@pytest.mark.parametrize("name", tables.TABLES)
def test_a_table_without_results_says_so(name: str, tmp_path: Path) -> None:
    assert tables.MISSING in tables.TABLES[name](tmp_path)


def test_seeds_are_averaged_and_the_strongest_attack_counts(tmp_path: Path) -> None:
    row = {"concept": "sts", "method": "subspace", "split": "shared", "chance": 0.1}
    first = {"linear": [0.2, 0.1, 0.3], "kernel": [0.3, 0.25, 0.35]}
    second = {"linear": [0.5, 0.45, 0.55], "kernel": [0.4, 0.3, 0.5]}
    rows = [
        {**row, "seed": 0, "sts13_16": 0.95, "attacks": first},
        {**row, "seed": 1, "sts13_16": 0.97, "attacks": second},
    ]
    (tmp_path / "leakage.json").write_text(json.dumps({"rows": rows}), encoding="utf-8")
    line = next(line for line in tables.leakage(tmp_path).splitlines() if "subspace" in line)
    assert "| 96.0% | 40.0±15.0% | 10.0% |" in line


def test_the_page_for_machines_names_what_exists() -> None:
    page = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    assert [link for link in re.findall(r"\]\(([^)]+)\)", page) if not (ROOT / "docs" / link).exists()] == []
    shell = [shlex.split(line) for line in re.findall(r"`(vecveil [^`]+)`", page)]
    assert len(shell) == 3
    assert [unknown_words(words) for words in shell] == [[]] * 3
    named = re.findall(r"`(?:\w+ = )?(vecveil\.[\w.]+)", page.replace("\n", " "))
    assert len(named) > 4
    for name in named:
        assert resolve(name)
