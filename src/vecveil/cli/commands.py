"""The group of commands and the entry point: run a command, and convert errors to exit codes."""

from __future__ import annotations

import contextlib
import difflib
import errno
import importlib
import io
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import click
from click.shell_completion import CompletionItem, shell_complete

from vecveil.cli import VALUES
from vecveil.errors import FitWarning, KeyFileError, MemoryLimitError, SealingError, VecveilError
from vecveil.runtime import check_room, printable, stage, status
from vecveil.version import __version__

SECTIONS = {
    "Sealed index: encrypted, exact": {
        "migrate": ("migrate", "command", "Copy a vector database, or a table, to a protected one."),
        "search": ("sealed", "search_command", "Search a sealed index or store, and rank exactly."),
        "index": ("sealed", "index_group", "Read, delete, compact, reencode, verify and back up a sealed index."),
        "reseal": ("sealed", "reseal_command", "Seal the rows of an index or store under a new key."),
    },
    "Protected vectors: noise": {
        "demo": ("demo.command", "command", "Fit, protect and audit bundled notes or your own texts."),
        "fit": ("fit", "command", "Learn how to hide a concept; write a protector."),
        "frontier": ("frontier", "command", "Measure designs from gentle to strong, to choose one."),
        "protect": ("protect", "command", "Write the protected vectors of tables."),
        "seal": ("protect", "seal_command", "Write the protected vectors of tables, and the originals sealed."),
        "unseal": ("sealed", "unseal_command", "Open sealed tables."),
        "verify": ("protect", "verify_command", "Compare a protected folder with its manifest."),
        "ledger": ("releases", "ledger", "Show how often items were released."),
        "methods": ("methods", "command", "List the methods and their options."),
    },
    "Measure what leaks": {
        "audit": ("audit", "command", "Attack clean and protected vectors; report what leaks."),
        "scan": ("scan", "command", "Report what a vector database gives away; audit a sample."),
        "experiment": ("experiment", "command", "Run the papers' experiments and ours (in a checkout)."),
    },
    "Vector databases": {
        "reprotect": ("sealed", "reprotect_command", "Redraw the vectors of a sealed store."),
        "reconcile": ("forget", "reconcile_command", "List vectors without a source, and sources without a vector."),
        "forget": ("forget", "forget_command", "Delete the rows of ids everywhere; write a receipt."),
    },
    "Keys and servers": {
        "key": ("releases", "key", "Make and list keys of keyed noise and sealed search."),
        "serve": ("serve", "command", "Answer OpenAI's embeddings API, protected; search a sealed index."),
        "audit-log": ("audit_log", "audit_log", "Verify the log of who did what with a sealed index."),
        "doctor": ("doctor", "command", "Report what is installed and whether it works."),
    },
}
"""Each command with its module, function and short help, in the order in which a user meets them."""
COMMANDS = {name: command for section in SECTIONS.values() for name, command in section.items()}
NEEDS_ROOM = dict.fromkeys(("protect", "seal", "unseal"), 1 << 30)
"""Bytes of address space for the libraries and the work of a command. Under a limit (ulimit -v), NumPy and pyarrow end
the process without a message, so the room is checked before the command's module loads them."""


class LazyGroup(click.Group):
    """Imports a command's module when the command is used; the list of commands imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if (room := NEEDS_ROOM.get(cmd_name)) is not None:
            check_room(room, owner=cmd_name)
        module, function, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(f"vecveil.cli.{module}"), function)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command; for a name that is none, propose the nearest."""
        if args and args[0] not in COMMANDS and (near := difflib.get_close_matches(args[0], COMMANDS, n=1)):
            raise click.UsageError(f"No such command '{args[0]}'. Did you mean '{near[0]}'?", ctx)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before the command; for an option of the command, say where it belongs."""
        command = next((word for word in args if word in COMMANDS), None)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if command is None:
                raise
            name = error.option_name
            raise click.UsageError(f"{name} comes after the command: vecveil {command} ... {name}", ctx) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with ``incomplete``."""
        commands = [
            CompletionItem(name, help=text) for name, (*_, text) in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), short_help) for name, (_, _, short_help) in commands.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s", help="Show the version.")
def vecveil() -> None:
    """Store, search and send text embeddings without giving away what the texts say.

    Encrypt and search them exactly in a sealed index, or hide a concept in them with noise, and measure what leaks.
    Start with: vecveil migrate --help, or vecveil demo
    """


_COMPLETE = "_VECVEIL_COMPLETE"
FAILED, MISUSED, INTERRUPTED, NOBODY_READS, TERMINATED = 1, 2, 130, 141, 143
_CONTINUE = "run the same command again to continue."
_NO_MEMORY = ("cannot allocate memory", "failed to map segment", "start new thread")
_SOURCE = Path(__file__).resolve().parents[1]


