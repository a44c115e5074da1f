"""The tables of docs/serving.md, from serving.json."""

from __future__ import annotations

from pathlib import Path

from scale_tables import MISSING, load_record, markdown_table

__all__ = ["cost", "load"]

UPSTREAMS = {
    "cost_local": "MiniLM in the server's own process",
    "cost_local_keyed": "the same, keyed noise",
    "cost": "MiniLM in another process on the same cores",
    "cost_keyed": "the same, keyed noise",
    "cost_varying": "one elsewhere that takes 20 ms, sometimes 12 or 33",
    "cost_varying_keyed": "the same, keyed noise",
    "cost_varying_2": "the same, `--workers 2`",
    "cost_varying_keyed_2": "the same, keyed noise, `--workers 2`",
    "cost_step": "one elsewhere that takes 20 ms each time: 16 clients march in step",
    "cost_step_keyed": "the same, keyed noise",
    "cost_step_2": "the same, `--workers 2`",
    "cost_step_keyed_2": "the same, keyed noise, `--workers 2`",
    "cost_at_once": "one that answers at once",
    "cost_at_once_keyed": "the same, keyed noise",
}


def cost(folder: Path) -> str:
    """Return what the server adds to each upstream."""
    record = load_record(folder, "serving")
    rows: list[list[str]] = []
    for name, what in UPSTREAMS.items():
        if (one := record.get(name)) is None:
            rows.append([what, *[MISSING] * 6])
            continue
        rows.append(
            [
                what, f"{one['bare_p50_ms']:.1f} ms",
                f"{one['overhead_p50_ms']:.1f} ms ({one['overheads_p50_ms'][0]:z.1f} to "
                f"{one['overheads_p50_ms'][1]:.1f})",
                f"{one['proxy_processor_ms']:.1f} ms",
                f"{one['bare_per_second']:,.0f}", f"{one['proxy_per_second']:,.0f}",
                f"{one['throughput_ratio']:.2f} ({one['throughput_ratios'][0]:.2f} to "
                f"{one['throughput_ratios'][1]:.2f})",
            ]
        )  # fmt: skip
    head = [
        "upstream", "its median", "added to the median (in sixths of the run)", "processor time of the server",
        "its requests a second", "with the server", "ratio (of single rounds)",
    ]  # fmt: skip
    return markdown_table(head, rows)


def load(folder: Path) -> str:
    """Return what clients were answered while the upstream was slowed and killed."""
    one = load_record(folder, "serving").get("load", {})
    rows = [[f"`{answer}`", f"{count:,}"] for answer, count in one.get("answers", {}).items()]
    if rows:
        rows.append(["**wrong**", f"**{one['wrong']:,}**"])
    return markdown_table(["answer", "requests"], rows)
