"""Ray: protect files and datasets on a cluster, open sealed datasets, search a sealed index in parts.

vecveil protect 's3://bucket/notes/*.parquet' -p drug.vecveil --engine ray -o s3://bucket/protected
protect_dataset(ray.data.read_parquet("notes"), "drug.vecveil").write_parquet("protected")
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from vecveil.errors import InvalidInputError, ReleaseError, VecveilError, optional_import, wrong_type
from vecveil.gateway.bulk.job import BulkJob, PartWorker, Run, Unsealing, reader_of
from vecveil.gateway.bulk.places import Folder, Part, PartResult
from vecveil.gateway.bulk.running import PartFailure, attempt
from vecveil.gateway.workers import (
    Sealed,
    anywhere,
    batch_job,
    best_hits,
    index_parts,
    queries_in,
    run_batch,
    unsealing_anywhere,
)
from vecveil.privacy.protector import Protector
from vecveil.runtime import inherited_variables
from vecveil.validation import check_count

with optional_import("The engine Ray", "ray[data]", "ray"):
    import ray
    import ray.data

__all__ = ["protect_dataset", "run_on_ray", "search_dataset", "unseal_dataset"]

_OWNER = "protect_dataset"
# Ray keeps metadata of each task in memory; more parts than this share tasks.
_MOST_TASKS = 10_000


def protect_dataset(
    ds: Any,
    protector: Protector | str | os.PathLike[str],
    *,
    concurrency: int | tuple[int, int] | None = None,
    num_gpus: float | None = None,
    batch_size: int = 4096,
    **options: Any,
) -> Any:
    """Return a ``ray.data.Dataset`` of the protected rows of ``ds``: the kept columns, then ``embedding``.

    Ray computes a lazy dataset at each use, and again after the loss of a node. With fresh noise each computation is a
    further release of every row, and several releases of a row reveal more than one. Write the dataset once and read
    the files, keep it with ``materialize()``, or use keyed noise, which repeats a row's release.

    Args:
        ds: dataset of vectors (lists or tensors of floats), or of texts to encode.
        protector: protector or path of its file on this machine.
        concurrency: number of workers, or (minimum, maximum); None lets Ray decide.
        num_gpus: GPUs per worker; None uses 1 if texts are known to be encoded and Ray has GPUs, else 0.
        batch_size: rows per batch.
        options: options of `vecveil.gateway.bulk.BulkJob`, except for files. ``key`` is the path of a key file or
            ``env:NAME`` on each worker. ``seal_key`` with ``seal_name`` and ``id_column`` adds the sealed originals,
            ``filter_fields`` their filter tokens.

    Using the dataset raises errors in rows, such as `DataFileError` for NaN, inside an error of Ray.
    """
    if not isinstance(ds, ray.data.Dataset):
        raise wrong_type(_OWNER, "ds", "a ray.data.Dataset", ds)
    batch_size = check_count(batch_size, owner=_OWNER, param="batch_size")
    job = batch_job(protector, options, owner=_OWNER)
    if num_gpus is None:
        num_gpus = 1 if _known_texts(ds, job) and _gpus() else 0
    return _mapped(ds, job, batch_size, concurrency, num_gpus)


def unseal_dataset(
    ds: Any,
    seal_key: str | os.PathLike[str],
    *,
    concurrency: int | tuple[int, int] | None = None,
    batch_size: int = 4096,
    **options: Any,
) -> Any:
    """Return a ``ray.data.Dataset`` of the opened rows of ``ds``: id, text, metadata (JSON) and the exact embedding.

    Args:
        ds: dataset of sealed rows, such as the output of ``protect_dataset(..., seal_key=...)``.
        seal_key: path of the key file on each worker, or ``env:NAME:PATH``.
        concurrency, batch_size: as for `protect_dataset`.
        options: ``seal_name`` and other arguments of `vecveil.gateway.bulk.Unsealing`. Skipped rows are missing in the
            result.

    Using the dataset raises errors in rows, such as `SealingError`, inside an error of Ray.
    """
    work = unsealing_anywhere(seal_key, **options)
    return _mapped(ds, work, check_count(batch_size, owner=_OWNER, param="batch_size"), concurrency, 0)


def search_dataset(
    ds: Any,
    location: str | os.PathLike[str],
    seal_key: str | os.PathLike[str],
    *,
    workers: int = 2,
    top: int = 10,
    where: Any = None,
    batch_size: int = 256,
    **options: Any,
) -> Any:
    """Return a ``ray.data.Dataset`` of the rows of a sealed index nearest to each query of ``ds``, best first.

    Each of ``workers`` actors searches a part of the current index in memory; the best rows are merged here. The result
    is computed at once. Its columns are query, id, score (exact cosine), text and metadata (JSON): clean data in the
    memory of Ray, which may spill it to disk.

    Args:
        ds: dataset of queries: vectors, or texts that ``encoder`` encodes here.
        location: folder that all workers see, or fsspec URL.
        seal_key: path of the key file on each worker, or ``env:NAME:PATH``.
        where: conditions on metadata, see `SealedIndex.search`.
        options: ``column`` of the vectors or texts, by default ``embedding``, or ``text``; ``id_column`` of distinct
            names for the queries, which are numbered from 0 by default; ``encoder``, ``candidates``,
            ``storage_options`` and other arguments of `SealedIndex`.
    """
    owner = "search_dataset"
    workers = check_count(workers, owner=owner, param="workers")
    columns = options.pop("column", None), options.pop("id_column", None)
    parts, encoder = index_parts(location, seal_key, workers, options)
    remote: Any = ray.remote(_PartOfIndex)
    actors = [remote.remote(Sealed(part)) for part in parts]
    tables, rows = [], 0
    try:
        for batch in ds.iter_batches(batch_size=batch_size, batch_format="pyarrow"):
            queries = queries_in(batch, encoder, columns, rows, owner)
            rows += len(batch)
            found = ray.get([actor.search.remote(Sealed((queries, top, where))) for actor in actors])
            tables.append(best_hits(found, top))
    finally:
        for actor in actors:
            ray.kill(actor)
    return ray.data.from_arrow(tables)


class _PartOfIndex:
    def __init__(self, sealed: Sealed) -> None:
        self._part = sealed.open()

    def search(self, asked: Sealed) -> Any:
        queries, top, where = asked.open()
        return self._part.search(queries, top=top, where=where)


def _mapped(ds: Any, work: BulkJob | Unsealing, batch_size: int, concurrency: Any, num_gpus: float) -> Any:
    return ds.map_batches(
        _BatchTask,
        fn_constructor_args=(Sealed(work),),
        batch_format="pyarrow",
        batch_size=batch_size,
        zero_copy_batch=True,
        compute=_workers(concurrency),  # actors keep protector, keys and encoder between batches
        num_gpus=num_gpus or None,
    )


class _BatchTask:
    def __init__(self, sealed: Sealed) -> None:
        self._work: BulkJob | Unsealing = sealed.open()

    def __call__(self, rows: Any) -> Any:
        return run_batch(self._work, rows)


def _known_texts(ds: Any, job: BulkJob) -> bool:
    if job.embedding_column is not None:
        return False
    schema = ds.schema(fetch_if_missing=False)  # fetching would compute part of the dataset
    return schema is not None and "embedding" not in schema.names


def _workers(concurrency: int | tuple[int, int] | None) -> Any:
    if concurrency is None:
        return ray.data.ActorPoolStrategy(min_size=1)
    try:
        low, high = [concurrency] * 2 if isinstance(concurrency, int) else map(int, concurrency)
        if not 1 <= low <= high:
            raise ValueError
    except (TypeError, ValueError):
        said = "`concurrency` is a number of workers, or (minimum, maximum)."
        raise InvalidInputError(said, param="concurrency") from None
    return ray.data.ActorPoolStrategy(min_size=low, max_size=high)


def run_on_ray(run: Run, parts: Sequence[Part]) -> Iterator[PartResult | PartFailure]:
    """Protect parts on Ray; an engine of `protect_files`.

    Workers read inputs and write outputs; Ray carries names and results. If a worker dies, its part is repeated unless
    its file exists. Errors of Ray become `ReleaseError`.
    """
    if run.ledger is not None:
        raise InvalidInputError("Leave out the ledger on Ray: it is a file of one machine.", param="ledger")
    if not parts:
        return
    local = run.out.local
    out = run.out if local is None else Folder(os.path.abspath(local))
    sent = Sealed(replace(run, job=anywhere(run.job), out=out))  # workers have a different working directory
    with _quiet(), _connected():
        dataset: Any = ray.data.from_items(
            [{"part": pickle.dumps(part)} for part in parts], override_num_blocks=min(len(parts), _MOST_TASKS)
        )
        # Texts: actors, which keep the encoder and its GPU. Vectors: stateless tasks, on any free core.
        if _encodes(run, parts[0]):
            dataset = dataset.map(
                _PartTask,
                fn_constructor_args=(sent,),
                compute=ray.data.ActorPoolStrategy(min_size=1, max_size=len(parts)),
                num_gpus=1 if _gpus() else None,
            )
        else:
            dataset = dataset.map(_do, fn_args=(sent,))
        yield from _outcomes(dataset)


class _PartTask:
    def __init__(self, sent: Sealed) -> None:
        self._sent = sent

    def __call__(self, row: dict[str, Any]) -> dict[str, bytes]:
        return _do(row, self._sent)


def _do(row: dict[str, Any], sent: Sealed) -> dict[str, bytes]:
    """Protect a part in a worker and return its outcome, errors included."""
    # Errors are returned as values: Ray would log their messages and stacks, which may contain data.
    outcome: PartResult | PartFailure | VecveilError
    try:
        outcome = attempt(_worker(sent), pickle.loads(row["part"]))
    except VecveilError as error:
        outcome = error
    except Exception as error:
        outcome = ReleaseError(f"A worker failed with the error {type(error).__name__}.", param="part")
    return {"outcome": pickle.dumps(outcome)}


@lru_cache(maxsize=1)
def _worker(sent: Sealed) -> PartWorker:
    """Return this process's worker, shared by the tasks of a run."""
    return PartWorker(sent.open())


