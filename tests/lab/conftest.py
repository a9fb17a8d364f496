"""Chromium, for the report."""

from tests.panels.conftest import chromium

__all__ = ["chromium"]
