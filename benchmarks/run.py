"""Every benchmark, one after the other: ``make bench [DATA=DIR]``.

Without ``--data`` the leakage tables, which need the evaluation data, are left as they are.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    """Run them and return the number that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with sts/, ade/ and concepts/")
    parser.add_argument("--only", nargs="+", help="names of benchmarks, such as encode protect")
    arguments = parser.parse_args()
    commands = [["protect.py"], ["encode.py"], ["mask.py"], ["concepts.py"], ["memory.py"]]
    if arguments.data is not None:
        for split in ("shared", "separate"):
            commands.append(["leakage.py", "--data", str(arguments.data), "--split", split])
    commands.append(["tables.py", "--write"])
    failed = 0
    for command in commands:
        if arguments.only and Path(command[0]).stem not in arguments.only:
            continue
        print("==", " ".join(command), flush=True)
        failed += (
            subprocess.run(
                [sys.executable, str(HERE / command[0]), *command[1:]], check=False
            ).returncode
            != 0
        )
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
