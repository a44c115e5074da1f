"""``vecveil fit``: learn what to hide and write the protector."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from vecveil.auditing.records.frontier_record import FrontierPoint, FrontierRecord, Leak
from vecveil.auditing.records.verdict import FIRST_CHOICE, MOST, PART
from vecveil.auditing.report.text import duration
from vecveil.cli import options as shared
from vecveil.cli.output import data_json, doing, note, number, share, writing
from vecveil.cli.tables import (
    chosen_task,
    classification_task,
    load_encoder_named,
    read_array,
    read_labels,
    read_rows,
    require_matches,
    table_format,
)
from vecveil.errors import IncompatibleError, out_of_range
from vecveil.privacy.protector import METHODS, TEXT_METHODS, Protector, fit, fit_pairs
from vecveil.privacy.protector.data import MIN_PAIRS
from vecveil.privacy.protector.methods.text_level import Rewrite
from vecveil.texts.encoders.text_encoder import encoder_fingerprint
from vecveil.texts.tables.reading import TableFormat
from vecveil.texts.tables.writing import check_new_file

SCALES = ("target_utility", "target_cosine", "target_advantage", "epsilon", "sigma", "noise_to_signal", "radius")
AUDITED_TEXTS = 300
"""Texts with the concept that an audit needs: with fewer, intervals are wide and few words frequent."""
MUCH_FOUND = 0.9
"""Share of the concept's mentions below which a fit asks for a better detector."""
LITTLE_RECALL = 0.6
"""Share of the nearest neighbours below which a fit names sealed search."""

EXAMPLE = """\b
Examples:
  vecveil fit notes.csv --text-column text --concept concept.yaml \\
      --method subspace --target-utility 0.95 -o drug.vecveil
  vecveil fit notes.csv --concept concept.yaml --retrieval judged/ --target-utility 0.9 -o drug.vecveil
  vecveil fit notes.csv --concept concept.yaml --utility sealed-search --candidates 200 \\
      --collection-size 100000 -o drug.vecveil
  vecveil fit notes.csv --from frontier/ --point 7 -o drug.vecveil
  vecveil fit --positive with.npy --negative without.npy --noise-to-signal 0.5 -o drug.vecveil
"""


