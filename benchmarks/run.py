"""Every benchmark, one after the other: ``make bench [DATA=DIR]``.

Without ``--data`` the benchmarks on real texts are left out, and their figures stay as they were.
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
    parser.add_argument(
        "--data",
        type=Path,
        help="folder with sts/, ade/, lm/ and concepts/; without it their figures stay as they were",
    )
    parser.add_argument("--only", nargs="+", help="names of benchmarks, such as encode protect")
    arguments = parser.parse_args()
    names = ("mechanisms", "protect", "encode", "mask", "concepts", "memory", "serving")
    commands = [[f"{name}.py"] for name in names]
    if arguments.data is not None:
        for split in ("shared", "separate"):
            commands.append(["leakage.py", "--data", str(arguments.data), "--split", split])
        for name in ("audit", "alignment", "reconstruction"):
            commands.append([f"{name}.py", "--data", str(arguments.data)])
    commands.append(["tables.py", "--write"])
    failed = 0
    for command in commands:
        if arguments.only and Path(command[0]).stem not in arguments.only:
            continue
        print("==", " ".join(command), flush=True)
        failed += subprocess.run([sys.executable, str(HERE / command[0]), *command[1:]], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
