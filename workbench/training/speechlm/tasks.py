"""The tasks of the demo SpeechLM: short dialogues of text and speech about strings of digits.

A request says digits, counts, writes, or is a recording to write, repeat or say backwards. Every request has a natural
form of answer (text, audio, or text and then audio), and the model chooses it by itself. Some examples have another
form, because a caller can ask for it. Some requests are about other things. Their answer says what the model can do.

The text of an answer closes with `<|eos|>` if the natural answer is text alone, else with `<|eot|>`, whatever follows.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from workbench.training.data.digits import WORDS, words_of
from workbench.training.speechlm.voices import DEFAULT_VOICE, VOICES

Form = Literal["text", "audio", "text_audio"]
FORMS: tuple[Form, ...] = ("text", "audio", "text_audio")
HELP = "I only know digits."
NOTHING = "I hear nothing."
OTHER_FORM_SHARE = 0.4  # of the requests: an answer in another form than the natural one
MAX_DIGITS = 7  # digits in an answer with audio
HELD_OUT_SHARE = 8  # one string of this many is never said in training


@dataclass(frozen=True)
class Recording:
    """The place of a recording in a user's message."""

    number: int  # in the pool
    digits: tuple[int, ...]


@dataclass(frozen=True)
class Answer:
    """The assistant's reply: words to write, and digits to say."""

    text: str
    digits: tuple[int, ...] | None  # None: silence
    voice: str
    form: Form  # of this example
    natural: Form  # that the model would choose


Part = tuple[str, str | Recording]  # role, and a text or a recording
Turn = tuple[tuple[Part, ...], Answer]  # a request of the user and its answer


def held_out(digits: Sequence[int]) -> bool:
    """Returns whether the training leaves a string out, except where an answer counts."""
    return zlib.crc32(words_of(digits).encode()) % HELD_OUT_SHARE == 0


def draw_dialogue(rng: np.random.Generator, recordings: Sequence[Recording], turns: int = 1) -> list[Turn | Part]:
    """Returns a dialogue: perhaps a system message, then requests, each with its answer.

    The requests take the recordings in order; further ones are texts.
    """
    dialogue: list[Turn | Part] = []
    kind = rng.random()
    voice = DEFAULT_VOICE
    if kind < 0.25:
        voice = str(rng.choice(VOICES))
        phrases = ("voice: {}", "Voice: {}", "voice: {}", "speak in the voice of {}", "Speak in the voice of {}.")
        dialogue.append(("system", str(rng.choice(phrases)).format(voice)))
    elif kind < 0.32:
        dialogue.append(("system", str(rng.choice(("You are a helpful assistant.", "Answer briefly.", "Be polite.")))))
    waiting = list(recordings)
    requests = (
        _spoken_request(rng, waiting.pop(0), voice) if waiting else _written_request(rng, voice) for _ in range(turns)
    )
    return [*dialogue, *requests]


def as_text(dialogue: Sequence[Turn | Part]) -> list[Turn | Part]:
    """Returns the dialogue with all answers as text."""
    return [(entry[0], replace(entry[1], form="text")) if isinstance(entry[1], Answer) else entry for entry in dialogue]


def _written_request(rng: np.random.Generator, voice: str) -> Turn:
    """Draws a request in writing."""
    kind = rng.random()
    if kind < 0.05:
        return ((("user", _unknown(rng)),), _answer(rng, HELP, None, voice, "text"))
    names_voice = rng.random() < 0.45
    if names_voice:
        voice = str(rng.choice(VOICES))
    if kind < 0.2:
        first, last = (int(digit) for digit in rng.choice(10, 2, replace=False))
        digits = tuple(range(first, last + 1) if first < last else range(first, last - 1, -1))
        spelt = [WORDS[first], WORDS[last]] if rng.random() < 0.7 else [str(first), str(last)]
        natural: Form = "text_audio"
        down = "down " * bool(first > last and rng.random() < 0.5)
        request = f"count {down}from {spelt[0]} to {spelt[1]}"
    else:
        digits = _digits(rng)
        natural = "audio" if kind < 0.85 else "text"
        verb = str(rng.choice(SPOKEN_VERBS if natural == "audio" else ("write", "spell")))
        request = f"{verb}{':' * (rng.random() < 0.1)} {_spelt(digits, rng)}"
    if names_voice:
        request += str(rng.choice((" in the voice of {}", " in the voice of {}", ", voice {}", " as {}"))).format(voice)
    return ((("user", _typed(request, rng)),), _answer(rng, words_of(digits), digits, voice, natural))


