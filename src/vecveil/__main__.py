"""Run the command ``vecveil`` as ``python -m vecveil``."""

import sys

from vecveil.cli.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
