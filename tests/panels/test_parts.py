"""The parts of the page that need no browser: options as inputs, samples, segments, sounds, models, errors."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from panels.models.endpoint import models_list
from panels.models.view import cards_html, residents_html
from panels.running.choices import ModelOnRuntime, options_for
from panels.running.error_boundary import FAULT, with_error_boundary
from panels.running.sessions import SessionPool
from panels.transcribe.endpoint import transcripts
from panels.transcribe.job import Row
from panels.transcribe.segment_editor import editor_value, export, is_edited, rows_of
from panels.widgets.markup import datum
from panels.widgets.option_inputs import make_inputs, read_inputs, shown_options, visible_for
from panels.widgets.samples import read_samples, reference_text, references
from tests.support.fake_panels import FakeRegistry, tone
from workbench.core.errors import BadInput
from workbench.core.options import option_specs
from workbench.decoding.ctc_options import CtcBeamOptions
from workbench.registry.cards import BadCard
from workbench.serving.admission.guard import Guard
from workbench.serving.admission.limits import PUBLIC
from workbench.session.values import Segment, Transcript

ROOT = Path(__file__).resolve().parents[2]
SEGMENTS = (Segment(0.0, 0.5, "three"), Segment(0.5, 1.25, "eleven"))
TRANSCRIPT = Transcript("demo/x", "pytorch", "three eleven", "en", SEGMENTS, (1, 2), 2.0, 0.5, 0.1)
ROW = Row(
    "0:demo/x|pytorch",
    "a b.wav",
    "/tmp/a b.wav",
    ModelOnRuntime("demo/x", "pytorch"),
    "X · PyTorch",
    None,
    "done",
    None,
    TRANSCRIPT,
)


# Options.


def test_help_of_an_option_names_the_largest_number_of_this_server(pool: Any) -> None:
    local, public = (
        {each.key: each.info for each in shown_options(pool.registry, guard=Guard(mode))}
        for mode in ("local", "public")
    )
    assert f"1 to {PUBLIC.beams}" in public["beam_size"] and f"1 to {PUBLIC.beams}" not in local["beam_size"]
    assert {name for name in local if local[name] != public[name]} == {"beam_size", "nbest"}


def test_each_option_becomes_one_input_of_the_matching_kind(pool: Any) -> None:
    options = shown_options(pool.registry)
    names = [option.spec.name for option in options]
    assert names[:6] == ["vad", "max_segment_seconds", "end_silence_ms", "dither", "cmvn", "timestamps"]
    assert sorted(names[6:11]) == ["ban_emo_unk", "cif_residual", "hotwords", "itn", "language"]
    assert names[11:] == [spec.name for spec in option_specs(CtcBeamOptions)], "the beam search comes last"
    with gr.Blocks():
        inputs = make_inputs(options, pool.registry)
    assert [value for _, value in inputs["vad"].choices] == ["auto", "silero", "none", "fake/vad"]  # type: ignore[attr-defined]
    files = [name for name, each in inputs.items() if isinstance(each, gr.File)]
    assert files == ["lm", "lexicon", "word_lm", "boost"]
    assert isinstance(inputs["itn"], gr.Checkbox) and isinstance(inputs["dither"], gr.Number)
    assert options[names.index("max_segment_seconds")].label == "Max segment length (s)"
    assert options[names.index("itn")].label == "ITN" and options[names.index("itn")].info.endswith("(SenseVoice)")


def test_input_values_convert_back_to_options_with_defaults(pool: Any) -> None:
    options = shown_options(pool.registry)
    defaults = {option.spec.name: option.spec.default for option in options}
    typed = ["\n".join(value) if isinstance(value, tuple) else value for value in defaults.values()]
    assert read_inputs(options, typed) == defaults
    assert read_inputs(options, [None] * len(options)) == defaults, "an emptied number is the default"
    ten = read_inputs(options, [10 if option.spec.name == "max_segment_seconds" else None for option in options])
    assert ten["max_segment_seconds"] == 10.0 and isinstance(ten["max_segment_seconds"], float)


@pytest.mark.parametrize(("text", "expected"), [(None, None), ("", None), (" ", None), ("0", 0), (" 800 ", 800)])
def test_optional_number_input_accepts_an_empty_value(pool: Any, text: str | None, expected: int | None) -> None:
    options = shown_options(pool.registry)
    values = [text if option.spec.name == "end_silence_ms" else None for option in options]
    assert read_inputs(options, values)["end_silence_ms"] == expected
    invalid = ["8 s" if value is not None else None for value in values]
    if any(invalid):
        with pytest.raises(BadInput, match=r"End silence \(ms\) is '8 s'; expected a whole number, or nothing"):
            read_inputs(options, invalid)


def test_option_is_visible_while_a_chosen_model_has_it(pool: Any) -> None:
    options = shown_options(pool.registry)
    visible_names = {
        model: [
            option.spec.name
            for option, visible in zip(options, visible_for(options, pool.registry, [f"{model}|pytorch"]))
            if visible
        ][6:]
        for model in ("fake/sense", "fake/para")
    }
    assert {model: sorted(names) for model, names in visible_names.items()} == {
        "fake/sense": sorted(["ban_emo_unk", "itn", "language", *(spec.name for spec in option_specs(CtcBeamOptions))]),
        "fake/para": ["cif_residual", "hotwords"],  # its checkpoint is not here; it may be a SeACo one
    }


def test_file_option_refuses_paths_outside_the_upload_folder(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "uploads"))
    inside, outside = str(tmp_path / "uploads" / "it" / "lm.arpa"), str(tmp_path / "lm.arpa")
    assert options_for(pool.registry, "fake/sense", {"lm": inside, "boost": None}) == {"lm": inside, "boost": None}
    for path in (outside, f"{tmp_path}/uploads/../lm.arpa", "/etc/passwd", "lm\0arpa"):
        with pytest.raises(BadInput, match=r"option lm is .*; expected a file that was uploaded to this page"):
            options_for(pool.registry, "fake/sense", {"lm": path})
    with pytest.raises(BadInput, match="option neural_lm is '/some/folder'"):
        options_for(pool.registry, "fake/sense", {"neural_lm": "/some/folder"})


def test_script_can_send_an_uploaded_file_as_an_option_value(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    upload = {"path": str(tmp_path / "lm.arpa"), "meta": {"_type": "gradio.FileData"}}
    [result] = transcripts(pool, [str(tone(tmp_path / "a.wav"))], ["fake/sense"], options={"lm": upload, "alpha": 0.7})
    assert result["text"] == "three eleven one"
    assert pool.registry.sessions["fake/sense"].calls == [{"lm": str(tmp_path / "lm.arpa"), "alpha": 0.7}]
    with pytest.raises(BadInput, match="option lm is"):
        transcripts(pool, [str(tone(tmp_path / "a.wav"))], ["fake/sense"], options={"lm": {"path": "/etc/passwd"}})


# Samples and references.


def test_every_sample_exists_with_text_and_credit() -> None:
    samples = read_samples()
    assert len(samples) >= 5
    for sample in samples:
        assert sample.path.is_file() and sample.text and sample.licence in sample.credit


def test_broken_sample_list_raises_an_error_with_the_file_name(tmp_path: Path) -> None:
    assert read_samples(tmp_path) == ()
    (tmp_path / "samples.json").write_text('[{"file": "x.wav"}]')
    with pytest.raises(BadInput, match=r"samples\.json cannot be read"):
        read_samples(tmp_path)


def test_a_sample_names_no_file_outside_its_folder(tmp_path: Path) -> None:
    entry = {"file": "../../etc/passwd", "text": "", "speaker": "", "seconds": 1, "licence": "", "source": ""}
    (tmp_path / "samples.json").write_text(json.dumps([entry]))
    assert read_samples(tmp_path)[0].path == tmp_path / "passwd"


@pytest.mark.parametrize(
    ("text", "recordings", "expected"),
    [
        ("", 2, (None, None)),
        (" \n ", 1, (None,)),
        ("one\ntwo\n", 1, ("one two",)),
        ("one\ntwo", 2, ("one", "two")),
        ("one\n\nthree\n", 3, ("one", None, "three")),
    ],
)
def test_reference_lines_are_assigned_to_recordings(
    text: str, recordings: int, expected: tuple[str | None, ...]
) -> None:
    assert references(text, recordings) == expected


def test_reference_text_of_samples_parses_back_to_one_line_per_sample() -> None:
    samples = read_samples()
    assert references(reference_text(samples), len(samples)) == tuple(sample.text for sample in samples)
    with pytest.raises(BadInput, match="2 recordings and 1 line of"):
        references("one", 2)


# Segments.


def test_editor_value_holds_current_and_original_segments() -> None:
    value = editor_value(ROW)
    assert value["rows"] == value["original"] == [["0.00", "0.50", "three"], ["0.50", "1.25", "eleven"]]
    assert not is_edited(value)
    changed = {**value, "rows": [["0.00", "0.50", "three"], ["0.50", "1.25", "seven"]]}
    assert is_edited(changed) and rows_of(changed, ROW.key) == changed["rows"]
    assert rows_of(changed, "another row") is None and rows_of("nonsense", ROW.key) is None and not is_edited(None)
    assert editor_value(ROW, changed["rows"])["rows"] == changed["rows"]


def test_export_contains_the_edited_segments() -> None:
    value = {**editor_value(ROW), "rows": [["0", "0.5", "three"], ["0:00.5", "1.25", "seven"]]}
    file = export(ROW, value, "srt")
    text = base64.b64decode(file["base64"]).decode()
    assert file["name"] == "a b.demo-x.srt" and "seven" in text and "eleven" not in text
    assert b"eleven" in base64.b64decode(export(ROW, None, "txt")["base64"])
    assert base64.b64decode(export(ROW, value, "csv")["base64"]).startswith(b"\xef\xbb\xbf"), "for spreadsheets"
    with pytest.raises(BadInput, match="the end of row 1 is 'x'"):
        export(ROW, {**value, "rows": [["0", "x", "three"]]}, "srt")
    exported = export(ROW, {**value, "rows": [["0", "x", "three"], ["1", "2", "seven"]]}, "txt")
    assert base64.b64decode(exported["base64"]) == b"three seven\n", "a text has no times"
    with pytest.raises(BadInput, match="no transcript"):
        export(replace(ROW, transcript=None), None, "txt")


# Models.


def test_model_cards_and_loaded_models_are_shown(pool: Any) -> None:
    html = cards_html(pool)
    assert "Fake Paraformer" in html and "not downloaded yet" in html and html.count("<tr>") == 5
    assert "No model is loaded: 0 MB of 8.6 GB" in residents_html(pool)
    pool.session("fake/sense", "pytorch")
    assert 'data-event="release"' in residents_html(pool)
    assert json.loads(json.dumps(models_list(pool.registry)))[2]["runtimes"]["pytorch"]["downloads"] is True


# Packages that the page does not import.


def test_the_page_is_built_without_heavy_packages() -> None:
    """Session processes import them, or the page imports them when it draws or scores."""
    heavy = {
        "torch",
        "vllm",
        "llama_cpp",
        "transformers",
        "matplotlib",
        "jiwer",
        "soxr",
        "librosa",
        "silero_vad",
        "onnx",
    }
    program = f"""
