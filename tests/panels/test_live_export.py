"""What was said at the live microphone as a file: every format, and bodies that hold no transcript."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from panels.transcribe.live import live_files
from workbench.serving.routes.bodies import MAX_VALUES
from workbench.text.exports import FORMATS

SEGMENT = {"start": 0.5, "end": 1.5, "text": "three seven"}
BODY = {"model": "demo/x|pytorch", "seconds": 2.0, "segments": [SEGMENT], "text": ["three", "seven"]}


@pytest.fixture
def http() -> TestClient:
    return TestClient(Starlette(routes=live_files()), raise_server_exceptions=False)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_holds_the_text(http: TestClient, form: str) -> None:
    answer = http.post(f"/live/export?format={form}", content=json.dumps(BODY))
    assert answer.status_code == 200 and {"three", "seven"} <= {*re.findall("[a-z]+", answer.text)}
    assert answer.headers["content-type"].startswith(FORMATS[form].media_type)


def test_json_names_model_runtime_and_quantization(http: TestClient) -> None:
    answer = http.post("/live/export?format=json", content=json.dumps({**BODY, "model": "demo/x|gguf|q8_0"}))
    assert [answer.json()[name] for name in ("model", "runtime", "quantization")] == ["demo/x", "gguf", "q8_0"]


@pytest.mark.parametrize(
    "changed",
    [
        {"segments": [{**SEGMENT, "start": float("nan")}]},
        {"segments": [{**SEGMENT, "end": float("inf")}]},
        {"segments": [{**SEGMENT, "end": -1.0}]},
        {"segments": "ab"},
        {"seconds": 1e300},
        {"text": 3},
    ],
    ids=str,
)
def test_body_without_a_transcript_is_refused(http: TestClient, changed: dict[str, Any]) -> None:
    answer = http.post("/live/export?format=srt", content=json.dumps({**BODY, **changed}))
    assert answer.status_code == 400 and answer.json() == {"error": "the page sent no transcript; reload it"}


def test_body_with_too_many_values_is_refused_before_it_is_read(http: TestClient) -> None:
    answer = http.post("/live/export?format=srt", content=b"[" + b"," * MAX_VALUES)
    assert answer.status_code == 400 and "more than 524,288 values" in answer.json()["error"]
