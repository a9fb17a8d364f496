"""The evaluation report: figures against pooled scores, confusions, packed rows, tables, and escaping of all text."""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import jiwer
import numpy as np
import pytest

from tests.support.made_evaluation import MODELS, made_columns, of_texts, tone, utterances
from workbench.core.errors import BadInput
from workbench.evaluation.report.columns import Columns, columns_of, short_names
from workbench.evaluation.report.confusions import Borders, confusions
from workbench.evaluation.report.extremes import most_different, worst
from workbench.evaluation.report.overview import overview
from workbench.evaluation.report.packed import COUNTED, SEPARATOR, packed
from workbench.evaluation.report.page import page
from workbench.evaluation.report.players import players
from workbench.evaluation.rows import Result, Utterance, scores_of
from workbench.evaluation.summary import summary_of
from workbench.text.normalisers import find_normaliser
from workbench.text.rates import pool_scores, score

MARKUP = "<img src=x onerror=alert(1)>\"'&</script><script>alert(2)</script>"


def test_error_rates_equal_pooled_scores_and_jiwer() -> None:
    columns = made_columns(500, MODELS[:2])
    report = overview(columns, breakdowns=False)
    for place, model in enumerate(columns.models):
        rows = [
            row
            for row, text in enumerate(columns.texts[model])
            if text is not None and row not in columns.failures[model]
        ]
        references = [columns.utterances[row].text for row in rows]
        hypotheses = [(columns.texts[model][row] or "").lower() for row in rows]
        pooled = pool_scores([score(reference, hypothesis) for reference, hypothesis in zip(references, hypotheses)])
        figures = report.models[place]
        assert figures.wer.rate == pytest.approx(pooled.wer) == pytest.approx(jiwer.wer(references, hypotheses))
        assert figures.cer.rate == pytest.approx(pooled.cer) == pytest.approx(jiwer.cer(references, hypotheses))
        assert (figures.substitutions, figures.deletions, figures.insertions) == (
            pooled.words.substitutions,
            pooled.words.deletions,
            pooled.words.insertions,
        )
        assert figures.failed == 5 and figures.done == 500 and len(rows) == 495


def test_overview_reports_speed_and_memory(columns: Columns) -> None:
    [figures, *_] = overview(columns, breakdowns=False).models
    assert figures.rtfx == pytest.approx(50)
    assert figures.cpu_seconds == pytest.approx(1.5 * figures.compute_seconds)
    assert figures.memory_bytes == 300 << 20
    json.dumps(overview(columns).to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("seconds", "duration"),
    [(3.06, "6.1 s of sound"), (45.0, "90.0 s of sound"), (7200.0, "4 h 00 min of sound")],
)
def test_report_header_states_the_number_and_duration_of_recordings(seconds: float, duration: str) -> None:
    corpus = [Utterance(str(number), f"{number}.wav", "one", duration=seconds) for number in range(2)]
    assert f"2 recordings, {duration}." in page(columns_of(corpus, {"demo/a": []}, "basic", "1"), tone)


def test_report_of_an_earlier_normaliser_says_which_version_marks_the_errors() -> None:
    corpus, version = [Utterance("a", "a.wav", "one")], find_normaliser("basic").version
    for scored_with, is_noted in ((version, False), ("0", True)):
        text = page(columns_of(corpus, {"demo/a": []}, "basic", scored_with), tone)
        assert f"the normaliser basic, version {scored_with}." in text
        assert (f"Errors are marked after its version {version}." in text) == is_noted


@pytest.mark.parametrize(("second", "is_noted"), [("two", True), ("too", False)])
def test_report_of_a_model_without_errors_says_what_its_interval_means(second: str, is_noted: bool) -> None:
    text = page(of_texts([("one", "one"), ("two", second)]), tone)
    assert ("A model without errors has the interval 0 to 0" in text) == is_noted


def test_breakdown_groups_cover_all_recordings(columns: Columns) -> None:
    report = overview(columns)
    titles = [each.title for each in report.breakdowns]
    assert titles == ["Duration", "Length of the reference", "Noise", "Speaker"]  # there is one language only
    totals = {each.title: sum(group.recordings for group in each.groups) for each in report.breakdowns}
    assert totals["Duration"] == totals["Speaker"] == 120
    assert [group.name for group in report.breakdowns[2].groups] == ["0 dB", "10 dB", "clean"]
    for group in report.breakdowns[3].groups:
        rows = [row for row, each in enumerate(columns.utterances) if each.speaker == group.name]
        errors, units = columns.errors()[rows, 0], columns.units()[rows, 0]
        assert group.intervals[0].rate == pytest.approx(np.nansum(errors) / np.nansum(units))


