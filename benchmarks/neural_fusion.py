"""The cost of a neural language model in a CTC beam search, against scoring each candidate alone.

    python -m benchmarks.neural_fusion [--model M] [--utterances N] [--beam-size K] [--batch B] [--alone N]

Utterances are strings of spelled digits: logits over letters, drawn with noise from a fixed seed. A candidate is a word
after a history that the search requests, or the end after a complete hypothesis. It prints the forward passes of the
network and the positions that they compute, the candidates, and their ratio. The first `--alone` utterances are decoded
once more with a model that computes each candidate in a separate pass; their hypotheses must be equal.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workbench.decoding.ctc_beam.decoder import CtcDecoder
from workbench.decoding.ctc_beam.hypothesis import Hypothesis
from workbench.decoding.ctc_beam.lexicon import Lexicon
from workbench.decoding.ctc_beam.options import SearchOptions
from workbench.decoding.language_model import LanguageModel
from workbench.decoding.neural import NeuralModel, ScoreTexts
from workbench.isolation.loader import open_here
from workbench.registry.resolve import resolve
from workbench.session.values import TextScore

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
HOMOPHONES = {"for": "four", "won": "one", "to": "two", "ate": "eight"}  # words that are spelled as another
LETTERS = "".join(sorted(set("".join(WORDS))))
NOISE, PEAK = 1.0, 3.0  # of the logits: standard deviation, and what the true token has more


@dataclass
class Counted:
    """A language model that counts its requests."""

    model: NeuralModel
    requests: int = 0
    frames: int = 0
    distinct: set[tuple[int, int]] = field(default_factory=set)

    @property
    def start(self) -> int:
        """See `LanguageModel.start`."""
        return self.model.start

    def advance(self, states: np.ndarray, symbols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `LanguageModel.advance`."""
        self._note(states, symbols)
        return self.model.advance(states, symbols)

    def final(self, states: np.ndarray) -> np.ndarray:
        """See `LanguageModel.final`."""
        self._note(states, np.full(len(states), -1))
        return self.model.final(states)

    def _note(self, states: np.ndarray, symbols: np.ndarray) -> None:
        self.requests += len(states)
        self.frames += bool(len(states))
        self.distinct.update(zip(states.tolist(), symbols.tolist(), strict=True))


def one_by_one(session: Any) -> ScoreTexts:
    """Returns a way to score texts that computes each text in a separate pass without a cache."""

    def score_texts(texts: Sequence[str], *, end: bool = True) -> Sequence[TextScore]:
        scores: list[TextScore] = []
        for text in texts:
            session.writer.language._scorer = None
            scores += session.score_texts([text], end=end)
        return scores

    return score_texts


def lexicon() -> Lexicon:
    """Returns the digits and their homophones, each with its letters."""
    spellings = {word: word for word in WORDS} | HOMOPHONES
    return Lexicon(
        tuple(spellings), tuple((tuple(1 + LETTERS.index(letter) for letter in each),) for each in spellings.values())
    )


def utterances(count: int) -> list[np.ndarray]:
    """Returns logits [frames, 1 + letters] of strings of 3 to 7 digits; each letter lasts 1 to 3 frames."""
    rng = np.random.default_rng(7)
    all_logits = []
    for _ in range(count):
        frames: list[int] = []
        for word in rng.choice(WORDS, rng.integers(3, 8)):
            for letter in word:
                frames += [1 + LETTERS.index(letter)] * rng.integers(1, 3) + [0] * rng.integers(1, 3)
        logits = rng.normal(0, NOISE, (len(frames), 1 + len(LETTERS)))
        logits[np.arange(len(frames)), frames] += PEAK
        all_logits.append(logits)
    return all_logits


def decode(
    model: LanguageModel, sounds: Sequence[np.ndarray], options: SearchOptions, batch: int
) -> tuple[list[Hypothesis], float]:
    """Returns the best hypothesis of each utterance, and the seconds of the processor that they took."""
    decoder = CtcDecoder(1 + len(LETTERS), 0, options, lexicon=lexicon(), neural_lm=model)
    started = time.process_time()
    best = [
        nbest[0] for first in range(0, len(sounds), batch) for nbest in decoder.decode(sounds[first : first + batch])
    ]
    return best, time.process_time() - started


def count_passes(network: Any) -> list[int]:
    """Returns a list that gets the number of positions of each forward pass of a network of transformers."""
    passes: list[int] = []
    network.model.register_forward_pre_hook(
        lambda _, __, arguments: passes.append(arguments["input_ids"].numel()), with_kwargs=True
    )
    return passes


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="demo/qwen3", help="a language model, on PyTorch")
    parser.add_argument("--utterances", type=int, default=100)
    parser.add_argument("--beam-size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32, help="utterances decoded together")
    parser.add_argument("--alone", type=int, default=5, help="utterances decoded with each candidate alone, too")
    arguments = parser.parse_args()
    session: Any = open_here(resolve(arguments.model, "pytorch", {"threads": 1}))
    passes = count_passes(session.writer.language.network)
    sounds = utterances(arguments.utterances)
    options = SearchOptions(beam_size=arguments.beam_size, gamma=0.5, word_bonus=1.0)
    words = lexicon().words
    model = Counted(NeuralModel(session.score_texts, words))
    best, seconds = decode(model, sounds, options, arguments.batch)
    count, positions = len(passes), sum(passes)
    frames = sum(map(len, sounds))
    print(f"{len(sounds)} utterances, {frames} frames, {sum(len(each.words or ()) for each in best)} words found")
    print(f"candidates requested           {model.requests:8}")
    print(f"  distinct ones                {len(model.distinct):8}")
    print(f"calls of the session           {model.model.calls:8}  of {model.frames} by the search")
    print(f"forward passes                 {count:8}  {positions} positions")
    print(
        f"candidates per pass            {model.requests / count:8.1f}  {len(model.distinct) / count:.1f} distinct ones"
    )
    print(f"seconds of the processor       {seconds:8.1f}  {1000 * seconds / len(sounds):.0f} ms an utterance")
    passes.clear()
    few = sounds[: arguments.alone]
    if few:
        uncached, seconds = decode(NeuralModel(one_by_one(session), words, capacity=1), few, options, 1)
        same = [one.words for one in uncached] == [other.words for other in best[: len(few)]]
        largest_difference = max(abs(one.score - other.score) for one, other in zip(uncached, best))
        print(f"alone, {len(few)} utterances: {1000 * seconds / len(few):.0f} ms an utterance and {len(passes)} passes")
        print(f"  their words are equal: {same}; scores differ by {largest_difference:.1e} at most")


if __name__ == "__main__":
    main()
