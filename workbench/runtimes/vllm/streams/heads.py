"""Computes the logits of several answers in one step: text from vLLM's own logits, audio from the hidden states.

One product and a bias give all codec streams (see `workbench.speech.head_rows`). This file does not know vLLM.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from workbench.runtimes.vllm.streams.answers import Logits
from workbench.speech.head_rows import HeadRows
from workbench.speech.layout import SpeechLayout
from workbench.speech.network import NeededLogits


class StreamHeads:
    """The rows of the output matrix for special and codec tokens; computes in float32.

    Args:
        matrix: the output matrix [at least vocabulary, hidden]. Only its rows for these tokens are copied.
        streams: the embeddings of the streams [streams, hidden]. The embedding of stream 0 is not used.
    """

    @torch.inference_mode()
    def __init__(self, matrix: Tensor, streams: Tensor, layout: SpeechLayout):
        self.rows = HeadRows(layout)
        specials, codec = matrix[: layout.text_first], matrix[layout.codec_first : layout.codec_end]
        self._small = torch.cat([specials, codec]).float()
        self._bias = self._small.new_zeros(len(self._small))
        stream_rows = streams.to(matrix.device).float()
        for stream, rows in self.rows.biased():
            self._bias[rows] = self._small[rows] @ stream_rows[stream]

    def codec(self, hidden: Tensor) -> Tensor:
        """Returns the logits of streams 1 and above, each over its own interval [rows, streams - 1, layer size].

        Args:
            hidden: after the last norm [rows, H].
        """
        codec_rows = self.rows.later
        logits: Tensor = self.rows.by_stream(F.linear(hidden.float(), self._small[codec_rows], self._bias[codec_rows]))
        return logits

    def logits_of(self, hidden: Tensor, logits: Tensor) -> Logits:
        """Returns a function for the logits of a step.

        Args:
            hidden: the hidden states after the last norm [rows, H].
            logits: vLLM's own logits of stream 0 [rows, at least vocabulary].
        """

        def logits_of(rows: Sequence[int], needed_logits: NeededLogits) -> tuple[np.ndarray, np.ndarray | None]:
            if not needed_logits.codec:
                stream_logits = logits[list(rows)]
                return _array(
                    torch.cat([stream_logits[:, first:end] for first, end in needed_logits.main], dim=1)
                ), None
            product = F.linear(hidden[list(rows)].float(), self._small, self._bias)
            main = torch.cat([product[:, self.rows.span(*interval)] for interval in needed_logits.main], dim=1)
            return _array(main), _array(self.rows.by_stream(product[:, self.rows.later]))

        return logits_of


def _array(values: Tensor) -> np.ndarray:
    array: np.ndarray = values.float().cpu().numpy()
    return array
