"""The YAML file: what it takes, and that it names what is wrong without showing it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.documents import ROOT, blocks
from harness.errors import raises
from vecveil.errors import InvalidInputError
from vecveil.gateway.server.settings import Limits, ServedPolicySettings, ServeSettings, read_config

SECRET = "sk-zyxsecret"


def written(folder: Path, text: str) -> Path:
    path = folder / "serve.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_everything(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    path = written(
        tmp_path,
        """
port: 9000
api_keys: keys.txt
seal_key: env:SEAL:search.store
client_ids: true
limits: {inputs: 16, body_seconds: 5}
upstream:
  encoder: https://api.openai.com/v1#text-embedding-3-small
  key: env:OPENAI_API_KEY
  timeout: 20
policies:
  drug: drug.vecveil
  names:
    protector: /srv/names.vecveil
    query_noise: 3
    key: env:VECVEIL_KEYS
    ledger: names.ledger
    upstream: model
""",
    )
    found = read_config(path)
    assert found.port == 9000
    assert found.api_keys == str(tmp_path / "keys.txt")
    assert found.seal_key == f"env:SEAL:{tmp_path / 'search.store'}"
    assert found.limits == Limits(inputs=16, body_seconds=5)
    assert found.upstream.key == "env:OPENAI_API_KEY"
    assert found.policies["drug"] == ServedPolicySettings(str(tmp_path / "drug.vecveil"))
    names = found.policies["names"]
    assert (names.protector, names.key) == ("/srv/names.vecveil", "env:VECVEIL_KEYS")
    assert names.ledger == str(tmp_path / "names.ledger")
    assert names.upstream == str(tmp_path / "model")


def test_the_shortest(tmp_path: Path) -> None:
    path = written(tmp_path, "upstream: minilm\npolicies: {drug: drug.vecveil}\n")
    assert read_config(path).upstream.encoder == "minilm"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"policies: {{drug: d}}\n{SECRET}: 1\n", "the file"),
        (f"policies: {{drug: {{protector: d, noise: {SECRET}}}}}\n", "policies.drug"),
        (f"policies: {{drug: {{key: {SECRET}}}}}\n", "policies.drug.protector"),
        (f"policies: {{drug: d}}\nupstream: {{encoder: x, api_key: {SECRET}}}\n", "upstream"),
        (f"policies: {{drug: d}}\nport: {SECRET}\n", "`port` takes a whole number"),
        (f"policies: {{drug: d}}\nprot: {SECRET}\n", "Did you mean `port`?"),
        (f"policies: {{drug: d}}\nclient_ids: {SECRET}\n", "client_ids"),
        ("policies: {drug: d}\nlimits: {inputs: 0}\n", "inputs"),
        ("policies: {drug: d}\nlimits: {inputs: true}\n", "inputs"),
        ("policies: {drug: d}\nupstream: {timeout: -1}\n", "timeout"),
        (f"policies: {{drug: {{protector: d, query_noise: {SECRET}}}}}\n", "query_noise"),
        (f"policies: {SECRET}\n", "policies"),
        ("policies: {}\n", "policies"),
        ("policies: {'drug:query': d}\n", "policies"),
        ("policies: {' drug': d}\n", "policies"),
        (f"- {SECRET}\n", "the file"),
        ("", "the file"),
    ],
)
def test_what_is_wrong_is_named_and_not_shown(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_config(written(tmp_path, text))
    assert named in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "a: !!python/object/apply:os.system ['true']",
        "\x00",
        "policies: &a {drug: d}\nlimits: *a\n",
        "policies: {drug: a.vecveil, drug: b.vecveil}\n",  # one of the two would be dropped
    ],
    ids=["open bracket", "object", "NUL", "alias", "repeated key"],
)
def test_what_is_no_plain_yaml(tmp_path: Path, text: str) -> None:
    with raises("E-DATA-FILE", "path"):
        read_config(written(tmp_path, text))


def test_no_file(tmp_path: Path) -> None:
    with raises("E-DATA-FILE", "path"):
        read_config(tmp_path / "none.yaml")


def test_settings_refuse_what_cannot_be() -> None:
    with raises("E-INPUT-RANGE", "port"):
        ServeSettings({"a": ServedPolicySettings("a")}, port=70_000)
    with raises("E-INPUT", "policies"):
        ServeSettings({"ä": ServedPolicySettings("a")})


def test_the_file_of_the_page_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    (block,) = [one.code for one in blocks(page, "yaml") if "policies:" in one.code]
    found = read_config(written(tmp_path, block))
    assert list(found.policies) == ["drug", "names"]
    assert found.limits == Limits()  # the page shows the defaults
    assert (found.host, found.port) == ("127.0.0.1", 8080)
