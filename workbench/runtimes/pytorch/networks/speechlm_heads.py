"""The output layer of a SpeechLM: logits of all streams from one hidden state.

All streams are one product and a bias (see `workbench.speech.head_rows`).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from workbench.speech.head_rows import HeadRows
from workbench.speech.layout import SpeechLayout
from workbench.speech.network import NeededLogits, Scores


class Heads:
    """The output layer; special and codec tokens are computed in float32 (float64 if the matrix is), text tokens in the
    matrix's type.

    Args:
        matrix: [vocabulary, hidden], shared and not copied as a whole.
        streams: the embeddings [streams, hidden]; that of stream 0 is not used.
    """

    def __init__(self, matrix: Tensor, streams: Tensor, layout: SpeechLayout):
        self.layout, self.matrix, self.rows = layout, matrix, HeadRows(layout)
        self.dtype = torch.promote_types(matrix.dtype, torch.float32)
        specials, codec = matrix[: layout.text_first], matrix[layout.codec_first : layout.codec_end]
        self._small = torch.cat([specials, codec]).to(self.dtype)
        self._bias = self._small.new_zeros(len(self._small))
        stream_rows = streams.to(matrix.device, self.dtype)
        for stream, rows in self.rows.biased():
            self._bias[rows] = self._small[rows] @ stream_rows[stream]

    def scores(self, hidden: Tensor, needed_logits: NeededLogits) -> Scores:
        """Returns the needed logits for hidden states [branches, hidden] after the final norm."""
        if not needed_logits.main:
            return Scores(np.empty((len(hidden), 0), dtype=np.float32), None)
        head_rows = self.rows
        is_small = all(head_rows.has(*interval) for interval in needed_logits.main)
        product = None
        if is_small or needed_logits.codec:
            product = F.linear(hidden.to(self.dtype), self._small, self._bias).float().cpu().numpy()
        parts = []
        for first, end in needed_logits.main:
            if product is not None and head_rows.has(first, end):
                parts.append(product[:, head_rows.span(first, end)])
            else:
                parts.append(F.linear(hidden, self.matrix[first:end]).float().cpu().numpy())
        codec = None
        if needed_logits.codec and product is not None:
            codec = head_rows.by_stream(product[:, head_rows.later])
        return Scores(parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1), codec)

    def main(self, hidden: Tensor) -> Tensor:
        """Returns the logits of stream 0 [..., vocabulary]."""
        return F.linear(hidden, self.matrix)

    def codec(self, hidden: Tensor) -> Tensor:
        """Returns the logits of streams 1 and above, each over its own interval [..., streams - 1, layer size]."""
        rows = self.rows.later
        logits: Tensor = self.rows.by_stream(F.linear(hidden.to(self.dtype), self._small[rows], self._bias[rows]))
        return logits
