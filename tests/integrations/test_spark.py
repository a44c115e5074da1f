"""Spark in local mode: DataFrames protected batch by batch in workers that Spark forks and starts again."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
if shutil.which("java") is None:
    pytest.skip("Spark needs Java, and there is none on the PATH", allow_module_level=True)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # pyspark 4.3 warns of pandas 3, which mapInArrow does not use
    from pyspark import SparkContext
    from pyspark.errors import PythonException
    from pyspark.sql import SparkSession
    from pyspark.sql.types import ArrayType, DoubleType, FloatType

import vecveil
from harness.bulk_tables import expected, laplace_file, rows_of, table_of
from harness.errors import raises
from harness.integration_checks import assert_no_secret, index_of_many_segments, rows_of_hits, run_example
from vecveil.gateway.bulk import ArrowProtection, BulkJob
from vecveil.gateway.spark import protect_dataframe, search_dataframe, unseal_dataframe
from vecveil.texts.encoders import LsaEncoder

# py4j leaves its sockets to the garbage collector; pyspark 4.3 warns of pandas 3.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
)

DIMENSION = 16


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def spark(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start Spark with two cores; a task may fail twice."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        options = {
            "spark.ui.enabled": "false",
            # Small queries: compiling them takes longer than running them.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": logs.as_uri(),
        }
        builder = SparkSession.builder.master("local[2, 3]")
        for name, value in options.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        try:
            yield session
        finally:
            gateway = session.sparkContext._gateway
            session.stop()
            # Stopping alone leaves the virtual machine running beside the tests that follow.
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(60)
            SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="module")
def laplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return laplace_file(tmp_path_factory.mktemp("laplace") / "p.vecveil", DIMENSION)


@pytest.fixture(scope="module")
def keyed(laplace: Path, key_file: Path) -> dict[str, Any]:
    return {"protector": laplace, "id_column": "id", "key": key_file}


def test_keyed_noise_is_that_of_the_protector_though_a_worker_dies(
    spark: SparkSession, keyed: dict[str, Any], tmp_path: Path
) -> None:
    """A worker is killed in the middle of a task, which Spark does again."""
    X = np.random.default_rng(0).standard_normal((400, DIMENSION)).astype(np.float32)
    died = str(tmp_path / "died")

    def die_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield batch
            if number and not os.path.exists(died):
                open(died, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "60")
    rows = [(f"item-{i}", row.tolist()) for i, row in enumerate(X)]
    df = spark.createDataFrame(rows, "id string, embedding array<float>")
    out = protect_dataframe(df.mapInArrow(die_once, df.schema), **keyed).toArrow()
    assert os.path.exists(died)
    released = rows_of(out)
    assert len(released) == 400
    key = vecveil.KeyFile.from_file(keyed["key"]).key()
    for item, row in expected(vecveil.load(keyed["protector"]), X, key).items():
        np.testing.assert_array_equal(released[item], row)
    job = BulkJob.of(keyed["protector"], id_column="id", key=str(keyed["key"]))
    same = rows_of(ArrowProtection(job)(table_of(X)))
    assert all(np.array_equal(released[item], row) for item, row in same.items())


def test_the_schema_has_what_is_carried_and_no_text(spark: SparkSession, keyed: dict[str, Any], laplace: Path) -> None:
    rows = [(f"i{i}", 2000 + i, "a secret", [0.5] * DIMENSION) for i in range(3)]
    df = spark.createDataFrame(rows, "id string, year int, text string, embedding array<double>")
    out = protect_dataframe(df, **keyed, carry=["year"])
    assert [field.name for field in out.schema.fields] == ["id", "year", "embedding"]
    assert protect_dataframe(df, **keyed).columns == ["id", "embedding"]
    assert out.schema["embedding"].dataType == ArrayType(DoubleType(), containsNull=False)
    assert [row.year for row in out.collect()] == [2000, 2001, 2002]
    with_text = protect_dataframe(df, laplace, keep_text=True, carry=["year"], noise=False)
    assert with_text.columns == ["id", "year", "text", "embedding"]
    first = with_text.first()
    assert first.text == "a secret"
    assert first.embedding == [0.5] * DIMENSION
    assert protect_dataframe(df.where("year < 0"), **keyed).count() == 0


def test_a_sealed_frame_is_opened_with_its_texts(spark: SparkSession, keyed: dict[str, Any]) -> None:
    rows = [(f"i{i}", 2000 + i, f"a secret {i}", [0.5 + i] * DIMENSION) for i in range(4)]
    df = spark.createDataFrame(rows, "id string, year int, text string, embedding array<float>").coalesce(1)
    given = {"seal_key": keyed["key"], "seal_name": "notes"}
    sealed = protect_dataframe(df, **keyed, carry=["year"], filter_fields=["year"], **given)
    assert sealed.columns == ["id", "year", "vecveil_sealed", "vecveil_filter_year", "embedding"]
    assert len({row.vecveil_filter_year for row in sealed.collect()}) == 4
    opened = unseal_dataframe(sealed, **given).collect()
    assert [(row.id, row.text, row.metadata) for row in opened] == [
        (name, text, f'{{"year": {year}}}') for name, year, text, _ in rows
    ]
    assert [row.embedding for row in opened] == [vector for *_, vector in rows]


def test_a_sealed_index_is_searched_in_parts(spark: SparkSession, key_file: Path, tmp_path: Path) -> None:
    index, X = index_of_many_segments(tmp_path / "index", key_file)
    df = spark.createDataFrame([(f"q{i}", q.tolist()) for i, q in enumerate(X)], "id string, embedding array<float>")
    hits = search_dataframe(df, tmp_path / "index", key_file, parts=3, top=5, id_column="id").collect()
    for i, q in enumerate(X):
        mine = [(row.id, row.text, row.metadata) for row in hits if row.query == f"q{i}"]
        assert mine == [(name, text, about) for name, _, text, about in rows_of_hits(index.search(q, top=5))]
    again = search_dataframe(df, tmp_path / "index", key_file, parts=2)
    index.compact()
    with pytest.raises(PythonException, match="Start the search again"):
        again.collect()


def test_noise_is_fresh_in_every_worker_and_every_time(spark: SparkSession, laplace: Path) -> None:
    """One row many times: no two of its releases are the same, though workers are forks of one process."""
    clean = np.linspace(0, 1, DIMENSION, dtype=np.float32)
    row = [([float(value) for value in clean],)]
    df = spark.createDataFrame(row * 200, "embedding array<float>").repartition(4)
    out = protect_dataframe(df, laplace)
    assert out.schema["embedding"].dataType == ArrayType(FloatType(), containsNull=False)
    noise = np.array([row.embedding for _ in range(2) for row in out.collect()]) - clean
    assert len(np.unique(noise, axis=0)) == len(noise) == 400


def test_texts_are_encoded_by_workers(
    spark: SparkSession, key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"the {a} of {b}" for a in ("roof", "train", "noon") for b in ("tin", "oak", "clay")]
    encoder = LsaEncoder.fit(texts * 5, 4, min_texts=1)
    encoder.save(tmp_path / "lsa")
    X = encoder.encode(texts)
    protector = laplace_file(tmp_path / "p.vecveil", X.shape[1])
    monkeypatch.chdir(tmp_path)
    given = {"id_column": "id", "key": os.path.relpath(key_file), "encoder": "lsa"}
    rows = [(f"item-{i}", text) for i, text in enumerate(texts)]
    df = spark.createDataFrame(rows, "id string, text string")
    out = protect_dataframe(df, protector, **given).toArrow()
    assert out.schema.names == ["id", "embedding"]
    same = ArrowProtection(BulkJob.of(protector, **given))(pa.table({"id": [row[0] for row in rows], "text": texts}))
    released = rows_of(out)
    assert all(np.array_equal(released[item], row) for item, row in rows_of(same).items())


def test_nan_is_our_error(spark: SparkSession, laplace: Path) -> None:
    rows = [([1.0] * DIMENSION,)] * 9 + [([float("nan")] * DIMENSION,)]
    df = spark.createDataFrame(rows, "embedding array<float>").coalesce(1)
    with pytest.raises(PythonException, match="`embedding_column` has NaN or infinity in 1 of") as said:
        protect_dataframe(df, laplace).collect()
    assert "DataFileError" in str(said.value)


def test_what_cannot_be_is_refused(spark: SparkSession, laplace: Path, key_file: Path) -> None:
    df = spark.createDataFrame([([1.0] * DIMENSION, [2.0])], "embedding array<float>, more array<double>")
    assert protect_dataframe(df, laplace).columns == ["embedding"]
    key = vecveil.KeyFile.from_file(key_file).key()
    with raises("E-INPUT", "key"):
        protect_dataframe(df, laplace, id_column="id", key=key)
    with raises("E-INPUT-NAME", "options"):
        protect_dataframe(df, laplace, batch_size=3)
    with raises("E-INPUT", "df"):
        protect_dataframe(table_of(np.ones((1, DIMENSION))), laplace)


def test_the_example_searches(
    spark: SparkSession, collection_folder: Path, protector: vecveil.Protector, tmp_path: Path
) -> None:
    protector.save(tmp_path / "health.vecveil")
    clean, protected = run_example("spark", collection_folder, tmp_path / "health.vecveil")
    # The same noise law gives 0.85 to 0.86 of 1, and rows in no order under 0.05: no draw comes near the bound.
    assert clean > 0.7
    assert protected > 0.5


def test_spark_writes_down_no_key(spark: SparkSession, logs: Path, key_file: Path) -> None:
    assert any(path.is_file() and path.stat().st_size for path in logs.rglob("*"))
    assert_no_secret(logs, key_file)
