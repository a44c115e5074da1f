"""Programs with their own client for PostgreSQL, and the example for every database."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import vecveil
from harness.integration_checks import run_example
from harness.postgres import fresh_database
from vecveil.privacy.protector import open_policy

TEXTS = ["She takes amoxicillin for her asthma.", "The train leaves at noon.", "A new roof."]
IDS = ["a", "b", "c"]


@pytest.fixture(scope="module")
def url() -> str:
    return fresh_database()


@pytest.fixture(scope="module")
def clean(protector: vecveil.Protector) -> np.ndarray:
    return np.asarray(protector.loaded_encoder().encode(TEXTS))


def test_the_example_runs(collection_folder: Path, protector_file: Path) -> None:
    clean, protected = run_example("databases", collection_folder, protector_file)
    assert clean > 0.8
    assert protected > 0.5


def test_own_sqlalchemy_code_changes_in_one_line(url: str, protector: vecveil.Protector, clean: np.ndarray) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    from pgvector.sqlalchemy import Vector

    policy = open_policy(protector)
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    notes = sqlalchemy.Table(
        "orm",
        sqlalchemy.MetaData(),
        sqlalchemy.Column("id", sqlalchemy.Text, primary_key=True),
        sqlalchemy.Column("embedding", Vector(384)),
    )
    with engine.begin() as session:
        notes.create(session)
        vectors = policy.documents(clean)
        rows = [{"id": one, "embedding": v} for one, v in zip(IDS, vectors, strict=True)]
        session.execute(notes.insert(), rows)
        query = policy.queries(clean[1:2])[0]
        nearest = sqlalchemy.select(notes.c.id).order_by(notes.c.embedding.cosine_distance(query))
        assert session.execute(nearest).scalars().first() == "b"
    engine.dispose()
