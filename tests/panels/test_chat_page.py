"""The Chat tab in a real browser, at desktop and phone size, over one page with models that need no network."""

from __future__ import annotations

import logging
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from panels.running import error_boundary
from panels.running.sessions import SessionPool
from panels.widgets.samples import read_samples
from tests.panels.conftest import Served, serve
from tests.panels.test_transcribe_page import expect
from tests.support.browser import PATIENCE
from tests.support.fake_chat import FakeChatRegistry, add_families
from tests.support.fake_panels import broken
from tests.support.widths import no_sideways_scroll

SIZES: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1280, "height": 900}},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}
TURN = ".chat .turn"
ANSWERING = "document.querySelector('.chat').classList.contains('answering')"


@pytest.fixture(scope="module")
def chat(uploads: Path) -> Iterator[Served]:
    """The page over models that converse."""
    with pytest.MonkeyPatch.context() as patch:
        add_families(patch)
        patch.setenv("GRADIO_TEMP_DIR", str(uploads))
        yield from serve(SessionPool(FakeChatRegistry()), "chat")  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def usual(chat: Served, uploads: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test begins with models of the usual pace."""
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(uploads))
    chat.registry.speaker.pace, chat.registry.speaker.fault = 0.004, None
    chat.registry.speaker.may_end.set()


class Visitor:
    """A browser of its own, with the Chat tab open; the script `before` runs before those of the page."""

    def __init__(self, chromium: Any, served: Served, size: str = "desktop", before: str = ""):
        self.context = chromium.new_context(**SIZES[size], accept_downloads=True)
        self.context.set_default_timeout(PATIENCE)
        self.faults: list[str] = []
        self.url = served.url
        self.page = self.context.new_page()
        if before:
            self.page.add_init_script(before)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.open()

    def open(self) -> None:
        self.page.goto(self.url)
        self.page.get_by_role("tab", name="Chat").click()
        expect(self.page.locator(".chat[data-ready]")).to_be_visible()

    def say(self, text: str) -> None:
        self.page.locator("#chat-text").fill(text)
        self.page.keyboard.press("Enter")

    def set(self, option: str, value: str) -> None:
        if not self.page.locator(".chat .settings").is_visible():
            self.page.locator(".open-settings").click()
        self.page.locator(f"#chat-option-{option}").fill(value)

    def close_settings(self) -> None:
        self.page.get_by_label("Close the settings").click()

    def wait(self) -> None:
        self.page.wait_for_function(f"!{ANSWERING}")

    def playback(self) -> tuple[int, int, float]:
        """Returns the samples played since the start, the missed samples, and the current level."""
        data = self.page.evaluate("({...document.querySelector('.chat').dataset})")
        return int(data.get("played", 0)), int(data.get("missed", 0)), float(data.get("level", 0))

    def expect_notice(self, sentence: str | re.Pattern[str]) -> None:
        expect(self.page.locator(".chat .notice")).to_contain_text(sentence)


@pytest.fixture
def visit(chromium: Any, chat: Served, caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """Opens the tab for a visitor; fails the test if a script failed or the server logged an unexpected error."""
    visitors: list[Visitor] = []

    def enter(size: str = "desktop", before: str = "") -> Visitor:
        visitors.append(Visitor(chromium, chat, size, before))
        return visitors[-1]

    caplog.set_level(logging.ERROR, error_boundary.__name__)
    yield enter
    for visitor in visitors:
        visitor.context.close()
    assert not [fault for visitor in visitors for fault in visitor.faults], "a script of the page failed"
    assert not [record for record in caplog.get_records("call") if record.name == error_boundary.__name__]


@pytest.mark.browser
def test_enter_that_ends_a_composition_sends_nothing(visit: Any, chat: Served) -> None:
    """Safari sends this Enter after the composition, with a key code of its own."""
    visitor = visit()
    page = visitor.page
    area = page.locator("#chat-text")
    area.fill("三七")
    for settings in ({"isComposing": True}, {"keyCode": 229}):
        area.dispatch_event("keydown", {"key": "Enter", "bubbles": True, "cancelable": True, **settings})
    expect(area).to_have_value("三七")
    expect(page.locator(TURN)).to_have_count(0)
    area.press("Enter")
    expect(page.locator(TURN)).to_have_count(1)
    visitor.wait()


MICROPHONE = """
const line = new AudioContext({sampleRate: 16000});
const output = line.createMediaStreamDestination();
navigator.mediaDevices.getUserMedia = async () => { await line.resume(); return output.stream; };
window.speak = async (file) => {
  const sound = line.createBufferSource();
  sound.buffer = await line.decodeAudioData(await (await fetch(`samples/${file}`)).arrayBuffer());
  sound.connect(output);
  sound.start();
};
"""


@pytest.mark.browser
def test_spoken_turn_is_answered_and_new_speech_interrupts_the_answer(visit: Any, chat: Served) -> None:
    visitor = visit(before=MICROPHONE)
    page, speaker = visitor.page, chat.registry.speaker
    speaker.pace = 0.01
    speaker.abandoned.clear()
    before = len(speaker.calls)
    visitor.set("max_audio_rows", "3000")
    talk = page.get_by_role("button", name="Talk")
    talk.click()
    visitor.expect_notice("Listening")
    page.evaluate("speak('three_seven_one.wav')")
    page.wait_for_function("Number(document.querySelector('.chat').dataset.level) > 0.02")  # the answer is heard
    samples, rate = speaker.calls[before][0][-1].parts[0].source
    assert 1.0 < len(samples) / rate < 2.5 and np.abs(samples).max() > 0.05  # the words, without the silence around
    page.evaluate("speak('three_seven_one.wav')")
    assert speaker.abandoned.wait(60) and speaker.rows < 3000, "the answer was not interrupted"
    expect(page.locator(TURN)).to_have_count(2)
    expect(page.locator(".chat .answer .state").first).to_have_text("Stopped")
    talk.click()
    expect(talk).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("Escape")
    visitor.wait()


@pytest.mark.browser
def test_model_load_time_is_shown_separately_from_the_first_sound_latency(visit: Any, chat: Served) -> None:
    visitor = visit()
    page = visitor.page
    chat.registry.speaker.pid = None
    visitor.set("max_audio_rows", "20")
    for number, loads in enumerate((True, False)):
        visitor.say("say three")
        visitor.wait()
        answer = page.locator(".chat .answer").nth(number)
        glance = answer.locator(".glance").text_content()
        latency = float(re.search(r"first sound (\d\.\d\d) s", glance)[1])
        assert latency < chat.registry.speaker.load_seconds and ("model loaded in 0.50 s" in glance) == loads
    page.locator(".chat .answer").first.get_by_label("Settings and times").click()
    expect(page.locator(".chat .figures").first).to_contain_text("load0.50 s")


@pytest.mark.browser
def test_turns_can_be_edited_and_chats_are_stored_per_browser_across_reloads(visit: Any, chat: Served) -> None:
    visitor = visit()
    page = visitor.page
    visitor.set("max_audio_rows", "10")
    for number, text in enumerate(("one", "two", "three"), 1):
        visitor.say(text)
        expect(page.locator(".chat .answer .glance")).to_have_count(number)
        visitor.wait()
    messages, _ = chat.registry.speaker.calls[-1]
    assert [message.role for message in messages] == ["user", "assistant", "user", "assistant", "user"]
    assert messages[1].parts[1].streams.shape == (17, 8), "speech returns to the model as its own tokens"

    page.locator(TURN).nth(1).get_by_label("Edit and go on from here").click()
    expect(page.locator("#chat-text")).to_have_value("two")
    expect(page.locator(TURN)).to_have_count(1)
    visitor.say("two <b>changed</b>")
    expect(page.locator(".chat .said").nth(1)).to_have_text("two <b>changed</b>")
    visitor.wait()
    assert len(chat.registry.speaker.calls[-1][0]) == 3

    visitor.open()  # a reload
    expect(page.locator(".chat .said")).to_have_text(["one", "two <b>changed</b>"])
    page.locator(".chat .answer .round").first.click()
    page.wait_for_function("Number(document.querySelector('.chat').dataset.played) === 3200")  # its sound too
    expect(page.locator("#chat-option-max_audio_rows")).to_have_value("10")

    other_visitor = visit("phone")
    expect(other_visitor.page.locator(".chat .welcome")).to_be_visible()
    other_visitor.page.locator(".open-list").click()
    expect(other_visitor.page.locator(".chat .chats li")).to_have_count(0)

    page.get_by_label("Delete this turn").first.click()
    expect(page.locator(".chat .said")).to_have_text(["two <b>changed</b>"])
    page.get_by_label("Delete the chat one").click()
    expect(page.locator(".chat .welcome")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".chat .said")).to_have_text(["two <b>changed</b>"])


@pytest.mark.browser
def test_microphone_recording_is_sent_and_bad_input_shows_one_line_errors(
    visit: Any, chat: Served, tmp_path: Path
) -> None:
    visitor = visit("phone")
    page = visitor.page
    visitor.set("max_audio_rows", "10")
    visitor.close_settings()
    page.get_by_label("Record with the microphone").click()
    page.wait_for_function(
        "[...document.querySelectorAll('.chat .bars i')].some((bar) => parseFloat(bar.style.height) > 12)"
    )
    page.get_by_label("Keep the recording").click()
    expect(page.locator(".chat .held-sound .voice")).to_be_visible()
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".chat .said")).to_have_text("heard you")
    visitor.wait()
    samples, rate = chat.registry.speaker.calls[-1][0][-1].parts[0].source
    assert rate == 16000 and len(samples) > 3200 and np.abs(samples).max() > 500, "the microphone's beeps"

    page.locator("#chat-text").fill("typed before")
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.set_input_files(".composer input[type=file]", str(broken(tmp_path / "notes.wav")))
    visitor.expect_notice("notes.wav is not a sound file")
    page.set_input_files(".composer input[type=file]", str(broken(tmp_path / "notes.zip")))
    visitor.expect_notice("the file is not a replay bundle")
    assert not errors, "the browser's console has no error after an invalid file"
    expect(page.locator("#chat-text")).to_have_value("typed before")
    chat.registry.speaker.fault = ValueError("an unexpected fault")
    page.keyboard.press("Enter")
    expect(page.locator(".chat .fault").last).to_contain_text("ValueError; the log of the server has the details")
    expect(page.locator("#chat-text")).to_have_value("typed before")
    chat.registry.speaker.fault = None
    visitor.wait()  # during an answer the button stops it

    page.locator("#chat-text").fill("")
    page.get_by_role("button", name="Send").click()
    visitor.expect_notice("Write or record something first.")
    visitor.set("cfg", "0.5")
    visitor.close_settings()
    visitor.say("with a wrong setting")
    expect(page.locator(".chat .fault").last).to_contain_text("expected 1 to 10")
    expect(page.locator("#chat-text")).to_have_value("with a wrong setting")
    assert no_sideways_scroll(page)


@pytest.mark.browser
def test_answers_side_by_side_are_saved_as_a_bundle_and_replayed(visit: Any, chat: Served, tmp_path: Path) -> None:
    visitor = visit()
    page = visitor.page
    visitor.set("max_audio_rows", "10")
    page.locator("#chat-option-probabilities").check()
    page.get_by_role("button", name="Compare side by side").click()
    visitor.say("both of you")
    expect(page.locator(".chat .answer .glance")).to_have_count(2)
    visitor.wait()
    expect(page.locator(".chat .answer h4")).to_have_text(["A · Fake SpeechLM · seed 0", "B · Fake SpeechLM · seed 1"])
    assert [options.get("seed") for _, options in chat.registry.speaker.calls[-2:]] == [None, 1]
    second = page.locator(".chat .answer").nth(1)
    second.get_by_label("Look inside").click()
    second.get_by_role("button", name="Probabilities").click()
    second.locator(".inside canvas").hover(position={"x": 30, "y": 100})
    expect(second.locator(".inside .hint")).to_contain_text("70 %")

    with page.expect_download() as waiting:
        page.get_by_label("Save as a replay bundle").click()
    bundle = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(bundle)
    assert bundle.name == "both-of-you.replay.zip"
    assert {"chat.json", "audio/000.wav", "audio/001.wav"} <= set(zipfile.ZipFile(bundle).namelist())

    other_visitor = visit("phone")
    other_visitor.page.set_input_files(".composer input[type=file]", str(bundle))
    expect(other_visitor.page.locator(".chat .said")).to_have_count(2)
    answer = other_visitor.page.locator(".chat .answer").nth(1)
    answer.get_by_label("Settings and times").click()
    answer.get_by_role("button", name="Replay").click()
    expect(answer.locator(".replayed")).to_have_text("Replay: the same ids on this machine.")
    bundle.write_bytes(bundle.read_bytes()[:400])
    other_visitor.page.set_input_files(".composer input[type=file]", str(bundle))
    other_visitor.expect_notice("not a replay bundle")


def test_chat_endpoint_returns_text_audio_file_and_answer(chat: Served) -> None:
    client_module = pytest.importorskip("gradio_client")
    client = client_module.Client(chat.url, verbose=False)
    arguments = {"model": "fake/speech", "options": {"max_audio_rows": 10}}
    text, audio, answer = client.predict(messages="say three", api_name="/chat", **arguments)
    samples, rate = soundfile.read(audio)
    assert text == answer["text"] == "say three" and (len(samples), rate) == (3200, 16000)
    assert len(answer["streams"]) == 17 and answer["settings"]["max_audio_rows"] == 10
    sound = client_module.handle_file(str(read_samples()[0].path))
    text, audio, answer = client.predict(
        messages=[{"role": "user", "content": "again"}], audio=sound, modalities="text", api_name="/chat", **arguments
    )
    assert (text, audio) == ("again", None)
    assert [type(part).__name__ for part in chat.registry.speaker.calls[-1][0][-1].parts] == ["TextPart", "AudioPart"]
    path = [{"role": "user", "content": [{"type": "audio", "audio": "/etc/passwd"}]}]
    for changes, sentence in (
        ({"messages": path}, "names a recording by a path"),
        ({"messages": ""}, "expected a text or a list of messages"),
        ({"messages": "x", "model": "fake/sense"}, "there is no 'fake/sense'"),
        ({"messages": "x", "modalities": "video"}, "expected one of auto"),
    ):
        with pytest.raises(client_module.exceptions.AppError, match=sentence):
            client.predict(api_name="/chat", **(arguments | changes))
