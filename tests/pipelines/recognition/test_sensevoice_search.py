"""SenseVoice's beam search with a fake network: texts, words, times, tags, and the files it reads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.tiny_checkpoints import noise, tiny_sensevoice
from workbench.core.errors import BadInput
from workbench.decoding.ctc import collapse
from workbench.families.sanm.sensevoice import SenseVoiceModel, SenseVoiceOptions, is_text, read_sensevoice
from workbench.pipelines.ctc import head as ctc_head
from workbench.pipelines.recognition.sensevoice import SenseVoicePipeline
from workbench.pipelines.recognition.speech_session import SpeechSession
from workbench.trace.recorder import Recorder

SAMPLES = noise(1.0)[0]  # 17 frames
BEAM = {"beam_size": 50}
WIDE = SenseVoiceOptions(beam_size=100, nbest=100)


class Network:
    """Returns the same logits for every recording."""

    dtype = "float32"

    def __init__(self, logits: np.ndarray):
        self.fixed_logits = logits

    def logits(self, features: np.ndarray, queries: tuple[int, ...], recorder: Recorder | None) -> Iterator[np.ndarray]:
        yield self.fixed_logits


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SenseVoiceModel:
    return read_sensevoice(tiny_sensevoice(tmp_path_factory.mktemp("tiny")))


def pipeline(model: SenseVoiceModel, frames: int, **pieces: str) -> SenseVoicePipeline:
    """A pipeline whose network gives the named piece at a frame, as in `f6="▁a"`, and a blank at all others."""
    logits = np.full((frames, len(model.vocabulary)), -12.0, dtype=np.float32)
    logits[:, 0] = 0.0
    for frame, piece in pieces.items():
        logits[int(frame[1:]), model.vocabulary.ids[piece]] = 9.0
    return SenseVoicePipeline(model, None, Network(logits))


def test_best_hypothesis_equals_the_greedy_text_for_confident_logits(model: SenseVoiceModel) -> None:
    recogniser = pipeline(model, 21, f0="<|en|>", f1="<|HAPPY|>", f6="▁a", f7="▁a", f9="▁c")
    greedy, beam = recogniser.recognise(SAMPLES, SenseVoiceOptions()), recogniser.recognise(SAMPLES, WIDE)
    assert (greedy.text, greedy.hypotheses) == ("a c", ())
    for name in ("text", "language", "tags", "tokens", "ids"):
        assert getattr(beam, name) == getattr(greedy, name), name
    assert len(beam.hypotheses) == 100
    best = beam.hypotheses[0]
    assert (best.text, best.tokens, best.words, best.lm) == ("a c", greedy.tokens, None, 0.0)
    assert best.score == best.acoustic < 0
    texts = {(hypothesis.text, tuple(token.id for token in hypothesis.tokens)) for hypothesis in beam.hypotheses}
    assert len(texts) == 100


def test_hypothesis_scores_match_the_sum_over_all_paths(model: SenseVoiceModel) -> None:
    """The reference sums over all paths, and removes tags and control pieces after collapsing."""
    allowed = [model.vocabulary.ids[piece] for piece in ("<unk>", "</s>", "▁a", "▁c", "<|en|>", "<|HAPPY|>")]
    logits = np.full((4, len(model.vocabulary)), -np.inf, dtype=np.float32)
    logits[:, allowed] = np.random.default_rng(3).normal(size=(4, len(allowed)))
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected: dict[tuple[int, ...], float] = {}
    for path in product(allowed, repeat=4):
        ids = [token.id for token in collapse(np.array(path), model.blank)]
        words = tuple(number for number in ids if is_text(model.vocabulary.pieces[number]))
        expected[words] = expected.get(words, 0.0) + float(np.prod(probabilities[range(4), list(path)]))
    options = SenseVoiceOptions(beam_size=500, nbest=500)
    recognition = SenseVoicePipeline(model, None, Network(logits)).recognise(SAMPLES, options)
    scores = {
        tuple(token.id for token in hypothesis.tokens): np.exp(hypothesis.acoustic)
        for hypothesis in recognition.hypotheses
    }
    assert scores.keys() == expected.keys()
    assert scores == pytest.approx(expected, abs=1e-6)


def test_lexicon_words_form_the_text_and_have_times(model: SenseVoiceModel, tmp_path: Path) -> None:
    lexicon = tmp_path / "lexicon.txt"
    lexicon.write_text("Ann\t▁a\nact\t▁a ▁c\nsee\t▁c\nsea\t▁c\n", encoding="utf-8")
    boost = tmp_path / "boost.txt"
    boost.write_text("Ann sea\n", encoding="utf-8")
    recogniser = pipeline(model, 21, f0="<|en|>", f6="▁a", f12="▁c")
    options = SenseVoiceOptions(lexicon=str(lexicon), boost=str(boost), nbest=3)
    recognition = recogniser.recognise(SAMPLES, options)
    assert recognition.text == "Ann sea" and recognition.language == "en"
    assert [token.text for token in recognition.tokens] == [" Ann", " sea"]
    best = recognition.hypotheses[0]
    assert best.words is not None and [word.text for word in best.words] == ["Ann", "sea"]
    assert [(word.start, word.end) for word in best.words] == [(token.start, token.end) for token in best.tokens]
    assert {hypothesis.text for hypothesis in recognition.hypotheses} == {"Ann sea", "Ann see", "act"}
    assert recognition.hypotheses[1].acoustic == pytest.approx(best.acoustic) and best.score > best.acoustic


def test_lexicon_without_a_match_gives_empty_text_with_tags(model: SenseVoiceModel, tmp_path: Path) -> None:
    lexicon = tmp_path / "lexicon.txt"
    lexicon.write_text("never\t</s>\n", encoding="utf-8")
    logits = np.full((6, len(model.vocabulary)), -np.inf, dtype=np.float32)
    logits[0, model.vocabulary.ids["<|en|>"]] = logits[1:, model.vocabulary.ids["▁a"]] = 1.0
    recognition = SenseVoicePipeline(model, None, Network(logits)).recognise(
        SAMPLES, SenseVoiceOptions(lexicon=str(lexicon))
    )
    assert (recognition.text, recognition.language, recognition.hypotheses, recognition.tokens) == ("", "en", (), ())


def test_session_joins_hypotheses_of_chunks_and_splits_segments_at_words(
    model: SenseVoiceModel, tmp_path: Path
) -> None:
    lexicon = tmp_path / "lexicon.txt"
    lexicon.write_text("Ann\t▁a\nsee\t▁c\nsea\t▁c\n", encoding="utf-8")
    session = SpeechSession("it", "fake", pipeline(model, 60, f6="▁a", f40="▁c"))
    options: dict[str, Any] = {"lexicon": str(lexicon), "nbest": 4, "vad": "none", "max_segment_seconds": 4.0}
    transcript = session.transcribe((noise(8.0)[0], 16000), **options)
    words = transcript.text.split()
    assert transcript.text == transcript.hypotheses[0].text and set(words[::2]) == {"Ann"} and len(words) >= 4
    assert [segment.text for segment in transcript.segments] == words, (
        "segments end at the pause of two seconds within each chunk"
    )
    texts = {hypothesis.text for hypothesis in transcript.hypotheses}
    assert len(texts) == 4 and all(set(text.split()[1::2]) <= {"see", "sea"} for text in texts)
    assert len({round(hypothesis.score, 6) for hypothesis in transcript.hypotheses}) == 1, "homophones"
    times = [word.start for word in transcript.hypotheses[0].words or ()]
    assert times == sorted(times) and times[2] > times[1]  # type: ignore[operator,type-var]
    assert "hypotheses" in transcript.to_dict()
    assert "hypotheses" not in session.transcribe((noise(1.0)[0], 16000)).to_dict()


def test_missing_special_words_of_a_language_model_are_noted(model: SenseVoiceModel, tmp_path: Path) -> None:
    grammar = tmp_path / "tokens.arpa"
    grammar.write_text("\\data\\\nngram 1=1\n\n\\1-grams:\n-0.5\t▁a\n\n\\end\\\n", encoding="utf-8")
    session = SpeechSession("it", "fake", pipeline(model, 60, f6="▁a", f40="▁c"))
    options: dict[str, Any] = {"vad": "none", "max_segment_seconds": 4.0}
    transcript = session.transcribe((noise(8.0)[0], 16000), lm=str(grammar), **options)
    assert [note.split(":")[0] for note in transcript.notes if "tokens.arpa" in note] == [
        f"tokens.arpa has no {name}" for name in ("<unk>", "</s>", "<s>")
    ]
    assert not session.transcribe((noise(8.0)[0], 16000), **options).notes


def test_search_files_are_reread_only_after_a_change(
    model: SenseVoiceModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds: list[object] = []
    original = ctc_head.build_decoder
    monkeypatch.setattr(ctc_head, "build_decoder", lambda *arguments: builds.append(arguments) or original(*arguments))
    lexicon = tmp_path / "lexicon.txt"
    lexicon.write_text("Ann\t▁a\n", encoding="utf-8")
    recogniser = pipeline(model, 21, f6="▁a")
    options = SenseVoiceOptions(lexicon=str(lexicon))
    assert [recogniser.recognise(SAMPLES, options).text for _ in range(2)] == ["Ann", "Ann"] and len(builds) == 1
    lexicon.write_text("Anna\t▁a\n", encoding="utf-8")
    assert recogniser.recognise(SAMPLES, options).text == "Anna" and len(builds) == 2
    lexicon.unlink()
    with pytest.raises(BadInput, match=r"lexicon\.txt cannot be read"):
        recogniser.recognise(SAMPLES, options)


def test_neural_lm_of_a_search_is_opened_once_and_closed_with_the_pipeline(
    model: SenseVoiceModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Session:
        close_count = 0

        def close(self) -> None:
            Session.close_count += 1

    opened_paths: list[str] = []

    def build(options: Any, pieces: Any, blank: int, open_session: Any) -> Any:
        open_session(options.neural_lm)
        return original(SenseVoiceOptions(beam_size=4).beam, pieces, blank, open_session)

    class Module:
        @staticmethod
        def open_session(place: Path, name: str, settings: object) -> Session:
            opened_paths.append(f"{place}")
            return Session()

    original = ctc_head.build_decoder
    monkeypatch.setattr(ctc_head, "build_decoder", build)
    monkeypatch.setattr(ctc_head, "import_module", lambda name: Module)
    recogniser = pipeline(model, 21, f6="▁a")
    options = SenseVoiceOptions(neural_lm=str(tmp_path), lexicon="lexicon.txt")
    for _ in range(2):
        recogniser.recognise(SAMPLES, options)
    assert opened_paths == [str(tmp_path)] and Session.close_count == 0
    recogniser.close()
    recogniser.close()
    assert Session.close_count == 1