def test_speaker_breakdown_shows_the_worst_thirty_speakers() -> None:
    corpus = [Utterance(f"{place}", "a.wav", "one two", speaker=f"{place}") for place in range(40)]
    texts = ["one two" if place < 35 else "one" for place in range(40)]
    results = [
        Result(each.id, "m", text, scores=scores_of(score(each.text, text))) for each, text in zip(corpus, texts)
    ]
    [speakers] = overview(columns_of(corpus, {"m": results}, "basic", "1")).breakdowns
    assert len(speakers.groups) == 30 and speakers.left_out == 10
    assert {group.name for group in speakers.groups[:5]} == {"35", "36", "37", "38", "39"}


def test_confusions_count_swapped_added_and_dropped_words_by_position() -> None:
    [counts] = confusions(
        of_texts(
            [
                ("one two three", "one too three"),
                ("two", "too"),
                ("one two", "uh one two"),  # added at the start
                ("one two", "one two um"),  # and at the end
                ("one two", "one uh two"),
                ("one two three", "two three"),  # dropped at the start
                ("six", "nine nine"),  # no right word: neither start nor end
                ("all right", "all right"),
            ]
        )
    )
    assert counts.swapped[0] == ("two", "too", 2)
    assert counts.added[0] == ("uh", 2)
    assert counts.added_at == Borders(start=1, middle=2, end=1)
    assert counts.dropped == (("one", 1),) and counts.dropped_at == Borders(start=1)
    assert (counts.aligned, counts.wrong) == (7, 7)


def test_added_space_is_visible_among_the_confusions() -> None:
    columns = of_texts([("你好", "hi you")])
    assert dict(confusions(columns)[0].added)[" "] == 1
    assert ">␣<" in page(columns, tone)


def test_worst_and_most_different_recordings_are_ranked() -> None:
    corpus = [Utterance(f"{place}", "a.wav", "one two three four") for place in range(4)]
    texts = {
        "a": ["one two three four", "", "one two three", "x y z w"],
        "b": ["one two three four", "one two three four", "one two", "x y z"],
    }
    columns = columns_of(
        corpus,
        {
            model: [
                Result(each.id, model, text, scores=scores_of(score(each.text, text)))
                for each, text in zip(corpus, hypotheses)
            ]
            for model, hypotheses in texts.items()
        },
        "basic",
        "1",
    )
    assert worst(columns) == [3, 1, 2]
    assert most_different(columns) == [1, 2]
    assert most_different(of_texts([("one", "two")])) == []


def test_mixed_scripts_pool_to_a_mixed_error_rate() -> None:
    columns = of_texts([("打开灯", "打开的"), ("one two", "one"), ("打开 app", "打开 up")])
    assert list(columns.names) == ["CER", "WER", "MER"] and columns.rate == "MER"
    assert list(columns.errors()[:, 0]) == [1, 1, 1] and list(columns.units()[:, 0]) == [3, 2, 3]
    rows = unpack(columns)
    assert rows["kinds"] == "CWM"
    assert rows["units"][2] == SEPARATOR.join(["打", "开", "app"]) and rows["units"][1] == 1


def test_short_model_names_are_minimal_and_unique() -> None:
    assert list(short_names(MODELS).values()) == ["pytorch", "gguf f32", "gguf q8_0"]
    assert list(short_names(["a|gguf|f32", "a|gguf|q8_0"]).values()) == ["f32", "q8_0"]
    assert list(short_names(["a|pytorch", "b|pytorch"]).values()) == ["a", "b"]
    assert list(short_names(["a|pytorch", "a|gguf|f32", "b|pytorch"]).values())[2] == "b pytorch"
    assert list(short_names(["a|gguf|q8_0", "b|gguf|q4_0"]).values()) == ["a", "b"]
    assert list(short_names(["a|gguf|f32", "b|gguf|f32", "b|gguf|q4_0"]).values()) == ["a f32", "b f32", "b q4_0"]
    assert short_names(["a|gguf|f32"]) == {"a|gguf|f32": "a gguf f32"}


