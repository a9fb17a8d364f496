"""Evaluation: runs models of the registry over a corpus, and keeps each result, so that an interruption loses nothing.

>>> from workbench import evaluation
>>> outcome = evaluation.run("corpus.csv", ["demo/sensevoice", "demo/sensevoice|gguf|q8_0"], "results")
>>> for result in evaluation.read("results").results():
...     print(result.id, result.text)

`manifests` reads corpora, `schedule` drives workers, `store` describes and reads the directory of results, and `writer`
writes it.
"""

from workbench.evaluation.manifests import read_manifest
from workbench.evaluation.rows import Result, Utterance
from workbench.evaluation.runner import Outcome, run
from workbench.evaluation.store import Evaluation, Manifest, Model, Run, read
from workbench.evaluation.summary import ModelSummary, summarise

__all__ = [
    "Evaluation",
    "Manifest",
    "Model",
    "ModelSummary",
    "Outcome",
    "Result",
    "Run",
    "Utterance",
    "read",
    "read_manifest",
    "run",
    "summarise",
]
