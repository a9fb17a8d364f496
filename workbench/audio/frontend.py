"""From samples to encoder input: filter bank, stacking, normalisation, as a FunASR checkpoint configures them.

This file opens nothing: the caller passes the CMVN, and samples are mono at the configured rate.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.audio.cmvn import Cmvn
from workbench.audio.constants import FRAME_LENGTH_MS, FRAME_SHIFT_MS, NUM_MELS, SAMPLE_RATE
from workbench.audio.fbank import WINDOWS, FbankOptions, fbank, num_frames
from workbench.audio.lfr import num_stacked, stack_frames, unstack_gradient
from workbench.core.config_values import whole_number
from workbench.core.errors import BadInput

MAX_MELS = 1024  # bands: 8 kHz has less to tell apart
MAX_STACKED = 100  # frames of the filter bank in one frame of the network


@dataclass(frozen=True)
class FrontendConfig:
    """FunASR's `frontend_conf`. A missing field has the default of FunASR's own class, except `dither`."""

    fs: int = SAMPLE_RATE  # Hz
    window: str = "hamming"
    n_mels: int = NUM_MELS
    frame_length: float = FRAME_LENGTH_MS
    frame_shift: float = FRAME_SHIFT_MS
    lfr_m: int = 1  # frames stacked into one
    lfr_n: int = 1  # frames from one stack to the next
    dither: float = 0.0  # with FunASR's default of 1, every run would differ a little
    upscale_samples: bool = True  # to the int16 scale; the files spell it upsacle_samples
    snip_edges: bool = True
    cmvn_file: str | None = None  # as written in the file; the reader of the directory resolves it

    @classmethod
    def from_yaml(cls, section: Mapping[str, Any]) -> "FrontendConfig":
        """Returns the configuration from a `frontend_conf` mapping.

        Ignores the keys that FunASR's front end ignores. Raises `BadInput`, naming the key, for values of the wrong
        kind and for sample rates other than 16 kHz.
        """
        default = cls()
        fs = _whole_number(section, "fs", default.fs)
        if fs != SAMPLE_RATE:
            raise BadInput(f"frontend_conf.fs is {fs} Hz; only {SAMPLE_RATE} Hz is supported")
        window = section.get("window", default.window)
        if window not in WINDOWS:
            raise BadInput(f"frontend_conf.window is {window!r:.80}; expected one of {', '.join(WINDOWS)}")
        cmvn_file = section.get("cmvn_file")
        if cmvn_file is not None and not isinstance(cmvn_file, str):
            raise BadInput(f"frontend_conf.cmvn_file is {cmvn_file!r:.80}; expected the name of a file")
        return cls(
            fs=fs,
            window=window,
            n_mels=_whole_number(section, "n_mels", default.n_mels, MAX_MELS),
            frame_length=_number(section, "frame_length", default.frame_length, minimum=1),
            frame_shift=_number(section, "frame_shift", default.frame_shift, minimum=1),
            lfr_m=_whole_number(section, "lfr_m", default.lfr_m, MAX_STACKED),
            lfr_n=_whole_number(section, "lfr_n", default.lfr_n, MAX_STACKED),
            dither=_number(section, "dither", default.dither),
            upscale_samples=_flag(section, "upsacle_samples", default.upscale_samples),
            snip_edges=_flag(section, "snip_edges", default.snip_edges),
            cmvn_file=cmvn_file or None,
        )

    @property
    def width(self) -> int:
        """The number of values per feature frame after stacking."""
        return self.n_mels * self.lfr_m

    @property
    def frame_seconds(self) -> float:
        """The time from one feature frame to the next, in seconds."""
        return self.frame_shift * self.lfr_n / 1000

    def frames(self, samples: int) -> int:
        """Returns the number of feature frames that a recording of `samples` samples gives."""
        return num_stacked(num_frames(samples, self.fbank_options()), self.lfr_n)

    def fbank_options(self) -> FbankOptions:
        options = FbankOptions(
            sample_rate=self.fs,
            frame_length_ms=self.frame_length,
            frame_shift_ms=self.frame_shift,
            snip_edges=self.snip_edges,
            dither=self.dither,
            window=self.window,
            num_mels=self.n_mels,
        )
        return options if self.upscale_samples else replace(options, scale=1.0)


@dataclass(frozen=True, eq=False)
class FrontendOutput:
    """The three stages of the front end for one recording, all float32."""

    fbank: np.ndarray  # [frames, mels]
    lfr: np.ndarray  # [stacked frames, lfr_m * mels]
    features: np.ndarray  # lfr after CMVN; the same array as lfr without CMVN


class Frontend:
    """A configured front end. Calling it with mono samples [n] returns a `FrontendOutput`."""

    def __init__(self, config: FrontendConfig, cmvn: Cmvn | None) -> None:
        if cmvn is not None and cmvn.width != config.width:
            stacked = f"{config.lfr_m} stacked frames of {config.n_mels} mel bands"
            raise BadInput(f"the CMVN has {cmvn.width} values; {stacked} need {config.width}")
        self.config = config
        self.cmvn = cmvn

    def __call__(self, samples: np.ndarray, dither: float | None = None, seed: int = 0) -> FrontendOutput:
        """Returns all three stages. `dither` replaces the configured value, and `seed` makes it repeatable."""
        energies = self.energies(samples, dither, seed)
        stacked = self.stack(energies)
        return FrontendOutput(energies, stacked, self.normalise(stacked))

    def energies(self, samples: np.ndarray, dither: float | None = None, seed: int = 0) -> np.ndarray:
        """Returns `FrontendOutput.fbank`, float32 [frames, mels], of samples [n]; takes the arguments of a call."""
        options = self.config.fbank_options()
        return fbank(samples, options if dither is None else replace(options, dither=dither), seed)

    def stack(self, energies: np.ndarray) -> np.ndarray:
        """Returns `FrontendOutput.lfr` [stacked frames, width] from energies [frames, mels], maybe the same array."""
        if self.config.lfr_m == self.config.lfr_n == 1:
            return energies
        return stack_frames(energies, self.config.lfr_m, self.config.lfr_n)

    def normalise(self, stacked: np.ndarray) -> np.ndarray:
        """Returns `FrontendOutput.features` from the stacked frames, both float32 [stacked frames, width]."""
        return stacked if self.cmvn is None else self.cmvn.apply(stacked)

    def gradient(self, gradient: np.ndarray, samples: int) -> np.ndarray:
        """Returns the gradient with respect to the first stage [frames, mels], from the gradient of the third stage.

        Args:
            samples: the length of the recording.
        """
        stacked = gradient if self.cmvn is None else gradient * self.cmvn.scale
        if self.config.lfr_m == self.config.lfr_n == 1:
            return stacked
        frames = num_frames(samples, self.config.fbank_options())
        return unstack_gradient(stacked, frames, self.config.lfr_m, self.config.lfr_n)


def _whole_number(section: Mapping[str, Any], key: str, default: int, maximum: int | None = None) -> int:
    return whole_number(section, key, f"frontend_conf.{key}", default, maximum=maximum)


def _number(section: Mapping[str, Any], key: str, default: float, minimum: float = 0) -> float:
    value = section.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not minimum <= value < 1e6:
        raise BadInput(f"frontend_conf.{key} is {value!r:.80}; expected a number of at least {minimum}")
    return value


def _flag(section: Mapping[str, Any], key: str, default: bool) -> bool:
    value = section.get(key, default)
    if not isinstance(value, bool):
        raise BadInput(f"frontend_conf.{key} is {value!r:.80}; expected true or false")
    return value
