"""The pass of a language model over a prompt and its answer, with a row for the choice of each token of the answer.

A trace covers the prompt only. This file appends the embeddings of the answer to those of the prompt, and the model
continues from there. So the stages of its layers have rows for the tokens of the answer, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.visualise.scene import Scene

EMBEDDINGS, ANSWER = "llm.embeddings", "answer.embeddings"
AUDIO_EMBEDDINGS = "adaptor.output"
OF_ANSWERS = (EMBEDDINGS, AUDIO_EMBEDDINGS, ANSWER, "tokens")
"""The stages that `answered` reads. A view that asks for them with its own needs one pass instead of two."""


@dataclass(frozen=True, eq=False)
class Answered:
    """A prompt with its answer, as embeddings for a language model."""

    embeddings: np.ndarray  # [positions, hidden]: the prompt, then the answer without its last token
    prompt: int  # positions of the prompt
    ids: tuple[int, ...]  # tokens of the answer
    sound_rows: tuple[int, int]  # first and end of the positions that hold sound; equal where none does

    @property
    def rows(self) -> np.ndarray:
        """The position at which the model chooses each answer token, int64 [tokens]: that of the token before it."""
        return self.prompt - 1 + np.arange(len(self.ids))


def answered(scene: Scene) -> Answered:
    """Returns the prompt and the answer of a language model, or of the language half of a speech model.

    Raises `Unavailable` if the runtime does not show the embeddings of tokens.
    """
    stages = scene.stages(*OF_ANSWERS)
    prompt = scene.stage(EMBEDDINGS, "the input of a language model")
    ids = tuple(int(number) for number in scene.stage("tokens"))
    if ANSWER in stages:
        rows = stages[ANSWER]
        ids = ids[: len(rows)]
    else:
        rows = scene.session.token_embeddings(ids)
    embeddings = np.concatenate([prompt, rows[: max(len(ids) - 1, 0)].astype(prompt.dtype)])
    return Answered(embeddings, len(prompt), ids, _sound_rows(prompt, stages.get(AUDIO_EMBEDDINGS)))


def _sound_rows(prompt: np.ndarray, sound: np.ndarray | None) -> tuple[int, int]:
    """Returns the positions of a prompt [positions, hidden] that hold the rows of sound, in their order."""
    if sound is None or not len(sound) or sound.shape[1] != prompt.shape[1]:
        return 0, 0
    first = int(np.abs(prompt - sound[0]).sum(axis=1).argmin())
    count = min(len(sound), len(prompt) - first)
    is_equal = np.abs(prompt[first : first + count] - sound[:count]).max(axis=1) <= 1e-2 * np.abs(sound[:count]).max()
    ends = np.flatnonzero(~is_equal)  # the prompt may hold only the first rows of the adaptor
    return first, first + (int(ends[0]) if len(ends) else count)
