"""Methods and attacks of one's own, in a file that a specification names, in every process of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.documents import ROOT, blocks, section
from harness.errors import raises
from harness.experiment_data import checkout_environment
from research import summarise
from vecveil.auditing.attacks import LinearAttack, register_attack
from vecveil.errors import DataFileError
from vecveil.privacy.protector import METHODS, register_method

SPEC = """
experiment: frontier
encoder: {encoder}
modules: [my_code.py]
attacks: [linear, nearest-mean]
methods: [laplace, quiet-outside]
scales: [clean, utility 0.9]
problems:
  sts: {{data: sts12, concept: {{terms_file: concepts/sts_terms.json}}}}
"""
PROGRAM = """
import sys
from research import run, summarise
if __name__ == "__main__":
    print(run("mine.yaml", sys.argv[1], "out", workers=1).failed)
    columns = summarise("frontier", "out")["tables"][1]["columns"]
    print("R-precision of nearest-mean" in [column["name"] for column in columns])
"""


def definitions(title: str) -> str:
    """Return the code of a section of the page up to and with its registration."""
    page = (ROOT / "docs" / "how-to" / "extend.md").read_text("utf-8")
    (code,) = (block.code for block in blocks(section(page, title), "python"))
    lines = code.splitlines()
    last = next(i for i, line in enumerate(lines) if line.startswith("register_"))
    return "\n".join(lines[: last + 1]) + "\n"


def test_what_the_pages_say_works_in_a_run(data: Path, encoder: Path, tmp_path: Path) -> None:
    import subprocess
    import sys

    code = definitions("Add a method") + definitions("Add an attack")
    (tmp_path / "my_code.py").write_text(code)
    (tmp_path / "mine.yaml").write_text(SPEC.format(encoder=encoder))
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py", str(data)],
        cwd=tmp_path,
        env=checkout_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "{}\nTrue\n", done.stderr
    records = (tmp_path / "out" / "frontier" / "records.jsonl").read_text()
    assert '"nearest-mean"' in records
    assert '"method": "quiet-outside"' in records
    assert "quiet-outside" not in METHODS  # it was registered there, not here
    with raises("E-DATA-FILE", "modules"):
        summarise("frontier", tmp_path / "out")  # from another folder the file is not found


def test_a_file_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from research.specification import import_modules

    monkeypatch.chdir(tmp_path)
    for code, error in {"1 / 0\n": "ZeroDivisionError", "raise SystemExit(0)\n": "SystemExit"}.items():
        (tmp_path / "broken.py").write_text(code)
        with pytest.raises(DataFileError, match=rf"broken\.py.*{error}"):
            import_modules(["broken.py"])
    with pytest.raises(DataFileError, match=r"File not found: none\.py .*current folder"):
        import_modules(["none.py"])
    with raises("E-DATA-FILE", "modules"):
        import_modules(["no_such_module"])


def test_names_that_are_taken_are_refused() -> None:
    with raises("E-INPUT-NAME", "make"):
        register_attack(LinearAttack)
    with raises("E-INPUT-TYPE", "make"):
        register_attack(lambda: None)  # type: ignore[arg-type,return-value]
    with raises("E-INPUT-NAME", "method"):
        register_method(METHODS["laplace"])
    with raises("E-INPUT-TYPE", "method"):
        register_method("laplace")  # type: ignore[arg-type]
