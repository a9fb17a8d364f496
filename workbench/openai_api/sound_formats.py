"""Audio files in memory: the formats that OpenAI's API has for speech, as far as the installed libsndfile writes them.

Samples become 16 bits in all formats without loss. `pcm16` is these bits without a header, low byte first.
"""

from __future__ import annotations

import functools
import io

import numpy as np

from workbench.openai_api.errors import Refusal

WAV, PCM = "wav", "pcm16"
# What libsndfile calls them: format and subtype.
KNOWN = {
    WAV: ("WAV", "PCM_16"),
    PCM: ("RAW", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "mp3": ("MP3", ""),
    "opus": ("OGG", "OPUS"),
}
RATES = {  # Hz; the other formats have any
    "mp3": (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000),
    "opus": (8000, 12000, 16000, 24000, 48000),
}
BLOCK = 16000  # samples that are written at a time; some versions of libsndfile break at long blocks of Opus


@functools.cache
def formats() -> tuple[str, ...]:
    """Returns the formats that this machine writes."""
    import soundfile

    writes = soundfile.available_formats()
    return tuple(
        name
        for name, (kind, subtype) in KNOWN.items()
        if kind in writes and (not subtype or subtype in soundfile.available_subtypes(kind))
    )


def check_format(name: object, param: str) -> str:
    """Returns the name of a format; raises `Refusal` for one that this machine does not write."""
    if not isinstance(name, str) or name not in formats():
        raise Refusal(
            f"{param} is {name!r:.80}, and this server writes {', '.join(formats())}; choose one of them",
            param,
            "unsupported_value",
        )
    return name


def encode_sound(samples: np.ndarray, rate: int, name: str, param: str = "audio.format") -> bytes:
    """Returns mono float32 samples [n] in a format of `formats()`; samples beyond -1 to 1 are clipped.

    Without samples, the result is empty. Raises `Refusal` of the request's field `param` if the format does not have
    the sample rate.
    """
    import soundfile

    if not len(samples):
        return b""
    kind, subtype = KNOWN[name]
    if rate not in RATES.get(name, (rate,)):
        raise Refusal(f"{param} is {name}, which has no {rate} Hz, the model's sample rate; choose wav", param)
    file = io.BytesIO()
    clipped = np.clip(samples, -1.0, 1.0).astype(np.float32)
    with soundfile.SoundFile(
        file, "w", rate, 1, subtype or None, "LITTLE" if name == PCM else None, format=kind
    ) as output:
        for start in range(0, len(clipped), BLOCK):
            output.write(clipped[start : start + BLOCK])
    return file.getvalue()
