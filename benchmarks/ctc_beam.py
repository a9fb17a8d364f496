"""The CTC beam search against other decoders on the same outputs, in one run, one thread each.

    python -m benchmarks.ctc_beam [--tokens N ...] [--utterances N] [--repeat N] [--peers DIR]

The outputs are synthetic: sentences of a small random grammar, spelled in tokens, with a peak for each token ("peaked")
or with peaks that rivals often exceed ("hard"). It prints processor time per utterance of 500 frames, errors, and the
ratios to the peers that are installed (pyctcdecode, flashlight-text, NeMo with 128 tokens alone, as it takes half a
minute an utterance with 5000; DIR is a folder of `pip install --target`).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jiwer
import numpy as np

from workbench.decoding.ctc_beam import CtcDecoder, Lexicon, SearchOptions
from workbench.decoding.ngram.arpa_writing import write_arpa
from workbench.decoding.ngram.model import NgramModel
from workbench.decoding.ngram.train import train

FRAMES, BEAM, BATCH = 500, 64, 8
WORDS, FOLLOWERS, SENTENCES = 2000, 20, 4000
ALPHA, BONUS = 0.5, 1.0

PAIRS = (
    ("pyctcdecode, no model", "workbench, no model"),
    ("NeMo, token 3-gram", "workbench, token 3-gram"),
    ("flashlight, lexicon, word 4-gram", "workbench, token 3-gram"),
    ("flashlight, lexicon, word 4-gram", "workbench, lexicon, word 4-gram"),
)


@dataclass(frozen=True)
class Task:
    """Sentences, their vocabulary, and a network's outputs for some of them."""

    tokens: tuple[str, ...]  # of each id; 0 is the blank, 1 the boundary between words
    lexicon: Lexicon
    training: list[list[str]]
    references: list[list[str]]
    outputs: dict[str, list[np.ndarray]]  # peaked, hard

    def spelled(self, sentence: Sequence[str]) -> list[int]:
        """Returns the tokens of a sentence, a boundary after each word."""
        place = {word: spellings[0] for word, spellings in zip(self.lexicon.words, self.lexicon.pronunciations)}
        return [token for word in sentence for token in place[word]]


def make_task(vocabulary: int, utterances: int, seed: int = 0) -> Task:
    """Returns a random task."""
    rng = np.random.default_rng(seed)
    tokens = ("", " ", *(chr(0x4E00 + index) for index in range(vocabulary - 2)))
    longest = 6 if vocabulary < 1000 else 3
    spellings: dict[tuple[int, ...], None] = {}
    while len(spellings) < WORDS:
        letters = rng.integers(2, vocabulary, size=rng.integers(1 if longest == 3 else 2, longest + 1))
        spellings[(*map(int, letters), 1)] = None
    words = tuple("".join(tokens[token] for token in spelling[:-1]) for spelling in spellings)
    lexicon = Lexicon(words, tuple((spelling,) for spelling in spellings))
    followers = rng.integers(WORDS, size=(WORDS, FOLLOWERS))
    chances = 1.0 / np.arange(1, FOLLOWERS + 1)
    chances /= chances.sum()

    def sentence(length: int) -> list[str]:
        word, sequence = int(rng.integers(WORDS)), []
        for _ in range(length):
            sequence.append(words[word])
            word = int(followers[word, rng.choice(FOLLOWERS, p=chances)])
        return sequence

    training = [sentence(int(rng.integers(5, 20))) for _ in range(SENTENCES)]
    task = Task(tokens, lexicon, training, [sentence(14) for _ in range(utterances)], {})
    for kind in ("peaked", "hard"):
        task.outputs[kind] = [outputs(rng, task.spelled(each), vocabulary, kind) for each in task.references]
    return task


