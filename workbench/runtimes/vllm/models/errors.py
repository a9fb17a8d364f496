"""The error of this project's classes inside vLLM for a request that they refuse."""

from __future__ import annotations

from workbench.core.errors import BadInput


class BadRequest(BadInput, ValueError):
    """Raised for values that cannot be used; vLLM's server reports it as the request's error (400), not as its own."""
