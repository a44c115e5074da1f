"""``vecveil frontier``: measure designs from gentle to strong on the user's texts, to choose one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import yaml

from vecveil.auditing.comparison import CANDIDATES, FILE, frontier
from vecveil.auditing.records.frontier_record import FrontierPoint, FrontierRecord
from vecveil.auditing.records.verdict import PART
from vecveil.auditing.report import frontier_lines, write_frontier_html
from vecveil.cli import options as shared
from vecveil.cli.output import data, data_json, doing, note, share, writing
from vecveil.cli.tables import load_encoder_named, read_rows, require_matches, retrieval_task, table_format
from vecveil.errors import CalibrationError, InvalidInputError
from vecveil.io import write_bytes
from vecveil.privacy.concepts.concept_file import LARGEST_FILE, read_concept_file

CONCEPT = "concept.yaml"
"""Copy of the concept file in the folder, for ``vecveil fit --from``."""

EXAMPLE = """\b
Examples:
  vecveil frontier notes.csv --text-column text --concept concept.yaml --out frontier/
  vecveil fit notes.csv --from frontier/ --point 7 -o drug.vecveil
  vecveil frontier notes.csv --concept concept.yaml --out frontier/ --at-least-search 0.98
"""
SECTIONS = {
    "Texts": "--text-column --concept --group-column --encoder",
    "Search": "--retrieval --candidates --collection-size --store-alone",
    "Choice of a point": "--at-most-leak --at-least-search",
    "Output": "--out --json",
}


@shared.command("frontier", EXAMPLE, SECTIONS)
@click.argument("input", type=shared.FILE)
@shared.table_options
@shared.file_option("--concept", required=True, help="Concept file (YAML): what to hide.")
@shared.file_option("--out", metavar="FOLDER", required=True, help="Folder to write; an unfinished one is continued.")
@click.option("--group-column", metavar="NAME", help="Column of ids of texts that belong together.")
@shared.long_texts_option
@shared.file_option(
    "--retrieval",
    metavar="FOLDER",
    help="Judged queries in BEIR layout: search is their nDCG@10 [default: recall@10 of the nearest texts].",
)
@shared.count_option(
    "--collection-size", least=10, help="Expected rows of the collection [default: the texts, or the judged documents]."
)
@shared.count_option(
    "--candidates",
    least=10,
    multiple=True,
    metavar="NUMBER",
    help="Rows that a sealed search ranks exactly; may be repeated [default: 100, 200 and 500].",
)
@click.option(
    "--at-most-leak",
    type=shared.SHARE,
    metavar="SHARE",
    help="Print the point with the best search where attackers recover at most this share of listed words.",
)
@click.option(
    "--at-least-search",
    type=shared.SHARE,
    metavar="SHARE",
    help="Print the point with the lowest leakage that keeps this share of clean search.",
)
@click.option(
    "--leak-ceiling",
    type=shared.Range(0, 1),
    default=PART,
    show_default=True,
    metavar="SHARE",
    help="Recommend a point only if the attackers of an audit recover at most this share of the clean leak, over "
    "chance.",
)
@shared.query_noise_option("Noise of queries in units of a row's; 0 for none.")
@click.option(
    "--store-alone/--sealed",
    default=None,
    help="Search without a key, in the protected vectors alone; or with one, which ranks sealed rows exactly "
    "[default: asked in a terminal, else --sealed].",
)
@shared.encoder_options
@shared.seed_option
@shared.json_option
def command(
    input: Path,
    out: Path,
    concept: Path,
    at_most_leak: float | None,
    at_least_search: float | None,
    store_alone: bool | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure about 15 designs, from gentle to strong, and write a page to choose one from.

    INPUT contains texts with and without the concept, as for `vecveil fit`. Each design is fitted on one part of them,
    without a quarter of the concept's words; attackers that know it train on a second part and are scored on a third.
    FOLDER gets frontier.json, frontier.html and a copy of the concept file. `vecveil fit INPUT --from FOLDER` fits the
    recommended point, `--point N` another one. Under the attackers of an audit, a recommended point stays below
    --leak-ceiling.

    With --at-most-leak or --at-least-search stdout gets the number of a point; exit code 1 if none meets them.
    """
    form = table_format(options)
    limits = at_most_leak is not None or at_least_search is not None
    if out.is_file():
        raise InvalidInputError(f"--out needs a folder: {out.name} is a file.", param="out")
    hidden, rows = read_rows(input, concept, form, columns=(options["group_column"],))
    require_matches(hidden, rows.texts)
    copied = concept.read_bytes()
    if b"terms_file" in copied:  # a copy would name a file that is not in the folder
        copied = yaml.safe_dump(read_concept_file(concept), allow_unicode=True).encode()
    if len(copied) > LARGEST_FILE:
        raise InvalidInputError(
            f"The concept takes more than {LARGEST_FILE >> 20} MiB, which `vecveil fit --from` "
            "does not read. Shorten its list of terms.",
            param="concept",
        )
    if store_alone is None and sys.stdin.isatty():
        store_alone = not click.confirm("Does whoever searches hold a key?", default=True, err=True)
    elif store_alone is None:
        note("Recommended for a search with a key, which ranks sealed rows exactly. Without a key pass --store-alone.")
        store_alone = False
    column = options["group_column"]
    encoder = load_encoder_named(options, default="minilm")
    assert encoder is not None
    retrieval = None if options["retrieval"] is None else retrieval_task(options["retrieval"], encoder)
    doing("Measuring designs")
    with writing(out):
        record = frontier(
            rows.texts,
            hidden,
            encoder,
            retrieval=retrieval,
            collection_size=options["collection_size"],
            query_noise=options["query_noise"],
            candidates=options["candidates"] or CANDIDATES,
            leak_ceiling=options["leak_ceiling"],
            store_alone=store_alone,
            groups=None if column is None else rows.columns[column],
            out=out,
            long_texts=options["long_texts"],
            table={name: value for name, value in vars(form).items() if value is not None},
            seed=options["seed"],
        )
        if concept.resolve() != (out / CONCEPT).resolve():
            write_bytes(out / CONCEPT, copied)
        write_frontier_html(record, out / "frontier.html")
    picked = record.pick(at_most_leak=at_most_leak, at_least_search=at_least_search, store_alone=store_alone)
    for line in frontier_lines(record):
        (note if limits or as_json else data)(line)
    note(f"Wrote {out / FILE} and {out / 'frontier.html'}.")
    if limits and picked is None:
        raise _none(record, at_most_leak, at_least_search, store_alone)
    chosen = picked if limits else record.recommended
    if as_json:
        data_json({"point": None if chosen is None else chosen.number, "record": record.to_record()})
    elif limits and chosen is not None:
        note(f"Within the limits: {_named(chosen, store_alone)}.")
        data(str(chosen.number))


