"""Protectors in other people's programs: one module for each. Nothing in vecveil imports them."""

from __future__ import annotations

__all__: list[str] = []
