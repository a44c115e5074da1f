"""The command line: one file per command, imported when the command is used.

Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 misused, 130 stopped by Ctrl-C, 143
terminated, 141 stdout closed by its reader.

A command's file imports at its top, except what takes long to load: the attacks and metrics (scipy.stats), torch,
pyarrow, web servers, and plotting.
"""

VALUES = "vecveil.cli.values"
"""Key, in the meta of a click context, of the values that name files: value -> its option, and what was expected."""