class _Terminated(KeyboardInterrupt):
    """A request to terminate: cleans up like Ctrl-C, with a different exit code."""


def run(arguments: Sequence[str]) -> int:
    if instruction := os.environ.get(_COMPLETE):  # a shell completes a line
        return shell_complete(vecveil, {}, "vecveil", _COMPLETE, instruction)
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot print a character must not stop a run
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    values: dict[str, Any] = {}
    with _termination_raises(), _own_warnings_in_one_line(), _progress_in_lines(arguments):
        try:
            with vecveil.make_context("vecveil", list(arguments), obj=tuple(arguments)) as context:
                context.meta[VALUES] = values
                vecveil.invoke(context)
            sys.stdout.flush()
        except click.exceptions.Exit as done:
            return done.exit_code
        except BaseException as error:
            return _failure(error, arguments, values)
    return 0


def _shown(error: VecveilError | str, values: Mapping[str, Any] | None, arguments: Sequence[str] = ()) -> str:
    """Return a message without secrets, and with command options instead of Python's parameters."""
    try:
        from vecveil.cli.options import (  # loads NumPy, which no help needs
            in_options,
            without_secrets,
        )
    except (ImportError, MemoryError, OSError):
        return str(error)  # too little memory: no option was parsed
    if isinstance(error, VecveilError):
        error = in_options(error, _context(arguments), values or {})
    return without_secrets(error, values or {})


def _failure(error: BaseException, arguments: Sequence[str], values: Mapping[str, Any] | None = None) -> int:
    """Print what failed and return the exit code; `in_options` uses ``values``."""
    if os.environ.get("VECVEIL_DEBUG") == "1" and not isinstance(error, click.ClickException):
        _write(_traceback(error))
    match error:
        case click.UsageError():
            error.show(usage := io.StringIO())
            _write(_shown(usage.getvalue(), values))
            return MISUSED
        case click.ClickException():
            return _say(error.format_message())
        case BrokenPipeError():
            _stop_writing()
            return NOBODY_READS
        case _Terminated():
            _say(f"stopped. {_left_behind(arguments)}", kind="")
            return TERMINATED
        case KeyboardInterrupt() | click.Abort():
            _say(f"stopped by Ctrl-C. {_left_behind(arguments)}", kind="")
            return INTERRUPTED
        case MemoryLimitError() if error.code == MemoryLimitError.code:
            return _say(str(error))  # raised before a command is loaded, for lack of memory
        case VecveilError() if not (isinstance(error, ImportError) and _short_of_memory(error)):
            return _say(_shown(error, values, arguments))
        case _ if _short_of_memory(error):
            return _say(
                "The process ran out of memory or threads. Raise its limits (ulimit -v, ulimit -u), or give fewer rows."
            )
        case OSError():
            return _say(_shown(_system_error(error), values))
        case SystemExit():
            return error.code if isinstance(error.code, int) else FAILED
        case _:
            return _say(
                f"unexpected {type(error).__name__}{_place(error)}. This is a bug of vecveil; "
                "please report it. VECVEIL_DEBUG=1 shows the traceback, which may contain data."
            )


def _traceback(error: BaseException) -> str:
    """Return the traceback of an error and of its causes, including those that ``from None`` hides.

    Messages of drivers may contain rows or addresses, so no other output shows them. Causes of key errors are left out.
    """
    chain = [error]
    while not isinstance(chain[-1], KeyFileError | SealingError):
        before = chain[-1].__cause__ or chain[-1].__context__
        if before is None or before in chain:
            break
        chain.append(before)
    parts = ["".join(traceback.format_exception(each, chain=False)) for each in reversed(chain)]
    return "\nThe following error was raised because of it:\n\n".join(parts)


def _context(arguments: Sequence[str]) -> click.Context:
    """Return the context of the command that the arguments name, with the values that they give it."""
    # With the settings: a command keeps the help option that its first context gives it.
    context = click.Context(vecveil, info_name="vecveil", **vecveil.context_settings)
    for i, name in enumerate(arguments):
        group = context.command
        if isinstance(group, click.Group) and (command := group.get_command(context, name)) is not None:
            context = command.make_context(name, list(arguments[i + 1 :]), context, resilient_parsing=True)
    return context


