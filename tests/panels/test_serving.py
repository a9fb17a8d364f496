"""Setup and cleanup of the page's server: upload folder, chosen tabs, environment and stored event values."""

from __future__ import annotations

import os
from pathlib import Path

import gradio as gr
import httpx
import pytest

from panels.page import TABS, build_page, chosen_tabs
from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.serving import UPLOADS, Opening, launch, main, own_uploads, quieten
from tests.panels.conftest import free_port
from tests.support.fake_panels import FakeRegistry
from workbench.serving.admission.guard import Guard


def test_upload_folder_is_deleted_when_the_server_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(UPLOADS)
    with own_uploads():
        first = Path(os.environ[UPLOADS])
        first.mkdir()  # as Gradio creates it
        (first / "talk.wav").write_bytes(b"RIFF")
    assert not first.exists() and not first.parent.exists() and UPLOADS not in os.environ


def test_upload_folder_from_the_environment_is_used_and_retained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(UPLOADS, str(tmp_path))
    with own_uploads():
        assert os.environ[UPLOADS] == str(tmp_path)
    assert tmp_path.exists()


def test_page_of_chosen_tabs_has_only_their_endpoints() -> None:
    assert chosen_tabs(None) == TABS
    tabs = chosen_tabs(" models, Evaluate ")
    assert [each.key for each in tabs] == ["evaluate", "models"], "in the usual order"
    with SessionPool(FakeRegistry()) as pool:  # type: ignore[arg-type]
        page = build_page(pool, tabs)
    tab_keys = [each.id for each in page.blocks.values() if each.get_block_name() == "tabitem"]
    assert tab_keys == ["evaluate", "models"]
    assert set(page.get_api_info()["named_endpoints"]) == {"/evaluate", "/models"}


def test_unknown_tab_exits_with_a_one_line_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--tabs", "transcribe,party", "--port", "0"])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error == f"workbench: there is no tab 'party'; the tabs are {', '.join(each.key for each in TABS)}\n"


def test_building_a_page_does_not_change_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process prepared before the page is built serves sessions after it only if the environment stays as it was."""
    for name in ("GRADIO_ANALYTICS_ENABLED", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "1")  # so that the test restores them
    monkeypatch.delenv("GRADIO_ANALYTICS_ENABLED")
    quieten()
    before = dict(os.environ)
    gr.Blocks()
    assert dict(os.environ) == before


def test_page_that_answers_itself_slowly_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradio asks the page for its address, and waits for 3 s."""
    monkeypatch.setattr("gradio.networking.url_ok", lambda url: False)
    with Page() as page:
        gr.Textbox()
    launch(page, Opening(Guard()), server_port=free_port(), prevent_thread_lock=True, quiet=True)
    try:
        assert httpx.get(page.local_url).status_code == 200
    finally:
        page.close()


def test_server_stores_only_the_state_values_of_each_visitor() -> None:
    page = Page()
    with page:
        games, field = gr.State([0]), gr.Textbox("x" * 1000)
        gr.Button().click(lambda games, _: ([*games, 1], "y" * 1000), [games, field], [games, field])
    launch(page, Opening(Guard()), server_port=free_port(), prevent_thread_lock=True, quiet=True)
    try:
        states = page.app.state_holder
        for session, text in (("one", [0, 1]), ("one", [0, 1, 1]), ("other", [0, 1])):
            response = httpx.post(
                f"{page.local_url}gradio_api/run/predict",
                json={"data": [None, "z"], "fn_index": 0, "session_hash": session},
            )
            assert response.json()["data"][1] == "y" * 1000
            assert states[session][games._id] == text
            assert dict(states[session].config_values) == {}
    finally:
        page.close()
