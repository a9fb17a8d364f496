"""The error with which this project's classes inside vLLM refuse a request."""

from __future__ import annotations

from workbench.core.errors import BadInput


class Refused(BadInput, ValueError):
    """Raised for values that cannot be used; vLLM's server reports it as the request's error (400), not as its own."""
