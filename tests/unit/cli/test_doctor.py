"""``vecveil doctor`` reads the extras from the metadata, says what is missing and how to get it, and no secret."""

from __future__ import annotations

import json
import os
import stat
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.command_line import run
from vecveil.cli import doctor

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SECRET = "c2VjcmV0IGtleSBvZiB0aGlydHktdHdvIGJ5dGVz"
SMALL = [
    "numpy>=2.0",
    "click>=8.1; extra == 'cli'",
    'vecveil[files]; extra == "cli"',
    'pyarrow>=16; extra == "files"',
    f'uvloop>=0.19; sys_platform == "{sys.platform}" and extra == "serve"',
    'backport>=1; python_version < "3" and extra == "serve"',
    f'winloop>=0.1; sys_platform != "{sys.platform}" and extra == "serve"',
]


def lines_of_the_project() -> list[str]:
    """Return what the package's metadata says once it is built."""
    built = list(PROJECT["dependencies"])
    for extra, needs in PROJECT["optional-dependencies"].items():
        for need in needs:
            name, _, marker = need.partition(";")
            joined = f"{marker.strip()} and " if marker else ""
            built.append(f'{name.strip()}; {joined}extra == "{extra}"')
    return built


def examined(lines: list[str], **versions: str) -> dict[str | None, dict[str, Any]]:
    return {one["extra"]: one for one in doctor.examine_extras(lines, versions.get)}


def test_every_extra_of_the_project_is_known_with_its_packages_and_command() -> None:
    found = examined(lines_of_the_project())
    assert set(found) == {None, *PROJECT["optional-dependencies"]}
    assert found[None]["install"] == "pip install --upgrade 'vecveil'"
    for extra, one in found.items():
        if extra is None:
            continue
        assert one["state"] == "missing", extra
        assert one["install"] == f"pip install --upgrade 'vecveil[{extra}]'"
        asked = " ".join(PROJECT["optional-dependencies"][extra])
        assert one["packages"] or one["of"]
        assert all(package["name"] in asked for package in one["packages"])


def test_an_extra_is_installed_incomplete_or_missing_with_those_that_it_is_made_of() -> None:
    found = examined(SMALL, numpy="2.4.6", click="8.1", pyarrow="26.0.1")
    assert [found[name]["state"] for name in (None, "cli", "files")] == ["installed"] * 3
    assert found["cli"]["of"] == ["files"]
    assert found["cli"]["install"] is None
    found = examined(SMALL, numpy="2.4.6", click="8.5.1")
    assert (found["cli"]["state"], found["files"]["state"]) == ("incomplete", "missing")
    assert found["cli"]["install"] == "pip install --upgrade 'vecveil[cli]'"
    assert examined(SMALL)["cli"]["state"] == "missing"
    assert examined(SMALL)[None]["state"] == "missing"


@pytest.mark.parametrize(
    ("version", "least", "state"),
    [
        ("2.13.0+cpu", "2.3", "installed"),
        ("2.3", "2.3.0", "installed"),
        ("2.2.9", "2.3", "too old"),
        ("10.0", "9.1", "installed"),
        ("1.10rc1", "1.9", "installed"),
        ("0.4.4", "0.4.5", "too old"),
        ("2026.11.15", "2024.5", "installed"),
    ],
)
def test_a_version_below_the_lowest_that_will_do_is_too_old(version: str, least: str, state: str) -> None:
    (one,) = doctor.examine_extras([f"numpy>={least}"], {"numpy": version}.get)
    assert one["packages"] == [{"name": "numpy", "version": version, "least": least, "state": state}]
    assert one["state"] == ("installed" if state == "installed" else "incomplete")


def test_what_another_platform_needs_is_left_out() -> None:
    assert [p["name"] for p in examined(SMALL)["serve"]["packages"]] == ["uvloop"]


@pytest.mark.slow
def test_doctor_prints_the_extras_of_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "requirements", lambda: [*SMALL, "no-such-thing>=3; extra == 'odd'"])
    found = run("doctor", "--json")
    assert found.code == 0
    assert [one["extra"] for one in found.json["extras"]] == ["cli", "files", "serve", "odd"]
    shown = run("doctor").out
    assert "no-such-thing missing (needs 3)" in shown
    assert "pip install --upgrade 'vecveil[odd]'" in shown


def test_without_metadata_doctor_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", nothing)
    done = run("doctor")
    assert done.code == 0
    assert "metadata was not found" in done.out


def test_a_missing_package_of_the_core_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "requirements", lambda: [*SMALL, "no-such-thing>=3"])
    done = run("doctor")
    assert done.code == 1
    assert "The core does not work." in done.out


