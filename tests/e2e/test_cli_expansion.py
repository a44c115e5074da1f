"""Further members of a concept, from the command line: what a fit does with them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.command_line import run
from vecveil.encoders import LsaEncoder

THINGS = [f"thing{chr(97 + i)}" for i in range(20)]
TOWNS = ["oslo", "bern", "cork"]
FURTHER = ["delhi", "essen", "genoa"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of which a third name a listed town and a few another one, a concept file, and an encoder."""
    folder = tmp_path_factory.mktemp("expansion")
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(THINGS, 6)) for _ in range(300)]
    texts = [f"{text} {TOWNS[i % 9]}" if i % 9 < 3 else text for i, text in enumerate(texts)]
    texts += [f"{' '.join(rng.choice(THINGS, 6))} {FURTHER[i % 3]}" for i in range(12)]
    (folder / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    (folder / "concept.yaml").write_text(f"name: town\nterms: [{', '.join(TOWNS)}]\n")
    (folder / "more.yaml").write_text(f"town: [{', '.join(FURTHER)}, Bern]\n", encoding="utf-8")
    LsaEncoder.fit(texts, 20).save(folder / "lsa")
    return folder


COMMON = ("texts.txt", "--concept", "concept.yaml", "--encoder", "lsa", "--no-cache",
          "--noise-to-signal", 0.3, "--option", "rank=4", "-o", "town.vecveil", "--force")  # fmt: skip


def test_a_fit_says_what_members_it_had_and_what_they_cost(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    done = run("fit", *COMMON, "--expand", "more.yaml", "--json", "--verbose")
    assert done.code == 0, done.err
    report = done.json["report"]["expansion"]
    assert (report["members"], report["found"]) == (3, 12)
    assert report["sources"] == [{"source": "word list", "proposed": 4, "members": 3}]
    assert f"Expanded by 3 members in {report['texts']:,} texts, 12 of them as they are" in done.err
    assert not any(word in done.out + done.err for word in FURTHER)
    found = run("fit", *COMMON, "--expand", "more.yaml", "--expand-substitutions", 0, "--json")
    assert found.code == 0, found.err
    report = found.json["report"]["expansion"]
    assert (report["texts"], report["found"], report["substituted"]) == (12, 12, 0)


def test_words_of_a_corpus_and_of_faker_are_members(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    done = run("fit", *COMMON, "--expand-corpus", "texts.txt", "--expand-faker", "day_of_week",
               "--expand-members", 5, "--json")  # fmt: skip
    assert done.code == 0, done.err
    report = done.json["report"]["expansion"]
    assert [row["source"] for row in report["sources"]] == ["faker", "corpus neighbours"]
    assert report["members"] <= 5


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--expand", "none.txt"), "a file that exists"),
        (("--expand-substitutions", "0"), "belongs to a source of members"),
        (("--expand-locale", "de_DE"), "--expand-locale belongs to --expand-faker"),
        (("--expand-faker", "no_such"), "names of Faker's methods"),
        (("--expand", "concept-terms.txt"), "proposing members that are not listed"),
    ],
)
def test_what_cannot_expand_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], why: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / "concept-terms.txt").write_text("Oslo\nbern\n", encoding="utf-8")
    done = run("fit", *COMMON, *arguments)
    assert done.code != 0
    assert why in done.err


def test_vectors_have_no_sentences_to_put_members_into(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    done = run("fit", "--positive", "a.npy", "--negative", "b.npy", "--expand", "more.yaml",
               "--noise-to-signal", 0.3, "-o", "x.vecveil")  # fmt: skip
    assert done.code != 0
    assert "--expand needs INPUT with texts" in done.err