def _none(record: FrontierRecord, leak: float | None, search: float | None, store_alone: bool) -> CalibrationError:
    """Return the error for limits that no point meets, with the nearest point."""

    def kept(point: FrontierPoint) -> float:
        result = point.search(store_alone=store_alone)
        return -1.0 if result is None else result.value

    def named(point: FrontierPoint) -> str:
        return f"Nearest: {_named(point, store_alone)}."

    least = min(record.points, key=lambda point: point.listed.value)
    within = [point for point in record.points if leak is None or point.listed.value <= leak]
    if search is None or not within:
        return CalibrationError(
            f"No point leaks at most {leak:g}: the least is {least.listed.value:.3f}. {named(least)}",
            param="--at-most-leak",
        )
    best = max(within, key=kept)
    reason = f"the best keeps {kept(best):.3f}" if kept(best) >= 0 else "search was not measured"
    return CalibrationError(f"No point keeps {search:g} of search: {reason}. {named(best)}", param="--at-least-search")


def _named(point: FrontierPoint, store_alone: bool) -> str:
    result = point.search(store_alone=store_alone)
    ranked = f" with {result.candidates} candidates" if result is not None and result.candidates else ""
    search = "" if result is None else f", keeps {share(result.value)} of search{ranked}"
    return f"point {point.number} ({point.words}) leaks {share(point.listed.value)} of listed words{search}"