import sys
from panels.page import build_page
from panels.running.sessions import SessionPool
from workbench.registry.registry import Registry
build_page(SessionPool(Registry()))
print(*sorted({heavy!r} & set(sys.modules)))
"""
    process = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert process.stdout.split() == []


# Errors.


def test_workbench_error_message_is_shown_escaped() -> None:
    def fail() -> None:
        raise BadInput("the file <img> & co")

    with pytest.raises(gr.Error) as caught:
        with_error_boundary(fail)()
    assert caught.value.message == "the file &lt;img&gt; &amp; co"


def test_unexpected_error_is_logged_and_shown_without_details(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> Any:
        yield 1
        raise ZeroDivisionError("secret")

    values = with_error_boundary(fail)()
    assert next(values) == 1
    with pytest.raises(gr.Error) as caught:
        next(values)
    assert caught.value.message == FAULT and "secret" in caplog.text


def test_visitors_of_a_public_page_get_no_buttons_that_are_for_its_owner() -> None:
    with SessionPool(FakeRegistry(), guard=Guard("public")) as pool:  # type: ignore[arg-type]
        pool.session("fake/sense", "pytorch")
        html = residents_html(pool)
        assert "fake/sense" in html and "<button" not in html


def test_event_without_data_is_refused() -> None:
    for data in (None, {}, {"key": 3}):
        with pytest.raises(BadInput, match="no key"):
            datum(data, "key")


def test_models_tab_lists_each_unusable_card_with_its_reason(pool: Any) -> None:
    assert "cannot be used" not in cards_html(pool)
    pool.registry.bad = (BadCard("mine", "model 'mine' has <b>"), BadCard("", "the model list is not valid TOML"))
    html = cards_html(pool)
    assert html.count("<li>model &#39;mine&#39; has &lt;b&gt;</li>") == 1 and "list is not valid TOML</li>" in html
    *_, last = models_list(pool.registry)
    assert last["id"] == "mine" and not any(state["ready"] for state in last["runtimes"].values())
