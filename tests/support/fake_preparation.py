"""A prepared process whose sessions are those of `tests.support.fake_worker`."""

from __future__ import annotations

import os
import threading

from tests.support.fake_worker import open_fake
from workbench.isolation import worker
from workbench.prepared import process
from workbench.prepared.kinds import Kind
from workbench.system.forks import why_not_forkable


def import_nothing(kind: Kind) -> str:
    """Instead of `workbench.prepared.process.import_all`; the kind says what goes wrong."""
    if kind.runtime == "dying":
        os._exit(3)
    if kind.runtime == "slow":
        threading.Event().wait()
    if kind.runtime == "threaded":
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    return why_not_forkable() or ""


if __name__ == "__main__":
    worker.open_alone = open_fake  # type: ignore[assignment]
    worker.CANCEL_SECONDS = 1.0
    process.import_all = import_nothing
    process.main()
