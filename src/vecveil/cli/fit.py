"""``vecveil fit``: learn what to hide and write the protector."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import click

from vecveil.cli import options as shared
from vecveil.cli.output import data_json, note, number, share, writing
from vecveil.cli.tables import (
    TableFormat,
    chosen_task,
    classification_task,
    load_encoder_named,
    read_array,
    read_labels,
    read_rows,
)
from vecveil.concepts import Concept, PresidioDetector
from vecveil.concepts.expansion import (
    CorpusNeighbourSource,
    DetectorSource,
    Expansion,
    FakerSource,
    MemberSource,
    WordListSource,
)
from vecveil.data import read_texts
from vecveil.data.writing import check_new_file
from vecveil.protector import METHODS, TEXT_METHODS, Protector, fit, fit_pairs
from vecveil.protector.pairs import MIN_PAIRS
from vecveil.textcrafter.training import forget_checkpoint

__all__ = ["command", "record"]

SCALES = ("target_utility", "target_cosine", "target_advantage", "epsilon", "sigma", "noise_to_signal", "radius")
MEMBER_SOURCES = ("expand", "expand_corpus", "expand_faker", "expand_entity")
FEW_TEXTS = 20

EXAMPLE = """\b
Examples:
  vecveil fit notes.csv --text-column text --concept concept.yaml \\
      --method subspace --target-utility 0.95 -o drug.vecveil
  vecveil fit --positive with.npy --negative without.npy --noise-to-signal 0.5 -o drug.vecveil
