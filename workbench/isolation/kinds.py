"""Chooses the prepared process of a session. See `workbench.prepared`."""

from __future__ import annotations

import os

from workbench.core.runtimes import RUNTIMES
from workbench.core.settings import SessionSpec
from workbench.families import FAMILIES
from workbench.prepared.kinds import Kind
from workbench.system.processors import THREADS, available_processors


def kind_of(spec: SessionSpec) -> Kind | None:
    """Returns the kind of a session; None if nothing is known of its imports.

    That holds for families of other packages, and for sessions that only send requests to a server.
    """
    family = FAMILIES.get(spec.family)
    if family is None or family.package or spec.server is not None or spec.runtime not in RUNTIMES:
        return None
    if RUNTIMES[spec.runtime].missing(family.has_language_model) or not family.cell(spec.runtime).module:
        return None
    if RUNTIMES[spec.runtime].parallel:
        threads = spec.settings.threads
        return Kind(spec.runtime, True, True, None if threads == _default_threads() else threads, spec.settings.eager)
    return Kind(spec.runtime, family.has_language_model)


def _default_threads() -> int | None:
    """Returns the number of threads of an engine whose settings name none; None if it is unknown."""
    setting = os.environ.get(THREADS)
    if setting:
        return int(setting) if setting.isdecimal() else None
    return available_processors()
