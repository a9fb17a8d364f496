"""FSMN-VAD: everything that is the same on every runtime.

A stack of feed-forward sequential memory networks scores every 10 ms (Zhang et al., "Deep-FSMN for Large Vocabulary
Continuous Speech Recognition", 2018). A state machine turns the scores into spans of speech. This file reads the
configuration of a checkpoint and makes the decisions; it opens no weights and computes no scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from workbench.audio.constants import FRAME_LENGTH, FRAME_SHIFT, SAMPLE_RATE, VAD_LFR_M, VAD_LFR_N
from workbench.audio.frontend import FrontendConfig
from workbench.audio.spans import Span
from workbench.core.errors import BadInput
from workbench.core.options import MAX_SEGMENT_SECONDS, MAX_SILENCE_MS, option
from workbench.families.funasr import YAML, configuration_file, is_funasr_directory, read_checkpoint
from workbench.families.sanm.encoder import config_number, expect

MODELS = ("FsmnVADStreaming", "FsmnVAD")
MVN = "am.mvn"

# Offline, the original checks its state once per minute of audio. The silence that ends a segment then depends on the
# segment's age: (up to this many ms, this many ms of silence). This schedule replaces the checkpoint's
# `max_end_silence_time` unless the caller gives a time.
CHUNK_MS = 60_000
SCHEDULE = ((10_000, 2000), (20_000, 1000), (30_000, 800), (40_000, 600), (50_000, 400), (60_000, 200))
SCHEDULE_BEYOND = 100  # ms of silence, for segments older than all of these
SCHEDULED_MARGIN = 0.5  # how far speech must exceed silence while the schedule is used


@dataclass(frozen=True)
class FsmnVadOptions:
    """The user's options for FSMN-VAD."""

    end_silence_ms: int = option(
        0,
        "silence that ends a segment, in ms (800 suits talk); 0: 2000 at first, less in long segments",
        minimum=0,
        maximum=MAX_SILENCE_MS,
    )
    max_segment_seconds: float = option(
        0.0,
        "no segment is longer than this; 0: as the checkpoint says (60 s)",
        smallest=1.0,
        maximum=MAX_SEGMENT_SECONDS,
    )


@dataclass(frozen=True)
class FsmnConfig:
    """The dimensions of the network, `encoder_conf` in the file."""

    input_dim: int  # features per frame
    input_affine_dim: int
    linear_dim: int  # width between the memory blocks
    proj_dim: int  # width of the memory
    lorder: int  # frames of memory, the present one included
    lstride: int  # frames from one remembered frame to the next
    fsmn_layers: int
    output_affine_dim: int
    output_dim: int  # classes; silence is among them

    @classmethod
    def from_yaml(cls, section: Mapping[str, Any]) -> FsmnConfig:
        """Reads the dimensions from `encoder_conf`; raises `BadInput` for missing or impossible ones."""
        expect(section, "rorder", 0, "encoder_conf")  # a memory of future frames would need another network
        expect(section, "use_softmax", True, "encoder_conf")  # the rules compare probabilities
        defaults = {"lstride": 1}
        names = [field.name for field in fields(cls)]
        return cls(**{name: config_number(section, name, "encoder_conf", defaults.get(name)) for name in names})


