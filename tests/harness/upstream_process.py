"""An embeddings server in a process of its own: ``python -m harness.upstream_process PORT SECONDS``.

SIGUSR1 makes it take SECONDS for each answer, SIGUSR2 fast again; whoever wants it gone kills it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

from harness.serving import Misbehaving, answer_to, respond


class _Upstream:
    """Answers well, after ``delay`` seconds."""

    def __init__(self) -> None:
        self.delay = 0.0
        self.fast = asyncio.Event()

    def slow_down(self, seconds: float) -> None:
        self.delay = seconds
        self.fast.clear()

    def recover(self) -> None:
        self.delay = 0.0
        self.fast.set()  # also for those that wait

    async def answer(self, _: Misbehaving, body: bytes, writer: asyncio.StreamWriter) -> None:
        if self.delay:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.fast.wait(), self.delay)
        respond(writer, answer_to(body))


async def main(port: int, slow: float) -> None:
    """Serve until killed."""
    upstream = _Upstream()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, lambda: upstream.slow_down(slow))
    loop.add_signal_handler(signal.SIGUSR2, upstream.recover)
    server = await asyncio.start_server(Misbehaving(upstream.answer).handle, "127.0.0.1", port)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
