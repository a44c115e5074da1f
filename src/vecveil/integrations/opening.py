"""Open release policies: the public names of `vecveil.databases.release`."""

from __future__ import annotations

from vecveil.databases.release import (
    CleanQueryWarning,
    KeySource,
    PlaintextWarning,
    open_policy,
    open_protector,
    policy_config,
    warn_plaintext,
)

__all__ = [
    "CleanQueryWarning", "KeySource", "PlaintextWarning", "open_policy", "open_protector", "policy_config",
    "warn_plaintext",
]  # fmt: skip
