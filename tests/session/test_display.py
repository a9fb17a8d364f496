"""Notebook displays and reprs of transcripts, generations and answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.display.test_sound import heard
from tests.support.html_fragments import HOSTILE, checked, text_of
from workbench.pipelines.ctc.beam_search import Hypotheses, TextHypothesis
from workbench.session.conversation import Answer
from workbench.session.values import Alternative, Generation, Segment, SpokenHypothesis, Token, Transcript

WORDS = (Token(1, "three", 0.1, 0.5), Token(2, "seven", 0.6, 1.0))
TRANSCRIPT = Transcript(
    model="demo/sensevoice",
    runtime="gguf",
    text="three seven",
    language="en",
    segments=(Segment(0.0, 1.2, "three seven", WORDS, {"event": "Speech"}),),
    tokens=(1, 2),
    audio_seconds=1.2,
    load_seconds=4.5,
    compute_seconds=0.1,
    memory_bytes=412_000_000,
    quantization="q8_0",
)
GENERATION = Generation("demo/qwen3", "pytorch", "three", (7, 8), 12, "stop", 1.0, 0.5, 0.1)
ANSWER = Answer(
    model="demo/speechlm",
    runtime="pytorch",
    text="three",
    audio=np.linspace(-0.5, 0.5, 640, dtype=np.float32),
    sample_rate=16000,
    finish="stop",
    token_ids=(7, 65),
    streams=np.array([[301, 400], [302, 405], [300, 406]]),
    prompt_rows=9,
    load_seconds=1.0,
    compute_seconds=0.5,
    layout={"codec_first": 300, "layer_size": 100},
)


def test_transcript_display_shows_text_word_times_and_model() -> None:
    text = text_of(TRANSCRIPT._repr_html_())
    for part in (
        "demo/sensevoice on gguf q8_0",
        "three seven",
        "1.20 s of audio",
        "12 × real time",
        "412 MB",
        "0.10 to 0.50 s",
    ):
        assert part in text
    assert TRANSCRIPT._repr_html_().count("<rect") == 2


def test_transcript_display_shows_segments_and_hypotheses_as_tables() -> None:
    parts = Segment(0, 1, "a"), Segment(1, 2, "b", tags={"emotion": "HAPPY"})
    best = SpokenHypothesis("three seven", WORDS, None, -1.5, -2.0, -0.5)
    transcript = replace(TRANSCRIPT, segments=parts, hypotheses=(best,), notes=("a note",), text="")
    text = text_of(transcript._repr_html_())
    for part in ("HAPPY", "-1.500", "-2.000", "-0.500", "1.000", "a note", "(no words)"):
        assert part in text


@settings(max_examples=25)
@given(st.one_of(st.just(HOSTILE), st.text()), st.floats(0, 1e6), st.integers(0, 3))
def test_texts_of_models_are_escaped(text: str, seconds: float, tokens: int) -> None:
    token = Token(1, text, 0.0, seconds)
    hypothesis = SpokenHypothesis(text, (token,), None, -1.0, -1.0, 0.0)
    alternatives = ((Alternative(1, text, -0.1), Alternative(2, text, -3.0)),) * tokens
    for value in (
        replace(
            TRANSCRIPT,
            model=text,
            text=text,
            segments=(Segment(0, seconds, text, (token,) * tokens, {"event": text}),) * tokens,
            tags={text: text},
            notes=(text,),
            audio_seconds=seconds,
            hypotheses=(hypothesis,) * tokens,
        ),
        replace(GENERATION, model=text, text=text, finish=text, alternatives=alternatives, notes=(text,)),
        replace(ANSWER, model=text, text=text, finish=text, notes=(text,), streams=None),
        Hypotheses([TextHypothesis(text, (text,), (text,), -1.0, -1.0, 0.0)] * tokens),
    ):
        checked(value._repr_html_())
        assert len(repr(value)) < 400 or value.__class__ is Hypotheses or len(text) > 100


def test_generation_display_shows_alternatives() -> None:
    generation = replace(GENERATION, alternatives=((Alternative(7, "three", -0.105), Alternative(8, "four", -2.5)),))
    text = text_of(generation._repr_html_())
    for part in ("2 tokens after a prompt of 12", "'three' 90.0%", "'four' 8.2%", "ended by the model"):
        assert part in text
    assert "(nothing)" in text_of(replace(GENERATION, text="", compute_seconds=0.0)._repr_html_())


def test_answer_display_has_an_audio_player_and_a_figure_of_codes() -> None:
    html = ANSWER._repr_html_()
    [(samples, rate)] = heard(html)
    assert rate == 16000
    np.testing.assert_allclose(samples, ANSWER.audio, atol=1e-4)
    assert "3 rows of 2 codec streams" in text_of(html) and html.count("<img") == 1


def test_display_of_answers_without_audio_or_text() -> None:
    silent = replace(ANSWER, text="", audio=None, streams=None, sample_rate=None)
    assert "(nothing)" in text_of(silent._repr_html_())
    without_layout = replace(ANSWER, layout=None, audio=np.zeros(0, dtype=np.float32))
    assert heard(without_layout._repr_html_()) == []
    assert repr(silent) == "<Answer '', no audio: by demo/speechlm on pytorch, finish stop>"


def test_reprs_are_short() -> None:
    long_transcript = replace(TRANSCRIPT, text="word " * 10_000, tokens=(1,) * 10_000)
    assert repr(TRANSCRIPT) == "<Transcript 'three seven': 1.20 s by demo/sensevoice on gguf, 2 tokens>"
    assert len(repr(long_transcript)) < 160
    assert repr(GENERATION) == "<Generation 'three': 2 tokens by demo/qwen3 on pytorch, finish stop>"
    assert len(repr(replace(ANSWER, text="x" * 9000))) < 200


def test_search_hypotheses_are_a_tuple_with_a_notebook_display() -> None:
    hypothesis = TextHypothesis("for two", ("f", "ao"), ("for", "two"), -2.0, -3.0, 0.5)
    hypotheses = Hypotheses([hypothesis, replace(hypothesis, text="four two")])
    assert hypotheses == (hypothesis, hypotheses[1]) and isinstance(hypotheses, tuple)
    text = text_of(hypotheses._repr_html_())
    assert "2 results" in text and "four two" in text and "-2.000" in text
    assert "for two" in text_of(hypothesis._repr_html_()) and "no hypotheses" in text_of(Hypotheses()._repr_html_())
