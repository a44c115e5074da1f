"""The container of docs/examples: a user without rights, nothing writable but volumes, options that exist."""

from __future__ import annotations

import re
import shlex
import tomllib
from typing import Any

import yaml

from harness.documents import ROOT
from vecveil.cli.serve import command

EXAMPLES = ROOT / "docs" / "examples"
SERVICE: dict[str, Any] = yaml.safe_load((EXAMPLES / "compose.yaml").read_text("utf-8"))["services"]["vecveil"]
DOCKERFILE = (EXAMPLES / "Dockerfile").read_text("utf-8")


def test_the_server_has_no_rights_and_a_read_only_root() -> None:
    assert re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE) == ["10001"]
    assert SERVICE["read_only"] is True
    assert SERVICE["cap_drop"] == ["ALL"]
    assert not {"user", "privileged", "cap_add"} & SERVICE.keys()
    assert all(port.startswith("127.0.0.1:") for port in SERVICE["ports"])


def test_what_the_server_writes_is_on_volumes_that_the_image_prepares() -> None:
    words = shlex.split(SERVICE["command"])
    key = words[words.index("--seal-key") + 1]
    places = {volume.partition(":")[2] for volume in SERVICE["volumes"]}
    assert places == {f"{key}.heads", "/cache"}
    prepared = re.search(r"install -d .*-m 700 (.+)$", DOCKERFILE, re.MULTILINE)
    assert prepared is not None
    assert set(prepared[1].split()) == places
    # The copies of segments lie beside the cache of embeddings.
    assert "VECVEIL_CACHE=/cache/" in DOCKERFILE
    assert {"source": "search.keys", "target": key} in SERVICE["secrets"]


def test_options_and_extras_exist() -> None:
    words = shlex.split(SERVICE["command"])
    known = {name for option in command.params for name in option.opts}
    assert words[0] == "serve"
    assert {word for word in words if word.startswith("--")} <= known
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    installed = re.search(r"\.whl\)\[(.+)\]", DOCKERFILE)
    assert installed is not None
    assert set(installed[1].split(",")) <= extras.keys()
