"""Nothing that is loaded may run: the package's source is searched for what would let it.

Each exception is named with its reason; one that is not needed any more fails too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "vecveil"

MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "code", "pty"}
CALLS = {"eval", "exec", "compile", "__import__"}
ENDINGS = {
    "os.system",
    "os.popen",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "yaml.load",
    "yaml.load_all",
    "yaml.unsafe_load",
    "yaml.full_load",
    "pandas.read_pickle",
    "joblib.load",
    "exec_module",
    "torch.hub.load",
    "xml.etree.ElementTree.parse",
}
EXCEPTIONS = {
    ("research/specification.py", "exec_module"): "a user's own modules, named in a specification: documented to run",
    ("research/specification.py", "import_module of a variable"): "the same",
    ("cli/commands.py", "import_module of a variable"): "a command's name, of a table in the source",
    ("research/catalogue/__init__.py", "import_module of a variable"): "of a table in the source",
    ("research/running.py", "import_module of a variable"): "a detector's package, of a table in the source",
    ("stores/faiss.py", "import pickle"): "its unpickler finds no class: objects become plain data",
    ("__init__.py", "import_module of a variable"): "public names, of a table in the source",
    ("auditing/attacks/__init__.py", "import_module of a variable"): "public names, of a table in the source",
    ("privacy/protector/__init__.py", "import_module of a variable"): "public names, of a table in the source",
    ("gateway/server/__init__.py", "import_module of a variable"): "public names, of a table in the source",
    ("privacy/textcrafter/__init__.py", "import_module of a variable"): "public names, of a table in the source",
}


# Between the processes of one job, which its engine or the server starts: those exchange pickles themselves.
OF_ONE_JOB = {
    ("gateway/ray.py", "import pickle"),
    ("gateway/workers.py", "import pickle"),
    ("research/running.py", "import pickle"),
}


def name_of(node: ast.expr) -> str:
    """Return ``a.b.c`` for such an expression, with ``?`` for what is no name."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def is_constant(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def found_in(source: str) -> Iterator[str]:
    """Yield what in ``source`` could run what was loaded."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (f"import {a.name}" for a in node.names if a.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            yield f"import {node.module}"
        elif isinstance(node, ast.Call):
            yield from called(node)


def called(node: ast.Call) -> Iterator[str]:
    name = name_of(node.func)
    given = {each.arg: each.value for each in node.keywords}
    if name in CALLS:
        yield name
    for ending in ENDINGS:
        if name == ending or name.endswith(f".{ending}"):
            yield ending
    last = name.rsplit(".", 1)[-1]
    if name == "torch.load" and not is_constant(given.get("weights_only"), True):
        yield "torch.load without weights_only=True"
    if (
        name in ("np.load", "numpy.load", "np.memmap")
        and "allow_pickle" in given
        and not is_constant(given["allow_pickle"], False)
    ):
        yield "numpy.load with allow_pickle"
    if name.endswith(("yaml.parse", "yaml.compose")):
        loader = given.get("Loader")
        if loader is None or not name_of(loader).endswith("SafeLoader"):
            yield "yaml without the safe loader"
    if "shell" in given and not is_constant(given["shell"], False):
        yield "a shell"
    if "trust_remote_code" in given and not is_constant(given["trust_remote_code"], False):
        yield "trust_remote_code"
    if last == "import_module" and not isinstance(node.args[0], ast.Constant):
        yield "import_module of a variable"
    if last == "enable_load_extension" and not is_constant(node.args[0], False):
        yield "enable_load_extension"


EXCEPTIONS |= {
    (path, "enable_load_extension"): "sqlite-vec's own library, switched off again at once"
    for path in ("stores/sqlite_vec.py",)
}


def test_nothing_in_the_package_runs_what_it_loads() -> None:
    folders = {SOURCE: SOURCE, ROOT / "research": ROOT}
    seen = {
        (path.relative_to(start).as_posix(), what)
        for folder, start in folders.items()
        for path in sorted(folder.rglob("*.py"))
        for what in found_in(path.read_text("utf-8"))
    }
    assert not seen - set(EXCEPTIONS) - OF_ONE_JOB, "not allowed, or not justified in this file"
    assert not (set(EXCEPTIONS) | OF_ONE_JOB) - seen, "exceptions that are not needed any more"


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from marshal import loads",
        "eval(text)",
        "yaml.load(text)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "subprocess.run(x, shell=True)",
        "import os\nos.system(x)",
        "yaml.parse(text)",
        "AutoModel.from_pretrained(x, trust_remote_code=flag)",
        "importlib.import_module(name)",
        "def f():\n    import dill",
    ],
)
def test_control_what_must_not_be_is_found(source: str) -> None:
    assert list(found_in(source))


@pytest.mark.parametrize(
    "source",
    [
        "torch.load(path, weights_only=True)",
        "np.load(path, allow_pickle=False)",
        "yaml.safe_load(text)",
        "importlib.import_module('pysqlite3')",
        "re.compile(x)",
        "model.eval()",
        "subprocess.run([x])",
    ],
)
def test_control_what_is_harmless_is_not(source: str) -> None:
    assert not list(found_in(source))


def test_the_protect_path_depends_on_four_packages() -> None:
    import tomllib

    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    names = {one.split(">")[0].split("=")[0].strip() for one in project["dependencies"]}
    assert names == {"numpy", "scipy", "safetensors", "cryptography"}
