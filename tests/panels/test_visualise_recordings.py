"""What the Visualise tab stores for its users: recordings for links, and the inputs of their last runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import panels.visualise.run as run
from panels.running.run_store import RunStore
from panels.visualise.events import VisualiseActions
from panels.visualise.own_recordings import OwnRecordings
from panels.widgets.samples import read_samples
from tests.support.fake_panels import tone
from tests.support.made_pictures import every_kind, picture_set
from workbench.core.errors import BadInput
from workbench.serving.admission.guard import Guard
from workbench.serving.admission.limits import PUBLIC


def test_pictures_are_shown_even_if_the_recording_cannot_be_stored(
    pool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(run, "compute", lambda *_: picture_set(every_kind("pytorch")))
    monkeypatch.setattr("gradio.Warning", warnings.append)
    (tmp_path / "runs").touch()  # no folder can be made there
    actions = VisualiseActions(pool, read_samples(), OwnRecordings(RunStore(tmp_path / "runs")))
    values = ["", "auto", "", "heads", "", 3, "", *(option.spec.default for option in actions.model_options)]
    sound, user = str(tone(tmp_path / "mine.wav")), SimpleNamespace(session_hash="user")
    *_, last = actions.start(user, sound, "", "", "fake/sense|pytorch", "", "waveform", *values)  # type: ignore[arg-type]
    assert actions.find(last[0]["key"]).titles == ("Side 0",) and not last[0]["settings"]["recording"]
    assert len(warnings) == 1 and "could not store this run for a link" in warnings[0]


def test_inputs_of_few_visitors_are_remembered(pool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A script can name any number of sessions, and leaves none of them."""
    monkeypatch.setattr(run, "compute", lambda *_: picture_set(every_kind("pytorch")))
    monkeypatch.setattr(pool, "guard", Guard("public", replace(PUBLIC, sessions=10)))
    actions = VisualiseActions(pool, read_samples(), OwnRecordings(RunStore(tmp_path)))
    values = ["", "auto", "", "heads", "", 3, "", *(option.spec.default for option in actions.model_options)]
    form = ("a.wav", "", "", "fake/sense|pytorch", "", "waveform", *values)
    users: list[Any] = [SimpleNamespace(session_hash=f"user {number}") for number in range(11)]
    steps = [len(list(actions.start_if_changed(user, *form))) for user in (*users, users[-1], users[0])]
    assert steps[-2] == 0 and steps[-1] > 0


def test_uploaded_recording_is_stored_once_and_found_by_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = tmp_path / "uploads"
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(uploads))
    store = RunStore(tmp_path / "runs")
    recordings, sound = OwnRecordings(store), tone(tmp_path / "mine.wav")
    key = recordings.keep(str(sound))
    assert recordings.keep(str(sound)) == key and len(list(store.folder.iterdir())) == 1
    path = Path(OwnRecordings(store).find(key))  # after a restart
    assert path.name == "mine.wav" and path.read_bytes() == sound.read_bytes() and uploads in path.parents
    other_key = store.keep({"tab": "parity"})
    for invalid_key, sentence in (
        ("x" * 22, "not kept any more"),
        ("../..", "not kept any more"),
        (other_key, "another tab"),
    ):
        with pytest.raises(BadInput, match=sentence):
            recordings.find(invalid_key)
    assert OwnRecordings(RunStore(tmp_path / "small", nbytes=1000)).keep(str(sound)) == ""
