"""Speech in the Chat tab plays while it is generated, without gaps, and stops at once.

Playback is measured: samples that the audio thread has played, samples that it missed, and the output level.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.panels import test_chat_page as chat_page
from tests.panels.conftest import Served
from tests.panels.test_chat_page import ANSWERING, SIZES
from tests.panels.test_transcribe_page import expect
from tests.support.widths import no_sideways_scroll

chat, usual, visit = chat_page.chat, chat_page.usual, chat_page.visit
WITHOUT_WORKLETS = """
delete BaseAudioContext.prototype.audioWorklet;
delete window.AudioWorkletNode;
window.loudest = 0;
window.buffers = [];
const start = AudioBufferSourceNode.prototype.start;
AudioBufferSourceNode.prototype.start = function (at) {
  window.buffers.push([at, this.buffer.duration]);
  return start.call(this, at);
};
setInterval(() => {
  const level = Number(document.querySelector('.chat')?.dataset.level || 0);
  window.loudest = Math.max(window.loudest, level);
}, 20);
"""


@pytest.mark.browser
@pytest.mark.parametrize("size", SIZES)
def test_speech_plays_while_it_is_generated(visit: Any, chat: Served, size: str, tmp_path: Path) -> None:
    """From an example through streamed text and speech to the player, the download and the view of its tokens."""
    visitor = visit(size)
    page = visitor.page
    chat.registry.speaker.pace = 0.01  # twice as fast as speech
    chat.registry.speaker.may_end.clear()
    visitor.set("max_audio_rows", "100")
    if size == "phone":
        visitor.close_settings()
    page.get_by_role("button", name="say three seven one").click()
    page.wait_for_function(f"{ANSWERING} && Number(document.querySelector('.chat').dataset.played) > 1600")
    early, missed, _ = visitor.playback()
    page.wait_for_function("Number(document.querySelector('.chat').dataset.level) > 0.02")
    assert chat.registry.speaker.rows < 107 and page.evaluate(ANSWERING), (
        "the page did not play before the answer was complete"
    )
    chat.registry.speaker.may_end.set()
    page.wait_for_function(f"Number(document.querySelector('.chat').dataset.played) > {early}")
    visitor.wait()
    page.wait_for_function("Number(document.querySelector('.chat').dataset.played) === 32000")  # each sample once
    assert visitor.playback()[1] == missed == 0, "there was a gap"

    answer = page.locator(".chat .answer")
    expect(answer.locator(".said")).to_have_text("say three seven one")
    expect(answer.locator(".glance")).to_contain_text("first sound")
    with page.expect_download() as waiting:
        answer.get_by_label("Download as WAV").click()
    samples, rate = soundfile.read(waiting.value.path())
    assert waiting.value.suggested_filename == "say-three-seven-one-1.wav" and (len(samples), rate) == (32000, 16000)
    assert np.sqrt(np.mean(samples**2)) > 0.05

    answer.get_by_label("Settings and times").click()
    expect(answer.locator(".figures")).to_contain_text("first text")
    expect(answer.locator(".given")).to_contain_text("max_audio_rows")
    answer.get_by_label("Look inside").click()
    expect(answer.locator(".tokens .marker.audio")).to_contain_text("chooses speech")
    expect(answer.locator(".tokens .speech")).to_have_text("107 rows of speech")
    canvas = answer.locator(".inside canvas")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] * 0.9, "y": 100})
    expect(answer.locator(".inside .hint")).to_contain_text(re.compile(r"frame 9\d · 1\.\d\d s · codes( \d+){8}"))
    page.wait_for_function("Number(document.querySelector('.chat').dataset.played) > 28000")  # from that row on
    assert no_sideways_scroll(page)


@pytest.mark.browser
def test_slowly_generated_speech_is_buffered_and_plays_without_gaps(visit: Any, chat: Served) -> None:
    visitor = visit()
    page = visitor.page
    chat.registry.speaker.pace = 0.03  # two thirds of real time
    visitor.set("max_audio_rows", "60")
    visitor.say("slow")
    expect(page.locator(".chat .voice-holder .waiting")).to_contain_text("Buffering")
    page.wait_for_function("Number(document.querySelector('.chat').dataset.played) === 19200")
    assert visitor.playback()[1] == 0, "there was a gap"


@pytest.mark.browser
@pytest.mark.parametrize("stalls", [False, True])
def test_speech_plays_without_audio_worklets(visit: Any, chat: Served, stalls: bool) -> None:
    """Browsers give AudioWorklet to secure pages only; over plain http the page plays buffers one after another."""
    visitor = visit(before=WITHOUT_WORKLETS)
    page = visitor.page
    assert page.evaluate("!('AudioWorkletNode' in window) && !('audioWorklet' in AudioContext.prototype)")
    chat.registry.speaker.pace = 0.01
    chat.registry.speaker.may_end.clear()
    visitor.set("max_audio_rows", "100")
    visitor.say("say three")
    page.wait_for_function(f"{ANSWERING} && Number(document.querySelector('.chat').dataset.played) > 1600")
    assert chat.registry.speaker.rows < 107, "the page did not play before the answer was complete"
    chat.registry.speaker.may_end.set()
    if stalls:
        chat.registry.speaker.pace = 1.0
        expect(page.locator(".chat .voice-holder .waiting")).to_contain_text("Buffering")
        chat.registry.speaker.pace = 0.0
    page.wait_for_function("Number(document.querySelector('.chat').dataset.played) === 32000")  # each sample once
    assert page.evaluate("window.loudest") > 0.05
    begin, seconds = np.array(page.evaluate("window.buffers")).T
    gaps = begin[1:] - (begin + seconds)[:-1]
    assert seconds.sum() == pytest.approx(2.0) and gaps.min() > -1e-6, "two buffers played at once"
    assert visitor.playback()[1] == pytest.approx(16000 * gaps.sum(), abs=1)
    assert (gaps.max() > 0.05) == stalls

    page.locator(".chat .answer .round").first.click()  # it plays again and stops on Escape
    page.wait_for_function("Number(document.querySelector('.chat').dataset.level) > 0.05")
    page.locator("#chat-text").focus()
    page.keyboard.press("Escape")
    page.wait_for_function("Number(document.querySelector('.chat').dataset.level) === 0")
    assert visitor.playback()[0] < 32000


# A phone call interrupts the sound of a page, and Safari has a state of its own for that.
INTERRUPTED = """async () => {
  const [context] = window.contexts;
  await context.suspend();
  const {resume} = context;
  Object.defineProperty(context, 'state', {value: 'interrupted', configurable: true});
  context.resume = () => { delete context.state; return resume.call(context); };
}"""


@pytest.mark.browser
def test_answer_plays_again_after_a_phone_call(visit: Any, chat: Served) -> None:
    visitor = visit(
        before="""
