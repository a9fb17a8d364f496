"""The logits of several answers in one step: text from vLLM's own logits, codec streams from the hidden states.

A stream n >= 1 is predicted from h + e_n, h being the hidden state and e_n the stream's embedding. Each codec row of
the output matrix W belongs to one stream, so W e_n is a constant per code: all streams are one product and a bias. This
file knows no vLLM.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from workbench.runtimes.vllm.streams.answers import Logits
from workbench.speech.layout import SpeechLayout
from workbench.speech.network import Wanted


class StreamHeads:
    """The rows of the output matrix for special and codec tokens; computes in float32.

    Args:
        matrix: [at least vocabulary, hidden], not copied as a whole.
        streams: the embeddings [streams, hidden]; that of stream 0 is not used.
    """

    @torch.inference_mode()
    def __init__(self, matrix: Tensor, streams: Tensor, layout: SpeechLayout):
        self.layout = layout
        self._matrix = matrix[layout.codec_first : layout.codec_end].float()
        own = streams.to(matrix.device).float()
        own = torch.cat([torch.zeros_like(own[:1]), own[1:]]).repeat_interleave(layout.layer_size, dim=0)
        self._bias = (self._matrix * own).sum(dim=1)
        self._specials = matrix[: layout.text_first].float()

    def codec(self, hidden: Tensor) -> Tensor:
        """Returns the logits of all streams [rows, streams, layer size] of hidden states [rows, H]."""
        return F.linear(hidden.float(), self._matrix, self._bias).unflatten(
            -1, (self.layout.streams, self.layout.layer_size)
        )

    def of(self, hidden: Tensor, logits: Tensor) -> Logits:
        """Returns a function for the logits of a step.

        Args:
            hidden: after the last norm [rows, H].
            logits: vLLM's own, of stream 0 [rows, at least vocabulary].
        """

        def found(rows: Sequence[int], wanted: Wanted) -> tuple[np.ndarray, np.ndarray | None]:
            if not wanted.codec:
                own = logits[list(rows)]
                return _array(torch.cat([own[:, first:end] for first, end in wanted.main], dim=1)), None
            chosen = hidden[list(rows)].float()
            codec = self.codec(chosen)
            parts = [self._main(chosen, codec, *interval) for interval in wanted.main]
            return _array(torch.cat(parts, dim=1)), _array(codec[:, 1:])

        return found

    def _main(self, hidden: Tensor, codec: Tensor, first: int, end: int) -> Tensor:
        """Returns the logits of an interval of stream 0, of special ids or of codes."""
        if end <= self.layout.text_first:
            return F.linear(hidden, self._specials[first:end])
        return codec[:, 0, first - self.layout.codec_first : end - self.layout.codec_first]


def _array(values: Tensor) -> np.ndarray:
    found: np.ndarray = values.float().cpu().numpy()
    return found