def unpack(columns: Columns) -> dict[str, Any]:
    """Returns the rows as the table's script assembles them."""
    parts = packed(columns)
    inflated = [zlib.decompress(base64.b64decode(each)) for each in (parts.head, parts.numbers, *parts.texts)]
    head, numbers = json.loads(inflated[0]), np.frombuffer(inflated[1], "<i4")
    assert len(numbers) == len(head["numbers"]) * head["count"] and head["count"] == len(columns)
    table = dict(head) | dict(zip(head["numbers"], numbers.reshape(-1, len(columns)).tolist()))
    blocks = [json.loads(each) for each in inflated[2:]]
    assert all(len(each["ids"]) == head["block"] for each in blocks[:-1])
    for name in ("ids", "audio", "reference", "units"):
        table[name] = [value for block in blocks for value in block[name]]
    for place, model in enumerate(table["models"]):
        model["counts"] = [table[f"{name} {place}"] for name in COUNTED]
        for name in ("text", "units"):
            model[name] = [value for block in blocks for value in block["models"][place][name]]
    return table


def test_packed_report_rows_unpack_to_the_original_data(columns: Columns) -> None:
    rows = unpack(columns)
    assert rows["ids"] == [each.id for each in columns.utterances]
    for place, (model, packed_model) in enumerate(zip(columns.models, rows["models"])):
        assert packed_model["key"] == model and set(map(int, packed_model["failed"])) == set(columns.failures[model])
        for row, packed_text in enumerate(packed_model["text"]):
            assert (rows["reference"][row] if packed_text == 1 else packed_text) == columns.texts[model][row]
            counts = [each[row] for each in packed_model["counts"]]
            expected = columns.counts["primary"][row, place]
            assert counts == ([-1] * 4 if math.isnan(expected[0]) else expected.tolist())
    names = rows["groups"]["noise"]
    assert [names[at] if at >= 0 else None for at in rows["noise"]] == [e.noise for e in columns.utterances]
    assert rows["centiseconds"] == [round(100 * each) for each in columns.seconds]


class Tags(HTMLParser):
    """Counts the elements of a document and collects its attributes."""

    def __init__(self, text: str):
        super().__init__()
        self.counts: dict[str, int] = {}
        self.handlers: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.addresses += [str(value) for name, value in attrs if name in ("src", "href")]


def hostile() -> Columns:
    """Markup in every field that a manifest, a model or a card may fill."""
    corpus = [
        Utterance(
            f"{MARKUP}{place}",
            MARKUP,
            MARKUP,
            speaker=f"{MARKUP}{place}",
            noise=f"{MARKUP}{place}",
            language=f"{MARKUP}{place}",
        )
        for place in range(3)
    ]
    results = {
        model: [
            *(
                Result(each.id, model, f"{MARKUP} {model}", scores=scores_of(score(each.text, f"{MARKUP} {model}")))
                for each in corpus[:2]
            ),
            Result(corpus[2].id, model, "", error=MARKUP),
        ]
        for model in (f"{MARKUP}|a", f"{MARKUP}|b")
    }
    return columns_of(corpus, results, "basic", "1", skipped=[{"where": MARKUP, "reason": MARKUP}], title=MARKUP)


def test_text_of_manifests_and_models_is_escaped_in_the_report() -> None:
    text = page(hostile(), tone)
    assert "<img" not in text and "<script>alert" not in text
    tags = Tags(text)
    assert tags.counts["script"] == 5 and "img" not in tags.counts and tags.handlers == []
    assert all(each.startswith(("#", "data:audio/flac;base64,")) for each in tags.addresses)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy and policy[1].startswith("default-src 'none'") and "'unsafe-inline'; script-src 'sha256-" in policy[1]


def test_audio_players_respect_length_and_size_limits() -> None:
    columns = made_columns(6)
    loud = np.random.default_rng(0).uniform(-1, 1, 16000 * 40)

    def sound_of(utterance: Utterance) -> tuple[np.ndarray, int]:
        if utterance.id == "take-000000":
            raise BadInput("there is no file a.wav")
        return loud, 16000

    sounds = players(columns, [0, 1, 1, 2], sound_of, largest=1)
    assert sounds[0].note == "The sound is not here: there is no file a.wav" and not sounds[0].address
    assert sounds[1].address.startswith("data:audio/flac") and "first 30 s of 40 s" in sounds[1].note
    assert "fill the room" in sounds[2].note and not sounds[2].address


def test_missing_results_are_not_counted_as_errors() -> None:
    corpus = utterances(10)
    results = [Result(each.id, "a", each.text, scores=scores_of(score(each.text, each.text))) for each in corpus[:3]]
    columns = columns_of(corpus, {"a": results, "b": []}, "basic", "1")
    first, second = overview(columns).models
    assert (first.done, first.wer.rate, second.done, second.wer.rate) == (3, 0.0, 0, None)
    assert "no scored recording in common" in overview(columns).pairs[0].sentence
    assert 'id="worst"' not in page(columns, tone)  # nothing is wrong, so no recording is listed


