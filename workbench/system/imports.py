"""Keeps unused packages out of a process, although another package would import them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

# transformers imports it, and with it all of scipy, for a way of generating that no model here has: 1 s, 60 MB.
CLASSICAL_MODELS = "sklearn"
# gguf imports it for tokenizers that this project does not use: 0.6 s. vLLM needs it.
MISTRAL_TOKENIZERS = "mistral_common"


@contextmanager
def hidden_packages(*packages: str) -> Iterator[None]:
    """Hides packages inside the block, except packages that are imported already. Only for separate processes, because
    other threads do not find the packages either.
    """
    hidden = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: as if it were not installed
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
