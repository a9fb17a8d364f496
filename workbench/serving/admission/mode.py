"""How far a server trusts its users: `local` on the owner's own machine, `public` for strangers.

In public mode a visitor can use only what the owner has opened; `docs/security.md` lists that.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping

from workbench.core.errors import BadInput

LOCAL, PUBLIC = "local", "public"
MODES = (LOCAL, PUBLIC)
SPACE = "SPACE_ID"  # an environment variable that Hugging Face Spaces set


def mode_for(host: str, choice: str | None = None, environment: Mapping[str, str] = os.environ) -> str:
    """Returns the mode of a server that listens on a host.

    Args:
        choice: the owner's choice; by default local on loopback, and public elsewhere and on Spaces.

    Raises `BadInput` for an unknown mode.
    """
    if choice is not None:
        if choice not in MODES:
            raise BadInput(f"the mode is {choice!r:.40}; expected local or public")
        return choice
    return LOCAL if is_loopback(host) and not environment.get(SPACE) else PUBLIC


def is_loopback(host: str) -> bool:
    """Returns whether only programs on this machine can reach the address of a host."""
    name = host.removeprefix("[").removesuffix("]").partition("%")[0].rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
