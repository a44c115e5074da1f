"""What every integration was tested with, and what search is worth before and after: ``results/integrations.json``.

    python benchmarks/integrations.py                  # run the tests of every integration
    python benchmarks/integrations.py --data BEIR_DIR  # and every example, on a collection in BEIR layout
    python benchmarks/integrations.py --only ray       # renew what the record says of some

The tests are those of ``tests/integrations``; the examples are run as a user runs them, with a protector that is
fitted on the collection (method and target below). An example's nDCG@10 depends on the database too: some search
approximately.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from vecveil.io import write_bytes

ROOT = Path(__file__).resolve().parents[1]
INTEGRATIONS = yaml.safe_load((ROOT / "benchmarks" / "integrations.yaml").read_text(encoding="utf-8"))
RESULT = ROOT / "benchmarks" / "results" / "integrations.json"
TARGET = 0.95
# The subject that the examples hide in Cranfield's abstracts on aerodynamics: at which speeds somebody works.
TERMS = ["supersonic", "hypersonic", "subsonic", "transonic", "mach", "shock", "heat", "jet", "wing", "cone"]


def tested(folder: Path, only: Sequence[str]) -> dict[str, dict[str, int]]:
    """Run the tests; return for each module how many passed, failed and were skipped.

    The tests of a module are those of ``test_MODULE.py`` and of ``test_MODULE_*.py``, such as its sealed search.
    """
    report = folder / "junit.xml"
    suites = ROOT / "tests" / "integrations"
    patterns = [f"test_{name}.py" for module in only for name in (module, f"{module}_*")]
    files = [str(path) for pattern in patterns for path in sorted(suites.glob(pattern))] or [str(suites)]
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *files, f"--junitxml={report}"],
        cwd=ROOT,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    counts: dict[str, dict[str, int]] = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        suite = re.sub(r"^.*test_", "", case.get("classname", "").split(".Test")[0])
        module = next((one["module"] for one in INTEGRATIONS if f"{suite}_".startswith(f"{one['module']}_")), suite)
        outcome = "passed"
        for child in case:
            if child.tag in ("failure", "error"):
                outcome = "failed"
            elif child.tag == "skipped":
                outcome = "skipped"
        of = counts.setdefault(module, {"passed": 0, "failed": 0, "skipped": 0})
        of[outcome] += 1
    return counts


def searched(module: str, data: Path, protector: Path) -> dict[str, float] | None:
    """Run the example of an integration; return nDCG@10 before and after."""
    example = ROOT / "examples" / "integrations" / f"search_with_{module}.py"
    if not example.exists():
        return None
    done = subprocess.run(
        [sys.executable, str(example), str(data), str(protector)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    found = re.search(r"nDCG@10 clean ([\d.]+), protected ([\d.]+)", done.stdout)
    if done.returncode or found is None:
        print(f"{module}: {done.stderr[-500:]}", file=sys.stderr)
        return None
    return {"clean": float(found[1]), "protected": float(found[2])}


def fitted(data: Path, folder: Path) -> Path:
    """Fit the default method on the documents of ``data`` and save it."""
    import vecveil

    sys.path.insert(0, str(ROOT / "examples" / "integrations"))
    sys.argv = ["integrations", str(data), ""]
    from collection import read_collection

    collection, _ = read_collection()
    concept = vecveil.Concept.from_terms("speeds", TERMS)
    documents = list(collection.documents.values())
    path = folder / "speeds.vecveil"
    vecveil.fit(documents, concept, "minilm", target_utility=TARGET, seed=0).save(path)
    return path


def main() -> int:
    """Run everything and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="a collection in BEIR layout, such as Cranfield")
    parser.add_argument("--only", action="append", default=[], help="a module; may be repeated")
    options = parser.parse_args()
    collection = options.data and options.data.name
    kept: dict[str, dict[str, Any]] = {}
    if options.only:
        known = json.loads(RESULT.read_text(encoding="utf-8"))
        kept = {row["module"]: row for row in known["integrations"]}
        if collection not in (None, known["collection"]):
            parser.error("the record is of another collection: measure all on this one")
        collection = known["collection"]
    with tempfile.TemporaryDirectory() as name:
        counts = tested(Path(name), options.only)
        protector = fitted(options.data, Path(name)) if options.data else None
        rows: list[dict[str, Any]] = []
        for one in INTEGRATIONS:
            if options.only and one["module"] not in options.only:
                rows += [kept[one["module"]]] if one["module"] in kept else []
                continue
            row = {"module": one["module"], "component": one["component"]}
            row["version"] = importlib.metadata.version(one["component"])
            row |= counts.get(one["module"], {"passed": 0, "failed": 0, "skipped": 0})
            if protector is not None:
                row["ndcg"] = searched(one["module"], options.data, protector)
            elif one["module"] in kept:
                row["ndcg"] = kept[one["module"]].get("ndcg")
            rows.append(row)
    record = {
        "schema": "vecveil.benchmark/1",
        "command": "python benchmarks/integrations.py --data BEIR_DIR",
        "collection": collection,
        "encoder": "minilm",
        "method": "subspace",
        "target_utility": TARGET,
        "integrations": rows,
    }
    write_bytes(RESULT, (json.dumps(record, indent=1) + "\n").encode())
    return int(any(row["failed"] or not row["passed"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
