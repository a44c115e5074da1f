"""What YAML may not hold here: values that share parts, which grow exponentially when nested, and deep nesting."""

from __future__ import annotations

from typing import Any

__all__ = ["shared_line"]

DEEPEST = 100
_MERGE = "tag:yaml.org,2002:merge"


def shared_line(yaml: Any, text: str) -> int | None:
    """Return the line of the first anchor, alias or merge key; nothing is constructed.

    Raises:
        RecursionError: collections nest deeper than `DEEPEST`.
        yaml.YAMLError: it is no YAML.
    """
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise RecursionError
        merge = isinstance(event, yaml.ScalarEvent) and (
            event.tag == _MERGE or (event.value == "<<" and event.implicit[0])
        )
        if merge or getattr(event, "anchor", None) is not None:
            return int(event.start_mark.line) + 1
    return None
