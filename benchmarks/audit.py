"""How long an audit takes, how much memory, and what every family of attacks finds.

    python benchmarks/audit.py --data DIR [--texts 10000] [--tier quick] [--concept sts|ade]

DIR is a folder as for ``leakage.py``. The protector is the default method with fixed settings, fitted on half of the
texts by group; the audit takes ``--texts`` of all of them, those of the other half first, so with many texts
attackers partly learn from texts that the fit has seen. Everything is encoded beforehand: the first run of an
audit fills the embedding cache, the second, in a process of its own, is measured (wall-clock, and VmHWM: needs
Linux). Results go to ``benchmarks/results/audit.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

RESULTS = Path(__file__).parent / "results" / "audit.json"
SETTINGS = {"rank": 80, "kept": 128, "flattening": 0.6, "pairs": True, "noise_to_signal": 0.25}


def measured(data: Path, concept: str, texts: int, tier: str) -> dict[str, Any]:
    """Return the record of one audit, with its seconds and its peak of memory."""
    from leakage import ade_problem, sts_problem

    import vecveil
    from vecveil.auditing.attacks import split_groups

    problem = {"sts": sts_problem, "ade": ade_problem}[concept](data)
    encoder = vecveil.load_encoder("minilm")
    matches = problem.concept.find(problem.texts)
    fitted, rest = split_groups(problem.groups, (0.5, 0.5), seed=0)
    X = encoder.encode(problem.texts)
    own = np.isin(matches.with_concept, fitted)
    negatives = matches.negatives()
    labels, _ = matches.token_labels(min_count=10)
    protector = vecveil.fit_pairs(
        X[matches.with_concept[own]],
        encoder.encode([negatives[i] for i in np.flatnonzero(own)]),
        labels[own],
        X[np.intersect1d(matches.without_concept, fitted)],
        encoder=encoder,
        **SETTINGS,
    )
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.permutation(rest), rng.permutation(fitted)])[:texts]
    chosen = [problem.texts[i] for i in rows]
    listed = _concept_of(problem, rows)
    started = time.perf_counter()
    result = vecveil.audit(
        protector,
        chosen,
        listed,
        embeddings=X[rows],
        encoder=encoder,
        groups=problem.groups[rows].tolist(),
        tier=tier,
        show_progress=False,
    )
    seconds = time.perf_counter() - started
    return {
        "concept": concept,
        "texts": len(chosen),
        "with_concept": result.record["texts"]["with_concept"],
        "tier": tier,
        "cores": len(os.sched_getaffinity(0)),
        "seconds": round(seconds, 1),
        "peak_mib": round(_peak() / 1024),
        "parts": {a["name"]: round(a["seconds"], 1) for a in result.record["attacks"]},
        "attacks": [
            {key: a[key] for key in ("family", "name", "metric", "value", "low", "high", "chance", "clean")}
            for a in result.record["attacks"]
        ],
        "worst": result.record["worst"],
    }


def _concept_of(problem: Any, rows: np.ndarray) -> Any:
    from vecveil.privacy.concepts import Concept

    if problem.name == "sts":
        return problem.concept
    spans = problem.concept.detect(problem.texts)
    kept = [[vars_of(s) for s in spans[i]] for i in rows]
    return Concept.from_spans(problem.concept.name, kept)


def vars_of(span: Any) -> dict[str, Any]:
    """Return a span as the object that `Concept.from_spans` takes."""
    return {"start": span.start, "end": span.end, "label": span.label}


def _peak() -> int:
    """Return the peak of resident memory, in KiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1])
    return 0


def main() -> None:
    """Fill the cache, then measure in a fresh process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--concept", choices=["sts", "ade"], default="sts")
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--tier", choices=["quick", "full"], default="quick")
    parser.add_argument("--once", action="store_true", help="measure in this process, print the record")
    arguments = parser.parse_args()
    given = (arguments.data, arguments.concept, arguments.texts, arguments.tier)
    if arguments.once:
        print(json.dumps(measured(*given)))
        return
    import vecveil
    from vecveil.io import write_text

    command = [
        sys.executable,
        __file__,
        "--once",
        "--data",
        str(arguments.data),
        "--concept",
        arguments.concept,
        "--texts",
        str(arguments.texts),
        "--tier",
        arguments.tier,
    ]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(2)]
    row = json.loads(runs[-1].stdout.splitlines()[-1])
    print({key: row[key] for key in ("texts", "tier", "seconds", "peak_mib", "worst")})
    old = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    key = ("concept", "texts", "tier")
    rows = [r for r in old if any(r[k] != row[k] for k in key)] + [row]
    record = {"schema": "vecveil.bench.audit/1", "vecveil": vecveil.__version__, "rows": rows}
    write_text(RESULTS, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
