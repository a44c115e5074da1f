"""The entry point of the command ``vecveil``."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code of one run of the command line; None takes the arguments from the process."""
    try:
        import click  # noqa: F401
    except ImportError:
        sys.stderr.write(
            "vecveil: error: The command line needs the package 'click', which is not installed. "
            "Install it with: pip install 'vecveil[cli]'\n"
        )
        return 1
    from vecveil.cli.commands import run

    return run(sys.argv[1:] if arguments is None else list(arguments))


if __name__ == "__main__":
    sys.exit(main())
