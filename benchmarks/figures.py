"""Draw the README's picture: the words that a reader recovers, and the search that is kept.

    python benchmarks/figures.py [--demo FOLDER]

Draws docs/assets/demo-light.svg and demo-dark.svg from benchmarks/results/demo.json. With ``--demo`` it first takes the
figures of that record from the audit in FOLDER, which ``vecveil demo`` wrote, and those of the second setting from
benchmarks/results/list_size.json. Needs the extra ``plot``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from vecveil.io import write_text

HERE = Path(__file__).parent
RECORD = HERE / "results" / "demo.json"
PICTURES = {theme: HERE.parent / "docs" / "assets" / f"demo-{theme}.svg" for theme in ("light", "dark")}
COLOURS = {  # text, clean, protected, chance
    "light": ("#1f2328", "#8c959f", "#0969da", "#d0d7de"),
    "dark": ("#e6edf3", "#9198a1", "#4493f8", "#3d444d"),
}
TERMS, TEXTS, TARGET = 1026, 3000, 0.8


def settings(folder: Path) -> list[dict[str, Any]]:
    """Return the settings of the picture: the demo's audit, and a list of drugs in sentences of real abstracts."""
    audit = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    worst = next(attack for attack in audit["attacks"] if attack["name"] == audit["worst"])
    utility = audit["utility"]
    cells = json.loads((HERE / "results" / "list_size.json").read_text(encoding="utf-8"))["cells"]
    cell = next(c for c in cells if (c["terms"], c["texts"], c["target"]) == (TERMS, TEXTS, TARGET))
    return [
        {
            "label": "bundled synthetic notes,\n153 drugs and conditions",
            "attack": worst["name"],
            "clean": worst["clean"],
            "protected": worst["value"],
            "chance": worst["chance"],
            "store_alone": utility["neighbours"]["value"],
            "sealed": utility["sealed_search"]["value"],
        },
        {
            "label": f"sentences of ADE abstracts,\n{TERMS:,} drugs",
            "attack": "kernel",
            "clean": cell["clean"],
            "protected": cell["leak"][0],
            "chance": cell["chance"],
            "store_alone": cell["store_alone"],
            "sealed": cell["sealed"],
        },
    ]


def draw(record: dict[str, Any], theme: str, path: Path) -> None:
    """Draw the record in one theme."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    text, *colours = COLOURS[theme]
    style = {
        "svg.fonttype": "none",
        "svg.hashsalt": "vecveil",
        "font.size": 10.5,
        "text.color": text,
        "axes.labelcolor": text,
        "xtick.color": text,
        "ytick.color": text,
        "axes.edgecolor": colours[2],
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
    }
    panels = {
        "words of the concept recovered": (("clean", "protected", "chance"), colours),
        "ten nearest neighbours found": (("store alone", "sealed"), [colours[1]] * 2),
    }
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(1, 2, figsize=(8.33, 3.3), width_ratios=(3, 2.4), layout="constrained")
        for axis, (title, (names, shades)) in zip(axes, panels.items(), strict=True):
            step = 1.12 * len(names) + 0.6
            for i, row in enumerate(record["settings"]):
                for j, (name, shade) in enumerate(zip(names, shades, strict=True)):
                    place, value = i * step + 1.12 * j, 100 * row[name.replace(" ", "_")]
                    axis.bar(place, value, 0.85, color=shade)
                    axis.text(place, value + 2, f"{value:.0f} %", ha="center", fontsize=11)
                    axis.text(place, -4, name.replace(" ", "\n"), ha="center", va="top", fontsize=9.5)
                axis.text(i * step + 0.56 * (len(names) - 1), -27, row["label"], ha="center", va="top", fontsize=9.5)
            axis.set(title=title, ylim=(0, 112), xticks=[], yticks=[])
            axis.spines[["left", "right", "top"]].set_visible(False)
        figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)


def main() -> None:
    """Write the record, if a folder of the demo is given, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", type=Path, help="Folder that `vecveil demo` wrote.")
    folder = parser.parse_args().demo
    if folder is not None:
        record = {"schema": "vecveil.bench.demo/1", "settings": settings(folder)}
        write_text(RECORD, json.dumps(record, indent=1) + "\n")
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    for theme, path in PICTURES.items():
        draw(record, theme, path)


if __name__ == "__main__":
    main()