@dataclass(frozen=True)
class DetectorConfig:
    """The rules that turn scores into spans, `model_conf` in the file; names and defaults are the original's."""

    window_size_ms: int = 200  # decisions use the share of speech in this window
    sil_to_speech_time_thres: int = 150  # ms of speech in the window that begin speech
    speech_to_sil_time_thres: int = 150  # ms of speech in the window below which speech ends
    lookback_time_start_point: int = 200  # ms added before a segment
    lookahead_time_end_point: int = 100  # ms of silence that stay at its end
    do_extend: bool = True  # whether those two apply

    max_single_segment_time: int = 60_000  # ms
    max_start_silence_time: int = 3_000  # ms; a single utterance must begin before this time
    single_utterance: bool = False  # stop after the first segment

    sil_pdf_ids: tuple[int, ...] = (0,)  # the classes that are silence
    speech_noise_thres: float = 0.6  # how far speech must exceed silence
    speech_2_noise_ratio: float = 1.0  # exponent of the silence probability
    decibel_thres: float = -100.0  # a frame below this level is silence whatever its score
    snr_thres: float = -100.0  # so is a frame that exceeds the mean level of the silence before by less than this
    noise_frame_num_used_for_snr: int = 100  # frames in that mean

    frame_in_ms: int = 10
    frame_length_ms: int = 25

    @classmethod
    def from_yaml(cls, section: Mapping[str, Any]) -> DetectorConfig:
        """Reads the configuration from `model_conf`; ignores keys that have no effect offline."""
        values: dict[str, Any] = {"single_utterance": section.get("detect_mode", 1) == 0}
        for key, default in ((f.name, f.default) for f in fields(cls)):
            if key not in section:
                continue
            value = section[key]
            if isinstance(default, bool):
                values[key] = bool(value)
            elif isinstance(default, int):
                values[key] = config_number(section, key, "model_conf", minimum=0)
            elif isinstance(default, tuple):
                if not isinstance(value, list) or not value or not all(type(i) is int and i >= 0 for i in value):
                    raise BadInput(f"model_conf.{key} in config.yaml is {value!r}; expected a list of class numbers")
                values[key] = tuple(value)
            elif isinstance(value, bool) or not isinstance(value, (int, float)) or not np.isfinite(value):
                raise BadInput(f"model_conf.{key} in config.yaml is {value!r}; expected a number")
            else:
                values[key] = float(value)
        expect(section, "frame_in_ms", cls.frame_in_ms, "model_conf")
        expect(section, "frame_length_ms", cls.frame_length_ms, "model_conf")
        config = cls(**values)
        if config.window_size_ms < config.frame_in_ms:
            raise BadInput(f"model_conf.window_size_ms in config.yaml is {config.window_size_ms}; expected 10 or more")
        return config


@dataclass(frozen=True)
class FsmnVadModel:
    """A checkpoint without its weights."""

    name: str  # the directory's name in messages
    weights: Path  # model.pt, or an ONNX file
    frontend: FrontendConfig
    cmvn_file: Path
    detector: DetectorConfig
    network: FsmnConfig | None  # None: there are only weights, and their shapes decide


def is_fsmn_vad(directory: Path) -> bool:
    """Returns whether this is an FSMN-VAD checkpoint: a FunASR directory, or an ONNX file and an am.mvn without a
    yaml.
    """
    if is_funasr_directory(directory, MODELS):
        return True
    return not (directory / YAML).exists() and (directory / MVN).is_file() and any(directory.glob("*.onnx"))


def read_fsmn_vad(directory: str | Path, weights: Path | None = None) -> FsmnVadModel:
    """Reads the configuration; raises `BadInput` if files are missing or invalid.

    Args:
        weights: the weights' file, if it is outside the directory.
    """
    directory = Path(directory)
    if not configuration_file(directory).exists() and any(directory.glob("*.onnx")):
        return _read_pair(directory)
    checkpoint = read_checkpoint(directory, weights)
    if checkpoint.model not in MODELS:
        raise BadInput(f"{checkpoint.described_in} is for model {checkpoint.model!r}; expected {MODELS[0]}")
    section = checkpoint.section("frontend_conf")
    for key, value in (("lfr_n", VAD_LFR_N), ("frame_shift", 10), ("frame_length", 25), ("snip_edges", True)):
        expect(section, key, value, "frontend_conf")  # the decisions count frames of 10 ms
    frontend = checkpoint.frontend()
    cmvn_file = checkpoint.file("frontend_conf", "cmvn_file")
    if cmvn_file is None:
        raise BadInput(f"checkpoint directory {directory.name} has no {MVN}; FSMN-VAD needs its CMVN")
    network = FsmnConfig.from_yaml(checkpoint.section("encoder_conf"))
    if network.input_dim != frontend.width:
        stacked = f"frontend_conf stacks {frontend.lfr_m} frames of {frontend.n_mels} mel bands"
        raise BadInput(f"{checkpoint.described_in}: {stacked}, and encoder_conf.input_dim is {network.input_dim}")
    detector = DetectorConfig.from_yaml(checkpoint.section("model_conf"))
    return FsmnVadModel(directory.name, checkpoint.weights, frontend, cmvn_file, detector, network)


