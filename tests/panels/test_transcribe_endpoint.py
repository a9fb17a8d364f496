"""The endpoints of the Transcribe and Models tabs, and files that the page does not serve."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from panels.widgets.samples import read_samples
from tests.panels.conftest import Served
from tests.panels.test_endpoints import ENDPOINTS
from tests.support.fake_panels import broken, tone

pytestmark = pytest.mark.tabs("transcribe,models")


@pytest.mark.slow
def test_demo_models_transcribe_through_the_endpoint(demos: Served) -> None:
    client_module = pytest.importorskip("gradio_client")
    client = client_module.Client(demos.url, verbose=False)
    sample = next(each for each in read_samples() if each.path.name == "three_seven_one.wav")
    models = ["demo/sensevoice", "demo/paraformer"]
    results = client.predict(
        [client_module.handle_file(str(sample.path))],
        models,
        "pytorch",
        json.dumps({"language": "en"}),
        sample.text,
        "digits",
        api_name="/transcribe",
    )
    assert [each["model"] for each in results] == models
    for each in results:
        assert each["file"] == "three_seven_one.wav" and each["score"]["name"] == "WER"
        assert each["segments"] and each["tokens"] and each["audio_seconds"] == pytest.approx(1.88, abs=0.02)


def test_transcribe_and_models_endpoints_return_results_and_errors(served: Served, tmp_path: Path) -> None:
    client_module = pytest.importorskip("gradio_client")
    client = client_module.Client(served.url, verbose=False)
    names = client.view_api(return_format="dict")["named_endpoints"]
    assert set(names) >= {"/transcribe", "/models"}
    assert set(names) <= ENDPOINTS, "events of the page are no endpoints"

    models = client.predict(api_name="/models")
    assert [each["id"] for each in models] == ["fake/sense", "fake/para", "fake/hub", "fake/vad"]
    assert models[0]["runtimes"]["pytorch"] == {"ready": True, "reason": None, "downloads": False}

    def transcribe(paths: list[Path], models: list[str], options: str = "{}", reference: str = "") -> Any:
        files = [client_module.handle_file(str(path)) for path in paths]
        return client.predict(files, models, "pytorch", options, reference, "basic", api_name="/transcribe")

    good, bad = tone(tmp_path / "good.wav"), broken(tmp_path / "text.wav")
    results = transcribe([good, bad], ["fake/sense", "fake/para"], '{"itn": true}', "three seven one\nx")
    assert [(each["file"], each["model"], "error" in each) for each in results] == [
        ("good.wav", "fake/sense", False),
        ("good.wav", "fake/para", False),
        ("text.wav", "fake/sense", True),
        ("text.wav", "fake/para", True),
    ]
    documented = {"model", "runtime", "text", "language", "segments", "tokens", "audio_seconds", "load_seconds"}
    assert documented <= set(results[0]) and results[0]["text"] == "three eleven one"
    assert results[0]["score"]["rate"] == pytest.approx(1 / 3) and results[1]["score"]["rate"] == 0
    assert {"start": 0.0, "end": 0.5, "text": "three"}.items() <= results[0]["segments"][0].items()

    for arguments, message in [
        (([good], ["/etc"]), "there is no '/etc'"),
        (([good], ["fake/sense"], "itn"), "options is not JSON"),
        (([good], ["fake/sense"], "[]"), "expected a JSON object"),
        (([], ["fake/sense"]), "there is no recording"),
    ]:
        with pytest.raises(client_module.exceptions.AppError, match=re.escape(message)):
            transcribe(*arguments)


def test_files_of_the_machine_are_not_served(served: Served, tmp_path: Path) -> None:
    import httpx

    secret = Path(__file__)
    for path in (secret, Path("/etc/passwd"), tone(tmp_path / "a.wav")):
        answer = httpx.get(f"{served.url}gradio_api/file={path}")
        assert answer.status_code in (403, 404), path
    body = {
        "data": [
            [{"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}],
            ["fake/sense"],
            "pytorch",
            "{}",
            "",
            "basic",
        ]
    }
    answer = httpx.post(f"{served.url}gradio_api/call/transcribe", json=body)
    events = httpx.get(f"{served.url}gradio_api/call/transcribe/{answer.json()['event_id']}", timeout=30).text
    assert "event: error" in events and "root:" not in events
