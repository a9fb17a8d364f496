"""Checks that optional packages are installed, before the work that needs them starts. It imports none of them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from workbench.core.errors import Unavailable

CONVERSION = ("torch", "gguf", "transformers")  # what a conversion to GGUF imports
VLLM_CONVERSION = ("torch", "transformers")
PICTURES = ("matplotlib",)
PAGE = ("gradio", "starlette", "uvicorn", "h11", "websockets", "jinja2", "markupsafe", "brotli", "matplotlib")
SERVER = ("starlette", "uvicorn", "h11", "websockets", "python_multipart")
TRAINING = ("torch", "transformers", "tokenizers")
PAGE_INSTALL = "pip install 'speech-workbench[app]', or in a checkout: make app"


def missing_packages(modules: Sequence[str]) -> list[str]:
    """Returns those of the modules that are not installed."""
    return [name for name in modules if find_spec(name) is None]


def not_installed_message(needs: str, missing: Sequence[str], how_to_get: str = "") -> str:
    """Returns the sentence about missing packages.

    Args:
        needs: the beginning of the sentence, such as "a server needs".
        how_to_get: the command that installs them; empty if the packages have the names of their modules.
    """
    several = len(missing) > 1
    return (
        f"{needs} the Python package{'s' * several} {', '.join(missing)}, which {'are' if several else 'is'} not "
        f"installed; run: {how_to_get or 'pip install ' + ' '.join(missing)}"
    )


def check_packages(needs: str, modules: Sequence[str], how_to_get: str = "") -> None:
    """Raises `Unavailable` with one sentence if some of the modules are not installed. See `not_installed_message`."""
    if missing := missing_packages(modules):
        raise Unavailable(not_installed_message(needs, missing, how_to_get))
