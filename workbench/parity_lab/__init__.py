"""The parity lab: runs one model on several runtimes with one input and finds where their computations diverge.

>>> with run_parity(registry, "demo/sensevoice", "talk.wav", candidates=["gguf:q8_0", "vllm"]) as run:
...     for outcome in run.outcomes:
...         print(outcome.name, outcome.sentence)
...     write_page(run, "report.html")

`workbench.core.sides` parses what to compare, `run` computes and compares it, `outcome` holds the results, and
`html_report` writes them for a browser. `several` gives one verdict over several inputs. `workbench.compare` compares
two traces.
"""

from workbench.core.sides import Side, read_side, read_sides
from workbench.parity_lab.inputs import Input, read_inputs
from workbench.parity_lab.options import ParityOptions
from workbench.parity_lab.outcome import Outcome, ParityRun
from workbench.parity_lab.report.document import report_place
from workbench.parity_lab.report.html_report import page, write_page
from workbench.parity_lab.run import run_parity
from workbench.parity_lab.several import ParityRuns, run_parity_on_inputs

__all__ = [
    "Input",
    "Outcome",
    "ParityOptions",
    "ParityRun",
    "ParityRuns",
    "Side",
    "page",
    "read_inputs",
    "read_side",
    "read_sides",
    "report_place",
    "run_parity",
    "run_parity_on_inputs",
    "write_page",
]
