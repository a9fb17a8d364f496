"""The output layer of a SpeechLM on ggml: logits of all streams from one hidden state.

All streams are one product and a bias (see `workbench.speech.head_rows`). The file has the output matrix in two parts:
the rows of special and codec tokens, and those of text tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workbench.formats.gguf_file import GgufFile
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner
from workbench.runtimes.gguf.graphs.weights import Tensor
from workbench.runtimes.gguf.networks.output_layer import BLOCK, FAST_ROWS
from workbench.speech.head_rows import HeadRows
from workbench.speech.layout import SpeechLayout
from workbench.speech.network import NeededLogits, Scores

TEXT_HEAD, CODEC_HEAD, STREAMS = "heads.text.weight", "heads.codec.weight", "stream_emb.weight"
CHUNK = 1024  # rows of the codec's head that are unpacked at once


class Heads:
    """The output layer.

    Args:
        width: of the hidden states.

    Raises `BadInput` if the file's tensors do not match the layout.
    """

    def __init__(self, file: GgufFile, layout: SpeechLayout, width: int, threads: int | None = None):
        self._width, self.rows = width, HeadRows(layout)
        self._text = layout.codec_first - layout.text_first
        file.expect(CODEC_HEAD, (self.rows.count, width))
        file.expect(TEXT_HEAD, (self._text, width))
        file.expect(STREAMS, (layout.streams, width))
        self._bias = self._biases(file)
        self._engine = GraphRunner(file, threads)

    def _biases(self, file: GgufFile) -> np.ndarray:
        """Returns W e_s for the rows of streams 1 and above, and 0 for the others: float32 [rows of the codec head]."""
        streams = file.array(STREAMS).astype(np.float64)
        biases = np.zeros(self.rows.count, dtype=np.float32)
        for stream, rows in self.rows.biased():
            for row in range(rows.start, rows.stop, CHUNK):
                numbers = np.arange(row, min(row + CHUNK, rows.stop))
                biases[numbers] = file.rows(CODEC_HEAD, numbers) @ streams[stream]
        return biases

    def scores(self, hidden: np.ndarray, needed_logits: NeededLogits) -> Scores:
        """Returns the needed logits for hidden states [branches, hidden] after the final norm."""
        parts, special_logits, head_rows = [], None, self.rows
        # A closing id may be the last one before the text ids, which have a matrix of their own.
        for first, end in (part for interval in needed_logits.main for part in head_rows.parts(*interval)):
            if not head_rows.has(first, end):
                text_logits = self._product(hidden, TEXT_HEAD, self._text)
                parts.append(text_logits[:, first - head_rows.specials : end - head_rows.specials])
                continue
            if special_logits is None:
                # Beside text, only closing ids are needed: the product with the special tokens is enough.
                rows = head_rows.count if needed_logits.codec or end > head_rows.specials else head_rows.specials
                special_logits = self._product(hidden, CODEC_HEAD, head_rows.count, rows) + self._bias[:rows]
            parts.append(special_logits[:, head_rows.span(first, end)])
        codec = None
        if needed_logits.codec and special_logits is not None:
            codec = head_rows.by_stream(special_logits[:, head_rows.later])
        main = np.concatenate(parts, axis=1) if parts else np.empty((len(hidden), 0), dtype=np.float32)
        return Scores(main, codec)

    def main(self, hidden: np.ndarray) -> Iterator[np.ndarray]:
        """Yields the logits of stream 0 [block, vocabulary] for blocks of hidden states [positions, hidden]."""
        for block in _blocks(hidden):
            small = self._product(block, CODEC_HEAD, self.rows.count)
            text = self._product(block, TEXT_HEAD, self._text)
            yield np.concatenate([small[:, : self.rows.specials], text, small[:, self.rows.specials :]], axis=1)

    def codec(self, hidden: np.ndarray) -> Iterator[np.ndarray]:
        """Yields the logits of streams 1 and above, each over its own interval [block, streams - 1, layer size]."""
        for block in _blocks(hidden):
            small = self._product(block, CODEC_HEAD, self.rows.count) + self._bias
            yield self.rows.by_stream(small[:, self.rows.later])

    def _product(self, hidden: np.ndarray, name: str, rows: int, count: int | None = None) -> np.ndarray:
        """Returns hidden [n, hidden] times the transpose of a head of the file, or of its first `count` rows."""
        count = rows if count is None else count
        fast_rows = count // FAST_ROWS * FAST_ROWS
        spans = [slice(first, end) for first, end in ((0, fast_rows), (fast_rows, count)) if end > first]

        def build(g: Graph) -> dict[str, Tensor]:
            x = g.input(hidden)
            return {str(span): g.matmul(g.scope.matrix(name, (rows, self._width), span), x) for span in spans}

        parts = list(self._engine.run(build).values())
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def close(self) -> None:
        """Frees the memory."""
        self._engine.close()


def _blocks(hidden: np.ndarray) -> Iterator[np.ndarray]:
    for first in range(0, len(hidden), BLOCK):
        yield hidden[first : first + BLOCK]
