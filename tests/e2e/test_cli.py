"""The command line does what it says: pure JSON on stdout, exit codes, files whole and readable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vecveil
from harness.command_line import ROWS, command, environment, run, spawn, write_pairs
from vecveil.cli.commands import COMMANDS

OF_TEXTS = ("fit", "x.csv", "--concept", "c", "-o", "y", "--epsilon", "1")
FIT = ("--method", "laplace", "--noise-to-signal", "0.5")


def test_version_and_overview() -> None:
    assert run("--version").out.strip() == f"vecveil {vecveil.__version__}"
    overview = run("--help")
    assert overview.code == 0
    listed = " ".join(overview.out.split())
    for name, (_, _, short_help) in COMMANDS.items():
        assert f" {name} {short_help}" in listed


def test_a_mistyped_command_is_answered_with_the_nearest() -> None:
    assert "Did you mean 'search'?" in run("serach").err


SLOW = {"jinja2", "pyarrow", "scipy.optimize", "scipy.stats", "sklearn", "starlette", "torch", "uvicorn"}


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("main(['--help'])", {"numpy", *(f"vecveil.cli.{module}" for module, _, _ in COMMANDS.values())}),
        ("[main([name, '--help']) for name in commands.COMMANDS]", SLOW),
    ],
)
def test_help_loads_nothing_slow(code: str, absent: set[str]) -> None:
    code = f"import sys; from vecveil.cli.__main__ import main; from vecveil.cli import commands; {code}; "
    code += f"print(sorted({absent} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["re"], "plain,reseal plain,reprotect plain,reconcile"),
        (["key", "n"], "plain,new"),
        (["search", "--seal-k"], "plain,--seal-key"),
        (["search", "sealed:x", "q", "--seal-key", "s"], "file,s"),
    ],
)
def test_a_shell_completes_commands_and_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], completed: str
) -> None:
    monkeypatch.setenv("_VECVEIL_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(["vecveil", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    done = spawn(cwd=tmp_path)
    assert (done.code, done.out.split()) == (0, completed.split())


def test_without_click_the_pip_line_is_printed(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise ImportError('no click here')\n")
    env = environment()
    env["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{env['PYTHONPATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "vecveil", "doctor"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'vecveil[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "No such command"),
        (["fit", "x.csv"], "Missing option '-o'"),
        (["fit", "x.csv", "-o", "y"], "exactly one of --target-utility"),
        (["fit", "x.csv", "-o", "y", "--epsilon", 1, "--noise-to-signal", 1], "exactly one"),
        (["fit", "x.csv", "-o", "y", "--target-utility", 1.5], "--target-utility"),
        (["fit", "x.csv", "-o", "y", "--epsilon", "nan"], "not nan"),
        (["audit", "x.csv", "--concept", "c", "--fail-above", "nan"], "not nan"),
        (["frontier", "x.csv", "--concept", "c", "--out", "o", "--leak-ceiling", "nan"], "not nan"),
        (["fit", "x.csv", "-o", "y", "--target-utility", 0.9], "--concept"),
        (["fit", "-o", "y", "--epsilon", 1], "--positive and --negative"),
        (["fit", "x.csv", "--positive", "p.npy", "-o", "y", "--epsilon", 1], "not both"),
        (["fit", "x.csv", "--method", "magic", "-o", "y", "--epsilon", 1], "laplace"),
        ([*OF_TEXTS, "--option", "rank"], "key=value"),
        ([*OF_TEXTS, "--option", "seed=3"], "rank"),
        ([*OF_TEXTS, "--sts", "s", "--label-column", "l"], "it sets the target"),
        ([*OF_TEXTS, "--utility", "sealed-search", "--candidates", 50], "--collection-size"),
        ([*OF_TEXTS, "--candidates", 50], "needs --candidates and --collection-size"),
        ([*OF_TEXTS, "--sts", "s", "--candidates", 50], "--candidates belongs to sealed search"),
        ([*OF_TEXTS, "--query-noise", "0"], "--query-noise belongs to sealed search"),
        ([*OF_TEXTS, "--min-texts", "19"], "--min-texts must be at least 20"),
        (["scan", "faiss:x", "--concept", "c", "--json", "a", "--audit-json", "a"], "--json and --audit-json"),
        (["scan", "faiss:x", "--concept", "c", "--audit-json", "-"], "--audit-json must name a file"),
        (["audit", "x.csv", "--concept", "c", "--html", "a", "--md", "a"], "--html and --md name the same file"),
        (["audit", "x.csv", "--concept", "c", "--html", "-"], "--html must name a file"),
        (["protect", "x.csv", "-o", "y.npy"], "-p"),
        (["audit", "x.csv", "-p", "y"], "--concept"),
        (["demo", "--input", "x.csv"], "together"),
        (["demo", "--text-column", "text"], "--input"),
    ],
)
def test_misuse_exits_with_2_and_says_what_is_missing(arguments: list[object], says: str) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert says in done.err


def test_doctor_works() -> None:
    done = run("doctor", "--json")
    assert done.code == 0, done.out
    assert done.json["ok"] is True
    assert done.json["checks"] == {"generator": "works", "protection": "works"}
    assert "The core works." in run("doctor").out


def test_doctor_fails_where_protection_does(monkeypatch: pytest.MonkeyPatch) -> None:
    import secrets

    monkeypatch.setattr(secrets, "token_bytes", bytes)  # twice the same key
    done = run("doctor", "--json")
    assert done.code == 1
    assert done.json["checks"]["generator"] == "fails: ValueError"


def test_a_fit_for_sealed_search_tells_how_the_collection_may_grow(tmp_path: Path) -> None:
    positive, negative = write_pairs(tmp_path)
    command = (
        "fit",
        "--positive",
        positive,
        "--negative",
        negative,
        "--method",
        "laplace",
        "--utility",
        "sealed-search",
        "--collection-size",
        2000,
        "--query-noise",
        "0",
        "--json",
        "-v",
    )
    few = (*command, "--candidates", 40, "-o", tmp_path / "few.vecveil")
    refused = run(*few)
    assert refused.code == 1
    assert "--accept-leak" in refused.err
    assert not (tmp_path / "few.vecveil").exists()
    assert run(*few, "--accept-leak").err.startswith("This protects next to nothing: ")
    done = run(*command, "--candidates", 150, "-o", tmp_path / "p.vecveil")
    assert done.code == 0, done.err
    outlook = done.json["report"]["sealed_search"]
    assert (outlook["candidates"], outlook["query_noise"]) == (150, 0)
    assert done.json["report"]["asked"] == {"target_utility": 0.99}
    for said in ("At 2,000 rows: recall@10", "At 20,000 rows", "target 99.0 %", "A search fetches", "through the map"):
        assert said in done.err


def test_no_noise_is_the_map_alone_and_warns(tmp_path: Path, vectors_protector: Path) -> None:
    _, negative = write_pairs(tmp_path)
    done = run("protect", negative, "-p", vectors_protector, "-o", tmp_path / "q.npy", "--no-noise")
    assert done.code == 0
    assert "vecveil: warning: --no-noise" in done.err
    expected = vecveil.load(vectors_protector).protect(np.load(negative), noise=False)
    assert np.array_equal(np.load(tmp_path / "q.npy"), expected)


def test_texts_are_protected_without_the_text(tmp_path: Path, notes: Path, notes_protector: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "protected.parquet"
    done = run("protect", notes, "-p", notes_protector, "-o", out, "--json")
    assert done.code == 0, done.err
    assert done.json["encoded"] is True
    table = pq.read_table(out)
    assert table.column_names == ["id", "embedding"]
    assert table.num_rows == ROWS
    assert str(table.schema.field("embedding").type) == "fixed_size_list<element: float>[384]"
    about = json.loads(table.schema.metadata[b"vecveil"])
    assert about["protected"] is True
    assert about["method"] == "subspace"
    assert "Columns copied unchanged: id. Left out: text, domain." in done.err
    assert "Column `domain` may contain clean text. It is left out; pass `--carry domain` to keep it." in done.err

    done = run("protect", notes, "-p", notes_protector, "-o", tmp_path / "protected.npy")
    assert "write .parquet and pass `--carry id` to keep it." in done.err
    kept = tmp_path / "kept.parquet"
    done = run("protect", notes, "-p", notes_protector, "-o", kept, "--keep-text", "--carry", "id")
    assert done.code == 0, done.err
    assert pq.read_table(kept).column_names == ["id", "text", "embedding"]

    refused = run("protect", out, "-p", notes_protector, "-o", tmp_path / "twice.parquet")
    assert refused.code == 1
    assert "--again" in refused.errors[0]
    done = run("protect", out, "-p", notes_protector, "-o", tmp_path / "twice.parquet", "--again")
    assert done.code == 0, done.err
    refused = run("audit", out, "-p", notes_protector, "--concept", notes.with_name("concept.yaml"))
    assert refused.code == 1
    assert "protected" in refused.errors[0]


def test_a_file_is_not_replaced_unasked(tmp_path: Path, vectors_protector: Path) -> None:
    positive, negative = write_pairs(tmp_path)
    out = tmp_path / "there.npy"
    out.write_bytes(b"precious")
    fit = ("fit", "--positive", positive, "--negative", negative, *FIT, "-o", out)
    protect = ("protect", negative, "-p", vectors_protector, "-o", out)
    for arguments in (fit, protect):
        done = run(*arguments)
        assert done.code == 1
        assert "--force" in done.errors[0]
        assert out.read_bytes() == b"precious"
        assert run(*arguments, "--force").code == 0
        assert out.read_bytes() != b"precious"
        out.write_bytes(b"precious")
    for target in (positive, negative):
        done = run("fit", "--positive", positive, "--negative", negative, *FIT, "-o", target, "--force")
        assert done.code == 1
        assert "one of the inputs" in done.errors[0]


def test_a_labelled_task_can_set_the_target(tmp_path: Path, notes: Path) -> None:
    done = run(
        f"fit {notes} --concept {notes.with_name('concept.yaml')} --method laplace --label-column domain "
        f"--target-utility 0.9 --json -o {tmp_path / 'p.vecveil'}"
    )
    assert done.code == 0, done.err
    assert done.json["report"]["utility_task"] == "classification"
    assert done.json["report"]["utility"]["classification"]["relative"] > 0.8


def test_a_process_of_its_own_keeps_stdout_pure(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    pair = ("--positive", "positive.npy", "--negative", "negative.npy")
    done = spawn("fit", *pair, *FIT, "-o", "p.vecveil", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.json["protector"] == "p.vecveil"
    assert "Wrote p.vecveil" in done.err
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["negative.npy", "p.vecveil", "positive.npy"]


def test_a_reader_that_goes_away_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command("methods"), env=environment(), stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert done.returncode == 141
    assert done.stderr == ""