def _outcomes(dataset: Any) -> Iterator[PartResult | PartFailure]:
    rows = iter(dataset.iter_rows())
    try:
        while True:
            try:
                row = next(rows, None)
            except Exception as error:
                failed = type(error).__name__
                said = f"Ray failed with the error {failed}. See its logs; the same call continues."
                raise ReleaseError(said, param="engine") from None
            if row is None:
                return
            outcome = pickle.loads(row["outcome"])
            if isinstance(outcome, VecveilError):
                raise outcome
            yield outcome
    finally:
        # Stops the execution if the caller abandons the generator; not every version of Ray has it.
        getattr(rows, "close", lambda: None)()


def _encodes(run: Run, part: Part) -> bool:
    """Return whether a part has texts to encode; False for an unreadable part."""
    if part.stop is None:
        return True
    try:
        return reader_of(run.job, part, run.inputs).embedding_column is None
    except VecveilError:
        return False  # the worker reports the error


def _gpus() -> float:
    if not ray.is_initialized():
        return 0.0
    there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call, unused-ignore]
    return there.get("GPU", 0.0)


@contextlib.contextmanager
def _connected() -> Iterator[None]:
    """Connect to this process's Ray, the cluster in RAY_ADDRESS, or a new local Ray."""
    if ray.is_initialized():
        yield
        return
    # Ray reports usage statistics unless disabled; the user's own choice has precedence.
    usage = "RAY_USAGE_STATS_ENABLED"
    with inherited_variables({usage: os.environ.get(usage, "0")}):
        try:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.CRITICAL)
        except Exception as error:
            said = f"Ray did not start ({type(error).__name__}). Look at RAY_ADDRESS, or use --engine local."
            raise ReleaseError(said, param="engine") from None
        try:
            yield
        finally:
            ray.shutdown()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Ray Data's progress and stack traces off the terminal; its log files remain."""
    loggers = [logging.getLogger(name) for name in ("ray", "ray.data")]
    levels = [logger.level for logger in loggers]
    context = ray.data.DataContext.get_current()
    before = context.enable_progress_bars, context.print_on_execution_start
    context.enable_progress_bars = context.print_on_execution_start = False
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        context.enable_progress_bars, context.print_on_execution_start = before
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
