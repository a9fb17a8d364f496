"""Run in a forked process: opens a model and tells which modules that imports. See `tests.isolation.test_preload`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from workbench.core.settings import SessionSpec
from workbench.isolation.loader import open_here
from workbench.prepared.kinds import unused_packages
from workbench.system.imports import hidden_packages


def serve(file: int) -> None:
    """Opens the model that the arguments name: family, runtime and directory."""
    family, runtime, directory = sys.argv[1:]
    before = set(sys.modules)
    with hidden_packages(*unused_packages(runtime)):
        open_here(SessionSpec("demo", family, runtime, Path(directory)))
    os.write(file, json.dumps(sorted(sys.modules.keys() - before)).encode())
