"""Takes of speech without digits, in which a recogniser of digits must write nothing.

The synthetic voices of `voices.py` say made-up words, English sentences and sentences of other languages; human takes
are played backwards; and a folder may hold recordings of people who say other things. A take of this kind has no
digits. This file does not know how often they are used (`corpus.py` does).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workbench.core.errors import BadInput
from workbench.system.folders import files_below
from workbench.training.data.digits import Take
from workbench.training.data.voices import VoiceOptions, VoiceSetting, spoken_texts, voice_settings

ENGLISH = (
    "good morning everybody",
    "hello",
    "yes please",
    "no thank you",
    "please open the window",
    "the weather is lovely today",
    "where did you put my keys",
    "she sells shells by the shore",
    "we are going home now",
    "can you hear me",
    "turn the volume down",
    "a quick brown fox jumps over a lazy dog",
    "my brother lives in a small village",
    "stop that music",
    "what is your name",
    "I would like a cup of coffee",
    "the train leaves early in the morning",
    "please call me back later",
    "this is a test of the microphone",
    "he was walking along the river",
    "they have never been there before",
    "do not forget your umbrella",
    "it was a dark and stormy night",
    "thank you very much indeed",
    "the children are playing in the garden",
    "how much does this cost",
    "I am sorry about that",
    "let us begin with a question",
    "all lines are busy at the moment",
    "leave a message after the beep",
    "Monday",
    "Wednesday afternoon",
    "September",
    "left",
    "right",
    "up",
    "down",
    "go",
    "stop",
    "house",
    "happy",
    "bird",
    "marvellous",
    "computer science",
    "a lot of water",
    "see you tomorrow",
    "never mind",
    "maybe",
    "once upon a time there was a king",
)
"""Texts of English speech. They are not strings of digits."""

OTHER_LANGUAGES = {
    "de": ("guten Morgen", "wo ist der Bahnhof bitte", "ich habe heute keine Zeit", "das Wetter wird morgen besser"),
    "es": ("buenos días", "dónde está la estación", "me gusta mucho la música", "mañana vamos a la playa"),
    "fr": ("bonjour à tous", "où est la gare", "je voudrais un café", "il fait beau aujourd'hui"),
    "it": ("buongiorno a tutti", "dov'è la stazione", "vorrei un bicchiere d'acqua", "oggi fa molto caldo"),
    "nl": ("goedemorgen allemaal", "waar is het station", "ik heb honger", "het regent vandaag de hele dag"),
    "pl": ("dzień dobry państwu", "gdzie jest dworzec", "lubię czytać książki", "jutro będzie padać"),
    "pt": ("bom dia a todos", "onde fica a estação", "gosto muito de música", "amanhã vou à praia"),
    "ru": ("доброе утро", "где находится вокзал", "я люблю музыку", "завтра будет дождь"),
    "sv": ("god morgon", "var ligger stationen", "jag tycker om musik", "det regnar idag"),
    "hi": ("नमस्ते आप कैसे हैं", "स्टेशन कहाँ है", "आज मौसम अच्छा है", "मुझे संगीत पसंद है"),
    "tr": ("günaydın herkese", "istasyon nerede", "bugün hava çok güzel", "müziği severim"),
    "fi": ("hyvää huomenta kaikille", "missä on rautatieasema", "pidän musiikista", "huomenna sataa"),
    "cmn": ("早上好", "请问火车站在哪里", "今天天气很好", "我喜欢听音乐"),
    "ar": ("صباح الخير", "أين المحطة", "الطقس جميل اليوم", "أحب الموسيقى"),
}
"""Texts by espeak-ng's name of the language."""