def _spoken_request(rng: np.random.Generator, recording: Recording, voice: str) -> Turn:
    """Draws a request about a recording."""
    instruction, natural, backwards = SPEECH_INPUT_TASKS[int(rng.integers(len(SPEECH_INPUT_TASKS)))]
    parts: list[Part] = [("user", recording)]
    if instruction:
        if natural != "text" and rng.random() < 0.35:
            voice = str(rng.choice(VOICES))
            instruction += f" in the voice of {voice}"
        parts.insert(int(rng.random() < 0.75), ("user", _typed(instruction, rng)))
    digits = recording.digits[::-1] if backwards else recording.digits
    if not digits:
        return tuple(parts), _answer(rng, NOTHING, None, voice, natural)
    speakable = len(digits) <= MAX_DIGITS and not held_out(digits)
    if not speakable and natural != "text":
        natural = "text"
        parts = [("user", recording), ("user", _typed("write it backwards" if backwards else "write", rng))]
        parts = parts[:: 1 if rng.random() < 0.75 else -1]
    return tuple(parts), _answer(rng, words_of(digits), digits, voice, natural, speakable)


SPOKEN_VERBS = ("say", "say", "say", "say", "read", "speak", "please say")
# Instruction, natural form, whether the answer is reversed.
SPEECH_INPUT_TASKS: tuple[tuple[str, Form, bool], ...] = (
    ("", "text", False),
    ("", "text", False),
    ("write", "text", False),
    ("write it", "text", False),
    ("what do you hear?", "text", False),
    ("repeat", "audio", False),
    ("repeat it", "audio", False),
    ("repeat", "audio", False),
    ("say it again", "audio", False),
    ("backwards", "text_audio", True),
    ("backwards", "text_audio", True),
    ("say it backwards", "audio", True),
    ("write it backwards", "text", True),
)


def _answer(
    rng: np.random.Generator,
    text: str,
    digits: tuple[int, ...] | None,
    voice: str,
    natural: Form,
    speakable: bool = True,
) -> Answer:
    form = natural
    if speakable and rng.random() < OTHER_FORM_SHARE:
        form = FORMS[int(rng.integers(len(FORMS)))]
    return Answer(text, digits, voice, form, natural)


def _digits(rng: np.random.Generator) -> tuple[int, ...]:
    """Draws digits to say; equal neighbours are frequent, because they are hard."""
    while True:
        count = int(rng.choice(range(1, MAX_DIGITS + 1), p=(0.12, 0.12, 0.16, 0.18, 0.17, 0.17, 0.08)))
        digits = [int(digit) for digit in rng.integers(0, 10, count)]
        for place in range(1, count):
            if rng.random() < 0.12:
                digits[place] = digits[place - 1]
        if not held_out(digits):
            return tuple(digits)


def _spelt(digits: Sequence[int], rng: np.random.Generator) -> str:
    kind = rng.random()
    if kind < 0.6:
        return words_of(digits)
    return ("" if kind < 0.8 else " ").join(map(str, digits))


def _typed(text: str, rng: np.random.Generator) -> str:
    """Returns the text as people type it: capital letters, a full stop."""
    kind = rng.random()
    if kind < 0.25:
        text = text[0].upper() + text[1:]
    elif kind < 0.28:
        text = text.upper()
    if rng.random() < 0.15 and text[-1] not in ".?!":
        text += str(rng.choice((".", "!", " please")))
    return text


TALK = (
    "hello", "hi there", "who are you?", "what can you do?", "how are you?", "tell me a joke", "what is the weather?",
    "sing a song", "good morning", "thank you", "what time is it?", "translate this", "write a poem", "help", "test",
    "say something", "what is your name?", "where is Paris?", "explain attention", "say hello world", "write hello",
    "say my name", "count sheep", "repeat after me", "say nothing",
)  # fmt: skip


def _unknown(rng: np.random.Generator) -> str:
    if rng.random() < 0.6:
        return _typed(str(rng.choice(TALK)), rng)
    letters = "abcdefghijklmnopqrstuvwxyz       .,?é你"
    return "".join(rng.choice(list(letters), int(rng.integers(3, 30)))).strip() or "?"
