"""Run the papers' experiments and ours, resume them, and summarise their records.

`run` measures the cells that have no record yet; `summarise` turns records into tables, figures and findings.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from research.catalogue import EXPERIMENTS, experiment_named
from research.experiment import Records
from research.records import RecordFolder
from research.results import Cells, ExperimentRecord
from research.specification import MOST_SEEDS, Spec, digest, parse_spec
from vecveil.errors import DataFileError
from vecveil.privacy.concepts.concept_file import LARGEST_FILE, load_yaml, read_text
from vecveil.validation import check_count
from vecveil.version import __version__

if TYPE_CHECKING:
    from typing import Unpack

    from research.running import Outcome, RunOptions

__all__ = ["EXPERIMENTS", "list_experiments", "load_spec", "run", "shipped_spec", "summarise"]

# `vecveil experiment` looks for this line before it imports the folder.
PROJECT = "vecveil"


def list_experiments() -> list[dict[str, str]]:
    """Return name, purpose and source of each experiment."""
    found = [experiment_named(name) for name in EXPERIMENTS]
    return [{"name": one.name, "what": one.what, "source": one.source} for one in found]


def shipped_spec(name: str) -> str:
    """Return the YAML text of an experiment's own specification."""
    folder = Path(__file__).parent / "specs"
    return (folder / f"{experiment_named(name).name}.yaml").read_text(encoding="utf-8")


def load_spec(name_or_file: str | Path, *, quick: bool = False) -> tuple[Spec, str]:
    """Return a specification and its text, from an experiment's name or a YAML file.

    Raises:
        DataFileError: the file cannot be read, or has an unknown key or a value of the wrong type.
    """
    if str(name_or_file) in EXPERIMENTS:
        text, owner = shipped_spec(str(name_or_file)), f"{name_or_file}.yaml"
    else:
        path = Path(name_or_file)
        if not path.exists():
            raise DataFileError(
                f"experiment: {path.name!r} is no experiment and no YAML file (`name`). The experiments are "
                f"{', '.join(EXPERIMENTS)}.",
                param="name",
            )
        text, owner = read_text(path, owner="experiment", most=LARGEST_FILE, param="name"), path.name
    found = load_yaml(text, owner, owner="experiment")
    name = found.get("experiment") if isinstance(found, dict) else None
    kinds: dict[str, type[Spec]] = dict.fromkeys(EXPERIMENTS, Spec)
    if name in EXPERIMENTS:
        kinds[name] = experiment_named(name).spec_type
    return parse_spec(text, kinds, quick=quick, owner=owner), text


def run(
    name_or_file: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    quick: bool = False,
    seeds: int | None = None,
    methods: Sequence[str | Path] = (),
    **options: Unpack[RunOptions],
) -> Outcome:
    """Measure the cells of an experiment that have no record in ``out``; see `running.run_cells`.

    Args:
        name_or_file: an experiment, or a YAML file with its settings.
        data: folder of the data sets (layout: docs/experiments.md).
        out: parent of the experiment's folder of records.
        quick: measure the coarse version.
        seeds: replaces the number of seeds in the specification.
        methods: files of submitted methods, for the experiment ``benchmark``; their code runs.
    """
    from research.running import run_cells

    spec, text = load_spec(name_or_file, quick=quick)
    if methods:
        spec, text = _with_submitted(spec, text, methods)
    if seeds is not None:
        spec = _seeded(spec, seeds)
    if not Path(data).is_dir():
        raise DataFileError(f"experiment run: `data` {Path(data).name!r} is no folder.", param="data")
    if Path(out).is_file():
        raise DataFileError(f"experiment run: `out` {Path(out).name!r} is a file. Name a folder.", param="out")
    if text.startswith("# as run"):  # the specification of an earlier run
        text = text.partition("\n")[2]
    given = [*(["--quick"] if quick else []), *([f"--seeds {seeds}"] if seeds else [])]
    head = f"# as run{' with ' if given else ''}{' '.join(given)}\n"
    return run_cells(
        experiment_named(spec.experiment), spec, head + text, Path(data), Path(out) / spec.experiment, **options
    )


def _seeded(spec: Spec, seeds: int) -> Spec:
    return structs.replace(spec, seeds=check_count(seeds, owner="experiment", param="seeds", maximum=MOST_SEEDS))


