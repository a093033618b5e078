"""The command line: thin; parse, call, print. Exit codes: 0 good, 1 failed, 2 misuse, 130 stopped."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Entry point of the `tacit` command."""
    # Threads that wait by spinning are ten times slower when another program wants the core; set before torch loads.
    # A bench compares with what others have, so it runs as they do.
    if sys.argv[1:2] != ["bench"]:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from rich.console import Console

    from tacit.cli.app import app
    from tacit.core.errors import Interrupted, ReportedElsewhere, TacitError

    try:
        app(prog_name="tacit")
    except ReportedElsewhere as problem:
        sys.exit(problem.exit_code)
    except TacitError as problem:
        text = str(problem) if isinstance(problem, Interrupted) else f"Error: {problem}"
        Console(stderr=True, soft_wrap=True).print(
            text, style="bold red", markup=False, highlight=False
        )
        sys.exit(problem.exit_code)
    except ModuleNotFoundError as problem:
        if (problem.name or "").split(".")[0] not in ("cryptography", "google", "grpc"):
            raise
        text = f"Error: {problem.name} is not installed. Peers need it: pip install 'tacit[peer]'."
        Console(stderr=True, soft_wrap=True).print(
            text, style="bold red", markup=False, highlight=False
        )
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("Stopped.", style="bold red")
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output went away
        sys.stderr.close()
        sys.exit(1)