def _method(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if value not in METHODS and value not in TEXT_METHODS:
        known = ", ".join(sorted({*METHODS, *TEXT_METHODS}))
        raise click.BadParameter(f"{value!r} is not one of {known}.", ctx, param)
    return value


SECTIONS = {
    "What to hide": "--text-column --concept --encoder",
    "What the vectors are for, and how much of it to keep": "--target-utility --candidates --collection-size",
    "Design and output": "--method --out --json",
}


@shared.command("fit", EXAMPLE, SECTIONS)
@click.argument("input", type=shared.FILE, required=False)
@shared.text_column_option
@shared.file_option("--concept", help="Concept file (YAML): what to hide.")
@click.option("--group-column", metavar="NAME", help="Column of ids of texts that belong together.")
@shared.encoder_option
@shared.file_option("--positive", help="Vectors with the concept (.npy), instead of INPUT.")
@shared.file_option("--negative", help="The same texts without it; row i belongs to row i.")
@shared.file_option(
    "--from",
    "frontier_folder",
    metavar="FOLDER",
    help="Fit a design of `vecveil frontier`, with its concept, encoder and table options.",
)
@shared.count_option("--point", help="Number of the design [default: the recommended one].")
@click.option("--method", default="subspace", show_default=True, callback=_method, help="See `vecveil methods`.")
@click.option("--target-utility", type=shared.SHARE, help="Share of the utility to keep; finds the noise.")
@click.option("--epsilon", type=shared.POSITIVE, help="ε per unit of the noise's norm.")
@click.option(
    "--utility",
    type=click.Choice(["similarity", "neighbours", "sealed-search"]),
    help="What --target-utility keeps: similarity (clustering, duplicates), neighbours (search in the store alone),"
    " sealed-search (exact ranking of --candidates) [default: the labelled task, sealed-search with "
    "--candidates, else similarity].",
)
@shared.retrieval_option
@shared.count_option("--candidates", least=10, help="Rows that a sealed search opens and ranks; with --retrieval too.")
@shared.count_option("--collection-size", least=10, help="Expected rows of the collection, with --candidates.")
@click.option(
    "--option",
    "method_options",
    type=shared.Assignment(),
    multiple=True,
    help="Option of the method, such as rank=80; may be repeated.",
)
@click.option("--noise-to-signal", type=shared.POSITIVE, help="Norm of the noise relative to the vectors'.")
@click.option("--target-cosine", type=shared.SHARE, help="Mean cosine of a vector and its noisy version.")
@click.option(
    "--target-advantage", type=shared.SHARE, help="Largest advantage of any attacker at detecting the concept."
)
@click.option("--sigma", type=shared.POSITIVE, help="Standard deviation per coordinate (gaussian).")
@click.option("--radius", type=shared.POSITIVE, help="Norm of every perturbation (textcrafter); vectors have norm 1.")
@click.option("--delta", type=shared.SHARE, help="δ, with --epsilon (ldp-gaussian).")
@click.option(
    "--before", metavar="STEP", help="Before the noise: none, normalise or clip:RADIUS [default: the method's own]."
)
@click.option(
    "--postprocess",
    metavar="STEPS",
    help="After the noise, such as wiener,normalise,float16 [default: the method's own].",
)
@click.option(
    "--output",
    "released",
    type=click.Choice(["full", "reduced"]),
    default="full",
    show_default=True,
    help="reduced: release only the kept coordinates.",
)
@shared.query_noise_option("Noise of queries in units of a row's; 0 for none.")
@click.option(
    "--preserve",
    metavar="COLUMN",
    help="Column of a task's classes: erase nothing that correlates with them (subspace).",
)
@shared.count_option(
    "--min-texts",
    default=MIN_PAIRS,
    show_default=True,
    help="Minimum number of texts with the concept; at least 20 for methods that change vectors.",
)
@shared.long_texts_option
@click.option(
    "--rewrite",
    type=click.Choice(get_args(Rewrite)),
    help="Before encoding, replace what the detector finds: by its type, nothing, or another member. For unlisted"
    " words under sealed search.",
)
@shared.file_option("--detector", help="Concept file of what --rewrite rewrites [default: the file of --concept].")
@click.option(
    "--hypernym",
    "hypernyms",
    type=shared.Assignment(),
    multiple=True,
    help="Noun for a label, such as DRUG='a drug', for --rewrite hypernym; may be repeated.",
)
@click.option(
    "--surrogate-key",
    type=shared.KEY_SOURCE,
    metavar="SOURCE",
    help="Key file or env:NAME for --rewrite surrogate; only named when saved.",
)
@shared.file_option("--background", help="Vectors of ordinary texts (.npy), with --positive.")
@shared.file_option("--labels", help="0/1 array (.npy): which concept words each positive row contains.")
@shared.other_task_options
@shared.file_options
@shared.encoder_settings
@click.option(
    "--accept-leak",
    is_flag=True,
    help="Write a sealed-search protector even if it leaves nearly all of the clean leak.",
)
@shared.seed_option
@shared.file_option("-o", "--out", required=True, help="Protector file to write.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option("-v", "--verbose", is_flag=True, help="Print all figures of the fit, and the guarantee.")
@shared.json_option
def command(input: Path | None, out: Path, force: bool, verbose: bool, as_json: bool, **options: Any) -> None:
    """Write a protector for one use: search (--candidates 200 --collection-size ROWS), or clustering and duplicates
    (--target-utility 0.95). It hides a concept that it learns from texts.

    INPUT contains texts with and without the concept: CSV, TSV, JSONL (also .gz), Parquet or text lines. Vectors that
    keep similarity may be useless for search. --retrieval measures nDCG@10 instead of recall. `vecveil frontier` shows
    what each strength costs. Give exactly one strength; sealed search keeps 99 % by default.
    """
    frontier = _take_point(options)
    form = table_format(options)
    _check_usage(input, options)
    files = (options[name] for name in ("concept", "positive", "negative", "background", "labels"))
    check_new_file(out, overwrite=force, inputs=(input, *files))
    options["work"] = work = _work_folder(out, options)
    started = time.perf_counter()
    protector = _from_vectors(options) if input is None else _from_texts(input, form, options)
    with writing(out):
        protector.save(out)
    if work is not None:
        from vecveil.privacy.textcrafter.policy_training import forget_checkpoint  # torch

        forget_checkpoint(work)
    seconds, search = time.perf_counter() - started, protector.report["seconds"]
    if "accepted_leak" in protector.report:
        note(protector.report["warnings"][0])
    note(f"Wrote {out}, after {duration(seconds - search)} of reading and encoding and {duration(search)} of fitting.")
    describe(protector, frontier, verbose=verbose)
    if as_json:
        data_json(record(protector, out))


def _work_folder(out: Path, options: dict[str, Any]) -> Path | None:
    """Return the folder next to ``out`` for checkpoints of a long training, if the method has one."""
    method = METHODS.get(options["method"])
    if method is None or "checkpoint" not in method.options or "checkpoint" in dict(options["method_options"]):
        return None
    return out.with_name(out.name + ".training")


def _take_point(options: dict[str, Any]) -> tuple[FrontierRecord, FrontierPoint] | None:
    """Set method, noise and options from a point of --from, and defaults from its folder; return the point."""
    from vecveil.auditing.comparison import FILE
    from vecveil.cli.frontier import CONCEPT

    folder, number = options.pop("frontier_folder"), options.pop("point")
    options["frontier_encoder"] = None
    if folder is None:
        if number is not None:
            raise click.UsageError("--point requires --from.")
        return None
    source = click.get_current_context().get_parameter_source

    def given(name: str) -> bool:
        return source(name) is not ParameterSource.DEFAULT

    if excluded := [name for name in (*SCALES, "delta", "method", "before", "postprocess") if given(name)]:
        raise click.UsageError(f"--from sets method and noise: leave out --{excluded[0].replace('_', '-')}.")
    if options["method_options"]:
        raise click.UsageError("--from sets the options of the method: leave out --option.")
    if not (folder / FILE).is_file():
        raise click.UsageError(f"--from must be a folder that `vecveil frontier` wrote; {folder.name!r} is not.")
    record = FrontierRecord.load(folder / FILE, owner="fit")
    if number is None and not record.is_complete:
        raise click.UsageError(
            f"{len(record.points)} of {record.designs} designs of {folder.name!r} are measured: run `vecveil frontier` "
            "again to finish it, or name a --point."
        )
    if options["concept"] is None and not (folder / CONCEPT).is_file():
        raise click.UsageError(f"{folder.name!r} contains no {CONCEPT}: name the concept file with --concept.")
    point = record.point(number) if number is not None else record.recommended
    if number is None and point is None:
        raise click.UsageError(f"{record.recommendation} To fit a design anyway, name its --point.")
    if point is None:
        numbers = ", ".join(str(each.number) for each in record.points) or "none"
        raise out_of_range("fit", "point", f"one of the points of {folder.name!r} ({numbers})", number)
    arguments = dict(point.arguments)
    options["method"] = _method(click.get_current_context(), click.Option(["--from"]), str(arguments.pop("method")))
    options["noise_to_signal"] = arguments.pop("noise_to_signal", None)
    options["long_texts"] = arguments.pop("long_texts", options["long_texts"])
    options["method_options"] = tuple(arguments.items())
    names = [field.name for field in fields(TableFormat) if field.name in options]
    table = {name: record.table[name] for name in names if name in record.table}
    options |= {name: value for name, value in table.items() if isinstance(value, str) and not given(name)}
    options["concept"] = options["concept"] or folder / CONCEPT
    options["frontier_encoder"] = record.encoder
    return record, point


def _check_usage(input: Path | None, options: dict[str, Any]) -> None:
    def named(*names: str) -> list[str]:
        return [f"--{name.replace('_', '-')}" for name in names if options[name] not in (None, ())]

    text_level = options["method"] in TEXT_METHODS
    sealed_options, given = named("candidates", "collection_size"), named(*SCALES)
    if sealed_options and not named("utility", "sts", "label_column"):
        options["utility"] = "sealed-search"
    sealed = options["utility"] == "sealed-search"
    query_noise = ["--query-noise"] if options["query_noise"] != 1 else []
    too_few = input is not None and not text_level and options["min_texts"] < MIN_PAIRS
    method = (TEXT_METHODS if text_level else METHODS)[options["method"]]
    vectors = named("positive", "negative", "background", "labels")
    scales = ", ".join(f"--{name.replace('_', '-')}" for name in SCALES)
    stage = named("detector", "hypernyms", "surrogate_key")
    refusals = {
        f"Give exactly one of {scales}; --target-utility 0.9 is a good start.": bool(method.scales)
        and len(named(*SCALES)) != 1 - (sealed and not given),
        "Sealed search needs --candidates and --collection-size.": sealed and len(sealed_options) < 2,
        f"{''.join(sealed_options[:1] or query_noise)} belongs to sealed search (--utility sealed-search).": (
            not sealed and bool(sealed_options or query_noise)
        ),
        f"Give INPUT or vectors ({''.join(vectors[:1])}), not both.": input is not None and bool(vectors),
        f"Method {options['method']} rewrites texts: give INPUT with texts.": input is None and text_level,
        "Give INPUT with texts, or vectors with --positive and --negative.": (
            input is None and len(named("positive", "negative")) < 2
        ),
        "Say with --concept what to hide in the texts of INPUT.": input is not None and not named("concept"),
        "--concept, --label-column and --group-column need INPUT with texts; vectors have none.": (
            input is None and bool(named("concept", "label_column", "group_column"))
        ),
        f"--group-column is for methods that learn; {options['method']} does not split the texts.": (
            text_level and bool(named("group_column"))
        ),
        "--rewrite needs INPUT with texts, and a method that protects vectors.": (
            options["rewrite"] is not None and (input is None or text_level)
        ),
        f"{''.join(stage[:1])} belongs to --rewrite.": options["rewrite"] is None and bool(stage),
        "--preserve needs INPUT with texts and method subspace.": (
            bool(named("preserve")) and (input is None or "preserve" not in method.options)
        ),
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
    # Arrays, which come from Python or a separate option.
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
    settings["query_noise"] = options["query_noise"]
    settings["accept_leak"] = options["accept_leak"]
    return settings | work | dict(options["method_options"])


def _from_texts(input: Path, form: TableFormat, options: dict[str, Any]) -> Protector:
    column = options["label_column"]
    group_column = options["group_column"]
    hidden, rows = read_rows(input, options["concept"], form, columns=(column, options["preserve"], group_column))
    require_matches(hidden, rows.texts, options["min_texts"])
    measured = options["frontier_encoder"]
    encoder = load_encoder_named(options, default="minilm", recorded=measured)
    assert encoder is not None
    if measured is not None and measured.fingerprint not in (None, encoder_fingerprint(encoder)):
        raise IncompatibleError(
            f"The frontier was measured on vectors of a different encoder than {encoder.name}: name its own, "
            f"{measured.name} ({measured.fingerprint[:12]}), with `encoder`.",
            code="E-INCOMPATIBLE-ENCODER",
            param="encoder",
        )
    if column is None:
        utility = chosen_task(options, encoder)
    else:
        vectors, labels = encoder.encode(rows.texts), rows.columns[column]
        utility = classification_task(vectors, labels, column, input, seed=options["seed"])
    settings = _common(options)
    settings |= {name: options[name] for name in ("rewrite", "detector", "surrogate_key")}
    settings["hypernyms"] = dict(options["hypernyms"]) or None
    if options["preserve"] is not None:
        settings["preserve"] = rows.columns[options["preserve"]]
    if group_column is not None:
        settings["groups"] = rows.columns[group_column]
    settings |= {name: options[name] for name in ("min_texts", "long_texts")}
    doing(f"Fitting {options['method']}")
    return fit(rows.texts, hidden, encoder, utility=utility, **settings)


def _from_vectors(options: dict[str, Any]) -> Protector:
    background = None if options["background"] is None else read_array(options["background"])
    labels = None if options["labels"] is None else read_labels(options["labels"])
    encoder = load_encoder_named(options)
    doing(f"Fitting {options['method']}")
    return fit_pairs(
        read_array(options["positive"]),
        read_array(options["negative"]),
        labels,
        background,
        encoder=encoder,
        utility=chosen_task(options, encoder),
        **_common(options),
    )


def describe(protector: Protector, frontier: tuple[FrontierRecord, FrontierPoint] | None, *, verbose: bool) -> None:
    """Print on stderr the utility, what attackers recover, warnings and the verdict; with ``verbose`` all figures."""
    report = protector.report
    note(FIRST_CHOICE)
    if verbose:
        _details(protector)
    if rewriting := report.get("rewriting"):
        note(f"Rewritten: {_rewritten(rewriting)}.")
    note(f"Kept: {_kept(report)}.")
    note(f"Search: {_search(report, frontier)}.")
    listed, unlisted = _leaks(report, frontier)
    for kind, leak in (("Listed", listed), ("Unlisted", unlisted)):
        if leak is not None:
            note(f"{kind} words: {_read(report, leak)}.")
    if kept := report.get("preserved"):
        note(
            f"Note: nothing that correlates with the {kept['classes']} classes is erased. What they reveal of the "
            "concept can still be recovered."
        )
    for warning in report["warnings"]["accepted_leak" in report :]:
        note(f"Note: {warning}")
    if verbose:
        note(f"Guarantee ({protector.guarantee.kind}): {protector.guarantee.statement}")
    note(_advice(report, listed, unlisted, of_frontier=frontier is not None))


def _rewritten(rewriting: dict[str, Any]) -> str:
    """Return the recall of the detector, and the cost of the rewriting before and after the noise."""
    texts = f"{rewriting['rewritten']:,} of {rewriting['texts']:,} texts ({rewriting['kind']})"
    if recall := rewriting.get("detector_recall"):
        texts += f"; the detector finds {share(recall['recall'])} of the concept's {recall['spans']:,} mentions"
    alone, both = (
        ", ".join(f"{share(entry['relative'])} of {_lower(entry['label'])}" for entry in stage.values())
        for stage in rewriting["utility"].values()
    )
    return (
        f"{texts}. Among texts with the concept the rewriting alone keeps {alone}, and with the noise {both}; "
        "sealed search ranks by the original texts"
    )


def _kept(report: Mapping[str, Any]) -> str:
    named = report["utility"].get(report["utility_task"])
    if named is None:
        return "not measured"
    target = report["asked"].get("target_utility")
    about = [] if target is None else [f"target {share(target)}"]
    if named["clean"] > 0:
        # The interval of the protected figure; the clean one counts as exact.
        about.insert(0, f"{share(named['low'] / named['clean'])} to {share(named['high'] / named['clean'])}")
    aim = f" ({'; '.join(about)})" if about else ""
    outlook = report.get("sealed_search")
    size = "" if outlook is None else f" in {outlook['expected'][0]['collection_size']:,} rows"
    own = ", measured on the fit's own texts" if report["utility_task"] in ("similarity", "neighbours") else ""
    return f"{share(named['relative'])} of {_lower(named['label'])}{size}{own}{aim}"


def _search(report: Mapping[str, Any], frontier: tuple[FrontierRecord, FrontierPoint] | None) -> str:
    """Return the share of the nearest neighbours that the store alone finds, and how sealed search raises it."""
    neighbours = report["utility"].get("neighbours", {}).get("relative")
    if neighbours is None:
        return "not measured by this fit"
    found = f"the store alone finds {share(neighbours)} of the ten nearest neighbours among the fit's own texts"
    if "sealed_search" in report or neighbours >= LITTLE_RECALL or (frontier and frontier[0].store_alone):
        return found
    if frontier is not None:
        record, point = frontier
        ranked = record.ranked(point)
        if ranked is not None and ranked.candidates:
            return (
                f"{found}; sealed search with {ranked.candidates} candidates (`vecveil search --candidates "
                f"{ranked.candidates}`) keeps {share(ranked.value)} in the frontier, of {record.counts.rows:,} rows"
            )
    return f"{found}; sealed search (--candidates, --collection-size) keeps more"


def _leaks(
    report: Mapping[str, Any], frontier: tuple[FrontierRecord, FrontierPoint] | None
) -> tuple[dict[str, Any] | None, ...]:
    """Return what the attacker of the frontier, or of the fit, recovers of listed and unlisted words; None for none."""
    if frontier is None:
        reader = report.get("reader", {})
        return reader.get("listed"), reader.get("unlisted")
    record, point = frontier
    fewer = "fewer texts, not rewritten" if "rewriting" in report else "fewer texts"

    def figures(leak: Leak | None, clean: float | None, chance: float | None) -> dict[str, Any] | None:
        if leak is None or clean is None:
            return None
        return {
            "value": leak.value,
            "low": leak.low,
            "high": leak.high,
            "chance": chance,
            "clean": clean,
            "by": f"{leak.reader} in the frontier, whose fit had {fewer}",
        }

    listed = figures(point.listed, record.clean_listed.value, record.chance_listed)
    if (audited := point.audited) is not None:
        listed = figures(audited.leak, audited.clean, audited.chance)
    clean = None if record.clean_left_out is None else record.clean_left_out.value
    return listed, figures(point.left_out, clean, record.chance_left_out)


def _read(report: Mapping[str, Any], leak: dict[str, Any]) -> str:
    """Return what an attacker recovers of one kind of words: with interval, chance, and the clean value."""
    by = leak.get("by")
    clean = "rewritten without noise" if "rewriting" in report and by is None else "clean"
    return (
        f"{share(leak['value'])} recovered on other texts by {by or report['reader']['attack']} "
        f"({share(leak['low'])} to {share(leak['high'])}; chance {share(leak['chance'])}, {clean} "
        f"{share(leak['clean'])})"
    )


def _advice(
    report: Mapping[str, Any],
    listed: dict[str, Any] | None,
    unlisted: dict[str, Any] | None,
    *,
    of_frontier: bool = False,
) -> str:
    """Return whether the protector is ready for an audit, and what to try otherwise."""
    audit = (
        f"`vecveil audit` on other texts, at least {AUDITED_TEXTS} of them with the concept, decides: its attackers "
        "recover more."
    )
    if listed is None:
        return f"Undecided: this fit ran no attack. {audit}"
    tries = []
    if (left := _left(listed)) > PART:
        see = "See with `vecveil frontier` what a stronger design costs."
        tries.append("Take a stronger --point of the frontier." if of_frontier else see)
    if unlisted is not None and _left(unlisted) > PART and "rewriting" not in report:
        tries.append("List more words, or rewrite what a detector finds (--rewrite).")
    recall = report.get("rewriting", {}).get("detector_recall")
    if left > PART and recall and recall["recall"] < MUCH_FOUND:
        tries.append(f"Give a --detector that finds more than {share(recall['recall'])} of the mentions.")
    word = "Not ready" if left > PART else "Perhaps ready" if left > MOST or tries else "Ready to audit"
    verdict = f"{word}: {share(left)} of what clean vectors reveal over chance can be recovered."
    return " ".join([verdict, *tries, audit])


def _left(leak: dict[str, Any]) -> float:
    over = leak["clean"] - leak["chance"]
    return max(0.0, (leak["value"] - leak["chance"]) / over) if over > 0 else 1.0


def not_ready(report: Mapping[str, Any]) -> str | None:
    """Return why a fit reported "Not ready", or None."""
    listed = report.get("reader", {}).get("listed")
    if listed is None or _left(listed) <= PART:
        return None
    recovered, clean = share(listed["value"]), share(listed["clean"])
    return f"an attacker recovers {recovered} of the listed words, {clean} from clean vectors"


def _lower(label: str) -> str:
    return label[0].lower() + label[1:]


def _details(protector: Protector) -> None:
    report = protector.report
    if counts := report.get("texts"):
        labelled = "labelled" in report
        alone = f", {counts['emptied']:,} consist of it alone" if counts["emptied"] else ""
        note(
            f"Concept {protector.concept!r}: {counts['with_concept']:,} of {counts['texts']:,} texts "
            f"{'have a label' if labelled else 'contain it'}, {counts['without_concept']:,} do not{alone}."
        )
        if counts["without_concept"] < MIN_PAIRS and not labelled:
            note("  Texts with the concept removed replaced ordinary texts, which were too few.")
    if moved := report.get("relabelled"):
        rows = f"{moved['moved']:,} of {moved['texts']:,}"
        note(f"Relabelled by {moved['by']}: {rows} texts without the concept contain PII.")
    parameters = ", ".join(f"{k} {number(v)}" for k, v in report["parameters"].items() if v is not None)
    note(f"Method {protector.method}{f': {parameters}' if parameters else ''}")
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
    if report["concept_distance"] is not None:
        note(report["concept_distance"]["statement"])


def sealed_lines(outlook: dict[str, Any]) -> list[str]:
    """Return the lines about the collection and its growth for a sealed-search fit."""
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
    lines[-1] += (
        " No number of candidates tried reaches the target."
        if restored is None
        else (f" {restored:,} candidates reach the target there.")
    )
    lines.append(f"  Largest error of the model on sizes within these texts: {share(outlook['model_error'])}.")
    if outlook["distractors"]:
        lines.append(
            f"  {outlook['distractors']:,} ordinary texts represent the further rows. Rows from the domain of your "
            "texts would be harder to distinguish, and make these figures optimistic."
        )
    return lines


def record(protector: Protector, out: Path) -> dict[str, Any]:
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
