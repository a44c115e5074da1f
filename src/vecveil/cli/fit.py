"""``vecveil fit``: learn what to hide and write the protector."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vecveil.cli import options as shared
from vecveil.cli.expansion import check_expansion_options, expansion_of, expansion_options

if TYPE_CHECKING:
    from vecveil.cli.inputs import TableFormat
    from vecveil.protector import Protector

__all__ = ["command"]

SCALES = (
    "target_utility", "target_cosine", "target_advantage", "epsilon", "sigma", "noise_to_signal",
    "radius",
)  # fmt: skip

EXAMPLE = """\b
Examples:
  vecveil fit notes.csv --text-column text --concept concept.yaml \\
      --method subspace --target-utility 0.95 -o drug.vecveil
  vecveil fit --positive with.npy --negative without.npy --noise-to-signal 0.5 -o drug.vecveil
"""


def _method(ctx: click.Context, param: click.Parameter, value: str) -> str:
    from vecveil.protector import METHODS, TEXT_METHODS

    if value not in METHODS and value not in TEXT_METHODS:
        known = ", ".join(sorted({*METHODS, *TEXT_METHODS}))
        raise click.BadParameter(f"{value!r} is not one of {known}.", ctx, param)
    return value


@click.command("fit", epilog=EXAMPLE, short_help="Learn how to hide a concept; write a protector.")
@click.argument("input", type=shared.FILE, required=False)
@shared.table_options
@click.option("--concept", type=shared.FILE, help="Concept file (YAML): what to hide.")
@click.option(
    "--positive", type=shared.FILE, help="Vectors with the concept (.npy), instead of INPUT."
)
@click.option(
    "--negative", type=shared.FILE, help="The same texts without it; row i belongs to row i."
)
@click.option("--background", type=shared.FILE, help="Vectors of ordinary texts (.npy).")
@click.option(
    "--labels",
    type=shared.FILE,
    help="0/1 array (.npy): which concept words each positive row holds.",
)
@click.option(
    "--method",
    default="subspace",
    show_default=True,
    callback=_method,
    help="See `vecveil methods`.",
)
@click.option(
    "--target-utility", type=shared.SHARE, help="Share of the utility to keep; finds the noise."
)
@click.option(
    "--epsilon", type=click.FloatRange(min=0, min_open=True), help="ε per unit of the noise's norm."
)
@click.option(
    "--noise-to-signal",
    type=click.FloatRange(min=0, min_open=True),
    help="Norm of the noise over the vectors'.",
)
@click.option(
    "--target-cosine", type=shared.SHARE, help="Mean cosine of a vector and its noisy self."
)
@click.option(
    "--target-advantage",
    type=shared.SHARE,
    help="Largest advantage of any attacker at telling a text with the concept from the same without.",
)
@click.option(
    "--sigma",
    type=click.FloatRange(min=0, min_open=True),
    help="Standard deviation per coordinate (gaussian).",
)
@click.option(
    "--radius",
    type=click.FloatRange(min=0, min_open=True),
    help="Norm of every perturbation (textcrafter); vectors have norm 1.",
)
@click.option("--delta", type=shared.SHARE, help="δ beside --epsilon (ldp-gaussian).")
@click.option(
    "--utility",
    type=click.Choice(["similarity", "neighbours"]),
    help="What --target-utility keeps [default: similarity, or the labelled task that is given].",
)
@shared.task_options
@shared.encoder_options
@click.option(
    "--before",
    metavar="STEP",
    help="Before the noise: none, normalise or clip:RADIUS [default: the method's own].",
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
@click.option(
    "--option",
    "method_options",
    type=shared.Assignment(),
    multiple=True,
    help="Option of the method, such as rank=80; may be repeated.",
)
@click.option(
    "--min-texts",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Fewest texts that must hold the concept.",
)
@expansion_options
@shared.seed_option
@click.option("-o", "--out", type=shared.FILE, required=True, help="Protector file to write.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@shared.json_option
def command(
    input: Path | None,
    text_column: str | None,
    format: str | None,
    encoding: str,
    delimiter: str | None,
    out: Path,
    force: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Learn from texts (or from vectors) how to hide a concept, and write a protector.

    INPUT holds texts with and without the concept: CSV, TSV, JSONL (also .gz), Parquet
    or text lines.
    Exactly one of --target-utility, --target-cosine, --target-advantage, --epsilon, --sigma,
    --noise-to-signal and --radius says how much noise there is; `vecveil methods` says which a method has.
    """
    from vecveil.cli.fitted import describe, record
    from vecveil.cli.inputs import TableFormat
    from vecveil.cli.outputs import check_new_file, writing
    from vecveil.cli.printing import data_json, note

    _check_usage(input, given)
    inputs = (
        input,
        *(given[name] for name in ("concept", "positive", "negative", "background", "labels")),
    )
    check_new_file(out, force=force, inputs=inputs)
    form = TableFormat(text_column, format, encoding, delimiter)
    given["work"] = work = _work_folder(out, given)
    protector = _from_vectors(given) if input is None else _from_texts(input, form, given)
    with writing(out):
        protector.save(out)
    if work is not None:
        from vecveil.textcrafter.training import forget_checkpoint

        forget_checkpoint(work)
    describe(protector)
    note(f"Wrote {out}")
    if as_json:
        data_json(record(protector, out))