ONSETS = ("", "b", "bl", "ch", "d", "dr", "f", "g", "gr", "h", "j", "k", "l", "m", "n", "p", "pl", "r", "s", "sh", "st")
NUCLEI = ("a", "e", "i", "o", "u", "ee", "oo", "ai", "ow", "ar", "er")
CODAS = ("", "", "", "b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "nd", "st")
BACKWARDS = frozenset(range(9))  # the digits that are played backwards: "nine" would still be much like "nine"


def made_up_words(rng: np.random.Generator) -> str:
    """Draws one to six words of one to three syllables, which mean nothing."""

    def syllable() -> str:
        return "".join(str(rng.choice(part)) for part in (ONSETS, NUCLEI, CODAS))

    return " ".join("".join(syllable() for _ in range(rng.integers(1, 4))) for _ in range(rng.integers(1, 7)))


def draw_texts(rng: np.random.Generator, settings: Sequence[VoiceSetting], each: int) -> list[tuple[VoiceSetting, str]]:
    """Draws `each` texts for every voice; each espeak-ng voice also speaks with another language's voice."""
    jobs = []
    for setting in settings:
        for _ in range(each):
            kind = rng.random()
            if kind < 0.4:
                jobs.append((setting, made_up_words(rng)))
            elif kind < 0.75 or setting.program != "espeak-ng":
                jobs.append((setting, str(rng.choice(ENGLISH))))
            else:
                language = str(rng.choice(list(OTHER_LANGUAGES)))
                variant = setting.voice.partition("+")[2]
                voice = replace(setting, voice=f"{language}+{variant}")
                jobs.append((voice, str(rng.choice(OTHER_LANGUAGES[language]))))
    return jobs


def synthetic_speech(cache: str | Path, options: VoiceOptions | None = None, each: int = 5) -> list[Take]:
    """Returns takes without digits: every synthetic speaker says `each` texts. They are stored in `cache`."""
    options = options or VoiceOptions()
    jobs = draw_texts(np.random.default_rng([options.seed, 2]), voice_settings(options), each)
    recordings = spoken_texts(cache, "speech", jobs)
    return [
        Take(f"{setting.speaker}, other speech", (), samples, rate, human=False, number=number)
        for number, ((setting, _), (samples, rate)) in enumerate(zip(jobs, recordings, strict=True))
        if len(samples) > rate // 10
    ]


def backwards(takes: Sequence[Take], share: int = 5) -> list[Take]:
    """Returns every `share`-th human take of BACKWARDS played backwards: a human voice that says no digit."""
    human = [take for take in takes if take.human and BACKWARDS.issuperset(take.digits)]
    return [
        replace(take, speaker=f"{take.speaker}, backwards", digits=(), samples=np.ascontiguousarray(take.samples[::-1]))
        for take in human[::share]
    ]


def recorded_speech(folder: Path, seconds: float = 6.0) -> list[Take]:
    """Returns the sound files below the folder, sorted by path, cut into pieces of at most `seconds`.

    A speaker is a subfolder of the folder; recordings beside the subfolders are of one more speaker. Raises `BadInput`
    if the folder has no sound file that can be read.
    """
    import soundfile

    takes: list[Take] = []
    for path in files_below(folder):
        if path.suffix.lower() not in (".wav", ".flac", ".ogg"):
            continue
        below = path.relative_to(folder).parts
        speaker = below[0] if len(below) > 1 else folder.resolve().name
        try:
            samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
        except (soundfile.LibsndfileError, OSError) as error:
            raise BadInput(f"{path} cannot be read as a sound file: {error}") from error
        for piece in _pieces(samples.mean(axis=1, dtype=np.float32), round(seconds * rate)):
            if len(piece) > rate // 5 and float(np.abs(piece).max()) > 1e-3:
                takes.append(Take(f"{speaker}, other speech", (), piece, int(rate), human=True, number=len(takes)))
    if not takes:
        raise BadInput(
            f"{folder} has no recordings; expected .wav, .flac or .ogg files of speech without English digits"
        )
    return takes


def _pieces(samples: NDArray[np.float32], longest: int) -> list[NDArray[np.float32]]:
    return [np.ascontiguousarray(samples[start : start + longest]) for start in range(0, len(samples), longest)]
