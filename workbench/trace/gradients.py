"""The names of gradients in a trace, and which globs ask for them.

`gradients.fbank.N` is the gradient of ln P of token N of the stage `tokens` with respect to the filter bank:
[frames, mels], as `frontend.fbank`. A gradient costs several passes, so only a glob that begins with `gradients.` takes
one: `*` does not. This file knows no models.
"""

from __future__ import annotations

PREFIX = "gradients."


def gradient_stage(token: int) -> str:
    """Returns the stage of a token's gradient with respect to the filter bank."""
    return f"{PREFIX}fbank.{token}"


def is_gradient(name: str) -> bool:
    """Returns whether the name of a stage, or a glob, can only be of gradients."""
    return name.startswith(PREFIX)
