"""The command line: one short file per command; what a command needs is imported inside it.

Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 misused, 130 stopped
by Ctrl-C, 143 stopped by a request to terminate, 141 when nobody reads stdout any more.
"""
