"""Routes of the page of ``vecveil serve``, with the attack that it previews."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.routing import Router

from vecveil.auditing.preview import FEWEST_TEXTS, MOST_WORDS, Preview, VectorMemory
from vecveil.data import read_texts
from vecveil.demo.corpus import CONCEPT_FILE, load_notes
from vecveil.errors import DataFileError, MissingDependencyError
from vecveil.serving import Service
from vecveil.serving.preview_page import PageTexts, page_router
from vecveil.types import Embeddings

_SAMPLES = 4


def page_routers(texts_file: Path | None) -> Callable[[Service], Sequence[Router]]:
    """Return a function that gives the routes of the page once the service is open.

    Args:
        texts_file: the attacker's training texts; None takes the bundled notes. The page does not show them.
    """
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
    content = PageTexts(_demo_words()[:MOST_WORDS], tuple(samples), description)

    def routers(service: Service) -> Sequence[Router]:
        policies = service.policies.items()
        served = {name: (policy.policy.protector, policy.upstream) for name, policy in policies}
        return [page_router(served, _preview(background), content, server_limits=service.limits)]

    return routers


def _demo_words() -> tuple[str, ...]:
    """Return the terms of the demo's concept."""
    try:
        import yaml
    except ImportError:
        raise MissingDependencyError("The page of the server", "pyyaml", "serve") from None
    return tuple(yaml.safe_load(CONCEPT_FILE.read_text("utf-8"))["terms"])


def _preview(background: Sequence[str]) -> Any:
    """Return the attack; it keeps the vectors of background texts in memory from job to job."""
    memory = VectorMemory()

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

    return guess