def test_no_secret_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VECVEIL_KEYS", json.dumps({"keys": {"a": SECRET}}))
    monkeypatch.setenv("VECVEIL_THREADS", "3")
    for arguments in (["doctor"], ["doctor", "--json"]):
        out = run(*arguments).out
        assert SECRET not in out
        assert "VECVEIL_KEYS" in out
    found = doctor.variables()
    assert found["VECVEIL_KEYS"] == doctor.NOT_SHOWN
    assert found["VECVEIL_THREADS"] == "3"


def test_the_kernel_in_use_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecveil.privacy.randomness.kernel._compiled", None)
    monkeypatch.setenv("VECVEIL_KERNEL", "numpy")
    assert doctor.kernel() == {"form": "numpy", "why": "VECVEIL_KERNEL=numpy"}
    assert "NumPy, slower: VECVEIL_KERNEL=numpy" in run("doctor").out
    monkeypatch.delenv("VECVEIL_KERNEL")
    assert "compiler" in doctor.kernel()["why"]


def test_java_is_found_by_its_home_and_asked_for_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.2\" 2024-01-16' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert doctor.java() == {"path": str(java), "version": "21.0.2"}
    java.write_text("not a program")
    assert doctor.java()["version"] is None
    java.unlink()
    assert doctor.java() == {"path": None, "version": None}
    assert "not found" in run("doctor").out


def test_the_room_for_the_cache_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VECVEIL_CACHE", str(tmp_path / "none" / "yet"))
    found = doctor.cache()
    assert found["bytes"] == 0
    assert found["free"] > 0
    assert found["writable"] is True
    assert str(tmp_path / "none" / "yet") in run("doctor").out


def test_experiments_need_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.examine()["experiments"]
    monkeypatch.setattr(doctor, "find_checkout", lambda: None)
    assert "need a checkout of the repository" in run("doctor").out


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="the platform has no mode bits")
def test_a_key_file_that_others_can_read_is_named_by_its_option(tmp_path: Path) -> None:
    noise, seal = tmp_path / "noise.keys", tmp_path / "seal.keys"
    for path in (noise, seal):
        path.write_text(SECRET)
    options = ["--key-file", noise, "--seal-key", f"env:MASTER:{seal}"]
    for mode, others in ((0o600, False), (0o640, True), (0o604, True)):
        noise.chmod(0o600)
        seal.chmod(mode)
        found = run("doctor", "--json", *options)
        assert found.code == 0
        assert found.json["keys"]["--key-file"] == "closed to others"
        assert ("chmod 600" in found.json["keys"]["--seal-key"]) is others
        shown = run("doctor", *options).out
        assert f"key of --seal-key       {found.json['keys']['--seal-key']}" in shown
        assert SECRET not in shown + found.out
    assert run("doctor", "--json").json["keys"] == {}


def test_a_key_in_place_of_its_file_is_refused_and_not_printed() -> None:
    done = run("doctor", "--key-file", SECRET)
    assert done.code == 2
    assert "it must name a key file" in done.err
    assert SECRET not in done.out + done.err


@pytest.mark.parametrize(
    ("name", "part"), [("https://host.example/v1#model", "name alone"), ("minilm", "weights"), ("a/folder", "weights")]
)
def test_an_encoder_without_a_fingerprint_of_its_weights_is_named(name: str, part: str) -> None:
    assert part in run("doctor", "--json", "--encoder", name).json["fingerprint"]
    assert part in run("doctor", "--encoder", name).out


def test_a_single_zero_in_a_release_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    # Released values lie on a grid: about one run in a hundred of this check draws an exact 0.0.
    protect = doctor.Laplace.protect

    def with_zeros(mechanism: doctor.Laplace, clean: np.ndarray, zeros: object) -> np.ndarray:
        released = protect(mechanism, clean)
        released[zeros] = 0.0
        return released

    for zeros, state in (((0, 0), "works"), ((0, slice(None)), "fails: ValueError")):
        monkeypatch.setattr(doctor.Laplace, "protect", lambda self, X, zeros=zeros: with_zeros(self, X, zeros))
        assert doctor.examine()["checks"]["protection"] == state


@pytest.mark.parametrize(("flag", "expected"), [("avx512_bf16", False), ("amx_bf16", True), ("bf16", True)])
def test_bf16_without_matrix_units_is_slower_than_fp32(
    monkeypatch: pytest.MonkeyPatch, flag: str, expected: bool
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {flag: True}, raising=False)
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: f"flags : fma {flag}\n")
    assert doctor.cpu_has_bf16() is expected
