"""The endpoint /compare, which scripts call."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.panels.conftest import Served
from tests.support.fake_panels import tone
from tests.support.networks import META, STAGES, computed
from workbench.compare.files import compare_files
from workbench.trace.trace import Trace

pytestmark = pytest.mark.tabs("parity")


def test_compare_endpoint_returns_verdicts_and_one_line_errors(lab: Served, tmp_path: Path) -> None:
    client_module = pytest.importorskip("gradio_client")
    client = client_module.Client(lab.url, verbose=False)
    sound = client_module.handle_file(str(tone(tmp_path / "a.wav")))

    def ask(**fields: Any) -> Any:
        return client.predict(api_name="/compare", **fields)

    names = [
        each["parameter_name"]
        for each in client.view_api(return_format="dict")["named_endpoints"]["/compare"]["parameters"]
    ]
    assert names == [
        "model",
        "reference",
        "candidates",
        "audio",
        "prompt",
        "stages",
        "options",
        "preset",
        "isolated",
        "traces",
        "mapping",
        "settings",
        "embeddings",
        "recordings",
        "prompts",
    ]
    request = {"model": "fake/sense", "candidates": ["gguf:f32", "pytorch:f64"], "audio": sound}
    result = ask(**request, options='{"itn": true}', stages="encoder.*", settings='{"float64": false}')
    assert result["model"] == "fake/sense" and result["source"] == "a.wav" and result["float64"] is False
    assert [each["name"] for each in result["candidates"]] == ["gguf:f32", "pytorch:f64"]
    assert all(each["status"] == "within" for each in result["candidates"])
    assert {each["stage"] for each in result["candidates"][0]["comparison"]["stages"]} == {
        stage for stage in STAGES if stage.startswith("encoder.")
    }
    assert lab.registry.open_now == []

    paths = []
    for name, dtype in (("reference", "float32"), ("candidate", "float16")):
        paths.append(Trace(computed(dtype), META | {"dtype": dtype}).save(tmp_path / f"{name}.safetensors"))
    files = [client_module.handle_file(str(path)) for path in paths]
    [line] = compare_files(*paths).lines(as_json=True)
    assert ask(traces=files) == json.loads(line)
    result = ask(**request | {"candidates": ["candidate.safetensors"]}, traces=files)
    assert [each["name"] for each in result["candidates"]] == ["candidate.safetensors"]

    for invalid, message in [
        ({"traces": files[:1]}, "there are 1 trace files"),
        ({**request, "model": "/etc"}, "there is no model '/etc' to compare"),
        ({**request, "candidates": []}, "no candidate is chosen"),
        ({**request, "candidates": [str(paths[0])]}, "neither a runtime nor an uploaded file"),
        ({**request, "audio": None}, "there is no recording for pytorch:f32"),
        ({**request, "options": "[1]"}, "expected a JSON object"),
        ({**request, "options": '{"loudness": 1}'}, "no option 'loudness'"),
        ({**request, "settings": '{"loudness": 1}'}, "no setting 'loudness'"),
        ({**request, "settings": '{"rules": 1}'}, "expected a list of texts"),
        ({**request, "preset": "f33"}, "no preset 'f33'"),
        ({**request, "stages": " , "}, "the stage pattern is empty"),
    ]:
        with pytest.raises(client_module.exceptions.AppError, match=re.escape(message)):
            ask(**invalid)
