"""Writes the contracts of this folder anew: ``python tests/golden/write_contracts.py --names --cli --openapi --audit``.

Run it only for a deliberate change of what users rely on. Rule: CHANGELOG.md lists each public name, option, path
or key that changed or went, with its replacement, in the same commit as the new JSON file. A refactoring never
needs this script. The files and digests of saved protectors are not written here: see `write_golden.py`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.contracts import write_contract


def write_names() -> None:
    """Write ``public_api.json``."""
    from golden.test_public_api import observe

    write_contract("public_api", observe())


def write_cli() -> None:
    """Write ``command_line.json``."""
    from golden.test_command_line import observe

    write_contract("command_line", observe())


def write_openapi() -> None:
    """Write ``openapi.json``."""
    from golden.test_openapi import observe

    write_contract("openapi", observe())


def write_audit() -> None:
    """Write ``audit.json``."""
    from golden.test_audit_record import observe

    write_contract("audit", observe())


WRITERS = {"names": write_names, "cli": write_cli, "openapi": write_openapi, "audit": write_audit}


def main() -> int:
    """Write the contracts that the options name."""
    parser = argparse.ArgumentParser(description="Write contracts anew, for a deliberate change.")
    for name in WRITERS:
        parser.add_argument(f"--{name}", action="store_true")
    asked = [name for name, given in vars(parser.parse_args()).items() if given]
    if not asked:
        parser.error("name at least one contract")
    for name in asked:
        WRITERS[name]()
        sys.stdout.write(f"{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
