"""Trains the small network that distinguishes digits, other speech and sound without speech, and writes its file.

    python -m workbench.training.domain --data FSDD --other-speech FOLDER --cache FOLDER --out FILE.safetensors

Recordings of the domain are strings of digits as the demo models hear them in training; other speech is synthetic,
played backwards, a crowd, or from the folder; the rest is music, tones, noise and silence. The last speaker of FSDD in
alphabetical order is never used. The dataset has men only. So voices are made much higher and lower, and a woman's
voice does not count as other speech. The limits are the log-odds that nearly all strings of the same speakers reach,
minus a margin. `python -m benchmarks.domain` measures unseen speakers.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from workbench.audio.constants import SAMPLE_RATE
from workbench.audio.domain import BANDS, KINDS, WINDOW_SECONDS, Domain, features_of, read_domain
from workbench.training.data.augment import AugmentOptions
from workbench.training.data.corpus import CorpusOptions, draw_string
from workbench.training.data.digits import Take, load_fsdd, split_by_speaker
from workbench.training.data.other_speech import backwards, recorded_speech, synthetic_speech
from workbench.training.data.take_bank import TakeBank
from workbench.training.data.voices import synthetic_takes
from workbench.training.evaluation import CONDITIONS, evaluation_strings, under

NAME = "English digits"
WIDTHS = (BANDS, 40, 40, 56, 56)  # channels of the convolutions
KERNELS = (5, 5, 5, 7)
STRIDES = (3, 2, 1, 1)
ALL_STRIDES = (*STRIDES, 1)  # with the layer that gives the values
BATCH = 64
RATE = 2e-3  # highest learning rate
ALARMS = 0.005  # share of strings of known speakers below the limits
MARGIN = 0.5  # of log-odds, for speakers who are not in the training
UNKNOWN, SURE = -2.0, -4.0  # limits for models without confidences, and for confident models
CONFIDENCE = 0.85  # mean probability of tokens; digits have more, even of unseen women, and other speech has less
LONG_SECONDS = 2.0  # longer recordings have three digits or more
CALIBRATION = 60  # strings for each condition
SPEECH_SHARE, MUSIC_SHARE, SILENT_SHARE = 0.36, 0.13, 0.07
SEED = 77

Example = tuple[NDArray[np.float16], int]


class Network(nn.Module):
    """Convolutions over time, and a weighted mean of their values: [batch, bands, frames] to [batch, kinds]."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [*zip(WIDTHS, WIDTHS[1:], KERNELS, STRIDES, strict=False), (WIDTHS[-1], len(KINDS) + 1, 1, 1)]
        self.layers = nn.ModuleList(
            nn.Conv1d(before, after, width, stride, padding=width // 2) for before, after, width, stride in sizes
        )
        self.dropout = nn.Dropout(0.1)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Returns the values of KINDS; `lengths` are in frames, and later frames are ignored."""
        hidden = features
        for number, (layer, stride) in enumerate(zip(self.layers, ALL_STRIDES, strict=True)):
            inside = torch.arange(hidden.shape[2]) < lengths[:, None]
            hidden = layer(hidden * inside[:, None])
            lengths = -(-lengths // stride)
            if number + 1 < len(self.layers):
                hidden = self.dropout(torch.relu(hidden))
        outside = torch.arange(hidden.shape[2]) >= lengths[:, None]
        weights = torch.softmax(hidden[:, -1].masked_fill(outside, -1e9), dim=1)
        return torch.einsum("bt,bkt->bk", weights, hidden[:, :-1])


def example(bank: TakeBank, options: CorpusOptions, seed: tuple[int, ...]) -> Example:
    """Returns the features of a drawn recording, cut to one window, and its index in KINDS."""
    rng = np.random.default_rng(seed)
    kind = rng.random()
    shares = np.cumsum([SPEECH_SHARE, MUSIC_SHARE, SILENT_SHARE])
    place = 1 if kind < shares[0] else 2 if kind < shares[2] else 0
    if place == 1:
        options = replace(options, speech_share=1.0, music_share=0.0, silent_share=0.0)
    elif place == 2:
        music = 1.0 if kind < shares[1] else 0.0
        options = replace(options, music_share=music, silent_share=1.0 - music, speech_share=0.0)
    else:
        options = replace(options, music_share=0.0, silent_share=0.0, speech_share=0.0)
    samples = draw_string(bank, rng, options).samples
    length = int(rng.uniform(0.35, 1.0) * WINDOW_SECONDS * SAMPLE_RATE)
    first = int(rng.integers(0, max(len(samples) - length, 0) + 1))
    return features_of(samples[first : first + length]).astype(np.float16), place


_bank: TakeBank | None = None


def _take(bank: TakeBank) -> None:
    global _bank
    _bank = bank


def _example(options: CorpusOptions, seed: tuple[int, ...]) -> Example:
    assert _bank is not None
    return example(_bank, options, seed)


def log(line: str) -> None:
    """Writes a line of progress."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def batch_of(examples: Sequence[Example]) -> tuple[Tensor, Tensor, Tensor]:
    """Returns features [batch, bands, frames] padded with zeros, their lengths, and their indices in KINDS."""
    lengths = torch.tensor([len(features) for features, _ in examples])
    padded = torch.zeros(len(examples), BANDS, int(lengths.max()))
    for row, (features, _) in enumerate(examples):
        padded[row, :, : len(features)] = torch.from_numpy(features.astype(np.float32).T)
    return padded, lengths, torch.tensor([place for _, place in examples])


def train(examples: Sequence[Example], epochs: int) -> Network:
    """Returns the trained network."""
    torch.manual_seed(SEED)
    network = Network()
    rng = np.random.default_rng(SEED)
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=1e-2)
    steps = epochs * (len(examples) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps + epochs)
    order = sorted(range(len(examples)), key=lambda number: len(examples[number][0]))
    batches = [order[first : first + BATCH] for first in range(0, len(order), BATCH)]
    for epoch in range(epochs):
        total = 0.0
        for place in rng.permutation(len(batches)):
            features, lengths, places = batch_of([examples[number] for number in batches[place]])
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(network(features, lengths), places, label_smoothing=0.02)
            loss.backward()
            optimiser.step()
            if schedule.last_epoch < steps + epochs - 1:
                schedule.step()
            total += float(loss.detach())
        log(f"epoch {epoch + 1}: loss {total / len(batches):.4f}")
    return network.eval()


