"""The beam search gives the same scores as other decoders, hypothesis by hypothesis, where the definitions agree.

Small random problems, in which no decoder prunes anything. Where a decoder is known to be wrong or to use another
definition, the problems avoid that, and the test says so. With `-rP --log-level=INFO` pytest prints the figures seen.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import math
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.decoding.ctc_beam import CtcDecoder, Hypothesis, Lexicon, SearchOptions
from workbench.decoding.ngram.arpa_writing import write_arpa
from workbench.decoding.ngram.read import read_ngram_model
from workbench.decoding.ngram.train import train

pytestmark = pytest.mark.reference

WIDE = 50_000  # more hypotheses than any problem here has
LETTERS, BLANK, BOUNDARY = ("a", "b"), 0, 3
TOKENS = ("", *LETTERS, " ")  # of pyctcdecode; the others have names for the blank and the boundary
ALPHA, BONUS = 0.7, 0.9
NEMO = "pip install nemo_toolkit[asr], in an environment of its own"
FRAMES = 6
WORDS = tuple("".join(word) for length in range(1, FRAMES + 1) for word in product(LETTERS, repeat=length))
"""All words that fit into a recording, so that a lexicon of them forbids nothing."""


def require(name: str, command: str = "make reference") -> Any:
    """Returns a module of the other side; skips the calling test where its package is not installed."""
    package = name.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"compares with {package}, which is not installed here; to install it: {command}")
    return importlib.import_module(name)


def log_difference(label: str, count: int, difference: float) -> None:
    logging.getLogger(__name__).info("%s: %d scores, at most %.1e apart", label, count, difference)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    result: np.ndarray = logits - logits.max(axis=1, keepdims=True)
    result -= np.log(np.exp(result).sum(axis=1, keepdims=True))
    return result


def problems(count: int, frames: int, columns: int, scale: float = 2.0) -> list[np.ndarray]:
    """Draws log-probabilities [frames, columns]."""
    rng = np.random.default_rng(18)
    return [log_softmax(rng.normal(scale=scale, size=(frames, columns))) for _ in range(count)]


def spelling_of(word: str) -> tuple[int, ...]:
    return tuple(TOKENS.index(letter) for letter in word)


def add_masses(masses: list[tuple[Any, float]]) -> dict[Any, float]:
    """Returns the log of the summed probabilities by key; the masses are log-probabilities."""
    sums: dict[Any, float] = {}
    for key, mass in masses:
        sums[key] = float(np.logaddexp(sums[key], mass)) if key in sums else mass
    return sums


@pytest.fixture(scope="module")
def word_grammar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A 3-gram model of the words, in which every word occurs."""
    rng = np.random.default_rng(3)
    sentences = [[WORDS[place] for place in rng.integers(len(WORDS), size=3)] for _ in range(300)]
    path = tmp_path_factory.mktemp("words") / "words.arpa"
    write_arpa(train([*sentences, *([word] for word in WORDS)], 3).tables, path)
    return path


def assert_equal_scores(label: str, scores: dict[Any, float], expected: dict[Any, float], tolerance: float) -> None:
    """Asserts that both have the same hypotheses with the same scores."""
    assert expected and expected.keys() == scores.keys()
    difference = max(abs(scores[key] - expected[key]) for key in expected)
    log_difference(label, len(expected), difference)
    assert difference < tolerance


def test_ngram_probabilities_equal_those_of_kenlm(tmp_path: Path) -> None:
    """ln P of each word and of the end in random sentences with unknown words; sums over the vocabulary."""
    kenlm = require("kenlm")
    rng = np.random.default_rng(5)
    symbols = [f"w{number}" for number in range(40)]
    text = [[symbols[place] for place in rng.zipf(1.6, size=rng.integers(1, 12)) % 35] for _ in range(400)]
    path = tmp_path / "words.arpa"
    write_arpa(train(text, 5).tables, path)
    kenlm_model, model = kenlm.Model(str(path)), read_ngram_model(path, symbols)
    vocabulary = [*sorted({word for sentence in text for word in sentence}), "</s>", "<unk>"]
    worst, count = 0.0, 0
    for _ in range(300):
        places = rng.integers(len(symbols), size=rng.integers(0, 12))
        states = np.array([model.start])
        scores = []
        for place in places:
            value, states = model.advance(states, np.array([place]))
            scores.append(value[0])
        scores.append(model.final(states)[0])
        sentence = " ".join(symbols[place] for place in places)
        expected = [score * math.log(10.0) for score, _, _ in kenlm_model.full_scores(sentence)]
        worst, count = max(worst, np.abs(np.array(scores) - expected).max()), count + len(scores)
        state, after = kenlm.State(), kenlm.State()
        kenlm_model.BeginSentenceWrite(state)
        for place in places:
            kenlm_model.BaseScore(state, symbols[place], after)
            state, after = after, state
        assert sum(10 ** kenlm_model.BaseScore(state, word, after) for word in vocabulary) == pytest.approx(
            1.0, abs=1e-5
        )
    log_difference("kenlm", count, worst)
    assert worst < 1e-5