def _with_submitted(spec: Spec, text: str, methods: Sequence[str | Path]) -> tuple[Spec, str]:
    """Return the specification and its text with files of submitted methods and their checksums.

    The checksums let `summarise` find the records of one version of a file without running it.
    """
    from research.catalogue.benchmark import BenchmarkSpec, file_checksum, submitted_module

    if not isinstance(spec, BenchmarkSpec):
        raise DataFileError(
            f"experiment run: the experiment {spec.experiment!r} takes no `method`; only benchmark does.",
            param="method",
        )
    for file in methods:
        if not Path(file).is_file():
            raise DataFileError(f"File not found: {Path(file).name} (`method`).", param="method")
    files = {str(file): file_checksum(Path(file)) for file in methods}
    for file, checksum in files.items():
        submitted_module(file, checksum)
    lines = [line for line in text.splitlines() if not line.startswith("submitted:")]
    text = "\n".join([*lines, f"submitted: {json.dumps(files)}"]) + "\n"
    return structs.replace(spec, submitted=files), text


def summarise(name: str, out: str | Path) -> dict[str, Any]:
    """Return the record (schema ``vecveil.experiment/1``) of an experiment's last run in ``out``.

    Raises:
        DataFileError: ``out`` holds no measured cell of the experiment.
    """
    experiment = experiment_named(name)
    folder = RecordFolder(Path(out) / name)
    if not folder.spec_path.exists():
        raise DataFileError(
            f"experiment table: `out` {Path(out).name!r} has no run of {name!r}. First run `vecveil experiment run "
            f"{name} --data DIR --out DIR`.",
            param="out",
        )
    text = read_text(folder.spec_path, owner="experiment", most=LARGEST_FILE, param="out")
    head = text.partition("\n")[0]
    spec, _ = load_spec(folder.spec_path, quick="--quick" in head)
    if spec.experiment != name:
        raise DataFileError(f"experiment table: spec.yaml of `out` is not of {name!r}. Remove its folder.", param="out")
    seeds = re.search(r"--seeds (\d{1,9})", head)
    if seeds:
        spec = _seeded(spec, int(seeds[1]))
    records = folder.read()
    cells = experiment.distinct_cells(spec)
    rows = [record for cell in cells if (record := records.get((cell.name, digest(experiment.settings(spec, cell)))))]
    if not rows:
        raise DataFileError(
            f"experiment table: `out` has none of the {len(cells)} cells of {name!r}. Run it again: it goes on.",
            param="out",
        )
    own = text.partition("\n")[2] != shipped_spec(name)
    command = f"vecveil experiment run {f'OUT/{name}/spec.yaml' if own else name} --data DIR --out OUT"
    command += f"{' --quick' if spec.is_quick else ''}{f' {seeds[0]}' if seeds else ''}"
    try:
        summary = experiment.summary(spec, Records(rows))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # Records may come from others, and only their envelope has a schema.
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise DataFileError(
            f"experiment table: a record of {name!r} lacks what the summary needs ({type(error).__name__} at "
            f"{Path(place.filename).name}:{place.lineno}). Measure again with --fresh.",
            param="out",
        ) from error
    found = ExperimentRecord(
        name=name,
        what=experiment.what,
        source=experiment.source,
        vecveil=__version__,
        created=max(row["finished"] for row in rows),
        commits=sorted({row["commit"] for row in rows if row["commit"]}),
        command=command,
        quick=spec.is_quick,
        machine=rows[-1]["machine"],
        cells=Cells(
            asked=len(cells), measured=sum("skipped" not in row["found"] for row in rows), failed=len(folder.failures())
        ),
        seconds=round(sum(row["seconds"] for row in rows), 1),
        notes=[*_concepts(spec), *summary.notes],
        tables=summary.tables,
        figures=summary.figures,
        findings=[structs.replace(finding, command=command) for finding in summary.findings],
    )
    return found.to_record()


def _concepts(spec: Spec) -> list[str]:
    """Return a note on the concept of each problem; none for an experiment without problems."""
    problems: dict[str, list[str]] = {}
    for name, concept in spec.concepts().items():
        problems.setdefault(str(concept), []).append(name)
    parts = "; ".join(f"{words} ({', '.join(names)})" for words, names in problems.items())
    return [f"Concept: {parts}."] if parts else []