def write(network: Network, limits: Sequence[tuple[float, float]], path: Path) -> Domain:
    """Writes the file of the domain, in half precision, and returns what it says."""
    from safetensors.numpy import save_file

    tensors = {
        f"{number}.{name}": value.detach().numpy().astype(np.float16)
        for number, layer in enumerate(network.layers)
        for name, value in layer.named_parameters()
    }
    described = json.dumps(
        {
            "name": NAME,
            "limits": [(minimum, round(limit, 2)) for minimum, limit in limits],
            "unknown": UNKNOWN,
            "sure": SURE,
            "confidence": CONFIDENCE,
            "strides": ALL_STRIDES,
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, {"domain": described})
    read_domain.cache_clear()
    return read_domain(path)


def main() -> None:
    """Trains the network and writes its file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the Free Spoken Digit Dataset, a folder per speaker")
    parser.add_argument("--other-speech", type=Path, help="recordings of people who say no English digits")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument("--cache", type=Path, required=True, help="folder for the synthetic voices")
    parser.add_argument("--examples", type=int, default=5700)
    parser.add_argument("--epochs", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # in such a small network, more threads would only wait for each other
    human, _ = split_by_speaker(load_fsdd(arguments.data))
    arguments.cache.mkdir(parents=True, exist_ok=True)
    takes = [*human, *synthetic_takes(arguments.cache), *synthetic_speech(arguments.cache, each=8), *backwards(human)]
    if arguments.other_speech:
        takes += 4 * recorded_speech(arguments.other_speech)
    options = CorpusOptions(augment=AugmentOptions(), gated_share=0.2, warp=0.45)
    bank = TakeBank.of(takes, (1.0, 1.25))
    with ProcessPoolExecutor(2, initializer=_take, initargs=(bank,)) as pool:
        draw = partial(_example, options)
        examples = list(pool.map(draw, [(SEED, number) for number in range(arguments.examples)], chunksize=50))
    network = train(examples, arguments.epochs)
    limits = calibrated(write(network, [(0.0, 0.0)], arguments.out), human)
    write(network, limits, arguments.out)
    log(f"limits: {limits}")


def calibrated(domain: Domain, takes: Sequence[Take]) -> list[tuple[float, float]]:
    """Returns the limits of short and of longer recordings: what nearly all strings of these takes reach.

    The strings have one or two digits, or three to seven, under every condition of the model cards.
    """
    limits = []
    for minimum, lengths in ((0.0, (1, 2)), (LONG_SECONDS, (3, 7))):
        strings = evaluation_strings(takes, seed=SEED, count=CALIBRATION, lengths=lengths)
        recordings = [each.samples for condition in CONDITIONS for each in under(condition, strings)]
        odds = [found[0] for each in recordings if (found := domain.log_odds(each))]
        limits.append((minimum, float(np.quantile(odds, ALARMS)) - MARGIN))
    return limits


if __name__ == "__main__":
    main()