def test_ctc_scores_summed_over_alignments_equal_those_of_pyctcdecode() -> None:
    """Without a language model. It adds up token sequences whose text is the same when white space is put right."""
    pyctcdecode = require("pyctcdecode")
    decoder = pyctcdecode.build_ctcdecoder(list(TOKENS))
    for logits in problems(8, FRAMES, len(TOKENS)):
        beams = decoder.decode_beams(logits, beam_width=WIDE, beam_prune_logp=-1e6, token_min_logp=-1e6)
        expected = {text: score for text, _, _, _, score in beams}
        assert len(expected) == len(beams)
        hypotheses = CtcDecoder(len(TOKENS), BLANK, SearchOptions(beam_size=WIDE, nbest=WIDE)).decode([logits])[0]
        scores = add_masses([(" ".join(text_of(each).split()), each.score) for each in hypotheses])
        assert_equal_scores("pyctcdecode", scores, expected, 1e-9)


def text_of(hypothesis: Hypothesis) -> str:
    return "".join(TOKENS[token] for token in hypothesis.tokens)


def test_scores_with_words_and_a_word_ngram_equal_those_of_pyctcdecode(word_grammar: Path) -> None:
    """No hypothesis may begin or end with a blank between words: with one at the end it scores an empty word.

    Its words are the text between spaces; here words have spellings with and without spaces after them.
    """
    require("kenlm")
    pyctcdecode = require("pyctcdecode")
    decoder = pyctcdecode.build_ctcdecoder(
        list(TOKENS), str(word_grammar), unigrams=list(WORDS), alpha=ALPHA, beta=BONUS
    )
    spellings = tuple(
        tuple((*spelling_of(word), *ends) for ends in ((), (BOUNDARY,), (BOUNDARY,) * 2)) for word in WORDS
    )
    options = SearchOptions(beam_size=WIDE, nbest=WIDE, gamma=ALPHA, word_bonus=BONUS)
    lexicon = Lexicon(WORDS, spellings)
    search = CtcDecoder(len(TOKENS), BLANK, options, lexicon=lexicon, word_lm=read_ngram_model(word_grammar, WORDS))
    for logits in problems(6, FRAMES - 1, len(TOKENS)):
        logits[[0, -1]] = np.where([False, True, True, False], logits[[0, -1]], -30.0)
        logits = log_softmax(logits)
        beams = decoder.decode_beams(logits, beam_width=WIDE, beam_prune_logp=-1e6, token_min_logp=-25.0)
        expected = {text: score for text, _, _, _, score in beams if text}
        divided = [each for each in search.decode([logits])[0] if each.words and is_divided(each)]
        scores = add_masses([(" ".join(each.words or ()), each.score) for each in divided])
        likely = {text for text, score in expected.items() if score > max(expected.values()) - 20}
        assert_equal_scores(
            "pyctcdecode, word 3-gram",
            {text: score for text, score in scores.items() if text in likely},
            {text: expected[text] for text in likely},
            1e-4,
        )


def is_divided(hypothesis: Hypothesis) -> bool:
    """Whether there are spaces between all words, and none at the ends."""
    return text_of(hypothesis) == text_of(hypothesis).strip() and text_of(hypothesis).split() == list(
        hypothesis.words or ()
    )


def test_ctc_scores_summed_over_alignments_equal_those_of_flashlight() -> None:
    flashlight = require("flashlight.lib.text.decoder")
    options = flashlight.LexiconFreeDecoderOptions(
        beam_size=WIDE,
        beam_size_token=len(TOKENS),
        beam_threshold=1e6,
        lm_weight=0.0,
        sil_score=0.0,
        log_add=True,
        criterion_type=flashlight.CriterionType.CTC,
    )
    decoder = flashlight.LexiconFreeDecoder(options, flashlight.ZeroLM(), BLANK, BLANK, [])
    for logits in problems(8, FRAMES, len(TOKENS)):
        expected = add_masses([(tokens_of(each), each.score) for each in flashlight_results(decoder, logits)])
        hypotheses = CtcDecoder(len(TOKENS), BLANK, SearchOptions(beam_size=WIDE, nbest=WIDE)).decode([logits])[0]
        assert_equal_scores("flashlight-text", {each.tokens: each.score for each in hypotheses}, expected, 1e-5)


