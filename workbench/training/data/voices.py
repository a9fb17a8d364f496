"""Synthetic takes: digits spoken by espeak-ng and flite in many voices.

Both programs run as subprocesses, once per utterance; the result is stored in a folder that the caller chooses, so that
a second training run does not repeat it. This file knows nothing of features, noise or the human recordings.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workbench.core.errors import Unavailable
from workbench.training.data.digits import WORDS, Take

ENGLISH_ACCENTS = (
    "en-us",
    "en-gb",
    "en-us",  # twice, as the most common
    "en-gb-x-rp",
    "en-gb-scotland",
    "en-us-nyc",
    "en-gb-x-gbclan",
    "en-gb-x-gbcwmd",
    "en-029",
)

# Spellings of the English digits for espeak-ng's voices of other languages: their sounds and stress make a foreign
# accent.
FOREIGN_SPELLINGS = {
    "de": ("siero", "wann", "tuh", "trie", "foor", "faif", "sicks", "sewwen", "äit", "nein"),
    "es": ("siro", "uan", "tu", "zri", "for", "faif", "six", "seven", "eit", "nain"),
    "fr": ("ziro", "ouane", "tou", "sri", "fôr", "faïve", "sixe", "sévène", "éïte", "naïne"),
    "hi": ("ज़ीरो", "वन", "टू", "थ्री", "फोर", "फाइव", "सिक्स", "सेवन", "एट", "नाइन"),
    "it": ("ziro", "uan", "tu", "tri", "for", "faiv", "six", "seven", "eit", "nain"),
    "nl": ("ziero", "wan", "toe", "srie", "foor", "faif", "siks", "seven", "eet", "nain"),
    "pl": ("ziroł", "łan", "tu", "fri", "for", "fajw", "siks", "sewen", "ejt", "najn"),
    "pt": ("ziro", "uan", "tu", "tri", "for", "faiv", "sics", "séven", "eit", "nain"),
    "ru": ("зироу", "уан", "ту", "сри", "фор", "файв", "сикс", "сэвэн", "эйт", "найн"),
    "sv": ("siro", "vann", "to", "sri", "for", "fajv", "sicks", "sevven", "äjt", "najn"),
}

# Variants of espeak-ng that imitate machines, echo rooms or very fast speech rather than people.
SILENT_DB = 40.0  # below the loudest 10 ms of a take: silence around it
WORKERS = 2  # voices that speak side by side

_NOT_PEOPLE = ("robo", "robot", "demonic", "tweaky", "announcer", "fast", "storm")

FLITE_VOICES = {  # mean fundamental frequencies that each voice can have, Hz
    "kal": (85, 160),
    "kal16": (85, 160),
    "rms": (80, 140),
    "awb": (95, 170),
    "slt": (140, 230),
}


@dataclass(frozen=True)
class VoiceSetting:
    """One synthetic speaker: the settings that decide how the program sounds."""

    program: str  # "espeak-ng" or "flite"
    voice: str  # the program's name for it, for example "en-us+f3" or "slt"
    pitch: int  # espeak-ng: 0-99; flite: mean fundamental frequency in Hz
    speed: int  # espeak-ng: words per minute; flite: duration in per cent of normal
    words: tuple[str, ...] = WORDS  # spelling of the ten digits

    @property
    def speaker(self) -> str:
        return f"{self.program} {self.voice} pitch {self.pitch} speed {self.speed}"


@dataclass(frozen=True)
class VoiceOptions:
    """The number of synthetic speakers, and how much each says. The defaults take about a minute and a half of one
    core.
    """

    english_settings: int = 220  # espeak-ng: accent x variant x pitch x speed
    foreign_settings: int = 4  # espeak-ng: of each language in FOREIGN_SPELLINGS
    flite_settings: int = 8  # of each flite voice
    strings: int = 6  # strings of two to five digits in one breath, besides the ten single digits
    seed: int = 1


def require_synthesisers() -> None:
    """Raises `Unavailable`, which names the command to install them, unless espeak-ng and flite can be run."""
    missing = [program for program in ("espeak-ng", "flite") if shutil.which(program) is None]
    if missing:
        raise Unavailable(
            f"training needs synthetic voices from espeak-ng and flite, and {' and '.join(missing)} cannot be found; "
            "install them with: apt-get install espeak-ng flite"
        )


def espeak_variants() -> tuple[str, ...]:
    """Returns the names of the installed espeak-ng variants that sound like people, sorted."""
    listing = subprocess.run(["espeak-ng", "--voices=variant"], capture_output=True, text=True, check=True).stdout
    names = {line.split("!v/", 1)[1].split()[0] for line in listing.splitlines() if "!v/" in line}
    names.discard("Mr")  # the file is called "Mr serious", which -v does not accept
    return tuple(sorted(name for name in names if not any(word in name.lower() for word in _NOT_PEOPLE)))


def voice_settings(options: VoiceOptions | None = None) -> tuple[VoiceSetting, ...]:
    """Returns the synthetic speakers for the options, among those installed; the same seed gives the same speakers."""
    options = options or VoiceOptions()
    require_synthesisers()
    rng = np.random.default_rng(options.seed)
    variants = rng.permutation(espeak_variants()).tolist()

    def espeak(language: str, variant: str, words: tuple[str, ...] = WORDS) -> VoiceSetting:
        pitch, speed = int(rng.integers(15, 86)), int(rng.integers(110, 221))
        return VoiceSetting("espeak-ng", f"{language}+{variant}", pitch, speed, words)

    settings = [
        espeak(ENGLISH_ACCENTS[i % len(ENGLISH_ACCENTS)], variants[i % len(variants)])
        for i in range(options.english_settings)
    ]
    settings += [
        espeak(language, str(rng.choice(variants)), words)
        for language, words in FOREIGN_SPELLINGS.items()
        for _ in range(options.foreign_settings)
    ]
    settings += [
        VoiceSetting("flite", voice, int(rng.integers(low, high)), int(rng.integers(75, 131)))
        for voice, (low, high) in FLITE_VOICES.items()
        for _ in range(options.flite_settings)
    ]
    return tuple(settings)


def speak(setting: VoiceSetting, digits: Sequence[int], ending: str = "") -> tuple[NDArray[np.float32], int]:
    """Returns (samples [-1, 1] without leading and trailing silence, sample rate) of the digits said in one breath."""
    return say(setting, _text(setting, digits, ending))


def _text(setting: VoiceSetting, digits: Sequence[int], ending: str) -> str:
    return " ".join(setting.words[digit] for digit in digits) + ending


def say(setting: VoiceSetting, text: str) -> tuple[NDArray[np.float32], int]:
    """Returns (samples [-1, 1] without leading and trailing silence, sample rate) of a text."""
    import soundfile

    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        if setting.program == "espeak-ng":
            command = ["espeak-ng", "-v", setting.voice, "-p", str(setting.pitch), "-s", str(setting.speed)]
            command += ["-w", file.name, text]
        else:
            command = ["flite", "-voice", setting.voice, "--setf", f"int_f0_target_mean={setting.pitch}"]
            command += ["--setf", f"duration_stretch={setting.speed / 100}", "-t", text, "-o", file.name]
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
        samples, rate = soundfile.read(file.name, dtype="float32")
    return trim_silence(samples, int(rate)), int(rate)


def trim_silence(samples: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """Returns the samples from the first to the last 10 ms block within SILENT_DB of the loudest, and 10 ms around
    them.
    """
    block = sample_rate // 100
    blocks = len(samples) // block
    if blocks == 0:
        return samples
    power = np.square(samples[: blocks * block]).reshape(blocks, block).mean(axis=1)
    loud = np.flatnonzero(power > power.max() * 10.0 ** (-SILENT_DB / 10.0))
    if not len(loud):
        return samples
    return samples[max(loud[0] - 1, 0) * block : (loud[-1] + 2) * block]


def synthetic_takes(cache: str | Path, options: VoiceOptions | None = None) -> list[Take]:
    """Returns every synthetic speaker's takes: each digit alone, then strings in one breath.

    They are spoken once and stored as one file in `cache`, named after a digest of the settings. Raises `Unavailable`
    if the programs are not installed.
    """
    options = options or VoiceOptions()
    settings = voice_settings(options)
    rng = np.random.default_rng([options.seed, 1])
    jobs: list[tuple[VoiceSetting, tuple[int, ...], str]] = []
    for setting in settings:
        jobs += [(setting, (digit,), str(rng.choice(["", "?", ",", "!"]))) for digit in range(10)]
        for _ in range(options.strings):
            digits = rng.integers(0, 10, size=rng.integers(2, 6))
            jobs.append((setting, tuple(int(digit) for digit in digits), ""))

    texts = [(setting, _text(setting, digits, ending)) for setting, digits, ending in jobs]
    recordings = spoken_texts(cache, "voices", texts)
    return [
        Take(setting.speaker, digits, samples, rate, human=False, number=number)
        for number, ((setting, digits, _), (samples, rate)) in enumerate(zip(jobs, recordings, strict=True))
    ]


def spoken_texts(
    cache: str | Path, kind: str, jobs: Sequence[tuple[VoiceSetting, str]]
) -> list[tuple[NDArray[np.float32], int]]:
    """Returns what `say` returns for every pair of a voice and a text.

    The texts are spoken once and stored as one file in `cache`, named after their kind and a digest.
    """
    described = json.dumps([(asdict(setting), text) for setting, text in jobs]).encode()
    path = Path(cache) / f"{kind}-{hashlib.sha256(described).hexdigest()[:16]}.npz"
    if not path.exists():
        with ThreadPoolExecutor(WORKERS) as pool:
            _save(path, list(pool.map(lambda job: say(*job), jobs)))
    return _load(path)


def _save(path: Path, recordings: list[tuple[NDArray[np.float32], int]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = np.concatenate([samples for samples, _ in recordings])
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".npz", delete=False) as file:
        np.savez(
            file,
            samples=np.clip(np.rint(samples * 32768.0), -32768, 32767).astype(np.int16),
            lengths=np.array([len(samples) for samples, _ in recordings]),
            rates=np.array([rate for _, rate in recordings]),
        )
    Path(file.name).replace(path)  # a stopped run leaves no partial file


def _load(path: Path) -> list[tuple[NDArray[np.float32], int]]:
    with np.load(path, allow_pickle=False) as archive:
        samples = archive["samples"].astype(np.float32) / np.float32(32768.0)
        ends, rates = np.cumsum(archive["lengths"]), archive["rates"]
    starts = np.concatenate([[0], ends[:-1]])
    return [(samples[start:end], int(rate)) for start, end, rate in zip(starts, ends, rates, strict=True)]
