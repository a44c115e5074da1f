"""A server in a process of its own, with what it says."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading

from harness.command_line import environment
from harness.documents import ROOT

__all__ = ["ServerProcess", "upstream_process"]


class ServerProcess:
    """A process whose first line of stdout or stderr that says so tells its port."""

    def __init__(self, words: list[str], stream: str) -> None:
        env = environment()
        env["PYTHONPATH"] += os.pathsep + str(ROOT / "tests")
        self.lines: list[str] = []
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        self._ready = threading.Event()
        self.port = 0
        self._threads = [
            threading.Thread(target=self._read, args=(name, stream), daemon=True) for name in ("stdout", "stderr")
        ]
        for thread in self._threads:
            thread.start()
        if not self._ready.wait(120) or not self.port:
            self.process.kill()
            raise AssertionError(self.lines)

    def _read(self, name: str, stream: str) -> None:
        for line in getattr(self.process, name):
            self.lines.append(line)
            if name == stream and not self.port:
                if line.strip().isdigit():
                    self.port = int(line)
                elif '"listening"' in line:
                    self.port = int(json.loads(line)["url"].split(":")[2].split("/")[0])
                if self.port:
                    self._ready.set()
        self._ready.set()

    def end(self, number: int = signal.SIGKILL) -> int:
        """Send a signal; return the exit code."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        code = self.process.wait(60)
        for thread, stream in zip(self._threads, (self.process.stdout, self.process.stderr), strict=True):
            thread.join(10)
            assert stream is not None
            if not thread.is_alive():  # else somebody else holds the pipe, and closing would wait for the reader
                stream.close()
        return code


def upstream_process(port: int = 0, slow: float = 8.0) -> ServerProcess:
    """Return an upstream as `harness.upstream_process` has it."""
    words = [sys.executable, "-m", "harness.upstream_process", str(port), str(slow)]
    return ServerProcess(words, "stdout")
