"""The program `workbench`. Ctrl-C and SIGTERM end it cleanly at any time, also while it still imports the commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    try:
        from workbench.cli.commands import main as run

        return run(arguments)
    except KeyboardInterrupt:
        print("workbench: stopped", file=sys.stderr)
        from workbench.system.endings import stopped_status

        return stopped_status()
