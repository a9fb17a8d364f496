"""Keeps the sessions of a run open from one input to the next, so that each side is loaded once."""

from __future__ import annotations

from typing import Any


class KeptSessions:
    """A registry for a parity run. Its sessions stay open until `close`.

    The registry ends processes that do not fit into memory, and loads them again for the next call.
    """

    def __init__(self, registry: Any):
        self._registry = registry
        self._open: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)  # what the registry knows of models

    def open(self, model: Any, on_progress: Any = None, **settings: Any) -> KeptSession:
        """Returns the session of these settings, which is opened once."""
        key = repr((str(model), sorted(settings.items(), key=str)))
        if key not in self._open:
            self._open[key] = self._registry.open(model, on_progress=on_progress, **settings)
        return KeptSession(self._open[key])

    def close(self) -> None:
        """Closes all sessions."""
        while self._open:
            _, session = self._open.popitem()
            session.__exit__(None, None, None)


class KeptSession:
    """A session that the end of a `with` block leaves open."""

    def __init__(self, session: Any):
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def __enter__(self) -> KeptSession:
        return self

    def __exit__(self, *_: object) -> None:
        pass
