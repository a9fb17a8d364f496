"""Evaluation: runs models of the registry over a corpus, and keeps what they wrote so that nothing is lost.

>>> from workbench import evaluation
>>> evaluation.run("corpus.csv", ["demo/sensevoice", "demo/sensevoice|gguf|q8_0"], "results")
>>> for result in evaluation.read("results").results():
...     print(result.id, result.text)

`store` says what lies in the directory and reads it, `writer` writes it, `manifests` reads corpora, `run` computes.
"""

from workbench.evaluation.rows import Result, Utterance
from workbench.evaluation.store import Evaluation, Manifest, Model, Run, read

__all__ = ["Evaluation", "Manifest", "Model", "Result", "Run", "Utterance", "read"]