window.contexts = [];
window.AudioContext = class extends AudioContext {
  constructor(...settings) { super(...settings); window.contexts.push(this); }
};
"""
    )
    page = visitor.page
    visitor.set("max_audio_rows", "20")
    visitor.say("say three")
    page.wait_for_function("Number(document.querySelector('.chat').dataset.played) === 6400")
    visitor.wait()
    page.evaluate(INTERRUPTED)
    page.evaluate("document.querySelector('.chat').dataset.played = 0")
    page.locator(".chat .answer .round").first.click()
    page.wait_for_function("Number(document.querySelector('.chat').dataset.played) === 6400")


@pytest.mark.browser
def test_stop_ends_playback_at_once_and_keeps_the_partial_answer(visit: Any, chat: Served) -> None:
    visitor = visit()
    page = visitor.page
    chat.registry.speaker.pace = 0.01
    chat.registry.speaker.abandoned.clear()
    visitor.set("max_audio_rows", "3000")
    visitor.say("a long answer")
    page.wait_for_function("Number(document.querySelector('.chat').dataset.level) > 0.02")
    page.locator("#chat-text").focus()
    page.keyboard.press("Escape")
    played = visitor.playback()[0]
    assert chat.registry.speaker.abandoned.wait(60) and chat.registry.speaker.rows < 3000
    visitor.wait()
    assert visitor.playback()[0] <= played + 3200, "playback continued after the stop"
    answer = page.locator(".chat .answer")
    expect(answer.locator(".state")).to_have_text("Stopped")
    expect(answer.locator(".said")).to_have_text("a long answer")
    expect(answer.locator(".voice")).to_be_visible()
    answer.get_by_label("Settings and times").click()
    expect(answer.locator(".about")).to_contain_text("cancelled")
    answer.get_by_label("Look inside").click()
    expect(answer.locator(".tokens .speech")).to_contain_text("rows of speech")
    answer.locator(".inside canvas").click(position={"x": 10, "y": 100})
    expect(answer.locator(".inside .hint")).to_contain_text(re.compile(r"frame \d+ · [\d.]+ s · codes( \d{1,4}){8}$"))

    visitor.set("max_audio_rows", "20")
    answer.get_by_label("Answer again").click()
    expect(answer.locator(".glance")).to_contain_text("first sound")
    assert chat.registry.speaker.calls[-1][1]["seed"] == 1
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".chat .answer .state")).to_have_text("Stopped")