def outputs(rng: np.random.Generator, tokens: Sequence[int], vocabulary: int, kind: str) -> np.ndarray:
    """Returns log-probabilities float32 [FRAMES, vocabulary]: blanks, and a short peak for each token."""
    hard = kind == "hard"
    logits = rng.normal(scale=1.5, size=(FRAMES, vocabulary))
    logits[:, 0] += 11.0 + np.log(vocabulary / 128)
    places = np.sort(rng.choice(FRAMES // 3 - 1, size=len(tokens), replace=False)) * 3
    for place, token in zip(places, tokens, strict=True):
        for frame in range(place, place + int(rng.integers(1, 3))):
            logits[frame, 0] -= 6.0 if hard else 9.0
            logits[frame, token] += (8.0 if hard else 14.0) + np.log(vocabulary / 128)
            rivals = rng.integers(1, vocabulary, size=4)
            logits[frame, rivals] += rng.normal(7.0, 2.0, size=4) if hard else 5.0
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits.astype(np.float32)


def seconds(run: Callable[[], object], utterances: int, repeat: int) -> float:
    """Returns the least processor time per utterance of some runs, after one that warms up."""
    run()
    times = []
    for _ in range(repeat):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times) / utterances


def workbench_run(task: Task, kind: str, batch: int, decoder: CtcDecoder) -> list[list[str]]:
    """Returns the words that a decoder finds in the outputs of a kind, some utterances at a time."""
    logits = task.outputs[kind]
    transcripts = []
    for start in range(0, len(logits), batch):
        for best in decoder.decode(logits[start : start + batch]):
            words = best[0].words
            if words is None:
                words = tuple("".join(task.tokens[token] for token in best[0].tokens).split())
            transcripts.append(list(words))
    return transcripts


def pyctcdecode_run(task: Task, kind: str) -> list[list[str]]:
    """Returns the words that pyctcdecode finds without a language model, with its usual pruning."""
    from pyctcdecode import build_ctcdecoder

    decoder = build_ctcdecoder(list(task.tokens))
    return [decoder.decode_beams(each, beam_width=BEAM)[0][0].split() for each in task.outputs[kind]]


def flashlight_runs(task: Task, arpa: Path) -> Callable[[str], list[list[str]]]:
    """Returns flashlight-text's decoder with the lexicon and a word 4-gram, as a function of the kind of outputs."""
    from flashlight.lib.text import decoder as flashlight
    from flashlight.lib.text.decoder.kenlm import KenLM
    from flashlight.lib.text.dictionary import Dictionary

    words = Dictionary()
    for word in task.lexicon.words:
        words.add_entry(word)
    words.add_entry("<unk>")
    model = KenLM(str(arpa), words)
    trie = flashlight.Trie(len(task.tokens), 1)
    start = model.start(False)
    for index, spellings in enumerate(task.lexicon.pronunciations):
        _, value = model.score(start, index)
        for spelling in spellings:
            trie.insert(list(spelling), index, value)
    trie.smear(flashlight.SmearingMode.MAX)
    options = flashlight.LexiconDecoderOptions(
        beam_size=BEAM,
        beam_size_token=len(task.tokens),
        beam_threshold=25.0,
        lm_weight=ALPHA * float(np.log(10.0)),
        word_score=BONUS,
        unk_score=-np.inf,
        sil_score=0.0,
        log_add=True,
        criterion_type=flashlight.CriterionType.CTC,
    )
    decoder = flashlight.LexiconDecoder(options, trie, model, 1, 0, words.get_index("<unk>"), [], False)

    def run(kind: str) -> list[list[str]]:
        transcripts = []
        for each in task.outputs[kind]:
            contiguous = np.ascontiguousarray(each, dtype=np.float32)
            best = decoder.decode(contiguous.ctypes.data, *contiguous.shape)[0]
            transcripts.append([words.get_entry(word) for word in best.words if word >= 0])
        return transcripts

    return run


def nemo_runs(task: Task, folder: Path) -> Callable[[str], list[list[str]]]:
    """Returns NeMo's batched search on the processor, with a token 3-gram, as a function of the kind of outputs.

    Its blank comes last, and its models name the token n by the character 100 + n.
    """
    import torch
    from nemo.collections.asr.parts.submodules.ctc_batched_beam_decoding import BatchedBeamCTCComputer
    from nemo.collections.asr.parts.submodules.ngram_lm import NGramGPULanguageModel

    torch.set_num_threads(1)
    blank, path = len(task.tokens) - 1, folder / "nemo.arpa"
    sentences = [[chr(99 + token) for token in task.spelled(sentence)] for sentence in task.training]
    write_arpa(train(sentences, 3).tables, path)
    model = NGramGPULanguageModel.from_arpa(path, vocab_size=blank, normalize_unk=False)
    decoder = BatchedBeamCTCComputer(
        blank_index=blank,
        beam_size=BEAM,
        fusion_models=[model],
        fusion_models_alpha=[ALPHA],
        allow_cuda_graphs=False,
    )

    def run(kind: str) -> list[list[str]]:
        transcripts = []
        for start in range(0, len(task.outputs[kind]), BATCH):
            batch = np.stack(task.outputs[kind][start : start + BATCH])
            lengths = torch.full((len(batch),), FRAMES)
            best = decoder(torch.from_numpy(np.roll(batch, -1, axis=2)), lengths).to_hyps_list(score_norm=False)
            transcripts += ["".join(task.tokens[int(token) + 1] for token in each.y_sequence).split() for each in best]
        return transcripts

    return run


def compare(vocabulary: int, utterances: int, repeat: int) -> dict[tuple[str, str], float]:
    """Measures all decoders with one vocabulary and prints their rows; returns seconds by decoder and kind."""
    task = make_task(vocabulary, utterances)
    names = ["|" if token == " " else token for token in task.tokens]  # ARPA's words have no blanks
    tokens = [[names[token] for token in task.spelled(sentence)] for sentence in task.training]
    token_lm = NgramModel(train(tokens, 3).tables, names)
    word_tables = train(task.training, 4).tables
    word_lm = NgramModel(word_tables, task.lexicon.words)
    options = SearchOptions(beam_size=BEAM, alpha=ALPHA, gamma=ALPHA, beta=0.0, word_bonus=BONUS)
    runs: dict[str, Callable[[str], list[list[str]]]] = {}
    plain = CtcDecoder(vocabulary, 0, options)
    grammar = CtcDecoder(vocabulary, 0, options, token_lm=token_lm)
    spelling = CtcDecoder(vocabulary, 0, options, lexicon=task.lexicon, word_lm=word_lm)
    runs["workbench, no model"] = lambda kind: workbench_run(task, kind, BATCH, plain)
    runs["workbench, token 3-gram"] = lambda kind: workbench_run(task, kind, BATCH, grammar)
    runs["workbench, token 3-gram, one at a time"] = lambda kind: workbench_run(task, kind, 1, grammar)
    runs["workbench, lexicon, word 4-gram"] = lambda kind: workbench_run(task, kind, BATCH, spelling)
    with tempfile.TemporaryDirectory() as folder:
        try:
            import pyctcdecode  # noqa: F401

            runs["pyctcdecode, no model"] = lambda kind: pyctcdecode_run(task, kind)
        except ImportError:
            print("pyctcdecode is not installed")
        try:
            arpa = Path(folder) / "words.arpa"
            write_arpa(word_tables, arpa)
            runs["flashlight, lexicon, word 4-gram"] = flashlight_runs(task, arpa)
        except ImportError:
            print("flashlight-text is not installed")
        if vocabulary < 1000:
            try:
                runs["NeMo, token 3-gram"] = nemo_runs(task, Path(folder))
            except ImportError:
                print("NeMo is not installed")
        times = {}
        for name, run in runs.items():
            for kind in task.outputs:
                errors = jiwer.wer([" ".join(s) for s in task.references], [" ".join(s) for s in run(kind)])
                times[name, kind] = seconds(lambda run=run, kind=kind: run(kind), utterances, repeat)
                print(
                    f"| {vocabulary} | {name} | {kind} | {1000 * times[name, kind]:.1f} | {100 * errors:.1f} |",
                    flush=True,
                )
    return times


def main() -> None:
    """Prints all rows and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--utterances", type=int, default=BATCH)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--tokens", type=int, nargs="+", default=[128, 5000], help="sizes of the vocabulary")
    parser.add_argument("--peers", type=Path, help="folder of packages to compare with")
    options = parser.parse_args()
    if options.peers:
        sys.path.append(str(options.peers))
    print(f"beam {BEAM}, {FRAMES} frames, batches of {BATCH}")
    print("| tokens | decoder | outputs | ms of processor time per utterance | word errors, % |")
    print("| --- | --- | --- | --- | --- |")
    times_by_vocabulary = {
        vocabulary: compare(vocabulary, options.utterances, options.repeat) for vocabulary in options.tokens
    }
    for vocabulary, times in times_by_vocabulary.items():
        for peer, own in PAIRS:
            if (peer, "hard") in times:
                peer_times = np.array([times[peer, kind] for kind in ("peaked", "hard")])
                own_times = np.array([times[own, kind] for kind in ("peaked", "hard")])
                peaked, hard = peer_times / own_times
                both = peer_times.sum() / own_times.sum()
                print(f"{vocabulary} tokens: {peer}: {peaked:.1f}, {hard:.1f}, together {both:.1f} times {own}")


if __name__ == "__main__":
    main()
