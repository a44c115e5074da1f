"""Results of finished attacks on disk, so that an interrupted audit goes on where it was."""

from __future__ import annotations

import json
import re
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from vecveil.attacks import AttackResult
from vecveil.io import write_bytes
from vecveil.metrics.estimates import Estimate
from vecveil.metrics.token_inference import TermTable

__all__ = ["KeptResults"]

SCHEMA = "vecveil.audit-work/1"
KEPT_DAYS = 14


class KeptResults:
    """The work folder of one audit.

    Args:
        folder: made, readable by its owner only, at the first write. Results hold figures; checkpoints of attacks that
            write texts hold what they have learnt from the texts.
        fingerprint: of everything that decides the results; what another audit left there is not used.
        with_texts: whether results keep texts and what was reconstructed of them.
    """

    def __init__(self, folder: Path, fingerprint: str, *, with_texts: bool = False) -> None:
        self.folder = folder / fingerprint[:32]
        self.with_texts = with_texts

    def folder_of(self, key: str) -> Path:
        """Return the folder for the checkpoints of one job."""
        self._make()
        return self.folder / f"{key}.checkpoint"

    def load(self, key: str) -> AttackResult | None:
        """Return the result kept under ``key``, or None if there is none that can be read."""
        try:
            record = json.loads((self.folder / f"{key}.json").read_text(encoding="utf-8"))
            if record.pop("schema") != SCHEMA:
                return None
            terms = record.pop("terms")
            estimates = {
                name: Estimate(**figures) for name, figures in record.pop("estimates").items()
            }
            examples = tuple((a, b) for a, b in record.pop("examples"))
            table = None
            if terms is not None:
                chance = terms["chance"]
                table = TermTable(
                    np.array(terms["counts"], dtype=np.int64),
                    np.array(terms["hits"]),
                    None if chance is None else np.array(chance),
                )
            return AttackResult(estimates=estimates, terms=table, examples=examples, **record)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None  # run it again

    def save(self, key: str, result: AttackResult) -> None:
        """Keep ``result`` under ``key``; its checkpoints are no longer needed."""
        self._make()
        terms: dict[str, Any] | None = None
        if result.terms is not None:
            table = result.terms
            terms = {
                "counts": table.counts.tolist(),
                "hits": table.hits.tolist(),
                "chance": None if table.chance is None else table.chance.tolist(),
            }
        record = {
            "schema": SCHEMA,
            "name": result.name,
            "estimates": {name: asdict(each) for name, each in result.estimates.items()},
            "terms": terms,
            "adaptive": result.adaptive,
            "seconds": result.seconds,
            "description": result.description,
            "family": result.family,
            "cost": result.cost,
            "details": dict(result.details),
            "examples": [list(pair) for pair in result.examples] if self.with_texts else [],
        }
        data = json.dumps(record, default=str) + "\n"
        write_bytes(self.folder / f"{key}.json", data.encode(), mode=0o600)
        shutil.rmtree(self.folder_of(key), ignore_errors=True)

    def _make(self) -> None:
        if self.folder.exists():
            return
        for folder in (self.folder.parent, self.folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for other in self.folder.parent.iterdir():  # audits that nobody has gone on with
            old = time.time() - other.stat().st_mtime > 86400 * KEPT_DAYS
            if old and re.fullmatch("[0-9a-f]{32}", other.name):
                shutil.rmtree(other, ignore_errors=True)

    def remove(self) -> None:
        """Remove the folder: the audit has finished."""
        shutil.rmtree(self.folder, ignore_errors=True)
