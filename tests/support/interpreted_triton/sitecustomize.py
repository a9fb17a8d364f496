"""Runs at the start of Python: makes vLLM take Triton's interpreter for the compiler of this processor.

A test puts this folder into $PYTHONPATH. vLLM uses Triton where one driver is active, and there is none without a GPU.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

with contextlib.suppress(ImportError):
    from triton.backends import backends

    backends["cpu"] = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True), compiler=None)

with contextlib.suppress(ImportError):
    from triton.language.extra import libdevice

    libdevice.isnan = lambda values: values != values  # the interpreter has none of CUDA's functions
