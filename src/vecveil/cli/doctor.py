"""``vecveil doctor``: what is installed, what is missing and how to get it, and whether protection works."""

from __future__ import annotations

import platform
from typing import Any

import click

from vecveil.cli import extras, surroundings
from vecveil.cli import options as shared

__all__ = ["command", "examine"]

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
    from vecveil.version import __version__

    core, *others = extras.examine(extras.requirements())
    checks = {"generator": _tested(_test_generator), "protection": _tested(_test_protection)}
    return {
        "ok": core["state"] == "installed" and all(problem is None for problem in checks.values()),
        "vecveil": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "checks": {name: problem or "works" for name, problem in checks.items()},
        "core": core,
        "extras": others,
        "kernel": surroundings.kernel(),
        "encoder": surroundings.encoder(),
        "cpu": surroundings.cpu(),
        "gpu": surroundings.gpu(),
        "java": surroundings.java(),
        "cache": surroundings.cache(),
        "variables": surroundings.variables(),
    }


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


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [f"vecveil {found['vecveil']} on Python {found['python']}, {found['platform']}"]
    lines += [_row(name, state) for name, state in found["checks"].items()]
    lines += [_row("packages", _packages(found["core"])), "Extras"]
    for one in found["extras"]:
        lines.append(_row(one["extra"], f"{one['state']:<12}{_packages(one)}"))
        if one["install"] is not None:
            lines.append(_row("", one["install"]))
    lines += ["Machine", *_machine(found)]
    if found["variables"]:
        lines.append("Variables")
        lines += [_row(name, value) for name, value in found["variables"].items()]
    if not found["extras"]:
        lines.append("The package's metadata was not found: the extras are not known.")
    lines.append(f"The core {'works' if found['ok'] else 'does not work'}.")
    return lines


def _machine(found: dict[str, Any]) -> list[str]:
    kernel, encoder, cpu, cache = (found[key] for key in ("kernel", "encoder", "cpu", "cache"))
    java = found["java"]
    missing = f"not installed: pip install 'vecveil[{encoder['extra']}]'"
    bf16 = {None: "unknown without torch", True: "in hardware", False: "not in hardware"}
    devices = "unknown without torch" if found["gpu"] is None else "; ".join(found["gpu"]) or "none"
    return [
        _row("noise kernel", "compiled" if kernel["why"] is None else f"NumPy, slower: {kernel['why']}"),
        _row("encoder minilm", "present" if encoder["present"] else missing),
        _row("cores", f"{cpu['cores']}; threads of noise {cpu['noise_threads']}, "
             f"of torch {cpu['torch_threads'] or 'none'}"),
        _row("bf16", bf16[cpu["bf16"]]),
        _row("GPU", devices),
        _row("Java (for Spark)", java["version"] or ("not found" if java["path"] is None else "unknown")),
        _row("cache", f"{cache['folder']}: {cache['bytes'] / 1e6:.1f} MB, {cache['free'] / 1e9:.1f} GB free"
             f"{'' if cache['writable'] else ', not writable'}"),
    ]  # fmt: skip


def _packages(one: dict[str, Any]) -> str:
    parts = [f"with {name}" for name in one["of"]]
    for package in one["packages"]:
        least = f" (needs {package['least']})" if package["least"] else ""
        there = f" {package['version']}" if package["version"] else " missing"
        parts.append(package["name"] + there + ("" if package["state"] == "installed" else least))
    return ", ".join(parts)


def _row(name: str, value: str) -> str:
    return f"  {name:<24}{value}"
