"""What ``vecveil serve`` shows at ``/``: the page's routes, with an attacker behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vecveil.errors import DataFileError, MissingDependencyError

if TYPE_CHECKING:
    from fastapi import APIRouter

    from vecveil.serving import Service
    from vecveil.types import Embeddings

__all__ = ["page_routers"]

_SAMPLES = 4


def page_routers(texts_file: Path | None) -> Callable[[Service], Sequence[APIRouter]]:
    """Return what gives the routes of the page once the service is open.

    Args:
        texts_file: texts that attackers learn from; None takes the bundled notes. None of them is shown.
    """
    from vecveil.auditing.preview import FEWEST_TEXTS, MOST_WORDS
    from vecveil.demo.corpus import load_notes
    from vecveil.serving.preview_page import PageTexts, page_router

    notes = load_notes()
    samples = [note.text for note in notes if note.has_concept][:_SAMPLES]
    background = [note.text for note in notes if note.text not in samples]
    said = "the synthetic notes that come with vecveil"
    if texts_file is not None:
        from vecveil.data import read_texts

        background, said = read_texts(texts_file).texts, "the corpus that this server was given"
        if len(background) < FEWEST_TEXTS:
            wanted = f"a file of at least {FEWEST_TEXTS} texts"
            raise DataFileError.of("serve", "page_texts", wanted, len(background))
    shown = PageTexts(_demo_words()[:MOST_WORDS], tuple(samples), said)

    def routers(service: Service) -> Sequence[APIRouter]:
        served = {
            name: (one.policy.protector, one.upstream) for name, one in service.policies.items()
        }
        guess = _previews(background)
        return [page_router(served, guess, shown, server_limits=service.limits)]

    return routers


def _demo_words() -> tuple[str, ...]:
    """Return the terms of the demo's concept as they are written there."""
    from vecveil.demo.corpus import CONCEPT_FILE

    try:
        import yaml
    except ImportError:
        raise MissingDependencyError("The page of the server", "pyyaml", "serve") from None
    return tuple(yaml.safe_load(CONCEPT_FILE.read_text("utf-8"))["terms"])


def _previews(background: Sequence[str]) -> Any:
    """Return the function that guesses; vectors of background texts are kept from job to job, in memory."""
    from vecveil.auditing.preview import Preview, VectorMemory

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
        preview = Preview(
            protector, background, words, encode=encode, memory=memory, encoder=encoder
        )
        return preview.run(texts, report=report).to_record()

    return guess