def _work_folder(out: Path, given: dict[str, Any]) -> Path | None:
    """Return the folder beside ``out`` where a long training keeps what it has learnt so far, if the method has one."""
    from vecveil.protector import METHODS

    options = dict(given["method_options"])
    method = METHODS.get(given["method"])
    if method is None or "checkpoint" not in method.options or "checkpoint" in options:
        return None
    return out.with_name(out.name + ".training")


def _check_usage(input: Path | None, given: dict[str, Any]) -> None:
    """Refuse combinations that cannot mean anything."""
    from vecveil.protector import METHODS, TEXT_METHODS

    text_level = given["method"] in TEXT_METHODS
    method = (TEXT_METHODS if text_level else METHODS)[given["method"]]
    scales = [name for name in SCALES if given[name] is not None]
    if method.scales and len(scales) != 1:
        listed = ", ".join(f"--{name.replace('_', '-')}" for name in SCALES)
        raise click.UsageError(f"Give exactly one of {listed}.")
    pairs = given["positive"] is not None and given["negative"] is not None
    vectors = [n for n in ("positive", "negative", "background", "labels") if given[n] is not None]
    if input is not None and vectors:
        raise click.UsageError(f"Give INPUT or vectors (--{vectors[0]}), not both.")
    if input is None and text_level:
        raise click.UsageError(f"Method {given['method']} rewrites texts: give INPUT with texts.")
    if input is None and not pairs:
        raise click.UsageError("Give INPUT with texts, or vectors with --positive and --negative.")
    if input is not None and given["concept"] is None:
        raise click.UsageError("Say with --concept what to hide in the texts of INPUT.")
    if input is None and (given["concept"] is not None or given["label_column"] is not None):
        raise click.UsageError(
            "--concept and --label-column need INPUT with texts; vectors have none."
        )
    check_expansion_options(input, given)
    tasks = [n for n in ("utility", "sts", "retrieval", "label_column") if given[n] is not None]
    if len(tasks) > 1:
        raise click.UsageError(
            "Give one of --utility, --sts, --retrieval and --label-column: it sets the target."
        )
    if input is None and given["encoder"] is None and (given["sts"] or given["retrieval"]):
        raise click.UsageError(
            "--sts and --retrieval hold texts: name the --encoder of your vectors."
        )
    arrays = ("further_positive",)  # arrays: from Python alone
    known = tuple(each for each in method.options if each not in arrays)
    known += () if text_level else ("splits",)
    for key, _ in given["method_options"]:
        if key not in known:
            listed = ", ".join(known) or "none"
            raise click.UsageError(
                f"--option {key}: method {given['method']} has the options: {listed}."
            )


def _common(given: dict[str, Any]) -> dict[str, Any]:
    names = ("method", *SCALES, "delta", "before", "postprocess", "seed")
    common = {name: given[name] for name in names}
    work = {} if given["work"] is None else {"checkpoint": given["work"]}
    return {**common, **work, "output": given["released"], **dict(given["method_options"])}


def _from_texts(input: Path, form: TableFormat, given: dict[str, Any]) -> Protector:
    from vecveil.cli.inputs import load_encoder_named, read_rows
    from vecveil.cli.tasks import chosen_task, classification_task
    from vecveil.protector import fit

    column = given["label_column"]
    rows = read_rows(input, given["concept"], form, columns=(column,))
    encoder = load_encoder_named(given["encoder"] or "minilm", given["precision"], given["cache"])
    utility = chosen_task(given, encoder)
    if column is not None:
        utility = classification_task(
            encoder.encode(rows.texts),
            rows.table.columns[column],
            column,
            input,
            seed=given["seed"],
        )
    return fit(
        rows.texts,
        rows.concept,
        encoder,
        utility=utility,
        min_texts=given["min_texts"],
        expansion=expansion_of(rows.concept, rows.texts, encoder, given),
        **_common(given),
    )


def _from_vectors(given: dict[str, Any]) -> Protector:
    from vecveil.cli.inputs import load_encoder_named, read_array, read_labels
    from vecveil.cli.tasks import chosen_task
    from vecveil.protector import fit_pairs

    positive, negative = read_array(given["positive"]), read_array(given["negative"])
    background = None if given["background"] is None else read_array(given["background"])
    labels = None if given["labels"] is None else read_labels(given["labels"])
    encoder = None
    if given["encoder"] is not None:
        encoder = load_encoder_named(given["encoder"], given["precision"], given["cache"])
    return fit_pairs(
        positive,
        negative,
        labels,
        background,
        encoder=encoder,
        utility=chosen_task(given, encoder),
        **_common(given),
    )