def _read_pair(directory: Path) -> FsmnVadModel:
    """Reads an ONNX file and its am.mvn, with the configuration that the published pair was made with."""
    onnx_files = sorted(directory.glob("*.onnx"))
    if len(onnx_files) > 1:
        names = ", ".join(path.name for path in onnx_files)
        raise BadInput(f"checkpoint directory {directory.name} has several ONNX files ({names}); expected one")
    if not (directory / MVN).is_file():
        raise BadInput(
            f"checkpoint directory {directory.name} has {onnx_files[0].name} and no {MVN}; FSMN-VAD needs both"
        )
    frontend = FrontendConfig(lfr_m=VAD_LFR_M, lfr_n=VAD_LFR_N)
    return FsmnVadModel(directory.name, onnx_files[0], frontend, directory / MVN, DetectorConfig(), None)


def find_spans(
    silence: np.ndarray,
    decibels: np.ndarray,
    samples: int,
    config: DetectorConfig = DetectorConfig(),
    options: FsmnVadOptions = FsmnVadOptions(),
    lfr_m: int = VAD_LFR_M,
) -> list[Span]:
    """Returns spans of speech, in order and disjoint, from scores of 10 ms frames.

    Args:
        silence: probability of silence [frames].
        decibels: level [frames], see `frame_decibels`.
        samples: length of the recording, which decides where the minutes of the schedule end.
        config: the checkpoint's rules.
        options: the user's options.
        lfr_m: stacked frames, whose right context the original waits for at the end of a minute.
    """
    scheduled = options.end_silence_ms == 0
    longest = round(options.max_segment_seconds * 1000) or config.max_single_segment_time
    end_silence = max(0, options.end_silence_ms - config.speech_to_sil_time_thres)
    margin = SCHEDULED_MARGIN if scheduled else config.speech_noise_thres
    speech = _speech_frames(silence, decibels, config, margin).tolist()
    state_machine = _SegmentStateMachine(config, end_silence, longest)
    age, growing = 0, False
    edges = _minute_starts(samples, lfr_m, len(speech)) if scheduled else [0, len(speech)]
    for first, last in pairwise(edges):
        if scheduled:
            growing = growing or state_machine.is_in_segment
            age += CHUNK_MS if growing else 0
            required_silence = next((silence_ms for limit, silence_ms in SCHEDULE if age <= limit), SCHEDULE_BEYOND)
            state_machine.end_silence = max(required_silence - config.speech_to_sil_time_thres, 0)
        ended_before = state_machine.ended_count
        for frame in range(first, last):
            state_machine.step(speech[frame], frame, frame == len(speech) - 1)
        if state_machine.ended_count > ended_before:
            age, growing = 0, False
    frame_ms = config.frame_in_ms
    return [Span(start * frame_ms / 1000, end * frame_ms / 1000) for start, end in state_machine.segments]


def frame_decibels(samples: np.ndarray) -> np.ndarray:
    """Returns the energy in each 25 ms window of samples [n] with full scale 1, in dB: float64 [1 + (n - 400) //
    160].
    """
    if len(samples) < FRAME_LENGTH:
        return np.empty(0)
    windows = np.lib.stride_tricks.sliding_window_view(samples, FRAME_LENGTH)[::FRAME_SHIFT]
    energy = np.einsum("ts,ts->t", windows, windows, dtype=np.float64)
    levels: np.ndarray = 10 * np.log10(energy + 1e-6)
    return levels


def _speech_frames(silence: np.ndarray, decibels: np.ndarray, config: DetectorConfig, margin: float) -> np.ndarray:
    """Returns which frames are speech: likelier than silence by the margin, loud enough, and above the previous
    noise.
    """
    silence = silence.astype(np.float64)
    probable = 1.0 - silence >= silence**config.speech_2_noise_ratio + margin
    loud = decibels >= config.decibel_thres
    speech = probable & loud
    noise, span = None, config.noise_frame_num_used_for_snr
    for frame in range(len(silence)):
        level = float(decibels[frame])
        if speech[frame]:
            speech[frame] = level - (-100.0 if noise is None else noise) >= config.snr_thres
        elif loud[frame]:
            noise = level if noise is None else (level + noise * (span - 1)) / span
    return speech


