"""A warm process that starts the command line in children, so that a kill costs no imports: ``python FILE MODULE...``.

Each line on stdin is a request in JSON. ``start`` forks a child, which leads a process group of its own, and answers
its id; ``wait`` answers the status that it ended with. A child that ended keeps its id until then, so that whoever
kills it kills nobody else.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
from typing import Any

__all__ = ["main"]

_PATIENCE = 60.0


def main(modules: list[str]) -> None:
    """Answer requests until stdin ends."""
    for name in modules:
        importlib.import_module(name)
    _answer({"ready": os.getpid()})
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _answer({"status": os.waitpid(request["wait"], 0)[1]})
            continue
        child = os.fork()
        if child == 0:
            _become(request)
        os.setpgid(child, child)  # at once, whichever of the two comes first
        _answer({"pid": child})


def _answer(record: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


def _become(request: dict[str, Any]) -> None:
    """Be the process of a request, and end with it."""
    code = 70
    try:
        os.setpgid(0, 0)
        os.chdir(request["cwd"])
        os.environ.update(request["environment"])
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        faulthandler.dump_traceback_later(_PATIENCE)  # of a child that hangs: where
        _limit(request["limits"])
        if request["task"] == "record":
            code = _record(*request["arguments"])
        elif request["task"] == "index":
            importlib.import_module("index_process").main(*request["arguments"])
        else:
            from vecveil.cli.__main__ import main as command_line

            code = command_line(request["arguments"])
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _limit(limits: dict[str, int]) -> None:
    """Set limits of this process; that of memory counts from what it has now."""
    import resource

    for name, value in limits.items():
        if name == "MORE_MEMORY":
            with open("/proc/self/statm", encoding="ascii") as file:
                value += int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            name = "AS"
        number = getattr(resource, f"RLIMIT_{name}")
        resource.setrlimit(number, (value, value))


def _record(path: str, batch: str, first: str) -> int:
    """Record batches in a ledger for as long as it lives; say the number of each when it is recorded."""
    from vecveil import Ledger

    ledger = Ledger(path, cap=1)
    number = int(first)
    while True:
        ids = [f"{number} {i}" for i in range(int(batch))]
        ledger.record(ids, protector="a1b2c3", epsilon=1.0)
        os.write(1, f"{number}\n".encode())
        number += 1


if __name__ == "__main__":
    main(sys.argv[1:])