def test_recordings_without_results_are_not_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a limit, nearly all recordings of a large corpus have none."""
    texts = ("one two", "打开灯", "打开 app", "", "...")
    names = [score(text, "").name for text in texts]
    monkeypatch.setattr("workbench.text.rates._aligned", None)
    columns = columns_of([Utterance(text, "a.wav", text) for text in texts], {"m": []}, "basic", "1")
    assert columns.names == names == ["WER", "CER", "MER", "WER", "WER"]


def test_recordings_failed_by_every_model_are_not_bootstrap_blocks() -> None:
    """One scored recording beside 25 without a score gives the same figures as alone."""
    corpus = utterances(26)
    first = corpus[0]
    failed = {
        model: [Result(each.id, model, "", "there is no such file") for each in corpus[1:]] for model in ("a", "b")
    }
    texts = {"a": first.text, "b": "nothing of that"}
    results = {
        model: [
            Result(first.id, model, texts[model], scores=scores_of(score(first.text, texts[model]))),
            *failed[model],
        ]
        for model in ("a", "b")
    }
    alone = overview(
        columns_of(corpus[:1], {model: model_results[:1] for model, model_results in results.items()}, "basic", "1")
    )
    among = overview(columns_of(corpus, results, "basic", "1"))
    assert among.blocks.about == alone.blocks.about
    [among_pair], [alone_pair] = among.pairs, alone.pairs
    assert replace(among_pair, total=1) == alone_pair and (among_pair.recordings, among_pair.total) == (1, 26)
    nothing = overview(columns_of(corpus, failed, "basic", "1"))
    assert [model.wer.rate for model in nothing.models] == [None, None]


def test_failed_recording_changes_neither_rate_nor_breakdown_groups() -> None:
    corpus = [Utterance(name, f"{name}.wav", text) for name, text in (("a", "今天天气很好"), ("b", "七八"), ("s", ""))]
    corpus.append(Utterance("gone", "gone.wav", "三四五"))
    results = [Result(each.id, "m", "今天", scores=scores_of(score(each.text, "今天"))) for each in corpus[:2]]
    results += [Result("s", "m", "hm", scores=scores_of(score("", "hm"))), Result("gone", "m", "", "there is no file")]
    columns = columns_of(corpus, {"m": results}, "basic", "1")
    assert columns.rate == "CER" and list(columns.names) == ["CER", "CER", "WER", "CER"]
    [length] = [each for each in overview(columns).breakdowns if each.title == "Length of the reference"]
    assert [(each.name, each.recordings) for each in length.groups] == [
        ("0 characters", 1),
        ("1 to 3 characters", 1),
        ("4 to 8 characters", 1),
    ]


def test_silent_corpus_has_zero_error_rate_in_report_and_summary() -> None:
    results = [Result(name, "m", "", None, 1.0, scores_of(score("", ""))) for name in "ab"]
    columns = columns_of([Utterance(name, f"{name}.wav", "") for name in "ab"], {"m": results}, "basic", "1")
    [figures] = overview(columns).models
    assert (
        (figures.wer.rate, figures.cer.rate)
        == (0.0, 0.0)
        == (summary_of("m", results).wer, summary_of("m", results).cer)
    )


def test_missing_recordings_do_not_count_for_speed() -> None:
    """The manifest states the duration of a missing file, on which no model computed."""
    corpus = [Utterance("here", "a.wav", "one", duration=2.0), Utterance("gone", "b.wav", "two", duration=600.0)]
    results = [
        Result("here", "m", "one", None, 2.0, scores_of(score("one", "one")), measured={"compute_seconds": 0.5}),
        Result("gone", "m", "", "there is no such file", measured={"compute_seconds": 0.0}),
    ]
    [figures] = overview(columns_of(corpus, {"m": results}, "basic", "1")).models
    assert (figures.audio_seconds, figures.compute_seconds) == (2.0, 0.5)


@pytest.mark.parametrize(("known", "expected"), [((0.5, None), 0.5), ((None, None), None)])
def test_processor_time_is_the_same_in_report_and_summary(known: tuple[float | None, ...], expected: Any) -> None:
    """A recording at which every worker ended has none; nor has any recording of a server."""
    results = [
        Result(name, "m", "one", None, 2.0, scores_of(score("one", "one")), measured={"cpu_seconds": seconds})
        for name, seconds in zip("ab", known)
    ]
    columns = columns_of([Utterance(name, f"{name}.wav", "one") for name in "ab"], {"m": results}, "basic", "1")
    [figures] = overview(columns).models
    assert figures.cpu_seconds == figures.to_dict()["cpu_seconds"] == expected
    assert summary_of("m", results).cpu_seconds == expected
