"""A short run of every target; ``make fuzz`` is the long one."""

from __future__ import annotations

import importlib.util
import itertools
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.targets import TARGETS, mutated, remove_folder

EXAMPLES = 60
seen: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def cleaned() -> Iterator[None]:
    yield
    remove_folder()


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_read(name: str) -> None:
    """Else a fuzzer would only ever see refusals."""
    seeds = TARGETS[name].seeds()
    assert any(TARGETS[name].run(data) for data in seeds)


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs_are_read_or_refused(name: str) -> None:
    target = TARGETS[name]
    seeds = target.seeds()

    @settings(
        max_examples=round(EXAMPLES * target.share),
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        first, other = data.draw(st.sampled_from(seeds)), data.draw(st.sampled_from(seeds))
        numbers = data.draw(st.lists(st.integers(0, 2**64 - 1), min_size=8, max_size=24))
        seen["accepted" if target.run(mutated(first, other, itertools.cycle(numbers))) else "refused"] += 1

    run()


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=15, deadline=None, database=None)
@given(data=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(name: str, data: bytes) -> None:
    TARGETS[name].run(data)


def test_both_kinds_were_met() -> None:
    if sum(seen.values()) < EXAMPLES * len(TARGETS) // 2:
        pytest.skip("only some tests of this file were selected")
    assert seen["accepted"] > 20
    assert seen["refused"] > 200


def test_a_finding_is_found() -> None:
    """Control: what a reader raises beyond its documented errors comes through."""
    from fuzz.targets import accepts

    def broken(data: bytes) -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        accepts(broken)(b"")


def test_the_schema_describes_the_routes_of_the_server() -> None:
    import json
    from pathlib import Path

    described = json.loads((Path(__file__).parent / "openapi.json").read_text())["paths"]
    for path in ("/v1/embeddings", "/v1/models", "/health", "/ready", "/metrics"):
        assert path in described
    assert importlib.util.find_spec("fuzz.api") is not None
