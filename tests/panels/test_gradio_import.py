"""The import of Gradio writes no interface files, and changes nothing else; a call imports no matplotlib."""

from __future__ import annotations

import subprocess
import sys

CHECK = """
import inspect, time
before = inspect.getfile
from panels.running.gradio_import import import_gradio
assert "gradio" not in __import__("sys").modules, "this module imports nothing of it"
import gradio_client  # what both imports need
{first}
start = time.process_time()
import_gradio()
import gradio as gr
print(time.process_time() - start)
assert inspect.getfile is before
written = []
import gradio.component_meta
gradio.component_meta.create_or_modify_pyi = lambda *arguments: written.append(arguments)
class Own(gr.HTML):
    pass
assert len(written) == 1, "components that are defined later have interface files"
assert gr.Textbox(value="a").get_config()["value"] == "a" and callable(gr.Button().click)
"""


def seconds(first: str = "") -> float:
    program = CHECK.format(first=first)
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(process.stdout)


def test_faster_gradio_import_is_complete() -> None:
    usual_seconds = seconds("import_gradio = lambda: None")
    assert seconds() < 0.9 * usual_seconds


FIRST_CALL = """
import sys
from panels.running.gradio_import import import_gradio
import_gradio()
import gradio as gr
from panels.running.root import Page
from panels.serving import Opening, launch
from workbench.serving.admission.guard import Guard
from gradio_client import Client
with Page() as page:
    gr.Button().click(lambda: 2.0, None, gr.Number(), api_name="two")
_, url, _ = launch(page, Opening(Guard()), server_name="127.0.0.1", prevent_thread_lock=True, quiet=True)
assert Client(url, verbose=False).predict(api_name="/two") == 2.0
print("matplotlib" in sys.modules)
page.close(verbose=False)
"""


def test_first_call_imports_no_matplotlib() -> None:
    process = subprocess.run([sys.executable, "-c", FIRST_CALL], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["False"]
