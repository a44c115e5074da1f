"""What every test gets: a cache of embeddings of this run, so that no run depends on another."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from harness.shared_files import folder_of_run


def pytest_configure() -> None:
    """Take Ctrl-C, which a shell that starts the tests in the background turns off: some tests send it.

    Hypothesis draws the same examples in every run and judges no time; `make fuzz` draws others.
    """
    # LiteLLM downloads its price list when it is imported, and waits ten seconds where there is no network.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.register_profile("suite", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("suite")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect no garbage meanwhile: of the modules and tests that every process loads, none becomes garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the folder of the longest files: begun last, one would keep a process while the others are done."""
    items.sort(key=lambda item: "research" not in item.path.parts)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Point VECVEIL_CACHE at a folder of this session, which its processes share; subprocesses inherit it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VECVEIL_CACHE", str(folder_of_run(tmp_path_factory) / "embeddings"))
        patch.delenv("VECVEIL_DEBUG", raising=False)
        yield


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, Any]]:
    """Options of s3fs for S3's API, spoken over HTTP to a server that keeps objects in memory, with a bucket."""
    s3fs = pytest.importorskip("s3fs")
    from moto.s3.responses import S3Response
    from moto.server import ThreadedMotoServer

    put, one_at_a_time = S3Response.put_object, threading.Lock()

    def atomic(self: Any) -> Any:  # S3 compares and writes in one step, this server in two
        with one_at_a_time:
            return put(self)

    server = ThreadedMotoServer(port=0, verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(S3Response, "put_object", atomic)
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server.start()
        host, port = server.get_host_and_port()
        options = {"key": "test", "secret": "test", "endpoint_url": f"http://{host}:{port}"}
        s3fs.S3FileSystem(**options).mkdirs("bucket", exist_ok=True)
        yield {**options, "skip_instance_cache": True}
        server.stop()
