"""Error rates of the shipped demo SpeechLM in saying, writing and repeating, and its speed.

Error rates are measured with the training's generator, which answers in batches; a test checks that it generates the
same as a session. Speed is measured with the session.

demo/sensevoice transcribes the demo's speech, and pocketsphinx with a grammar of digits if the package is installed.
For comparison they also transcribe the voices' own takes after the codec.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from workbench.registry.registry import Registry
from workbench.registry.sources import assets
from workbench.session.conversation import AudioPiece
from workbench.speech.delay import delayed
from workbench.training.data.digits import WORDS, load_fsdd, split_by_speaker, words_of
from workbench.training.speechlm.files import LAYOUT
from workbench.training.speechlm.generate import Choice
from workbench.training.speechlm.measure import (
    SAMPLED,
    Demo,
    measure_repeating,
    measure_saying,
    measure_writing,
    rates_of,
    recordings_to_hear,
    sensevoice,
    strings_to_say,
)
from workbench.training.speechlm.voices import VOICES, Speaker, voice_clips

Hear = Callable[[np.ndarray], str]


def pocketsphinx() -> Hear | None:
    """Returns pocketsphinx with its own English model and a grammar of digits; None where it is not installed."""
    try:
        from pocketsphinx import Decoder
    except ImportError:
        return None
    decoder = Decoder(lm=None, loglevel="FATAL")
    decoder.add_jsgf_string("digits", f"#JSGF V1.0; grammar digits; public <digits> = ({' | '.join(WORDS)})+;")
    decoder.activate_search("digits")

    def recognise(samples: np.ndarray) -> str:
        decoder.start_utt()
        decoder.process_raw((np.clip(samples, -1, 1) * 32767).astype(np.int16).tobytes(), full_utt=True)
        decoder.end_utt()
        hypothesis = decoder.hyp()
        return str(hypothesis.hypstr) if hypothesis else ""

    return recognise


def say(demo: Demo, speaker: Speaker, count: int) -> None:
    """Prints the error rates of what the demo says in each voice."""
    strings = strings_to_say(count)
    listeners = {"demo/sensevoice": sensevoice(), "pocketsphinx": pocketsphinx()}
    choices: tuple[tuple[str, Choice | None], ...] = (("likeliest", None), ("drawn", SAMPLED))
    for voice in VOICES:
        for name, recognise in listeners.items():
            if recognise is None:
                print(f"{name} is not installed")
                continue
            takes = ((digits, demo.sound(delayed(speaker.say(voice, digits), LAYOUT))) for digits in strings)
            row = [f"the voice's takes through the codec {rates_of(takes, recognise).wer:6.1%}"]
            row += [
                f"{label} {measure_saying(demo, voice, strings, recognise, choice).wer:6.1%}"
                for label, choice in choices
            ]
            print(f"says, {voice}, transcribed by {name}: {', '.join(row)}", flush=True)


def speed(checkpoint: Path, threads: int) -> None:
    """Prints how much faster than real time a loaded session says 20 strings, and the time until the first audio.

    The session runs in a separate process, as for every user. Each request has 5 words.
    """
    requests = [f"say {words_of(digits)}" for digits in strings_to_say(400) if len(digits) == 4][:20]
    with Registry() as registry, registry.open(str(checkpoint), "pytorch", threads=threads) as session:
        session.converse(requests[0], modalities="audio", seed=1)  # loads the model
        seconds, firsts, started = 0.0, [], time.perf_counter()
        for text in requests:
            sent_at, first = time.perf_counter(), None
            for event in session.converse_stream(text, modalities="audio", seed=1):
                if isinstance(event, AudioPiece) and len(event.samples):
                    seconds += len(event.samples) / event.sample_rate
                    first = first or time.perf_counter() - sent_at
            firsts.append(first or np.nan)
        passed = time.perf_counter() - started
    print(
        f"speaks {seconds / passed:.1f} s of audio per second with {threads} threads, end to end; the first audio "
        f"comes {np.median(firsts):.2f} s after a request of 5 words (median of {len(firsts)}; "
        f"at most {np.max(firsts):.2f} s)"
    )


def main() -> None:
    """Prints all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the Free Spoken Digit Dataset, a folder per speaker")
    parser.add_argument("--checkpoint", type=Path, default=assets() / "demo-speechlm")
    parser.add_argument("--strings", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    human, held_out = split_by_speaker(load_fsdd(options.data))
    demo = Demo.read(options.checkpoint)
    recordings = recordings_to_hear(held_out, options.strings)
    for instruction in ("", "write"):
        print(
            f"writes, instruction {instruction!r}: {measure_writing(demo, recordings, instruction).wer:.1%}", flush=True
        )
    print(
        f"repeats, transcribed by demo/sensevoice: {measure_repeating(demo, recordings, sensevoice()).wer:.1%}",
        flush=True,
    )
    say(demo, Speaker.of(demo.codec, voice_clips(human)), options.strings)
    speed(options.checkpoint, options.threads)


if __name__ == "__main__":
    main()
