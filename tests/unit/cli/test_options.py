"""The first screen of a command's help, and the words of its errors: options, never Python's parameters or secrets."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vecveil
from harness.command_line import run, write_csv
from harness.contracts import GOLDEN
from vecveil.cli.commands import COMMANDS, _context
from vecveil.cli.commands import vecveil as root
from vecveil.cli.options import Sections, in_options, without_secrets
from vecveil.errors import InvalidInputError

MOST = 15
SOURCE = Path(vecveil.__file__).parent
SECRET = "sk-proj-0123456789abcdefABCDEF"


def commands(command: click.Command = root, names: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(names), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from commands(below, (*names, name))


@pytest.mark.parametrize(("name", "command"), [pytest.param(*each, id=each[0]) for each in commands()])
def test_help_shows_few_options_and_help_all_every_one(name: str, command: click.Command) -> None:
    names = [max(each.opts, key=len) for each in command.params if isinstance(each, click.Option)]
    shown = run(*name.split(), "--help").out
    first = [line for line in shown.splitlines() if re.match(r"  (-\w, )?--[a-z]", line)]
    assert len(first) <= MOST
    assert f"vecveil {name}" in shown.split("Example", 1)[1]
    assert "--json" in shown or name == "experiment spec"
    if not isinstance(command, Sections):
        return
    listed = [option for options in command.sections.values() for option in options]
    assert set(listed) <= set(names)
    required = {max(each.opts, key=len) for each in command.params if isinstance(each, click.Option) and each.required}
    assert required <= set(listed)
    everything = run(*name.split(), "--help-all").out
    assert all(re.search(rf"(?m)^  (-\w, )?{option}\b", everything) for option in names)


def test_the_help_of_fit_fits_on_a_screen_and_names_the_use() -> None:
    text = run("fit", "--help").out
    before = text.split("What to hide:")[0].splitlines()
    assert len(before) < 16
    assert "search" in text.split(".")[0]


def raised() -> Iterator[tuple[str, str]]:
    """Yield command and parameter of each error of the package whose owner is a command, named or in a variable."""
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        values: dict[str, set[str]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                for target in node.targets:
                    values.setdefault(ast.unparse(target), set()).add(str(node.value.value))
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            given = dict(zip(("owner", "param"), node.args, strict=False)) if len(node.args) > 2 else {}
            given |= {each.arg: each.value for each in node.keywords if each.arg in ("owner", "param")}
            # A sentence that begins with the command: "fit: ...".
            begins = re.match(r"f?['\"](\w+): ", ast.unparse(node.args[0])) if node.args else None
            if isinstance(param := given.get("param"), ast.Constant) and str(param.value).isidentifier():
                owner = ast.Constant(begins[1]) if begins else given.get("owner")
                fixed = isinstance(owner, ast.Constant)
                owners = {str(owner.value)} if fixed else values.get(ast.unparse(owner or param), set())
                yield from ((each, str(param.value)) for each in owners if each in COMMANDS)


ONLY_IN_PYTHON = {
    ("fit", name) for name in ("relabel", "shape", "splits", "detector", "members", "labels", "concept_name")
}


@pytest.mark.slow
def test_errors_name_options_that_the_command_has() -> None:
    found = set(raised())
    assert len(found) > 20  # the walk sees them
    unnamed = []
    for name, param in sorted(found - ONLY_IN_PYTHON):
        context = _context([name])
        if isinstance(context.command, click.Group):
            continue
        sentence = in_options(InvalidInputError(f"{name}: `{param}` is missing.", param=param), context, {})
        if not re.search(r"`(--[a-z-]+|--option \w+|[A-Z]+)`", sentence):
            unnamed.append((name, param))
    # Raised by calls from Python alone, or of what no option gives.
    of_files = (
        "policies",
        "timeout",
        "connect_timeout",
        "retries",
        "connections",
        "dimensions",
        "encoding_format",
        "grants",
        "max_response_bytes",
    )
    assert set(unnamed) <= {("protect", name) for name in ("ledger", "part", "part_bytes", "path", "rows", "key")} | {
        ("serve", name) for name in of_files
    } | {
        ("fit", "count"),
        ("fit", "min_token_count"),
        ("migrate", "sealer"),
        ("fit", "groups"),
        ("fit", "surrogates"),
        ("unseal", "rows"),
        ("serve", "routers"),
        ("protect", "protector"),
        ("serve", "upstream_key"),
        ("search", "database"),
        ("scan", "texts"),
    }, unnamed


def said(arguments: str, owner: str, param: str, text: str, values: dict[str, tuple[str, str]] | None = None) -> str:
    error = InvalidInputError(f"{owner}: {text}" if owner else text, param=param)
    return in_options(error, _context(arguments.split()), values or {})


@pytest.mark.parametrize(
    ("arguments", "owner", "param", "text", "sentence"),
    [
        (
            "fit",
            "fit",
            "min_texts",
            "`min_texts` is 5. Lower `min_texts`.",
            "fit: `--min-texts` is 5. Lower `--min-texts`.",
        ),
        (
            "protect",
            "",
            "overwrite",
            "Replace it with overwrite=True (--force), or pass candidates=N (--candidates N).",
            "Replace it with --force, or pass --candidates N.",
        ),
        ("fit", "Concept.find", "texts", "`texts` has 20 texts.", "`INPUT` has 20 texts."),
        ("audit --vectors=v.npy", "audit_store", "embeddings", "`embeddings` has NaN.", "`--vectors` has NaN."),
        (
            "audit",
            "audit",
            "embeddings",
            "`embeddings` has 8 dimensions.",
            "audit: `--embedding-column` has 8 dimensions.",
        ),
        ("migrate", "QdrantStore", "location", "`location` is not free.", "`SOURCE` is not free."),
        ("protect", "Notes.csv", "path", "`path` is no table.", "Notes.csv: `path` is no table."),
        ("fit", "fit", "rank", "`rank` is too high.", "fit: `--option rank` is too high."),
        (
            "fit --group-column town",
            "a.csv",
            "columns",
            "no column 'town' (`columns`).",
            "a.csv: no column 'town' (`--group-column`).",
        ),
        ("fit", "load_encoder", "name", "`name` is unknown.", "`--encoder` is unknown."),
        ("serve", "serve", "name", "`name` is no URL.", "serve: `--upstream` is no URL."),
        ("fit", "Concept", "name", "`name` is no text.", "`name` is no text."),
        ("index repair", "SealedIndex.repair", "", "only members have `it`.", "Only members have `it`."),
        ("protect", "KeyFile.from_file", "", "g.keys is damaged.", "g.keys is damaged."),
        ("verify", "verify", "out", "`out` is no folder.", "verify: `FOLDER` is no folder."),
        (
            "serve",
            "serve --config",
            "limits",
            "`limits` has the keys `upstream_key`, `key`.",
            "serve --config: `limits` has the keys `upstream_key`, `key`.",
        ),
        (
            "fit",
            "",
            "",
            "Give a.csv (--force) other_words 'min_texts' embeddings.",
            "Give a.csv (--force) other_words 'min_texts' embeddings.",
        ),
    ],
)
def test_the_parameter_is_called_by_its_option(
    arguments: str, owner: str, param: str, text: str, sentence: str
) -> None:
    values = {"v.npy": ("--vectors", "")} if "--vectors" in arguments else {}
    assert said(arguments, owner, param, text, values) == sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "protect a.csv -p {} -o b.parquet",
        "protect a.csv -p {protector} -o b.npy --key-file {} --id-column text",
        "seal a.csv -p {protector} -o b.parquet --seal-key {} --seal-name n --id-column text",
        "seal a.csv -p {protector} -o b.parquet --seal-key env:{}:{} --seal-name n --id-column text",
        "audit a.csv -p {} --concept a.csv",
        "serve -p {protector} --api-keys {}",
        "serve -p x={}",
        "key list {}",
        "ledger show {}",
        "fit m.csv --concept c.yaml --epsilon 9 --rewrite surrogate --surrogate-key {} -o p.vecveil",
        "serve -p {protector} --upstream https://localhost/v1#m --upstream-key {}",
        "protect a.npy -p {protector} -o b.npy --ledger a.csv --key-file {}",
        "serve --config {}",
        "fit m.csv --concept {} --epsilon 9 -o p.vecveil",
        "audit {} -p {protector} --concept c.yaml",
    ],
)
def test_a_secret_in_place_of_a_file_is_not_repeated(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "a.csv", ["text"], [("a",)])
    write_csv(tmp_path / "m.csv", ["text"], [(f"note {i} of a",) for i in range(30)])
    (tmp_path / "c.yaml").write_text("name: c\nterms: [a]\n", encoding="utf-8")
    np.save(tmp_path / "a.npy", np.ones((3, 8), dtype=np.float32))
    given = [part.replace("{protector}", str(GOLDEN / "laplace.vecveil")) for part in words.split()]
    done = run(*[part.replace("{}", SECRET) for part in given])
    assert done.code in (1, 2)
    assert SECRET[:3] not in done.out + done.err
    expected = ("must name a", "must name the", "key file", "api-keys", "`--upstream-key` cannot be read")
    assert any(words in done.err for words in expected), done.err


def test_the_name_of_a_file_is_repeated() -> None:
    """Control: a mistyped file name is of use to whoever reads the error."""
    values = {"folder/drg.vecveil": ("--protector", "a protector file")}
    assert without_secrets("drg.vecveil does not exist.", values) == "drg.vecveil does not exist."
    for name in ("secrets/search", "env:KEY:search_keys"):
        said = "Key file not found: " + name.split(":")[-1].split("/")[-1]
        assert without_secrets(said, {name: ("--seal-key", "a key file")}) == said
    values = {SECRET: ("--protector", "a protector file")}
    said = without_secrets(f"{SECRET} does not exist.", values)
    assert said == "[...] does not exist. `--protector` must name a protector file."


def test_bad_vectors_are_named_by_their_option(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.full((3, 8), np.nan, dtype=np.float32))
    write_csv(tmp_path / "a.csv", ["text"], [("a",)] * 3)
    (tmp_path / "c.yaml").write_text("name: c\nterms: [a]\n", encoding="utf-8")
    done = run("audit", tmp_path / "a.csv", "--vectors", tmp_path / "v.npy", "--concept", tmp_path / "c.yaml")
    assert "v.npy: `--vectors` has NaN or infinity in 3 of" in done.err


@pytest.mark.parametrize(
    "secret",
    [SECRET, "hf_QsKjhFzRnTkZbVcXyLmPwDoAeUiGtJ", "q1Zs8aB3cD4eF5gH6iJ7==", "9f86d081884c7d659a2feaa0c55ad015"],
)
def test_no_file_is_named_after_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "a.npy", np.ones((3, 8), dtype=np.float32))
    protect = ("protect", "a.npy", "-p", GOLDEN / "laplace.vecveil", "-o", "b.npy")
    for command in ((*protect, "--ledger", secret), ("key", "new", secret)):
        done = run(*command)
        assert done.code == 2
        assert "looks like a secret" in done.err, done.err
        assert secret[:3] not in done.out + done.err
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]


@pytest.mark.parametrize("words", ["doctor --encoder", "fit a.csv --concept c.yaml -o p.vecveil --encoder"])
def test_a_secret_in_place_of_an_encoder_is_not_asked_for_at_the_hub(words: str) -> None:
    done = run(*words.split(), SECRET)
    assert done.code == 2
    assert "'--encoder': it must name an encoder; this looks like a secret" in done.err
    assert SECRET[:3] not in done.out + done.err


@pytest.mark.parametrize(
    "name",
    [
        "releases",
        "releases-2026-11-production",
        "releases20261126T120000",
        "clinicalNotesOf2026",
        "hf_embeddings_2026",
        "ledger_of_the_second_store",
        "releases20261126.sqlite3",
        f"{SECRET}.ledger",
    ],
)
def test_the_name_of_a_ledger_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "a.npy", np.ones((3, 8), dtype=np.float32))
    done = run("protect", "a.npy", "-p", GOLDEN / "laplace.vecveil", "-o", "b.npy", "--ledger", name)
    assert done.code == 0, done.err
    assert Path(name).is_file()


def test_a_bad_destination_is_not_called_the_source(tmp_path: Path) -> None:
    done = run("migrate", f"faiss:{tmp_path / 'a'}", "faiss", "-p", GOLDEN / "laplace.vecveil")
    assert "`DEST` has the form KIND:WHERE#COLLECTION, such as chroma:store#notes." in done.err
    done = run("migrate", tmp_path, "sealed:index/", "--seal-key", "no.keys")
    assert "SOURCE is a folder" in done.err
    assert "KIND:FOLDER#COLLECTION" in done.err
    done = run("migrate", f"faiss:{tmp_path / 'a'}", "foo:x")
    assert "names no known kind" in done.err


def test_an_existing_protector_is_named_by_its_option(tmp_path: Path) -> None:
    """The output of fit is --out; its --output says what a protector releases."""
    (tmp_path / "p.vecveil").touch()
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.eye(8, dtype=np.float32))
    done = run(
        f"fit --positive {tmp_path / 'a.npy'} --negative {tmp_path / 'b.npy'} --epsilon 9 -o {tmp_path / 'p.vecveil'}"
    )
    assert "`--out` p.vecveil exists" in done.err


def test_vectors_of_a_column_are_called_by_the_column(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((3, 5), dtype=np.float32))
    pq.write_table(pa.table({"embedding": pa.array([[1.0] * 5] * 3, pa.list_(pa.float32()))}), tmp_path / "a.parquet")
    for name, option in (("a.npy", "INPUT"), ("a.parquet", "--embedding-column")):
        done = run("protect", tmp_path / name, "-p", GOLDEN / "laplace.vecveil", "-o", tmp_path / "out.npy")
        assert f"{name}: `{option}` has dimension 5" in done.err
