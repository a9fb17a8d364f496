"""How a parity run computes and judges: what the page, the command and scripts can choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.compare.precision import AUTO
from workbench.trace.mapping import StageMapping


@dataclass(frozen=True)
class ParityOptions:
    """What a run traces, which traces it makes, and how it judges them.

    Args:
        stages: a glob of the stages to trace and compare.
        steps: the decoding steps to trace and compare too, for a model that writes token by token: `first`, `all`, or
            numbers such as `1,5,20`. All sides read the tokens that the reference wrote, one at a time.
        options: options of the model, for every side that does not set them itself.
        settings: settings such as `threads`, for every side whose runtime has them.
        embeddings: one for each placeholder in a prompt, in order (see `workbench.embeddings.prompt`).
        exact: compute the reference in float64 too, to tell noise from a bug. If that is not possible, the run says so.
        same_precision: for a candidate in bfloat16, float16 or with quantised weights, also compute the reference's
            model in that precision on PyTorch, several times with its sums in other orders, and hold the candidate to
            their spread (see `workbench.parity_lab.judgement.clean_spread`). It requires float64.
        isolated: compute every stage of the candidates, and of float64, from the reference's input of that stage, so
            that each shows only its own error; otherwise each side continues with its own values, and errors
            accumulate. If a side cannot do that, its outcome says so. For a trace that was computed end to end, such as
            a dump of another program, it is the other way round: the reference and float64 are computed from the
            trace's input of each stage.
        narrow: if the first stage in error of a candidate is of a layer, trace that layer again with what is inside it,
            on all sides, and name the first stage in error there (see `workbench.parity_lab.judgement.narrow`). Not for
            isolated runs.
        several: this is one of several inputs (`workbench.parity_lab.several`): also measure the clean spread of
            float32, and give each outcome its measurements.
        preset: the expected difference (`workbench.compare.PRESETS`); by default that of each candidate's arithmetic.
        rules: other limits, in the notation of `workbench.compare.read_rules`.
        mapping: names and layouts of the candidates that are trace files.
        force: also compare traces of different inputs.
        precision: of the candidates that are trace files: `float32`, `bfloat16`, `float16`, a type of GGUF files, or
            the GGUF file that the other program has read. `auto` takes what a trace names, or what its values show.
    """

    stages: str = "*"
    steps: str = ""
    options: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] | None = None
    embeddings: Sequence[Any] = ()

    exact: bool = True
    same_precision: bool = True
    isolated: bool = False
    narrow: bool = False
    several: bool = False

    preset: str | None = None
    rules: Sequence[str] = ()
    mapping: StageMapping | None = None
    force: bool = False
    precision: str = AUTO


USUAL = ParityOptions()
"""The options of a run that asks for nothing else."""
