"""How the families' classes inside vLLM call their audio tower: a batch of recordings in, embeddings and stages out.

This file knows no family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from workbench.trace.recorder import Recorder


class Captures(Protocol):
    """The source of recorders for stages: the worker's extension."""

    def recorder(self, number: int) -> Recorder | None:
        """Returns the recorder for this number; None if its stages are not wanted."""
        ...


class Tower(Protocol):
    """A family's encoder and adaptor."""

    def __call__(
        self, features: Sequence[Tensor], lengths: Sequence[int], recorders: Sequence[Recorder | None] | None
    ) -> list[Tensor]:
        """Returns the embeddings [n, H] of each chunk; the other chunks change them by rounding only.

        Args:
            features: of each chunk [T, width] float32.
            lengths: of each chunk, counting only speech.
            recorders: for each chunk's own rows of the stages in float32; None for no recording.
        """
        ...


def embed_recordings(tower: Tower, fields: Mapping[str, Any], captures: Captures | None) -> list[Tensor]:
    """Returns the embeddings [n, H] of each recording of a batch, from the fields of `audio.AudioProcessor`."""
    recorders = None
    if captures is not None:
        recorders = [captures.recorder(int(number)) if number else None for number in fields["capture"]]
    return tower(list(fields["features"]), [int(length) for length in fields["lengths"]], recorders)
