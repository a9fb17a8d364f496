"""Constants that every front end shares, each with its unit. The derived ones follow exactly from the first few.

This file knows no model. The code that reads a checkpoint also reads its own values (mel bands, stacking, CMVN), which
do not change these. The values are those of Kaldi's filter bank as speech recognisers use it.
"""


def _exactly(numerator: int, denominator: int) -> int:
    """Returns the quotient; raises `ValueError` if the division leaves a remainder."""
    quotient, remainder = divmod(numerator, denominator)
    if remainder:
        raise ValueError(f"{numerator} is not a multiple of {denominator}")
    return quotient


SAMPLE_RATE = 16_000  # samples per second of every recording after reading

FRAME_LENGTH_MS = 25  # milliseconds under one analysis window
FRAME_SHIFT_MS = 10  # milliseconds from one window's start to the next
FRAME_LENGTH = _exactly(SAMPLE_RATE * FRAME_LENGTH_MS, 1000)  # samples: 400
FRAME_SHIFT = _exactly(SAMPLE_RATE * FRAME_SHIFT_MS, 1000)  # samples: 160
FRAMES_PER_SECOND = _exactly(SAMPLE_RATE, FRAME_SHIFT)  # filter-bank frames: 100

NUM_MELS = 80  # mel bands of one filter-bank frame
MEL_LOW_HZ = 20.0  # hertz, lower edge of the first band; the upper edge of the last is half the sample rate
PREEMPHASIS = 0.97  # share of the previous sample subtracted from each

INT16_SCALE = 1 << 15  # factor from float samples with full scale 1 to the int16 scale
INT16_MIN = -INT16_SCALE  # smallest int16 sample
INT16_MAX = INT16_SCALE - 1  # largest int16 sample

ASR_LFR_M = 7  # filter-bank frames stacked into one low-frame-rate frame of a recogniser
ASR_LFR_N = 6  # filter-bank frames from one stacked frame to the next
VAD_LFR_M = 5  # the same for voice activity detection, which does not lower the frame rate
VAD_LFR_N = 1
