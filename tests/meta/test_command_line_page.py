"""``docs/cli.md`` shows the commands and options as they are."""

from __future__ import annotations

from benchmarks.command_line_page import PAGE, page


def test_the_page_is_drawn_from_the_commands() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python benchmarks/command_line_page.py"
