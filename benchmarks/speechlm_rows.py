"""The decoding loop of SpeechLM on PyTorch against a bare loop of the same network's forward passes: rows per second.

    python -m benchmarks.speechlm_rows [--model DIRECTORY | --size demo|small] [--rows N] [--runs N] [--dtype T]

A forward pass is the embedding of one row, the decoder with its keys and values, and the logits of all streams as
arrays. Generation is at temperature 0.8 with top-k 20, with and without guidance. Two comparisons are printed, medians
of the runs: the share of its own time that generation spends in forward passes, and its rows per second beside those of
a loop that feeds the same row again and chooses nothing. The two loops alternate in one process; on a shared machine
their ratio varies by tenths, while the share does not. Exit status 1 if the share is below the goal of 0.9.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from workbench.core.settings import Settings
from workbench.families.language.directory import LanguageConfig
from workbench.runtimes.pytorch.language_models.language import TORCH_DTYPES, LanguageModel
from workbench.runtimes.pytorch.language_models.speechlm_network import SpeechLmNetwork
from workbench.runtimes.pytorch.speechlm import open_speechlm
from workbench.speech.generate import AnswerPlan, answer_steps
from workbench.speech.layout import SpeechLayout
from workbench.speech.network import NeededLogits, Scores
from workbench.speech.phases import Kind

GOAL = 0.9
SIZES = {"demo": (256, 6, 4, 2), "small": (1024, 12, 16, 8)}  # hidden, layers, heads, key heads
PROMPT = 60  # positions


def random_network(size: str, dtype: str) -> SpeechLmNetwork:
    """A network of random weights with eight streams of 1024 codes."""
    import transformers

    hidden, layers, heads, key_heads = SIZES[size]
    roles = ("pad", "bos", "eos", "eot", "system", "user", "assistant", "text", "audio")
    layout = SpeechLayout(
        vocabulary=256 + 4096 + 8 * 1025,
        text_first=256,
        text_end=256 + 4096,
        codec_first=256 + 4096,
        streams=8,
        layer_size=1025,
        **{role: number for number, role in enumerate(roles)},
    )
    settings: Any = transformers.Qwen3Config(
        vocab_size=layout.vocabulary,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        head_dim=hidden // heads,
        max_position_embeddings=4096,
    )
    torch.manual_seed(0)
    decoder = transformers.Qwen3ForCausalLM(settings).to(TORCH_DTYPES[dtype]).eval().requires_grad_(False)
    config = LanguageConfig(Path("random"), "qwen3", hidden, layers, layout.vocabulary, 4096, (2, 3), 0)
    streams = 0.02 * torch.randn(layout.streams, hidden)
    return SpeechLmNetwork(LanguageModel(decoder, config, torch.device("cpu")), layout, streams, None)


class Timed:
    """A network that measures the forward passes of its sequences."""

    def __init__(self, network: SpeechLmNetwork):
        self.network, self.layout, self.context = network, network.layout, network.context
        self.seconds: list[float] = []  # of each pass

    def open(self, parts: Sequence[Any]) -> Any:
        """Returns a sequence of the network."""
        state = self.network.open(parts)
        feed = state.feed

        def timed(rows: np.ndarray, needed: NeededLogits) -> Scores:
            started = time.perf_counter()
            scores = feed(rows, needed)
            self.seconds.append(time.perf_counter() - started)
            return scores

        state.feed = timed  # type: ignore[method-assign]
        return state


def generation_rate(network: SpeechLmNetwork, rows: int, cfg: float) -> tuple[float, float]:
    """Returns an audio answer's rows per second, from the second row on, and the share of time in forward passes."""
    plan = AnswerPlan("audio", min_audio_rows=rows, max_audio_rows=rows, cfg=cfg, audio_temperature=0.8, audio_top_k=20)
    started, watched = 0.0, Timed(network)
    for step in answer_steps(watched, [prompt(network)], plan):  # type: ignore[arg-type]
        if step.phase is Kind.AUDIO and not started:
            started = time.perf_counter()
            watched.seconds.clear()
    passed = time.perf_counter() - started
    return (rows - 1) / passed, sum(watched.seconds) / passed


def bare_rate_of(network: SpeechLmNetwork, rows: int, cfg: float) -> float:
    """Returns the rows per second of forward passes alone."""
    layout = network.layout
    needed = NeededLogits(((layout.eos, layout.eot + 1), layout.interval(0)), codec=True)
    state, row = network.open([prompt(network)]), (layout.pads + 1)[None]
    state.feed(row, needed)
    if cfg != 1:
        state.split()
        state.feed(row, needed)
    started = time.perf_counter()
    for _ in range(rows - 1):
        state.feed(row, needed)
    return (rows - 1) / (time.perf_counter() - started)


def prompt(network: SpeechLmNetwork) -> np.ndarray:
    """Returns positions of text, with the marker of the answer at the end."""
    layout = network.layout
    ids = layout.text_first + np.arange(PROMPT) % (layout.text_end - layout.text_first)
    return np.array([layout.row(int(number)) for number in (*ids, layout.assistant)])


def main() -> int:
    """Runs both sides in turns and prints their rates."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, help="a checkpoint directory; by default random weights")
    parser.add_argument("--size", choices=SIZES, default="demo", help="of the random weights")
    parser.add_argument("--dtype", choices=TORCH_DTYPES, default="float32")
    parser.add_argument("--rows", type=int, default=150)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.model:
        _, network, _ = open_speechlm(options.model, Settings(dtype=options.dtype, threads=options.threads))
    else:
        network = random_network(options.size, options.dtype)
    worst = 1.0
    for cfg in (1.0, 3.0):
        measured = [
            (*generation_rate(network, options.rows, cfg), bare_rate_of(network, options.rows, cfg))
            for _ in range(options.runs + 1)
        ][1:]  # the first warms up
        generated_rate, share, bare_rate = (statistics.median(side) for side in zip(*measured, strict=True))
        worst = min(worst, share)
        print(f"cfg {cfg:g}: {share:.3f} of the time in forward passes (goal {GOAL}); ", end="")
        print(f"{generated_rate:.1f} rows/s generated, {bare_rate:.1f} rows/s of bare passes")
    return int(worst < GOAL)


if __name__ == "__main__":
    sys.exit(main())
