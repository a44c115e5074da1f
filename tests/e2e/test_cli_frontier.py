"""``vecveil frontier`` writes a page and a record, picks for scripts, and ``vecveil fit --from`` fits a point."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vecveil
from harness.command_line import Outcome, leftovers, run
from harness.contracts import GOLDEN
from vecveil.auditing import comparison as module
from vecveil.auditing.attacks import MLPAttack
from vecveil.cli.output import share
from vecveil.errors import ConceptError
from vecveil.texts.encoders import LsaEncoder
from vecveil.texts.tables import read_texts


@pytest.fixture(scope="module", autouse=True)
def few_designs() -> Iterator[None]:
    made = module.designs

    def three(dimension: int) -> list[dict[str, Any]]:
        every = made(dimension)
        return [every[i] for i in (0, 2, 8)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "designs", three)
        patch.setattr(module, "MLPAttack", lambda device: MLPAttack((32,), epochs=4, device=device))
        yield


@pytest.fixture(scope="module")
def measured(notes: Path, lsa: Path) -> tuple[Path, Outcome]:
    return notes.with_name("frontier"), run(*arguments(notes, lsa))


def arguments(notes: Path, lsa: Path, *more: object) -> list[object]:
    return [
        "frontier",
        notes,
        "--text-column",
        "text",
        "--concept",
        notes.with_name("concept.yaml"),
        "--encoder",
        lsa,
        "--group-column",
        "id",
        "--out",
        notes.with_name("frontier"),
        "--candidates",
        40,
        "--candidates",
        20,
        *more,
    ]


def test_the_folder_holds_record_page_and_concept(measured: tuple[Path, Outcome], notes: Path) -> None:
    folder, done = measured
    assert done.code == 0, done.err
    assert sorted(path.name for path in folder.iterdir()) == ["concept.yaml", "frontier.html", "frontier.json"]
    assert folder.stat().st_mode & 0o077 == 0
    assert {path.stat().st_mode & 0o077 for path in folder.iterdir()} == {0}
    assert (folder / "concept.yaml").read_bytes() == notes.with_name("concept.yaml").read_bytes()
    record = json.loads((folder / "frontier.json").read_text(encoding="utf-8"))
    assert len(record["points"]) == record["designs"] == 3
    assert [[each["candidates"] for each in point["sealed"]] for point in record["points"]] == [[20, 40]] * 3
    assert "laplace, noise 0.5" in done.out
    # Three designs on a small encoder of words: none keeps search.
    assert done.out.startswith("No design both hides and searches well here: use a sealed index. ")
    assert leftovers(folder) == []
    refused = run("fit", notes, "--from", folder, "-o", folder / "p.vecveil")
    assert refused.code == 2
    assert "No design both hides" in refused.err
    assert "--point" in refused.err


def test_limits_print_the_number_of_a_point_for_scripts(measured: tuple[Path, Outcome], notes: Path, lsa: Path) -> None:
    picked = run(*arguments(notes, lsa, "--at-least-search", 0.05))
    assert picked.code == 0, picked.err
    assert picked.out.strip() in ("1", "2", "3")
    assert f"Within the limits: point {picked.out.strip()} (" in picked.err
    printed = run(*arguments(notes, lsa, "--json")).json
    assert printed["point"] is None
    assert printed["record"]["concept"]
    none = run(*arguments(notes, lsa, "--at-most-leak", 0.001))
    assert (none.code, none.out) == (1, "")
    assert len(none.errors) == 1
    assert "Nearest: point" in none.err
    both = run(*arguments(notes, lsa, "--at-most-leak", 0.99, "--at-least-search", 0.999, "--store-alone"))
    assert (both.code, both.out) == (1, "")
    assert "Without a key pass --store-alone" in picked.err


def test_who_searches_without_a_key_is_asked(
    measured: tuple[Path, Outcome], notes: Path, lsa: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(*arguments(notes, lsa, "--store-alone"))
    assert (done.code, "here without a key" in done.out) == (0, True), done.err
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
    for key in (False, True):
        monkeypatch.setattr("click.confirm", lambda text, key=key, **options: asked.append(text) or key)
        done = run(*arguments(notes, lsa))
        assert (done.code, "here without a key" in done.out) == (0, not key), done.err
    assert asked == ["Does whoever searches hold a key?"] * 2


def test_a_point_is_fitted_from_its_folder(measured: tuple[Path, Outcome], notes: Path, tmp_path: Path) -> None:
    folder, _ = measured
    lsa = notes.with_name("lsa")
    out = tmp_path / "p.vecveil"
    done = run("fit", notes, "--from", folder, "--point", 3, "--encoder", lsa, "-o", out)
    assert done.code == 0, done.err
    record = json.loads((folder / "frontier.json").read_text(encoding="utf-8"))
    wanted, report = record["points"][2]["arguments"], vecveil.load(out).report
    assert report["parameters"]["rank"] == wanted["rank"]
    assert report["asked"] == {"noise_to_signal": wanted["noise_to_signal"]}
    # What was written and notes stand elsewhere: the verdict is the last line.
    lines = [line.split(":")[0] for line in done.err.splitlines()]
    summary = ["Kept", "Search", "Listed words", "Unlisted words"]
    assert [line for line in lines if line in summary] == summary
    assert lines[-1] in ("Not ready", "Perhaps ready", "Ready to audit")
    # A figure without its chance level cannot be judged.
    listed = next(line for line in done.err.splitlines() if line.startswith("Listed words"))
    assert f"chance {share(record['chance_listed'])}" in listed
    assert f"clean {share(record['clean_listed']['value'])}" in listed


@pytest.mark.parametrize(
    ("more", "code"),
    [(("--point", 9), 1), (("--epsilon", 1), 2), (("--method", "laplace"), 2), (("--option", "rank=3"), 2)],
)
def test_what_contradicts_the_folder_is_refused(
    measured: tuple[Path, Outcome], notes: Path, tmp_path: Path, more: tuple[object, ...], code: int
) -> None:
    done = run("fit", notes, "--from", measured[0], "-o", tmp_path / "p.vecveil", *more)
    assert done.code == code
    assert not (tmp_path / "p.vecveil").exists()


def test_an_unfinished_frontier_needs_a_point_and_a_concept(
    measured: tuple[Path, Outcome], notes: Path, lsa: Path, tmp_path: Path
) -> None:
    record = json.loads((measured[0] / "frontier.json").read_text(encoding="utf-8"))
    (tmp_path / "frontier.json").write_text(json.dumps(record | {"points": record["points"][:2]}), encoding="utf-8")
    fit = ("fit", notes, "--from", tmp_path, "--encoder", lsa, "-o", tmp_path / "p.vecveil")
    unfinished = run(*fit)
    assert unfinished.code == 2
    assert "2 of 3 designs" in unfinished.err
    bare = run(*fit, "--point", 1)
    assert bare.code == 2
    assert "--concept" in bare.err
    del record["points"][1]["arguments"]["noise_to_signal"]
    forged = json.dumps(record | {"table": {"text_column": 5}})
    (tmp_path / "frontier.json").write_text(forged, encoding="utf-8")
    named = (*fit, "--concept", notes.with_name("concept.yaml"))
    assert run(*named, "--point", 1).code == 0
    assert run(*named, "--point", 2).code == 2  # no strength


def test_another_encoder_and_other_texts_are_refused(
    measured: tuple[Path, Outcome], notes: Path, lsa: Path, tmp_path: Path
) -> None:
    LsaEncoder.fit(read_texts(notes).texts, 16).save(tmp_path / "lsa")
    done = run(
        "fit", notes, "--from", measured[0], "--point", 1, "--encoder", tmp_path / "lsa", "-o", tmp_path / "p.vecveil"
    )
    assert done.code == 1
    assert "`--encoder`" in done.err
    other = run(*arguments(notes, lsa, "--seed", 1))
    assert other.code == 1
    assert "`--out`" in other.err
    assert run("fit", notes, "--point", 1, "-o", tmp_path / "p.vecveil").code == 2
    nothing = run("fit", notes, "--from", tmp_path, "-o", tmp_path / "p.vecveil")
    assert nothing.code == 2
    assert tmp_path.name in nothing.err


def test_a_concept_with_a_terms_file_is_copied_with_its_terms(
    measured: tuple[Path, Outcome], notes: Path, lsa: Path, tmp_path: Path
) -> None:
    own = vecveil.Concept.from_file(notes.with_name("concept.yaml"))
    terms = own.detectors[0].terms  # type: ignore[attr-defined]
    (tmp_path / "terms.txt").write_text("\n".join(terms), encoding="utf-8")
    (tmp_path / "concept.yaml").write_text(f"name: {own.name}\nterms_file: terms.txt\n", encoding="utf-8")
    words = arguments(notes, lsa)
    words[words.index(notes.with_name("concept.yaml"))] = tmp_path / "concept.yaml"
    done = run(*words)  # its designs are those of the record
    assert done.code == 0, done.err
    copied = vecveil.Concept.from_file(measured[0] / "concept.yaml")
    assert copied.detectors[0].terms == terms  # type: ignore[attr-defined]
    assert (measured[0] / "concept.yaml").stat().st_mode & 0o077 == 0


def test_a_concept_that_matches_nothing_fails_before_a_model_is_loaded(notes: Path, tmp_path: Path) -> None:
    (tmp_path / "none.yaml").write_text("name: none\nterms: [qwertzuiop]\n", encoding="utf-8")
    given = (notes, "--text-column", "text", "--concept", tmp_path / "none.yaml", "--encoder", tmp_path / "no-model")
    fit, out = ("fit", *given, "--epsilon", 9, "-o", tmp_path / "p.vecveil"), ("--out", tmp_path / "folder")
    for command in (fit, ("frontier", *given, *out), ("audit", *given, "-p", GOLDEN / "laplace.vecveil")):
        done = run(*command)
        assert done.code == 1
        assert "matches nothing" in done.err
    with pytest.raises(ConceptError):
        vecveil.fit(["some text"] * 30, vecveil.Concept.from_terms("none", ["qwertzuiop"]), "no-model", epsilon=1.0)


def test_a_group_column_holds_in_a_fit_or_is_said_not_to(notes: Path, lsa: Path, tmp_path: Path) -> None:
    """Each text is a group of ids; one domain holds too many texts for a split."""
    said = []
    for column in ("id", "domain"):
        done = run(
            f"fit {notes} --text-column text --concept {notes.with_name('concept.yaml')} --encoder {lsa} "
            f"--noise-to-signal 0.5 --option rank=8 --option kept=16 --option flattening=0 --group-column {column} "
            f"-o {tmp_path / f'{column}.vecveil'}"
        )
        assert done.code == 0, done.err
        said.append("without regard to groups" in done.err)
    assert said == [False, True]
    missing = run(
        f"fit {notes} --concept {notes.with_name('concept.yaml')} --encoder {lsa} --epsilon 9 --text-column text "
        f"--group-column patient -o {tmp_path / 'p.vecveil'}"
    )
    assert missing.code != 0
    assert "patient" in missing.err
