"""Names, folders, the hub and missing packages: what cannot be loaded says what to do."""

from __future__ import annotations

import importlib.resources
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.errors import raises
from vecveil.encoders import load_encoder, loading
from vecveil.errors import MissingDependencyError


def test_a_folder_is_named_without_its_path(tiny_folder: Path) -> None:
    encoder = load_encoder(str(tiny_folder), cache=None)
    assert encoder.name == tiny_folder.name
    assert str(tiny_folder.parent) not in repr(encoder)


@pytest.mark.parametrize("name", ["./no-such-folder", "/no/such/folder", "", "a/b/c"])
def test_a_folder_that_is_not_there(name: str) -> None:
    with raises("E-INPUT", "name"):
        load_encoder(name)


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with raises("E-INPUT", "name"):
        load_encoder(tmp_path)


def test_a_damaged_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    (tmp_path / "modules.json").write_text("[", encoding="utf-8")
    with raises("E-INPUT", "name"):
        load_encoder(tmp_path)


def test_offline_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any) -> None:
        raise OSError("no route")

    monkeypatch.setattr(loading, "_ask_hub", unreachable)
    with raises("E-INPUT", "name"):
        load_encoder("somebody/some-model-that-is-not-cached")


def test_switched_off_hub_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(loading, "_ask_hub", lambda *_: pytest.fail("the hub was asked"))
    with raises("E-INPUT", "name"):
        load_encoder("somebody/some-model-that-is-not-cached")


def test_a_cached_hub_model_needs_no_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_folder: Path
) -> None:
    """The layout of the hub's own cache, filled by hand."""
    repository = tmp_path / "models--somebody--tiny"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(tiny_folder, target_is_directory=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40, encoding="utf-8")
    monkeypatch.setattr(loading, "_ask_hub", lambda *_: pytest.fail("the hub was asked"))
    # On a busy machine "auto" may choose another precision for each.
    encoder = load_encoder("somebody/tiny", precision="fp32", cache=None, cache_folder=str(tmp_path))
    assert encoder.name == "somebody/tiny"
    assert encoder.fingerprint == load_encoder(tiny_folder, precision="fp32", cache=None).fingerprint


def test_code_of_a_model_does_not_run_unasked(
    monkeypatch: pytest.MonkeyPatch, tiny_folder: Path
) -> None:
    import sentence_transformers

    seen: list[Any] = []
    real = sentence_transformers.SentenceTransformer

    def spy(*args: Any, **options: Any) -> Any:
        seen.append((options["trust_remote_code"], options["local_files_only"]))
        return real(*args, **options)

    monkeypatch.setattr(sentence_transformers, "SentenceTransformer", spy)
    load_encoder(tiny_folder, cache=None)
    load_encoder(tiny_folder, cache=None, trust_remote_code=True)
    assert seen == [(False, True), (True, True)]


def test_missing_packages_name_the_extra(
    monkeypatch: pytest.MonkeyPatch, tiny_folder: Path
) -> None:
    def gone(_: str) -> None:
        raise ModuleNotFoundError("gone")

    monkeypatch.setattr(importlib.resources, "files", gone)
    with pytest.raises(MissingDependencyError, match=r"vecveil\[minilm\]"):
        load_encoder("minilm")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingDependencyError, match=r"vecveil\[encoders\]"):
        load_encoder(tiny_folder)


def test_the_bar_of_transformers_is_left_as_it_was(
    tiny_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from transformers.utils import logging

    assert logging.is_progress_bar_enabled()
    load_encoder(tiny_folder, cache=None)
    assert "Loading weights" not in capfd.readouterr().err
    assert logging.is_progress_bar_enabled()
