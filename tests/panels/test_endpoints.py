"""Endpoints for scripts: their descriptions, the code snippets of the page, and the errors of wrong calls."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from panels.widgets.samples import read_samples
from panels.widgets.snippets import File, snippets
from tests.panels.conftest import Served
from tests.support.fake_panels import tone

FILE = {"_type": "gradio.FileData"}
ENDPOINTS = {
    "/transcribe",
    "/models",
    "/compare",
    "/inject",
    "/chat",
    "/decode",
    "/visualise",
    "/evaluate",
}


def describe_endpoints(served: Served) -> dict[str, Any]:
    return dict(httpx.get(f"{served.url}gradio_api/info").json()["named_endpoints"])


@pytest.fixture
def client(served: Served) -> Any:
    return pytest.importorskip("gradio_client").Client(served.url, verbose=False)


def upload(path: Path) -> Any:
    from gradio_client import handle_file

    return handle_file(str(path))


def call_endpoint(served: Served, endpoint: str, values: list[Any]) -> str:
    """Returns the events of a plain POST of the values."""
    response = httpx.post(f"{served.url}gradio_api/call/{endpoint}", json={"data": values})
    return httpx.get(f"{served.url}gradio_api/call/{endpoint}/{response.json()['event_id']}", timeout=60).text


def test_endpoints_and_parameters_are_described(served: Served) -> None:
    endpoints = describe_endpoints(served)
    assert set(endpoints) == ENDPOINTS
    for name, endpoint in endpoints.items():
        assert endpoint["description"].endswith("."), name
        for each in endpoint["parameters"]:
            about, kind = each["python_type"]["description"], each["python_type"]["type"]
            assert about and "The FileData class" not in about and about.endswith("."), (name, each["parameter_name"])
            assert kind != "Any" and "Literal[]" not in kind, (name, each["parameter_name"])
        assert [each["label"] for each in endpoint["returns"]] != ["1st"]
    types = {each["parameter_name"]: each["python_type"]["type"] for each in endpoints["/transcribe"]["parameters"]}
    assert types["audio"] == "filepath | list[filepath]" and types["models"] == "list[str] | str"
    comparison_types = {
        each["parameter_name"]: each["python_type"]["type"] for each in endpoints["/compare"]["parameters"]
    }
    assert comparison_types["candidates"] == "list[str] | str"


def test_code_snippets_of_the_page_run(served: Served, tmp_path: Path) -> None:
    descriptions = describe_endpoints(served)
    name = read_samples()[0].path.name
    for endpoint, expected in (("/transcribe", "three eleven one"), ("/models", "Fake SenseVoice")):
        program = descriptions[endpoint]["code_snippets"]["python"]
        process = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert process.returncode == 0 and expected in process.stdout, process.stderr
    assert (tmp_path / name).is_file()
    for endpoint in descriptions:
        script = descriptions[endpoint]["code_snippets"]["javascript"]
        constants = re.findall(r"^const (\w+)", script, re.MULTILINE)
        assert len(constants) == len(set(constants)), "a constant is declared twice"


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_shell_snippet_of_the_page_runs(served: Served, tmp_path: Path) -> None:
    program = describe_endpoints(served)["/transcribe"]["code_snippets"]["bash"]
    for shell in filter(shutil.which, ("bash", "sh")):
        process = subprocess.run([shell, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert process.stdout.startswith("event: complete") and "three eleven one" in process.stdout, process


@pytest.mark.slow
def test_code_snippet_of_the_compare_endpoint_runs(demos: Served, tmp_path: Path) -> None:
    program = describe_endpoints(demos)["/compare"]["code_snippets"]["python"]
    process = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert process.returncode == 0 and "'candidates'" in process.stdout, process.stderr


def test_shell_snippet_escapes_values_with_quotes(tmp_path: Path) -> None:
    call = {"prompt": 'it\'s a "text"', "isolated": True, "embeddings": File("x.npy", served=False)}
    code = snippets("http://127.0.0.1:1", "/inject", call)
    compile(code["python"], "snippet", "exec")
    echo_command = code["cli"].replace("{command}", "printf '%s\n'")
    output = subprocess.run(["sh", "-c", echo_command], capture_output=True, text=True, check=True).stdout
    assert '"it\'s a \\"text\\""' in output and '"isolated": true' in output


def test_single_value_is_accepted_like_a_list(client: Any, served: Served, tmp_path: Path) -> None:
    sound = upload(tone(tmp_path / "a.wav"))

    def transcribe(**fields: Any) -> Any:
        return client.predict(api_name="/transcribe", **fields)

    [from_value] = transcribe(audio=sound, models="fake/sense", options={"itn": True})
    [from_list] = transcribe(audio=[sound], models=["fake/sense"], options='{"itn": true}')
    assert from_value == from_list and from_value["file"] == "a.wav"
    assert [call["itn"] for call in served.registry.sessions["fake/sense"].calls] == [True, True]
    assert len(transcribe(audio=[sound, sound], models=["fake/sense", "fake/para"])) == 4


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"audio": "a.wav"}, 'audio is "a.wav"; expected an uploaded file, with gradio_client as handle_file(PATH)'),
    ({"audio": {"path": "/etc/passwd"}}, 'audio is {"path": "/etc/passwd"}; expected an uploaded file'),
    ({"audio": None}, "there is no recording"),
    ({"models": 3}, "models is 3; expected a text or a list of texts"),
    ({"models": "d"}, "there is no 'd'"),
    ({"options": "itn"}, "options is not JSON (Expecting value: line 1 column 1 (char 0)); expected an object"),
    ({"options": [1]}, "options is [1]; expected a JSON object"),
    ({"runtime": 3}, "runtime is 3; expected a text"),
    ({"engine": {"nope": 1}}, "an engine has no setting 'nope' here"),
)


def test_wrong_value_raises_one_line_error(client: Any, tmp_path: Path) -> None:
    from gradio_client.exceptions import AppError

    valid: dict[str, Any] = {"audio": upload(tone(tmp_path / "a.wav")), "models": "fake/sense"}
    for changes, sentence in WRONG:
        with pytest.raises(AppError, match=re.escape(sentence)) as caught:
            client.predict(api_name="/transcribe", **valid | changes)
        assert "\n" not in str(caught.value)


def test_gradio_refusals_are_reported_as_one_line_errors_without_internals(served: Served, tmp_path: Path) -> None:
    path = str(tone(tmp_path / "never_uploaded.wav"))
    other_values = ["fake/sense", "pytorch", "{}", "", "basic", "{}"]
    for values, sentence in [
        ([], "/transcribe got 0 values; expected 7, one for each parameter"),
        ([{"path": path, "meta": FILE}, *other_values], "/transcribe got a file that was not uploaded to this page"),
        ([{"path": path, "meta": FILE, "size": "x"}, *other_values], "/transcribe got a value that cannot be read"),
        (
            [{"path": "http://127.0.0.1:1/a.wav", "meta": FILE}, *other_values],
            "none is fetched here; upload its content",
        ),
    ]:
        events = call_endpoint(served, "transcribe", values)
        assert "event: error" in events and sentence in events, events
        assert str(tmp_path) not in events and "pydantic" not in events and "gradio_api" not in events


def test_call_with_wrong_parameter_or_endpoint_name_is_refused(served: Served) -> None:
    def call(endpoint: str, **fields: Any) -> httpx.Response:
        return httpx.post(f"{served.url}gradio_api/call/v2/{endpoint}", json=fields)

    for fields in ({"models": "fake/sense"}, {"audio": None, "models": "x", "modls": "fake/sense"}):
        response = call("transcribe", **fields)
        assert response.status_code == 422 and "required: audio, models" in response.json()["error"]
    unknown = call("nothing")
    assert unknown.status_code == 404 and "there is no endpoint /nothing" in unknown.json()["error"]
