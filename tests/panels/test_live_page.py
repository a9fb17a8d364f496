"""The live microphone of the Transcribe tab in a real browser: the order in which a visitor may press its buttons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.panels.conftest import Served
from tests.support.browser import unfold

pytestmark = [pytest.mark.tabs("transcribe"), pytest.mark.browser]

# The visitor answers the browser's question for the microphone by `allow()` or `refuse()`, and speaks with `speak()`.
MICROPHONE = """
const line = new AudioContext({sampleRate: 16000});
window.streams = [];
navigator.mediaDevices.getUserMedia = () => new Promise((resolve, reject) => {
  window.allow = async () => {
    await line.resume();
    const output = line.createMediaStreamDestination();
    window.streams.push(output.stream);
    window.speak = async (file) => {
      const sound = line.createBufferSource();
      sound.buffer = await line.decodeAudioData(await (await fetch(`samples/${file}`)).arrayBuffer());
      sound.connect(output);
      sound.start();
    };
    resolve(output.stream);
  };
  window.refuse = () => reject(new DOMException('no', 'NotAllowedError'));
});
"""
ALL_OFF = "streams.every((stream) => stream.getTracks().every((track) => track.readyState === 'ended'))"


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect as expect_

    return expect_(locator)


class Live:
    """The microphone on the open page."""

    def __init__(self, page: Any, served: Served):
        self.page = page
        page.add_init_script(MICROPHONE)
        page.goto(served.url)
        unfold(page, "Live: write while you speak")
        self.root = page.locator("#live .live").last
        self.models = self.root.locator("select")
        expect(self.models.locator("option").first).to_be_attached()

    def button(self, name: str) -> Any:
        return self.root.get_by_role("button", name=name, exact=True)

    def expect_note(self, sentence: str) -> None:
        expect(self.root.locator(".live-note")).to_contain_text(sentence)


def test_stop_before_the_microphone_is_allowed_leaves_it_off(served: Served, page: Any) -> None:
    live = Live(page, served)
    live.button("Start live").click()
    expect(live.button("Pause")).to_be_disabled()
    live.button("Stop").click()
    live.expect_note("Stopped")
    expect(live.button("Start live")).to_be_visible()
    page.evaluate("allow()")
    page.wait_for_function(f"streams.length === 1 && {ALL_OFF}")
    live.expect_note("Stopped")


def test_second_start_after_a_refusal_records_and_stops(served: Served, page: Any, tmp_path: Path) -> None:
    live = Live(page, served)
    live.button("Start live").click()
    live.button("Stop").click()
    page.evaluate("refuse()")
    live.button("Start live").click()
    page.evaluate("refuse()")
    live.expect_note("The browser gave no microphone")
    live.button("Start live").click()
    page.evaluate("allow()")
    live.expect_note("Listening")
    page.evaluate("speak('three_seven_one.wav')")
    expect(live.root.locator(".stretch:not(.partial)")).to_have_count(1)
    model = live.models.input_value()
    live.button("Pause").click()
    live.button("Go on").click()
    live.button("Stop").click()
    live.expect_note("Stopped")
    page.wait_for_function(ALL_OFF)
    live.models.select_option(index=1)  # for the next recording
    assert live.models.input_value() != model
    with page.expect_download() as download:
        live.button("json").click()
    download.value.save_as(tmp_path / "live.json")
    transcript = json.loads((tmp_path / "live.json").read_text())
    assert "|".join((transcript["model"], transcript["runtime"])) == model and transcript["segments"]


def test_lost_microphone_ends_the_recording_and_keeps_the_text(served: Served, page: Any) -> None:
    live = Live(page, served)
    live.button("Start live").click()
    page.evaluate("allow()")
    live.expect_note("Listening")
    page.evaluate("speak('three_seven_one.wav')")
    expect(live.root.locator(".stretch:not(.partial)")).to_have_count(1)
    page.evaluate("streams[0].getTracks()[0].dispatchEvent(new Event('ended'))")  # as when it is unplugged
    expect(live.button("Start live")).to_be_visible()
    live.expect_note("The browser lost the microphone")
    expect(live.button("srt")).to_be_visible()


def test_start_waits_for_a_model_that_transcribes(served: Served, page: Any) -> None:
    page.route("**/v1/models", lambda route: route.fulfill(json={"data": []}))
    page.goto(served.url)
    unfold(page, "Live: write while you speak")
    live = page.locator("#live .live").last
    expect(live.locator(".live-note")).to_contain_text("No model that transcribes can run here")
    expect(live.get_by_role("button", name="Start live")).to_be_disabled()