def _minute_starts(samples: int, lfr_m: int, frames: int) -> list[int]:
    """Returns the frames where the original begins a new minute, as it gets a minute of audio at a time; from 0 to the
    last frame.
    """
    chunk = CHUNK_MS * SAMPLE_RATE // 1000
    held_back = lfr_m - 1 - (lfr_m - 1) // 2  # frames whose right context is in the next minute
    ends = [1 + (fed - FRAME_LENGTH) // FRAME_SHIFT - held_back for fed in range(chunk, samples + 1, chunk)]
    return [0, *(end for end in ends if end < frames), frames]


class _SegmentStateMachine:
    """A state machine over frames, from silence to speech and back; collects segments as [first frame, end frame]."""

    def __init__(self, config: DetectorConfig, end_silence: int, longest: int) -> None:
        frame = config.frame_in_ms
        self.config = config
        self.end_silence = end_silence  # ms of silence that end a segment
        self.longest = longest / frame
        self.begin_count = config.sil_to_speech_time_thres // frame  # frames of speech in the window that begin it
        self.end_count = config.speech_to_sil_time_thres // frame  # with no more of them, it ends
        self.lookahead = config.lookahead_time_end_point // frame
        self.latency = config.window_size_ms // frame
        if config.do_extend:
            self.latency += config.lookback_time_start_point // frame
        self.segments: list[list[int]] = []
        self.ended_count = 0
        self.first_free = 0  # the first frame after all segments that may still become part of one
        self._reset()

    def _reset(self) -> None:
        self.window = [False] * (self.config.window_size_ms // self.config.frame_in_ms)
        self.speech_count = 0  # frames of speech in the window
        self.is_voiced = False  # the decision for the window
        self.is_in_segment = False  # whether a segment is open
        self.last_frame = 0  # the last frame of the open segment
        self.silent_count = 0  # consecutive frames of silence

    def step(self, is_speech: bool, frame: int, is_last: bool) -> None:
        """Makes the decision for the next frame, which has this number."""
        if self.ended_count and self.config.single_utterance:
            return
        slot = frame % len(self.window)
        self.speech_count += is_speech - self.window[slot]
        self.window[slot] = is_speech
        was_voiced = self.is_voiced
        self.is_voiced = self.speech_count > self.end_count if was_voiced else self.speech_count >= self.begin_count
        if was_voiced or self.is_voiced:
            self.silent_count = 0
            if self.is_in_segment:
                self._continue_segment(frame, is_last, adds_pause=not was_voiced)
            elif not was_voiced:
                self._start_segment(frame)
        else:
            self.silent_count += 1
            if self.is_in_segment:
                self._pause_segment(frame, is_last)
            else:
                self._stay_silent(frame)

    def _start_segment(self, frame: int) -> None:
        start = max(self.first_free, frame - self.latency)
        self.segments.append([start, start])
        self.is_in_segment = True
        self._add_frame(start)
        self._add_frames(start + 1, frame + 1)

    def _continue_segment(self, frame: int, is_last: bool, adds_pause: bool) -> None:
        """Continues with speech, or with the frame where the window's decision changes.

        `adds_pause` adds the pause before it to the segment.
        """
        if adds_pause:
            self._add_frames(self.last_frame + 1, frame)
        if is_last or self._too_long(frame):
            self._end_segment(frame)
        else:
            self._add_frames(frame, frame + 1)

    def _pause_segment(self, frame: int, is_last: bool) -> None:
        if self.silent_count * self.config.frame_in_ms >= self.end_silence:
            pause_frames = self.end_silence // self.config.frame_in_ms
            if self.config.do_extend:
                pause_frames = max(0, pause_frames - self.lookahead - 1)
            self._end_segment(frame - pause_frames)
        elif is_last or self._too_long(frame):
            self._end_segment(frame)
        elif self.config.do_extend and self.silent_count <= self.lookahead:
            self._add_frames(frame, frame + 1)

    def _stay_silent(self, frame: int) -> None:
        """Stays in silence: frames that are too old for a segment to begin there become free."""
        self.first_free = max(self.first_free, frame - self.latency)
        waited = self.silent_count * self.config.frame_in_ms
        if self.config.single_utterance and waited > self.config.max_start_silence_time:
            self.ended_count += 1

    def _too_long(self, frame: int) -> bool:
        return frame - self.segments[-1][0] + 1 > self.longest

    def _add_frames(self, first: int, end: int) -> None:
        for frame in range(first, end):
            self.last_frame = frame
            self._add_frame(frame)

    def _add_frame(self, frame: int) -> None:
        self.segments[-1][1] = frame + 1
        self.first_free = max(self.first_free, frame) + 1

    def _end_segment(self, frame: int) -> None:
        self._add_frames(self.last_frame + 1, frame)
        self._add_frame(frame)
        self.ended_count += 1
        self._reset()
