"""``vecveil serve``: OpenAI's embeddings API, protected, and its vector store API over sealed indexes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from vecveil.cli import options as shared
from vecveil.cli.sealed import arrow_without_pandas
from vecveil.errors import DataFileError
from vecveil.gateway.server import ServedPolicySettings, ServeSettings, UpstreamSettings
from vecveil.gateway.server.settings import read_config

if TYPE_CHECKING:
    from starlette.routing import Router

    from vecveil.gateway.server import Service
    from vecveil.types import Embeddings

_SAMPLES = 4

EXAMPLE = """\b
Examples:
  vecveil serve -p drug.vecveil --upstream minilm --port 8080
  vecveil serve -p drug.vecveil --upstream https://api.openai.com/v1#text-embedding-3-small
  vecveil serve -p drug=drug.vecveil -p names=names.vecveil --key-file noise.key
  vecveil serve --index notes=s3://bucket/notes --seal-key search.keys --api-keys clients.keys
  vecveil serve --config serve.yaml
"""
SECTIONS = {
    "Protection": "--protector --config --query-noise --key-file --ledger",
    "Search": "--index --seal-key",
    "Upstream": "--upstream --upstream-key",
    "Server": "--host --port --api-keys --page",
}


@shared.command("serve", EXAMPLE, SECTIONS)
@click.option(
    "-p",
    "--protector",
    "protectors",
    type=shared.Source(shared.PROTECTOR.expected),
    multiple=True,
    metavar="[NAME=]FILE",
    help="Protector file; NAME is the model that clients ask for [default: the file's name].",
)
@shared.file_option("--config", help="YAML file with all settings, instead of -p.")
@click.option(
    "--upstream",
    metavar="NAME|URL[#MODEL]",
    help="Encoder, or OpenAI-compatible server [default: each protector's own encoder; of indexes minilm].",
)
@click.option(
    "--upstream-key",
    type=shared.Source("a file with the key, or env:NAME"),
    metavar="env:NAME|FILE|forward|none",
    help="Key for a server [default: the client's].",
)
@click.option("--host", help="Address to listen on [default: 127.0.0.1].")
@click.option(
    "--host-names",
    metavar="NAME,NAME",
    help="Permitted Host headers [default: without keys on 127.0.0.1 this machine's, else any].",
)
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on; 0 takes a free one [default: 8080].")
@click.option(
    "--query-noise", type=float, metavar="X", help="Noise of a query in units of a document's; 0 for none [default: 1]."
)
@click.option("--key-file", type=shared.KEY_FILE, help="Keyed noise: the same item always gets the same release.")
@click.option("--key-env", metavar="VARIABLE", help="Keyed noise with the keys in this environment variable.")
@click.option("--ledger", type=shared.LEDGER, help="Count releases of each text and enforce the cap.")
@click.option(
    "--api-keys",
    type=shared.Source("a file of client keys, or env:NAME"),
    metavar="env:NAME|FILE",
    help="Client keys with grants, one a line [default: no key].",
)
@click.option(
    "--index",
    "indexes",
    multiple=True,
    metavar="NAME=LOCATION",
    help="Sealed index that clients search as the vector store NAME; may be repeated.",
)
@click.option(
    "--seal-key",
    type=shared.SEAL_KEY,
    metavar="env:NAME:FILE|FILE",
    help="Keys of sealed search: open indexes, seal rows, and rank sealed documents.",
)
@click.option("--audit-log", metavar="FILE|stdout|syslog", help="Log who searched which index, as JSON lines.")
@shared.count_option("--workers", help="Server processes, each with an encoder [default: 1].")
@click.option("--no-access-log", is_flag=True, help="Do not log each request.")
@click.option(
    "--page/--no-page",
    default=True,
    show_default=True,
    help="At /, show what an attacker recovers before and after protection; one worker only.",
)
@shared.file_option("--page-texts", help="Texts for the page's attacker to learn from [default: notes].")
@shared.json_option
def command(config: Path | None, page: bool, page_texts: Path | None, as_json: bool, **options: Any) -> None:
    """Serve POST /v1/embeddings: texts in, protected vectors out, for any client of OpenAI's API.

    With --index, also or only serve POST /v1/vector_stores/NAME/search: the rows of a sealed index, ranked here.
    The base URL is http://127.0.0.1:8080/v1. If protection fails, the answer is an error and never a clean vector.
    The model NAME:query marks a query. Logs go to stderr, without texts, vectors or keys; with --json stdout gets
    {"url": ...} when the server listens.
    """
    from vecveil.gateway.server import run  # needs the extra serve

    def listening(url: str) -> None:
        if as_json:
            click.echo(json.dumps({"url": url}))  # one line, which a program can read at once

    settings = _from_config(config, options) if config is not None else _from_options(options)
    if settings.workers > 1 or not settings.policies:
        source = click.get_current_context().get_parameter_source("page")
        if page and (source is not ParameterSource.DEFAULT or page_texts is not None):
            raise click.UsageError(
                "The page needs one worker: it keeps its state in one process."
                if settings.policies
                else "The page needs a protector: give -p FILE."
            )
        page = False
    if settings.indexes:
        arrow_without_pandas()
    if not page:
        if page_texts is not None:
            raise click.UsageError("--page-texts needs the page: leave out --no-page.")
        run(settings, on_listening=listening)
        return
    from vecveil.gateway.server.preview_page import PAGE_OPEN_PATHS

    run(settings, routers=page_routers(page_texts), open_paths=PAGE_OPEN_PATHS, on_listening=listening)


def _from_options(options: dict[str, Any]) -> ServeSettings:
    if not options["protectors"] and not options["indexes"]:
        raise click.UsageError("Give -p FILE, --index NAME=LOCATION, or --config FILE.")
    if options["indexes"] and options["seal_key"] is None:
        raise click.UsageError("--index needs --seal-key.")
    if options["key_file"] is not None and options["key_env"] is not None:
        raise click.UsageError("Give --key-file or --key-env, not both.")
    key = None if options["key_file"] is None else str(options["key_file"])
    if options["key_env"] is not None:
        key = f"env:{options['key_env']}"
    common: dict[str, Any] = {
        "key": key,
        "ledger": None if options["ledger"] is None else str(options["ledger"]),
        **_set(options, "query_noise"),
    }
    policies: dict[str, Any] = {}
    for named in options["protectors"]:
        name, _, file = named.rpartition("=") if not Path(named).is_file() else ("", "", named)
        name = name or Path(file).stem
        if name in policies:
            raise click.UsageError(f"Two protectors are named {name!r}: give each a NAME=FILE.")
        policies[name] = ServedPolicySettings(file, **common)
    indexes: dict[str, str] = {}
    for given in options["indexes"]:
        name, equals, place = given.partition("=")
        if not (name and equals and place):
            raise click.UsageError("--index is NAME=LOCATION, such as notes=s3://bucket/notes.")
        if name in indexes:
            raise click.UsageError(f"Two indexes are named {name!r}.")
        indexes[name] = place.removeprefix("sealed:")
    upstream = UpstreamSettings(encoder=options["upstream"], key=options["upstream_key"])
    return ServeSettings(
        policies,
        upstream,
        indexes=indexes,
        access_log=not options["no_access_log"],
        **_set(options, "host", "port", "api_keys", "seal_key", "host_names", "workers", "audit_log"),
    )


def _from_config(path: Path, options: dict[str, Any]) -> ServeSettings:
    changes = _set(options, "host", "port", "host_names", "workers")
    if options["no_access_log"]:
        changes["access_log"] = False
    others = {name for name, value in options.items() if value} - {*changes, "no_access_log"}
    if others:
        names = {option.name: option.opts[-1] for option in click.get_current_context().command.params}
        listed = ", ".join(sorted(names[name] for name in others))
        raise click.UsageError(f"--config reads all settings from its file; leave out {listed}.")
    return dataclasses.replace(read_config(path), **changes)


def _set(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: options[name] for name in names if options[name] is not None}


def page_routers(texts_file: Path | None) -> Callable[[Service], Sequence[Router]]:
    """Return a function that returns the routes of the page once the service is open.

    The attacker trains on ``texts_file``, by default on the bundled notes. The page does not show them.
    """
    import yaml

    from vecveil.auditing.preview import FEWEST_TEXTS, MOST_WORDS, Preview, VectorMemory
    from vecveil.cli.demo.corpus import CONCEPT_FILE, load_notes
    from vecveil.gateway.server.preview_page import PageTexts, page_router
    from vecveil.texts.tables import read_texts

    notes = load_notes()
    samples = [note.text for note in notes if note.has_concept][:_SAMPLES]
    background = [note.text for note in notes if note.text not in samples]
    description = "the synthetic notes that come with vecveil"
    if texts_file is not None:
        background, description = read_texts(texts_file).texts, "the corpus that this server was given"
        if len(background) < FEWEST_TEXTS:
            raise DataFileError(
                f"The page needs at least {FEWEST_TEXTS} texts, and the file has {len(background)}.", param="page_texts"
            )
    words = tuple(yaml.safe_load(CONCEPT_FILE.read_text("utf-8"))["terms"])
    content = PageTexts(words[:MOST_WORDS], tuple(samples), description)

    memory = VectorMemory()  # keeps the vectors of background texts from job to job

    def guess(
        protector: Any,
        texts: Sequence[str],
        words: Sequence[str],
        *,
        encode: Callable[[Sequence[str]], Embeddings],
        encoder: str,
        report: Callable[[float, str], None],
    ) -> dict[str, Any]:
        preview = Preview(protector, background, words, encode=encode, memory=memory, encoder=encoder)
        return preview.run(texts, report=report).to_record()

    def routers(service: Service) -> Sequence[Router]:
        policies = service.policies.items()
        served = {name: (policy.policy.protector, policy.upstream) for name, policy in policies}
        return [page_router(served, guess, content, server_limits=service.limits)]

    return routers
