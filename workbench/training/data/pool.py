"""A training set of features on disk: made once by a few processes, read repeatedly by the training loop.

It stores log-mel frames before stacking in half precision (a quarter of the bytes of stacked single precision), so that
masks can still be applied. It does not know the network; CMVN is measured here and applied to batches.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workbench.audio.constants import ASR_LFR_M, ASR_LFR_N, NUM_MELS
from workbench.training.data.augment import MaskOptions, masked
from workbench.training.data.corpus import CorpusOptions, Example, draw_string, frames_of, stacked
from workbench.training.data.digits import Take
from workbench.training.data.take_bank import TakeBank

SHARD = 500  # examples in one file
CMVN_EXAMPLES = 4000

_VERSION = 3  # of the drawn data: increase it when corpus.py or augment.py change the result of a seed


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of examples of similar length."""

    features: NDArray[np.float32]  # [examples, frames, width] after CMVN, padded with zeros
    lengths: NDArray[np.int64]  # [examples], frames
    digits: tuple[tuple[int, ...], ...]


class FeaturePool:
    """The examples in a folder of `generate_pool`, by number."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        description = json.loads((directory / "pool.json").read_text())
        # Log-mel frames of each example.
        self.frames: NDArray[np.int64] = np.array(description["frames"], dtype=np.int64)
        self.digits: list[tuple[int, ...]] = [tuple(digits) for digits in description["digits"]]
        self.spans: list[list[Span]] = [
            [(first, end, tuple(digits)) for first, end, digits in spans] for spans in description["spans"]
        ]
        self._shards = [
            np.load(_shard_path(directory, number), mmap_mode="r", allow_pickle=False)
            for number in range(_shard_count(len(self.frames)))
        ]
        starts = [np.cumsum(self.frames[first : first + SHARD]) for first in range(0, len(self), SHARD)]
        self._ends = np.concatenate(starts)

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of LFR frames of each example."""
        return -(-self.frames // ASR_LFR_N)

    def log_mel(self, number: int) -> NDArray[np.float32]:
        """Returns [frames, 80] of one example."""
        end = int(self._ends[number])
        frames = self._shards[number // SHARD][end - int(self.frames[number]) : end]
        return np.asarray(frames, dtype=np.float32)

    def example(
        self, number: int, rng: np.random.Generator | None = None, masks: MaskOptions | None = None, stack: bool = True
    ) -> Example:
        """Returns one example; a generator masks its features. They are stacked to LFR frames unless `stack` is
        false.
        """
        features = self.log_mel(number)
        if rng is not None:
            features = masked(features, rng, masks)
        return Example(stacked(features) if stack else features, self.digits[number])

    def batch(
        self,
        numbers: Sequence[int] | NDArray[np.int64],
        shift: NDArray[np.float32],
        scale: NDArray[np.float32],
        rng: np.random.Generator | None = None,
        masks: MaskOptions | None = None,
    ) -> Batch:
        """Returns examples after `(x + shift) * scale`, padded with zeros to the longest; a generator masks them.

        Statistics with the width of one log-mel frame leave the frames unstacked.
        """
        stack = len(shift) != NUM_MELS
        examples = [self.example(int(number), rng, masks, stack) for number in numbers]
        lengths = np.array([len(example.features) for example in examples], dtype=np.int64)
        features = np.zeros((len(examples), int(lengths.max()), len(shift)), dtype=np.float32)
        for row, example in zip(features, examples, strict=True):
            row[: len(example.features)] = (example.features + shift) * scale
        return Batch(features, lengths, tuple(example.digits for example in examples))

    def batches(self, frames_per_batch: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        """Yields the example numbers of one epoch, each once, in batches of similar length and at most this many LFR
        frames.

        The order of the batches and their members depend on the generator's state.
        """
        lengths = self.lengths
        order = np.argsort(lengths * rng.uniform(0.92, 1.08, len(lengths)), kind="stable")
        batches: list[list[int]] = [[]]
        longest = 0
        for number in order.tolist():
            longest = max(longest, int(lengths[number]))
            if batches[-1] and longest * (len(batches[-1]) + 1) > frames_per_batch:
                batches.append([])
                longest = int(lengths[number])
            batches[-1].append(number)
        for place in rng.permutation(len(batches)):
            yield np.array(batches[place], dtype=np.int64)


class Strings(Protocol):
    """Examples by number: a pool, or several."""

    @property
    def frames(self) -> NDArray[np.int64]:
        """The log-mel frames of each example."""
        ...

    @property
    def digits(self) -> Sequence[tuple[int, ...]]:
        """The digits of each example."""
        ...

    @property
    def spans(self) -> Sequence[Sequence[Span]]:
        """The takes in each example."""
        ...

    def __len__(self) -> int: ...

    def example(
        self, number: int, rng: np.random.Generator | None = None, masks: MaskOptions | None = None, stack: bool = True
    ) -> Example:
        """Returns one example, as `FeaturePool.example` does."""
        ...


class JoinedPools:
    """The examples of several pools, the first pool's first."""

    def __init__(self, pools: Sequence[FeaturePool]) -> None:
        self._pools = pools
        self._ends = np.cumsum([len(pool) for pool in pools])
        self.frames: NDArray[np.int64] = np.concatenate([pool.frames for pool in pools])
        self.digits = [digits for pool in pools for digits in pool.digits]
        self.spans = [spans for pool in pools for spans in pool.spans]

    def __len__(self) -> int:
        return int(self._ends[-1])

    def example(
        self, number: int, rng: np.random.Generator | None = None, masks: MaskOptions | None = None, stack: bool = True
    ) -> Example:
        """Returns one example, as `FeaturePool.example` does."""
        place = int(np.searchsorted(self._ends, number, side="right"))
        pool = self._pools[place]
        return pool.example(number - (int(self._ends[place]) - len(pool)), rng, masks, stack)


# --- making a pool ---------------------------------------------------------------------------------------------------


def generate_pool(
    takes: Sequence[Take],
    cache: str | Path,
    count: int = 24_000,
    seed: int = 0,
    options: CorpusOptions | None = None,
    workers: int = 2,
    progress: Callable[[float], None] | None = None,
) -> FeaturePool:
    """Makes a pool of `count` examples of the takes in a folder below `cache`; only reads it if it exists already.

    The same takes, options and seed give the same pool with any number of workers; 0 computes in this process.
    `progress` is called with the finished share.
    """
    options = options or CorpusOptions()
    directory = Path(cache) / f"pool-{_digest(takes, options, count, seed)}"
    if not (directory / "pool.json").exists():
        directory.mkdir(parents=True, exist_ok=True)
        bank = TakeBank.of(takes, options.tempos)
        jobs = [
            (_shard_path(directory, shard), shard * SHARD, min(SHARD, count - shard * SHARD), seed, options)
            for shard in range(_shard_count(count))
        ]
        frames: list[int] = []
        digits: list[tuple[int, ...]] = []
        spans: list[list[Span]] = []
        for finished_shards, (shard_frames, shard_digits, shard_spans) in enumerate(_run(bank, jobs, workers), start=1):
            frames += shard_frames
            digits += shard_digits
            spans += shard_spans
            if progress is not None:
                progress(finished_shards / len(jobs))
        partial = directory / "pool.json.part"
        partial.write_text(json.dumps({"frames": frames, "digits": digits, "spans": spans}))
        partial.replace(directory / "pool.json")  # last of all: a pool with this file is complete
    return FeaturePool(directory)


_Job = tuple[Path, int, int, int, CorpusOptions]  # file, number of its first example, number of examples, seed, options
Span = tuple[int, int, tuple[int, ...]]  # of a take: first sample, end sample, its digits
_GeneratedPool = tuple[list[int], list[tuple[int, ...]], list[list[Span]]]

_bank: TakeBank | None = None  # of a worker process, set once


def _run(bank: TakeBank, jobs: list[_Job], workers: int) -> Iterator[_GeneratedPool]:
    if workers == 0:
        for job in jobs:
            yield _make_shard(bank, job)
        return
    # New processes without fork: a fork would break the thread pools of a training program.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(bank,)) as pool:
        yield from pool.map(_make_shard_in_worker, jobs)


def _start_worker(bank: TakeBank) -> None:
    global _bank
    os.nice(5)  # gives way to a training that runs at the same time
    _bank = bank


def _make_shard_in_worker(job: _Job) -> _GeneratedPool:
    assert _bank is not None  # the initializer ran
    return _make_shard(_bank, job)


def _make_shard(bank: TakeBank, job: _Job) -> _GeneratedPool:
    path, first, count, seed, options = job
    features, digits, spans = [], [], []
    for number in range(first, first + count):
        string = draw_string(bank, np.random.default_rng([seed, number]), options)
        features.append(frames_of(string.samples, options).astype(np.float16))
        digits.append(string.digits)
        spans.append(list(string.spans))
    np.save(path, np.concatenate(features), allow_pickle=False)
    return [len(part) for part in features], digits, spans


def _shard_path(directory: Path, shard: int) -> Path:
    return directory / f"features-{shard:04d}.npy"


def _shard_count(count: int) -> int:
    return -(-count // SHARD)


def _digest(takes: Sequence[Take], options: CorpusOptions, count: int, seed: int) -> str:
    digest = hashlib.sha256(json.dumps([_VERSION, SHARD, asdict(options), count, seed], sort_keys=True).encode())
    for take in takes:
        digest.update(json.dumps([take.speaker, take.digits, take.sample_rate, take.human]).encode())
        digest.update(take.samples.tobytes())
    return digest.hexdigest()[:16]


# --- normalisation --------------------------------------------------------------------------------------------------


def cmvn_sums(pool: FeaturePool) -> NDArray[np.float64]:
    """Returns Kaldi's statistics [2, mels + 1] over the first CMVN_EXAMPLES: sums and frames, sums of squares and 0."""
    sums = np.zeros((2, NUM_MELS + 1))
    for number in range(min(CMVN_EXAMPLES, len(pool))):
        features = pool.log_mel(number).astype(np.float64)
        sums[0, :-1] += features.sum(axis=0)
        sums[1, :-1] += np.square(features).sum(axis=0)
        sums[0, -1] += len(features)
    return sums


def normalisation(sums: NDArray[np.float64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns (shift [mels], scale [mels]) from the sums of `cmvn_sums`: minus the mean, one over the standard
    deviation.
    """
    mean = sums[0, :-1] / sums[0, -1]
    deviation = np.sqrt(np.maximum(sums[1, :-1] / sums[0, -1] - np.square(mean), 1e-4))
    return (-mean).astype(np.float32), (1.0 / deviation).astype(np.float32)


def cmvn_statistics(pool: FeaturePool) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns (shift [560], scale [560]): minus the mean and one over the standard deviation of each mel band.

    They are measured on the first examples of the pool and repeated for the stacked frames. Features are normalised as
    `(x + shift) * scale`.
    """
    shift, scale = normalisation(cmvn_sums(pool))
    return np.tile(shift, ASR_LFR_M), np.tile(scale, ASR_LFR_M)


def write_am_mvn(path: str | Path, shift: NDArray[np.float32], scale: NDArray[np.float32]) -> None:
    """Writes the statistics as a Kaldi network of a splice, an added vector and a scaling, in text: FunASR's am.mvn."""

    def layer(tag: str, vector: NDArray[np.float32]) -> list[str]:
        values = " ".join(f"{value:.9g}" for value in vector)  # nine digits restore every float32 exactly
        return [f"<{tag}> {len(vector)} {len(vector)}", f"<LearnRateCoef> 0 [ {values} ]"]

    lines = ["<Nnet>", f"<Splice> {len(shift)} {len(shift)}", "[ 0 ]"]
    lines += layer("AddShift", shift) + layer("Rescale", scale) + ["</Nnet>"]
    Path(path).write_text("\n".join(lines) + "\n")
