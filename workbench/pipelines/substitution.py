"""Whether a pass that continues from substituted stages needs the audio encoder, or the language model alone."""

from __future__ import annotations

from workbench.trace.recorder import Stages
from workbench.trace.trace import StageFilter

EMBEDDINGS = "llm.embeddings"
LANGUAGE = ("llm.", "logits")  # the beginnings of the names of stages after the audio encoder


def starts_after_audio(requested_stages: StageFilter, given: Stages | None) -> bool:
    """Returns whether the language model alone computes a pass: its input is substituted, and neither this input nor
    an earlier stage is requested, nor an earlier stage substituted. Then the values of the audio encoder affect
    nothing. A trace that shows the input shows what this pass itself computed there.
    """
    if given is None or EMBEDDINGS not in given or requested_stages(EMBEDDINGS):
        return False
    return all(name.startswith(LANGUAGE) for name in (*requested_stages.patterns, *given))
