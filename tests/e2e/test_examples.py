"""Every example runs without a warning, prints something and leaves no file behind."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from harness.documents import ROOT, environment

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
OWN_PROCESS = ROOT / "examples" / "own_encoder_and_detector.py"
"""Runs as a user would run it. The others run in this process: it has imported the libraries and encoded the notes
already, and its audits are small (conftest)."""


def run(script: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize("script", [one for one in EXAMPLES if one != OWN_PROCESS], ids=lambda path: path.stem)
def test_an_example_runs(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip()
    assert list(tmp_path.iterdir()) == []


def test_an_example_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    done = run(OWN_PROCESS, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "Warning" not in done.stderr.replace("FitWarning", "")  # what the report of a fit says
    assert list(tmp_path.iterdir()) == []  # an example leaves nothing behind


def test_examples_are_few_and_short() -> None:
    assert len(EXAMPLES) >= 4
    for script in EXAMPLES:
        lines = script.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 40, script.name
        assert lines[0].startswith('"""'), script.name


def test_a_broken_example_is_noticed(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("import vecveil\n\nvecveil.nothing\n", encoding="utf-8")
    assert run(script, tmp_path).returncode == 1