def test_best_alignment_scores_with_lexicon_and_word_ngram_equal_those_of_flashlight(word_grammar: Path) -> None:
    """Each word ends with the boundary, which it takes for silence, and lets in anywhere between words.

    So only its results without further silence can be compared.
    """
    flashlight = require("flashlight.lib.text.decoder")
    model_class = require("flashlight.lib.text.decoder.kenlm").KenLM
    dictionary = require("flashlight.lib.text.dictionary").Dictionary([*WORDS, "<unk>"])
    model = model_class(str(word_grammar), dictionary)
    trie = flashlight.Trie(len(TOKENS), BOUNDARY)
    for index, word in enumerate(WORDS):
        trie.insert([*spelling_of(word), BOUNDARY], index, model.score(model.start(False), index)[1])
    trie.smear(flashlight.SmearingMode.MAX)
    options = flashlight.LexiconDecoderOptions(
        beam_size=WIDE,
        beam_size_token=len(TOKENS),
        beam_threshold=1e6,
        lm_weight=ALPHA * math.log(10.0),
        word_score=BONUS,
        unk_score=-math.inf,
        sil_score=0.0,
        log_add=False,
        criterion_type=flashlight.CriterionType.CTC,
    )
    decoder = flashlight.LexiconDecoder(options, trie, model, BOUNDARY, BLANK, len(WORDS), [], False)
    lexicon = Lexicon(WORDS, tuple(((*spelling_of(word), BOUNDARY),) for word in WORDS))
    search = CtcDecoder(
        len(TOKENS),
        BLANK,
        SearchOptions(beam_size=WIDE, nbest=WIDE, recombination="max", gamma=ALPHA, word_bonus=BONUS),
        lexicon=lexicon,
        word_lm=read_ngram_model(word_grammar, WORDS),
    )
    count, worst = 0, 0.0
    for logits in problems(8, FRAMES, len(TOKENS)):
        hypotheses = {each.words: each for each in search.decode([logits])[0]}
        for result in flashlight_results(decoder, logits):
            words = tuple(dictionary.get_entry(word) for word in result.words if word >= 0)
            best = hypotheses.get(words)
            if best is None or tokens_of(result) != best.tokens:
                continue
            worst, count = max(worst, abs(result.score - best.score)), count + 1
    log_difference("flashlight-text, lexicon, word 3-gram", count, worst)
    assert count > 100 and worst < 1e-4


def flashlight_results(decoder: Any, logits: np.ndarray) -> list[Any]:
    contiguous = np.ascontiguousarray(logits, dtype=np.float32)
    return list(decoder.decode(contiguous.ctypes.data, *contiguous.shape))


def tokens_of(result: Any) -> tuple[int, ...]:
    """The tokens of a result, which has a frame of silence at both ends."""
    return tuple(token for token, _ in groupby(result.tokens[1:-1]) if token != BLANK)


@pytest.mark.parametrize("grammar", [False, True])
def test_best_alignment_scores_equal_those_of_nemo(grammar: bool, tmp_path: Path) -> None:
    """In a batch of equal lengths, as it goes on past the end of a shorter recording. Its blank comes last.

    It follows a prefix twice, by the last label of its alignment; the better one is compared.
    """
    place = "nemo.collections.asr.parts.submodules"
    computer = require(f"{place}.ctc_batched_beam_decoding", NEMO)
    import torch

    blank = 3
    names = [chr(100 + token) for token in range(blank)]  # as it writes tokens into its models
    rng = np.random.default_rng(7)
    path = tmp_path / "tokens.arpa"
    write_arpa(train([[names[t] for t in rng.integers(blank, size=6)] for _ in range(60)], 3).tables, path)
    weights: dict[str, Any] = {}
    if grammar:
        ngrams = require(f"{place}.ngram_lm").NGramGPULanguageModel
        weights["fusion_models"] = [ngrams.from_arpa(path, vocab_size=blank, normalize_unk=False)]
        weights["fusion_models_alpha"] = [ALPHA]
    decoder = computer.BatchedBeamCTCComputer(
        blank_index=blank, beam_size=2000, beam_beta=0.4, beam_threshold=1e6, allow_cuda_graphs=False, **weights
    )
    batch = np.stack(problems(8, FRAMES, blank + 1)).astype(np.float32)
    lengths = torch.full((len(batch),), FRAMES)
    with torch.inference_mode():
        results = decoder(torch.from_numpy(batch), lengths).to_nbest_hyps_list(score_norm=False)
    options = SearchOptions(beam_size=WIDE, nbest=WIDE, recombination="max", alpha=ALPHA, beta=0.4)
    model = read_ngram_model(path, [*names, "<blank>"]) if grammar else None
    hypotheses = CtcDecoder(blank + 1, blank, options, token_lm=model).decode(list(batch))
    for result, of_recording in zip(results, hypotheses, strict=True):
        expected: dict[tuple[int, ...], float] = {}
        for each in result.n_best_hypotheses:
            tokens = tuple(each.y_sequence.tolist())
            expected[tokens] = max(expected.get(tokens, -math.inf), each.score)
        assert_equal_scores(
            "NeMo, token 3-gram" if grammar else "NeMo",
            {each.tokens: each.score for each in of_recording},
            expected,
            1e-4,
        )