"""

expansion_options = shared.stacked(
    click.option(
        "--expand", type=shared.FILE, multiple=True,
        help="Word list of further members: text lines, or JSON or YAML with groups; may be repeated.",
    ),
    click.option(
        "--expand-corpus", type=shared.FILE, help="Texts whose words near the concept's terms are further members."
    ),
    click.option(
        "--expand-faker", metavar="PROVIDER", multiple=True,
        help="Members that Faker makes up, such as first_name or city; may be repeated.",
    ),
    click.option(
        "--expand-locale", metavar="LOCALE", multiple=True,
        help="Faker locale, such as de_DE; may be repeated [default: en_US].",
    ),
    click.option(
        "--expand-entity", metavar="TYPE", multiple=True,
        help="Members that Presidio finds in the corpus, or in INPUT without one; may be repeated.",
    ),
    click.option(
        "--expand-members", type=click.IntRange(min=1), default=2000, show_default=True,
        help="Largest number of further members.",
    ),
    click.option(
        "--expand-substitutions", type=click.IntRange(min=0),
        help="Texts to make with members in them; 0 takes only those of INPUT that hold one "
        "[default: as many as hold the concept, from 2,000 to 20,000].",
    ),
)  # fmt: skip
scale_options = shared.stacked(
    click.option("--target-utility", type=shared.SHARE, help="Share of the utility to keep; finds the noise."),
    click.option("--epsilon", type=shared.POSITIVE, help="ε per unit of the noise's norm."),
    click.option("--noise-to-signal", type=shared.POSITIVE, help="Norm of the noise over the vectors'."),
    click.option("--target-cosine", type=shared.SHARE, help="Mean cosine of a vector and its noisy self."),
    click.option(
        "--target-advantage", type=shared.SHARE,
        help="Largest advantage of any attacker at telling a text with the concept from the same without.",
    ),
    click.option("--sigma", type=shared.POSITIVE, help="Standard deviation per coordinate (gaussian)."),
    click.option(
        "--radius", type=shared.POSITIVE, help="Norm of every perturbation (textcrafter); vectors have norm 1."
    ),
    click.option("--delta", type=shared.SHARE, help="δ beside --epsilon (ldp-gaussian)."),
)  # fmt: skip


def _method(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if value not in METHODS and value not in TEXT_METHODS:
        known = ", ".join(sorted({*METHODS, *TEXT_METHODS}))
        raise click.BadParameter(f"{value!r} is not one of {known}.", ctx, param)
    return value


@click.command("fit", epilog=EXAMPLE)
@click.argument("input", type=shared.FILE, required=False)
@shared.table_options
@click.option("--concept", type=shared.FILE, help="Concept file (YAML): what to hide.")
@click.option("--positive", type=shared.FILE, help="Vectors with the concept (.npy), instead of INPUT.")
@click.option("--negative", type=shared.FILE, help="The same texts without it; row i belongs to row i.")
@click.option("--background", type=shared.FILE, help="Vectors of ordinary texts (.npy).")
@click.option("--labels", type=shared.FILE, help="0/1 array (.npy): which concept words each positive row holds.")
@click.option("--method", default="subspace", show_default=True, callback=_method, help="See `vecveil methods`.")
@scale_options
@click.option(
    "--utility", type=click.Choice(["similarity", "neighbours", "sealed-search"]),
    help="What --target-utility keeps [default: similarity, or the labelled task that is given]; sealed-search also "
    "takes --retrieval.",
)
@click.option(
    "--candidates", type=click.IntRange(min=10), help="Rows that a sealed search opens and ranks (sealed-search)."
)
@click.option(
    "--collection-size", type=click.IntRange(min=10), help="Rows of the collection to come (sealed-search)."
)
@click.option(
    "--map-queries", is_flag=True, help="Calibrate for queries without noise, as `vecveil search --map-queries`."
)
@shared.task_options
@shared.encoder_options
@click.option(
    "--before", metavar="STEP", help="Before the noise: none, normalise or clip:RADIUS [default: the method's own]."
)
@click.option(
    "--postprocess", metavar="STEPS",
    help="After the noise, such as wiener,normalise,float16 [default: the method's own].",
)
@click.option(
    "--output", "released", type=click.Choice(["full", "reduced"]), default="full", show_default=True,
    help="reduced: release only the kept coordinates.",
)
@click.option(
    "--option", "method_options", type=shared.Assignment(), multiple=True,
    help="Option of the method, such as rank=80; may be repeated.",
)
@click.option(
    "--preserve", metavar="COLUMN",
    help="Column of a task's classes: erase nothing that correlates with them (subspace).",
)
@click.option(
    "--min-texts", type=click.IntRange(min=1), default=20, show_default=True,
    help="Fewest texts that must hold the concept; at least 20 for methods that change vectors.",
)
@expansion_options
@shared.seed_option
@click.option("-o", "--out", type=shared.FILE, required=True, help="Protector file to write.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@shared.json_option
def command(input: Path | None, out: Path, force: bool, as_json: bool, **options: Any) -> None:
    """Learn from texts (or from vectors) how to hide a concept, and write a protector.

    INPUT holds texts with and without the concept: CSV, TSV, JSONL (also .gz), Parquet
    or text lines.
    Exactly one of --target-utility, --target-cosine, --target-advantage, --epsilon, --sigma,
    --noise-to-signal and --radius says how much noise there is; `vecveil methods` says which a method has.
    With --utility sealed-search it may be left out: the fit keeps 99 %.
    """
    form = TableFormat.of(options)
    _check_usage(input, options)
    files = (options[name] for name in ("concept", "positive", "negative", "background", "labels"))
    check_new_file(out, overwrite=force, inputs=(input, *files))
    options["work"] = work = _work_folder(out, options)
    protector = _from_vectors(options) if input is None else _from_texts(input, form, options)
    with writing(out):
        protector.save(out)
    if work is not None:
        forget_checkpoint(work)
    describe(protector)
    note(f"Wrote {out}")
    if as_json:
        data_json(record(protector, out))


def _work_folder(out: Path, options: dict[str, Any]) -> Path | None:
    """Return the folder beside ``out`` for checkpoints of a long training, if the method has one."""
    method = METHODS.get(options["method"])
    if method is None or "checkpoint" not in method.options or "checkpoint" in dict(options["method_options"]):
        return None
    return out.with_name(out.name + ".training")


def _check_usage(input: Path | None, options: dict[str, Any]) -> None:
    """Refuse incompatible options."""

    def named(*names: str) -> list[str]:
        return [f"--{name.replace('_', '-')}" for name in names if options[name] not in (None, ())]

    text_level = options["method"] in TEXT_METHODS
    sealed = options["utility"] == "sealed-search"
    sealed_options, given = named("candidates", "collection_size"), named(*SCALES)
    map_queries = ["--map-queries"] if options["map_queries"] else []
    too_few = input is not None and not text_level and options["min_texts"] < MIN_PAIRS
    method = (TEXT_METHODS if text_level else METHODS)[options["method"]]
    vectors = named("positive", "negative", "background", "labels")
    sources = named(*MEMBER_SOURCES)
    scales = ", ".join(f"--{name.replace('_', '-')}" for name in SCALES)
    refusals = {
        f"Give exactly one of {scales}.": bool(method.scales) and len(named(*SCALES)) != 1 - (sealed and not given),
        "--utility sealed-search needs --candidates and --collection-size.": sealed and len(sealed_options) < 2,
        f"{''.join(sealed_options[:1] or map_queries)} belongs to --utility sealed-search.": (
            not sealed and bool(sealed_options or map_queries)
        ),
        f"Give INPUT or vectors ({''.join(vectors[:1])}), not both.": input is not None and bool(vectors),
        f"Method {options['method']} rewrites texts: give INPUT with texts.": input is None and text_level,
        "Give INPUT with texts, or vectors with --positive and --negative.": (
            input is None and len(named("positive", "negative")) < 2
        ),
        "Say with --concept what to hide in the texts of INPUT.": input is not None and not named("concept"),
        "--concept and --label-column need INPUT with texts; vectors have none.": (
            input is None and bool(named("concept", "label_column"))
        ),
        f"{''.join(sources[:1])} needs INPUT with texts; vectors have none.": input is None and bool(sources),
        "--preserve needs INPUT with texts and method subspace.": (
            bool(named("preserve")) and (input is None or "preserve" not in method.options)
        ),
        "--expand-substitutions belongs to a source of members, such as --expand.": (
            options["expand_substitutions"] is not None and not sources
        ),
        "--expand-locale belongs to --expand-faker.": bool(options["expand_locale"]) and not options["expand_faker"],
        "Give one of --utility, --sts, --retrieval and --label-column: it sets the target.": (
            len(named(*([] if sealed else ["utility"]), "sts", "retrieval", "label_column")) > 1
            or (sealed and bool(named("sts", "label_column")))
        ),
        f"--min-texts must be at least {MIN_PAIRS} for method {options['method']}, which changes vectors.": too_few,
        "--sts and --retrieval hold texts: name the --encoder of your vectors.": (
            input is None and options["encoder"] is None and bool(named("sts", "retrieval"))
        ),
    }
    for sentence, applies in refusals.items():
        if applies:
            raise click.UsageError(sentence)
    # Arrays, which only Python or an option of their own can give.
    arrays = {"further_positive", "preserve"}
    known = [name for name in method.options if name not in arrays] + ([] if text_level else ["splits"])
    for key, _ in options["method_options"]:
        if key not in known:
            listed = ", ".join(known) or "none"
            raise click.UsageError(f"--option {key}: method {options['method']} has the options: {listed}.")


def _common(options: dict[str, Any]) -> dict[str, Any]:
    names = ("method", *SCALES, "delta", "before", "postprocess", "seed", "candidates", "collection_size")
    work = {} if options["work"] is None else {"checkpoint": options["work"]}
    settings = {name: options[name] for name in names} | {"output": options["released"]}
    settings["query_noise"] = not options["map_queries"]
    return settings | work | dict(options["method_options"])


def _from_texts(input: Path, form: TableFormat, options: dict[str, Any]) -> Protector:
    column = options["label_column"]
    rows = read_rows(input, options["concept"], form, columns=(column, options["preserve"]))
    encoder = load_encoder_named(options, default="minilm")
    assert encoder is not None
    if column is None:
        utility = chosen_task(options, encoder)
    else:
        vectors, labels = encoder.encode(rows.texts), rows.table.columns[column]
        utility = classification_task(vectors, labels, column, input, seed=options["seed"])
    settings = _common(options)
    if options["preserve"] is not None:
        settings["preserve"] = rows.table.columns[options["preserve"]]
    return fit(
        rows.texts, rows.concept, encoder, utility=utility, min_texts=options["min_texts"],
        expansion=_expansion(rows.concept, rows.texts, encoder, options), **settings,
    )  # fmt: skip


def _from_vectors(options: dict[str, Any]) -> Protector:
    background = None if options["background"] is None else read_array(options["background"])
    labels = None if options["labels"] is None else read_labels(options["labels"])
    encoder = load_encoder_named(options)
    return fit_pairs(
        read_array(options["positive"]), read_array(options["negative"]), labels, background,
        encoder=encoder, utility=chosen_task(options, encoder), **_common(options),
    )  # fmt: skip


def _expansion(concept: Concept, texts: Sequence[str], encoder: Any, options: dict[str, Any]) -> Expansion | None:
    """Return the expansion that the options describe, or None."""
    if not any(options[name] for name in MEMBER_SOURCES):
        return None
    return concept.expand(
        texts, sources=_member_sources(texts, options), encoder=encoder, members=options["expand_members"],
        substitutions=options["expand_substitutions"], min_texts=options["min_texts"], seed=options["seed"],
    )  # fmt: skip


def _member_sources(texts: Sequence[str], options: dict[str, Any]) -> list[MemberSource]:
    sources: list[MemberSource] = [WordListSource.from_file(path) for path in options["expand"]]
    corpus = texts if options["expand_corpus"] is None else read_texts(options["expand_corpus"]).texts
    if options["expand_entity"]:
        detector = PresidioDetector(options["expand_entity"], owner="--expand-entity")
        sources.append(DetectorSource(detector, corpus))
    if options["expand_faker"]:
        sources.append(FakerSource(options["expand_faker"], locales=options["expand_locale"] or ("en_US",)))
    if options["expand_corpus"] is not None:  # last: a list's own name for a group goes first
        sources.append(CorpusNeighbourSource(corpus))
    return sources


def describe(protector: Protector) -> None:
    """Print on stderr what was learnt."""
    report = protector.report
    if counts := report.get("texts"):
        labelled = "labelled" in report
        alone = f", {counts['emptied']:,} consist of it alone" if counts["emptied"] else ""
        note(
            f"Concept {protector.concept!r}: {counts['with_concept']:,} of {counts['texts']:,} texts "
            f"{'have a label' if labelled else 'hold it'}, {counts['without_concept']:,} do not{alone}."
        )
        if counts["without_concept"] < FEW_TEXTS and not labelled:
            note("  So few texts without it that those with it removed stood in for ordinary texts.")
    if moved := report.get("relabelled"):
        rows = f"{moved['moved']:,} of {moved['texts']:,}"
        note(f"Relabelled by {moved['by']}: {rows} texts without the concept hold PII.")
    if made := report.get("expansion"):
        cost = made["encodings"]["members"] + made["encodings"]["texts"]
        note(
            f"Expanded by {made['members']:,} members in {made['texts']:,} texts, {made['found']:,} of them as they "
            f"are; cost: {cost:,} encodings."
        )
    parameters = ", ".join(f"{k} {number(v)}" for k, v in report["parameters"].items() if v is not None)
    note(f"Method {protector.method}{f': {parameters}' if parameters else ''}")
    if kept := report.get("preserved"):
        note(
            f"Nothing that correlates with the {kept['classes']} classes is erased. What they tell of the concept "
            "stays readable."
        )
    names = ("epsilon", "delta", "sigma", "radius", "noise_to_signal")
    scales = [f"{n.replace('_', '-')} {number(report[n])}" for n in names if report.get(n) is not None]
    note(f"Noise: {', '.join(scales) or 'none'}")
    for key, entry in report["utility"].items():
        target = report["asked"].get("target_utility") if key == report["utility_task"] else None
        aim = "" if target is None else f" (target {share(target)})"
        note(f"{entry['label']}: {share(entry['relative'])} kept{aim}")
    if outlook := report.get("sealed_search"):
        for line in sealed_lines(outlook):
            note(line)
    if (read := still_read(report)) is not None:
        note(f"A kernel reader still finds {share(read)} of the words on texts held out of the search; `vecveil audit` "
             "has stronger ones.")  # fmt: skip
    if report["concept_distance"] is not None:
        note(report["concept_distance"]["statement"])
    for warning in report["warnings"]:
        note(f"Note: {warning}")
    note(f"Guarantee ({protector.guarantee.kind}): {protector.guarantee.statement}")


def still_read(report: dict[str, Any]) -> float | None:
    """Return what the search's reader recovered at the chosen setting, or None without a search."""
    chosen = report["parameters"]
    for row in report.get("search", ()):
        if all(row[name] == chosen.get(name) for name in row.keys() & chosen.keys()):
            return cast(float | None, row["recovered"])
    return None


