"""Logits of several answers against the formula W (h + e_s) for each stream, token by token."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from tests.support.speech_layouts import LAYOUT  # noqa: E402
from workbench.runtimes.vllm.streams.heads import StreamHeads  # noqa: E402
from workbench.speech.masks import needed_logits  # noqa: E402
from workbench.speech.phases import Kind, Phase  # noqa: E402


@pytest.mark.parametrize("phase", [Phase(Kind.MARKER), Phase(Kind.TEXT, closes=True), Phase(Kind.AUDIO, closes=True)])
def test_main_and_codec_logits_equal_the_formula(phase: Phase) -> None:
    draw = torch.Generator().manual_seed(3)
    matrix = torch.randn(LAYOUT.vocabulary + 4, 8, generator=draw)  # vLLM pads its tables
    embeddings, hidden = (torch.randn(5, 8, generator=draw) for _ in range(2))
    rows = [4, 0, 3]
    main, codec = StreamHeads(matrix, embeddings, LAYOUT).logits_of(hidden, hidden @ matrix.T)(
        rows, needed_logits(phase, LAYOUT)
    )
    ids = [number for first, end in needed_logits(phase, LAYOUT).main for number in range(first, end)]
    np.testing.assert_allclose(main, [[float(matrix[n] @ hidden[row]) for n in ids] for row in rows], atol=1e-5)
    assert (codec is None) == (phase.kind is not Kind.AUDIO)
    if codec is not None:
        expected = [
            [
                [float(matrix[n] @ (hidden[row] + embeddings[s])) for n in range(*LAYOUT.interval(s))]
                for s in range(1, LAYOUT.streams)
            ]
            for row in rows
        ]
        np.testing.assert_allclose(codec, expected, atol=1e-5)
