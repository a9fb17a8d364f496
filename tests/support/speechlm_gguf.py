"""A tiny SpeechLM as a GGUF file, and conversations to have with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from workbench.conversion import speechlm, writer
from workbench.speech.layout import SpeechLayout


def speechlm_file(directory: Path, quantization: str = "f32") -> Path:
    """The GGUF file of a checkpoint directory, beside it."""
    return writer.write(speechlm.plans(directory, "workbench"), quantization, directory.with_suffix(".gguf"))[0]


def prompt_of(layout: SpeechLayout, ids: Sequence[int]) -> np.ndarray:
    """The positions of a user's text, ready for the answer."""
    whole = [layout.bos, layout.user, layout.text, *ids, layout.eos, layout.assistant]
    return np.array([layout.row(number) for number in whole])