def sealed_lines(outlook: dict[str, Any]) -> list[str]:
    """Return what a fit for sealed search tells about the collection and its growth."""
    queries = "texts as queries, each without itself" if outlook["texts_as_queries"] else "judged queries"
    lines = [
        f"  Measured with {outlook['queries']:,} {queries}, among {outlook['texts']:,} texts; a query "
        f"{'and a row carry' if outlook['query_noise'] else 'goes through the map, only a row carries'} noise. "
        f"A search fetches about {outlook['bytes_per_query'] / 1000:,.0f} kB."
    ]
    for entry in outlook["expected"]:
        interval = f"{share(entry['low'])} to {share(entry['high'])}"
        figure = f"{outlook['metric']} {share(entry['value'])} of clean ({interval})"
        lines.append(f"  At {entry['collection_size']:,} rows: {figure}.")
    restored = outlook["candidates_after_growth"]
    lines[-1] += " No number of candidates tried reaches the target." if restored is None else (
        f" {restored:,} candidates reach the target there."
    )  # fmt: skip
    lines.append(f"  Largest error of the model on sizes within these texts: {share(outlook['model_error'])}.")
    if outlook["distractors"]:
        lines.append(
            f"  {outlook['distractors']:,} ordinary texts stand for the further rows. If those will be of the domain "
            "of your texts, they are harder to tell apart, and these figures are optimistic."
        )
    return lines


def record(protector: Protector, out: Path) -> dict[str, Any]:
    """Return what ``fit --json`` prints."""
    return {
        "protector": str(out),
        "method": protector.method,
        "concept": protector.concept,
        "encoder": protector.encoder_info.to_record(),
        "dimension": protector.dimension,
        "released_dimension": protector.released_dimension,
        "fingerprint": protector.fingerprint,
        "report": protector.report,
        "guarantee": protector.guarantee.to_record(),
    }
