"""What the Chat tab keeps of a conversation that is left or deleted during its answer, and what it sends of one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.panels import test_chat_page as chat_page
from tests.panels.conftest import Served
from tests.panels.test_transcribe_page import expect

chat, usual, visit = chat_page.chat, chat_page.usual, chat_page.visit
SPEAKING = "Number(document.querySelector('.chat').dataset.played) > 1600"
TIME = ".chat .answer .voice .time"


@pytest.fixture
def speaking(visit: Any, chat: Served) -> Any:
    """A visitor to whom the model speaks until the test allows the end."""
    visitor = visit()
    chat.registry.speaker.pace = 0.005
    chat.registry.speaker.may_end.clear()
    visitor.set("max_audio_rows", "150")
    visitor.say("one two")
    visitor.page.wait_for_function(f"{chat_page.ANSWERING} && {SPEAKING}")
    return visitor


def let_end(chat: Served) -> None:
    """Lets the model end its answer: on a busy machine it already waits for that, and sees nothing else."""
    chat.registry.speaker.may_end.set()


def open_first(page: Any) -> None:
    if not page.locator(".chats .open").first.is_visible():
        page.locator(".open-list").click()
    page.locator(".chats .open").first.click()


@pytest.mark.browser
def test_speech_so_far_stays_in_a_conversation_that_is_left(speaking: Any, chat: Served) -> None:
    page = speaking.page
    page.locator(".new-chat").click()
    let_end(chat)
    speaking.wait()
    open_first(page)
    expect(page.locator(".chat .answer .state")).to_have_text("Stopped")
    expect(page.locator(TIME)).to_have_text(re.compile(r"^[1-9]\.\d s$|^0\.[1-9] s$"))
    page.reload()
    speaking.open()
    expect(page.locator(TIME)).to_be_visible()


@pytest.mark.browser
def test_speech_so_far_returns_with_a_turn_whose_deletion_is_undone(speaking: Any, chat: Served) -> None:
    page = speaking.page
    page.get_by_label("Delete this turn").click()
    let_end(chat)
    speaking.wait()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".chat .answer .said")).to_have_text("one two")
    expect(page.locator(TIME)).to_be_visible()


@pytest.mark.browser
def test_conversation_that_is_deleted_during_its_answer_does_not_return(speaking: Any, chat: Served) -> None:
    page = speaking.page
    if not page.locator(".chats .open").first.is_visible():
        page.locator(".open-list").click()
    page.get_by_label("Delete the chat one two").click()
    let_end(chat)
    speaking.wait()
    speaking.open()
    expect(page.locator(".chat .welcome")).to_be_visible()
    assert page.locator(".chats li").count() == 0


@pytest.mark.browser
def test_long_title_is_not_cut_within_a_character(visit: Any) -> None:
    visitor = visit()
    visitor.say("x" * 59 + "😀 and more")
    visitor.wait()
    with visitor.page.expect_download() as waiting:
        visitor.page.locator(".save-chat").click()
    assert waiting.value.suggested_filename.endswith(".replay.zip")


MESSAGES = """async ([chat, model]) => {
  const {messagesBefore} = await import(new URL('chat/scripts/history.js', document.baseURI));
  return messagesBefore(chat, 1, 0, {model: 'a', system: 'be brief'}, model, []);
}"""


@pytest.mark.browser
@pytest.mark.parametrize("remembers", [True, False])
def test_model_that_does_not_remember_gets_the_last_turn_alone(visit: Any, remembers: bool) -> None:
    answer = {"column": {"model": "a"}, "text": "One.", "answer": None}
    turns = [{"user": {"text": "one", "sound": None}, "answers": [answer]}, {"user": {"text": "two", "sound": None}}]
    model = {"speaks": False, "remembers": remembers}
    messages = visit().page.evaluate(MESSAGES, [{"turns": turns}, model])
    texts = [each["content"] if isinstance(each["content"], str) else "One." for each in messages]
    assert texts == ["be brief", *(["one", "One."] if remembers else []), "two"]


STORED = """async () => {
  const request = indexedDB.open('speech-workbench-chats', 1);
  const database = await new Promise((done) => { request.onsuccess = () => done(request.result); });
  const transaction = database.transaction('chats', 'readwrite');
  const column = {model: 'fake/speech|pytorch', system: '', options: {}};
  const turns = [{user: {text: 'one', sound: null}, answers: []}];
  const chats = [{}, {turns: null}, {title: 'a', columns: [], turns}, {title: 'b', columns: [column], turns: [{}]},
    {title: 'c', columns: [column], turns: [{user: {}, answers: [{text: 'x'}]}]},
    {title: 'readable', columns: [column], turns}];
  chats.forEach((chat, id) => transaction.objectStore('chats').put({...chat, id: String(id), changed: 9e15}));
  await new Promise((done) => { transaction.oncomplete = done; });
  localStorage.setItem('speech-workbench-chats-columns', '[null]');
}"""


@pytest.mark.browser
def test_stored_conversations_in_another_form_do_not_break_the_tab(visit: Any) -> None:
    visitor = visit()
    visitor.page.evaluate(STORED)
    visitor.open()
    assert visitor.page.locator(".chats .open").all_inner_texts() == ["readable"]
    visitor.say("one two")
    expect(visitor.page.locator(".chat .answer .said")).to_have_text("one two")


RUNS = """async ([ids, pieces, layout]) => {
  const {findRuns} = await import(new URL('chat/scripts/inside.js', document.baseURI));
  return findRuns(ids, pieces, layout).map((run) => run.text);
}"""


@pytest.mark.browser
def test_rest_of_a_text_belongs_to_its_last_token(visit: Any) -> None:
    """Bytes that are no character are held back until the text ends, and then come without a token."""
    layout = {
        "text": 7,
        "eos": 2,
        "text_first": 256,
        "text_end": 600,
        "codec_first": 600,
        "layer_size": 4,
        "streams": 2,
    }
    pieces = [["", 1], ["one", 1], ["", 1], ["\ufffd", 0], ["", 1]]
    assert visit().page.evaluate(RUNS, [[7, 300, 301, 2], pieces, layout]) == ["", "one", "\ufffd", ""]