def _left_behind(arguments: Sequence[str]) -> str:
    """Return a sentence about the files that a stopped command leaves."""
    context = click.Context(vecveil)
    with contextlib.suppress(Exception):  # stopped while the command's module was loaded
        context = _context(arguments)
    given = context.params
    match context.command_path.removeprefix("vecveil "):
        case "fit" if Path(f"{given['out']}.training").is_dir():
            return f"The checkpoint of the last finished epoch is kept in {given['out']}.training; {_CONTINUE}"
        case "frontier" if Path(given["out"] or "", "frontier.json").is_file():
            return f"Finished designs are kept in {given['out']}; {_CONTINUE}"
        case "reseal" | "reprotect":
            return f"Finished rows stay, and the older keys are kept; {_CONTINUE}"
        case "forget" if Path(given["receipt_file"] or "").is_file():
            return f"The receipt says what is begun; {_CONTINUE}"
        case "migrate" if given["dest"] is not None:
            with contextlib.suppress(VecveilError):  # a destination that is none
                from vecveil.stores.locations import default_state_file, index_place

                if index_place(given["dest"]) is not None:
                    return f"The index keeps the rows that are written; {_CONTINUE}"
                if Path(given["state_file"] or default_state_file(given["dest"])).is_file():
                    return f"The state file counts the rows that the destination confirmed; {_CONTINUE}"
        case "experiment run":
            return f"Every finished cell is recorded; {_CONTINUE}"
        case "audit":
            folder = given["work"]
            if folder is None and not given["cache"]:
                return "Finished attacks were not kept; pass --work FOLDER to keep them."
            if folder is None:
                from vecveil.texts.encoders.cache import default_cache_folder

                folder = default_cache_folder() / "audits"
            return f"Finished attacks and checkpoints are kept in {folder}; {_CONTINUE}"
    return "Nothing unfinished was left behind."


def _say(text: str, *, kind: str = "error: ") -> int:
    line = " ".join(text.split())
    start = "\n" if kind == "" and sys.stderr is not None and sys.stderr.isatty() else ""  # below an unfinished bar
    _write(f"{start}vecveil: {kind}{line}\n")
    return FAILED


def _write(text: str) -> None:
    """Write lines to stderr, without control characters."""
    if sys.stderr is None:  # closed by the parent process
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write("\n".join(map(printable, text.split("\n"))))
        sys.stderr.flush()


def _short_of_memory(error: BaseException | None) -> bool:
    """Return whether ``error`` or one of its causes reports a lack of memory.

    Without memory, an unmappable library looks like a missing one, and a thread that cannot start like a bug.
    """
    while error is not None:
        said = str(error).lower() if isinstance(error, ImportError | RuntimeError) else ""
        if isinstance(error, MemoryError) or any(words in said for words in _NO_MEMORY):
            return True
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            return True
        error = error.__cause__ or error.__context__
    return False


def _system_error(error: OSError) -> str:
    reason = error.strerror or type(error).__name__
    name = error.filename
    where = f": {Path(os.fsdecode(name)).name!r}" if isinstance(name, str | bytes) else ""
    return f"{reason}{where}. No unfinished file was left behind."


def _place(error: BaseException) -> str:
    """Return the last line of our code in the error's traceback, without data."""
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if path.is_relative_to(_SOURCE):
            place = f" at vecveil/{path.relative_to(_SOURCE).as_posix()}:{frame.lineno}"
    return place


def _stop_writing() -> None:
    """Prevent a second error when the interpreter flushes stdout at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())


@contextlib.contextmanager
def _termination_raises() -> Iterator[None]:
    """Within the block, unwind on a request to terminate, so that temporary files are deleted."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    former: dict[int, Any] = {}
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is None or signal.getsignal(number) is signal.SIG_IGN:  # as nohup sets it
            continue
        with contextlib.suppress(ValueError):  # not the main thread
            former[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _progress_in_lines(arguments: Sequence[str]) -> Iterator[None]:
    """Report the progress of a long command every ten seconds if stderr is no terminal."""
    # A caller that replaced sys.stderr reads it after the run.
    stderr = sys.stderr
    asks = {"-h", "--help", "--help-all", "--version"}.intersection(arguments)
    if asks or not arguments or arguments[0] == "serve" or stderr is not sys.__stderr__ or stderr is None:
        yield
        return
    stage("")
    done = threading.Event()

    def report() -> None:
        wait = 1.0
        while not done.wait(wait):
            _write(f"vecveil: {arguments[0]}: {status() or 'starting'}\n")
            wait = 10.0

    if not stderr.isatty() and not os.environ.get("TQDM_DISABLE"):  # which also switches bars off
        with contextlib.suppress(RuntimeError):  # a limit on threads
            threading.Thread(target=report, daemon=True).start()
    try:
        yield
    finally:
        done.set()


@contextlib.contextmanager
def _own_warnings_in_one_line() -> Iterator[None]:
    """Show our warnings as one line each; other libraries' warnings under VECVEIL_DEBUG only."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: Any = None,
        line: str | None = None,
    ) -> None:
        if category.__module__.startswith("vecveil"):
            _say(str(message), kind="warning: ")
        elif os.environ.get("VECVEIL_DEBUG") == "1":
            _write(warnings.formatwarning(message, category, filename, lineno, line))

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.simplefilter("ignore", FitWarning)  # `vecveil fit` prints its report
        warnings.showwarning = show
        yield
