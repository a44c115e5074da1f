"""Fuzzes the HTTP API by its schema: ``python -m fuzz.api EXAMPLES SEED``; ends with 3 where schemathesis is not there.

The server is the real one on a real socket, with its page, and an encoder that answers at once.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "protected",
)


def main() -> int:
    tools = [entry for entry in os.environ.get("FUZZ_TOOLS", "").split(os.pathsep) if entry]
    sys.path += tools
    if importlib.util.find_spec("schemathesis") is None:
        return 3
    examples, seed = sys.argv[1:3]
    from harness.serving import FakeEncoder, fake_protector, served
    from vecveil.gateway.server import Limits, Service
    from vecveil.gateway.server.preview_page import PageTexts, page_router
    from vecveil.gateway.server.service import ServedPolicy
    from vecveil.gateway.server.upstreams import LocalUpstream
    from vecveil.gateway.server.vector_stores import ServedIndex
    from vecveil.index import SealedIndex, Sealer
    from vecveil.privacy.protector.policy import ReleasePolicy

    def preview(*given: Any, **named: Any) -> dict[str, Any]:
        return {}

    protector, upstream = fake_protector(), LocalUpstream(FakeEncoder())
    folder = tempfile.TemporaryDirectory()
    index = SealedIndex(folder.name, bytes(range(32)), encoder=FakeEncoder())
    index.add(["a text", "b"], ids=["a", "b"], metadata=[{"year": 2026, "a": {"b": True}}, {"year": "x"}])
    service = Service(
        [ServedPolicy("drug", ReleasePolicy(protector), upstream)],
        limits=Limits(body_bytes=100_000, inputs=8, reranks_per_minute=10**9, searches_per_minute=10**9),
        sealer=Sealer(bytes(range(32))),
        indexes=[ServedIndex("notes", index, upstream)],
    )
    texts = PageTexts(["a", "b"], ["a text"], "texts")
    page = page_router({"drug": (protector, upstream)}, preview, texts)
    # Run as a module, behind what is installed here: its own versions of shared packages come last.
    start = (
        "import sys; sys.path += sys.argv.pop(1).split(':'); from schemathesis.cli import schemathesis; schemathesis()"
    )
    with folder, tempfile.TemporaryDirectory() as scratch, served(service, routers=[page]) as url:
        words = [
            sys.executable,
            "-c",
            start,
            ":".join(tools) or ".",
            "run",
            str(HERE / "openapi.json"),
            "--url",
            url,
            "--max-examples",
            examples,
            "--seed",
            seed,
            "--checks",
            ",".join(CHECKS),
            "--mode",
            "all",
            "--phases",
            "examples,coverage,fuzzing",
            "--suppress-health-check",
            "all",
            "--no-color",
            "--request-timeout",
            "20",
        ]
        env = {**os.environ, "SCHEMATHESIS_HOOKS": "fuzz.api_checks"}
        return subprocess.run(words, env=env, cwd=scratch, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
