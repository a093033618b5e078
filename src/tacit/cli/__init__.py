"""The command line.

Exit codes: 0 success, 1 failure, 2 misuse, 75 not ready (try again later), 130 stopped by the user.
"""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys


def main() -> None:
    """Entry point of the `tacit` command."""
    # Waiting threads that spin are ten times slower when another program needs the core. The
    # allocator of torch on ARM soon returns freed memory to the system, and getting it back takes
    # longer than many operations. Both must be set before torch loads. A bench runs with the
    # defaults that other libraries have.
    if sys.argv[1:2] != ["bench"]:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        os.environ.setdefault("MIMALLOC_PURGE_DELAY", "1000")
    atexit.register(_skip_last_collection)
    from tacit.cli.app import app
    from tacit.core.errors import INSTALL_PEER, Interrupted, ReportedElsewhere, TacitError

    try:
        app(prog_name="tacit")
    except ReportedElsewhere as problem:
        sys.exit(problem.exit_code)
    except TacitError as problem:
        _fail(f"{problem}" if isinstance(problem, Interrupted) else f"Error: {problem}")
        sys.exit(problem.exit_code)
    except ModuleNotFoundError as problem:
        if (problem.name or "").split(".")[0] not in ("cryptography", "google", "grpc"):
            raise
        _fail(f"Error: {problem.name} is not installed. Nodes need it. {INSTALL_PEER}")
        sys.exit(2)
    except KeyboardInterrupt:
        _fail("Stopped.")
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has closed it
        sys.stderr.close()
        sys.exit(1)
    except OSError as problem:
        # A name that is too long, a full disk, a missing permission: nothing that a traceback
        # explains. Other errors have no file.
        if problem.filename is None:
            raise
        name = str(problem.filename)
        name = name if len(name) <= 200 else f"{name[:200]}…"
        _fail(f"Error: {problem.strerror}: {name}. Choose another place, or make this one usable.")
        sys.exit(2 if problem.errno == errno.ENAMETOOLONG else 1)


def _fail(message: str) -> None:
    from rich.console import Console

    console = Console(stderr=True, soft_wrap=True)
    # Names of files may have bytes that are no text.
    message = message.encode(errors="backslashreplace").decode()
    console.print(message, style="bold red", markup=False, highlight=False)


def _skip_last_collection() -> None:
    """Do not search for garbage at the exit of a command that computes nothing: it takes 0.1 s."""
    if "torch" not in sys.modules:
        gc.freeze()
