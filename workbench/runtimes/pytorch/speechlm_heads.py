"""The output layer of a SpeechLM: logits of all streams from one hidden state.

Stream s >= 1 scores W (h + e_s), with one matrix W for all streams and an embedding e_s of each. Every codec row of W
belongs to one stream, so W e_s is a constant per code: all streams are one product with the codec rows and a bias.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from workbench.speech.layout import SpeechLayout
from workbench.speech.network import Scores, Wanted


class Heads:
    """The output layer; special and codec tokens are computed in float32 (float64 if the matrix is), text tokens in the
    matrix's type.

    Args:
        matrix: [vocabulary, hidden], shared and not copied as a whole.
        streams: the embeddings [streams, hidden]; that of stream 0 is not used.
    """

    def __init__(self, matrix: Tensor, streams: Tensor, layout: SpeechLayout):
        self.layout, self.matrix = layout, matrix
        self.dtype = torch.promote_types(matrix.dtype, torch.float32)
        self._specials = layout.text_first
        # The special tokens stand before the codec's: an audio row needs both, and this makes it one product.
        self._rows = torch.cat([matrix[: self._specials], matrix[layout.codec_first : layout.codec_end]]).to(self.dtype)
        self._bias = self._rows.new_zeros(len(self._rows))
        own = streams.to(matrix.device, self.dtype)
        for stream in range(1, layout.streams):
            first, end = (self._at(number) for number in layout.interval(stream))
            self._bias[first:end] = self._rows[first:end] @ own[stream]
        self._codec = self._at(layout.codec_first + layout.layer_size)  # the first row of stream 1

    def _at(self, number: int) -> int:
        """Returns the row of a special or codec id."""
        return number if number < self._specials else self._specials + number - self.layout.codec_first

    def scores(self, hidden: Tensor, wanted: Wanted) -> Scores:
        """Returns the wanted logits for hidden states [branches, hidden] after the final norm."""
        if not wanted.main:
            return Scores(np.empty((len(hidden), 0), dtype=np.float32), None)
        small = all(self._is_small(*interval) for interval in wanted.main)
        product = None
        if small or wanted.codec:
            product = F.linear(hidden.to(self.dtype), self._rows, self._bias).float().cpu().numpy()
        parts = []
        for first, end in wanted.main:
            if product is not None and self._is_small(first, end):
                parts.append(product[:, self._at(first) : self._at(first) + end - first])
            else:
                parts.append(F.linear(hidden, self.matrix[first:end]).float().cpu().numpy())
        codec = None
        if wanted.codec and product is not None:
            codec = product[:, self._codec :].reshape(len(hidden), self.layout.streams - 1, self.layout.layer_size)
        return Scores(parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1), codec)

    def _is_small(self, first: int, end: int) -> bool:
        return end <= self._specials or first >= self.layout.codec_first

    def main(self, hidden: Tensor) -> Tensor:
        """Returns the logits of stream 0 [..., vocabulary]."""
        return F.linear(hidden, self.matrix)

    def codec(self, hidden: Tensor) -> Tensor:
        """Returns the logits of streams 1 and above, each over its own interval [..., streams - 1, layer size]."""
        product = F.linear(hidden.to(self.dtype), self._rows[self._codec :], self._bias[self._codec :])
        return product.unflatten(-1, (self.layout.streams - 1, self.layout.layer_size))
