"""How our classes inside vLLM refuse what a request asks for."""

from __future__ import annotations

from workbench.core.errors import BadInput


class Refused(BadInput, ValueError):
    """Something that cannot be used; for vLLM's server it is the request's error (400) and not its own."""
