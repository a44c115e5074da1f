"""Equal content has equal fingerprints everywhere; what changes the vectors changes them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unit.texts.encoders.conftest import build_tiny
from vecveil.texts.encoders import as_text_encoder, load_encoder
from vecveil.texts.encoders.fingerprint import fingerprint_folder


def fingerprint(folder: Path, **options: object) -> str | None:
    given: dict[str, Any] = options
    return load_encoder(folder, cache=None, **given).fingerprint


def test_copies_agree_whatever_their_path(tiny_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "onnx" / "elsewhere"
    shutil.copytree(tiny_folder, copy)
    (copy / "README.md").write_text("another", encoding="utf-8")
    (copy / ".gitattributes").write_text("x", encoding="utf-8")
    (copy / "onnx").mkdir()
    (copy / "onnx" / "model.onnx").write_bytes(b"other format")
    config = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    config |= {"_name_or_path": "elsewhere", "transformers_version": "0"}
    (copy / "config.json").write_text(json.dumps(config, indent=7), encoding="utf-8")
    assert fingerprint(copy) == fingerprint(tiny_folder)


def test_another_process_agrees(tiny_folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from vecveil.texts.encoders.fingerprint import fingerprint_folder\n"
        "print(fingerprint_folder(Path(sys.argv[1]), {'precision': 'fp32', 'normalize': False}))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(tiny_folder)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )
    assert found.stdout.strip() == fingerprint_folder(tiny_folder, {"normalize": False, "precision": "fp32"})


def test_settings_count(tiny_folder: Path) -> None:
    variants: list[dict[str, object]] = [
        {},
        {"precision": "bf16"},
        {"max_seq_length": 9},
        {"normalize": True},
        {"prompt": "the "},
        {"truncate_dim": 16},
        {"fingerprint": "mine"},
    ]
    found = [fingerprint(tiny_folder, **variant) for variant in variants]
    assert len(set(found)) == len(variants)
    # What does not change the vectors does not count.
    assert fingerprint(tiny_folder, batch_size=3) == found[0]


@pytest.mark.parametrize("options", [{"pooling": "cls"}, {"normalize": True}, {"seed": 1}], ids=str)
def test_content_counts(tiny_folder: Path, tmp_path: Path, options: dict[str, object]) -> None:
    other = build_tiny(tmp_path / "other", **options)  # type: ignore[arg-type]
    assert fingerprint(other) != fingerprint(tiny_folder)


def test_one_flipped_bit_of_the_weights_counts(tiny_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tiny_folder, copy)
    before = fingerprint_folder(copy, {})
    weights = next(copy.rglob("*.safetensors"))
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    os.utime(weights, ns=(1, 1))  # the per-process memory of digests goes by size and time
    assert fingerprint_folder(copy, {}) != before


def test_objects_agree_with_each_other(tiny_folder: Path) -> None:
    from sentence_transformers import SentenceTransformer

    def of(seed: int) -> str | None:
        model = SentenceTransformer(str(tiny_folder), device="cpu")
        if seed:
            next(model.parameters()).data[0, 0] += 1
        return as_text_encoder(model, cache=None).fingerprint

    assert of(0) == of(0) != of(1)
