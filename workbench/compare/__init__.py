"""Comparison of two traces: finds the first stage where they diverge, and tells noise from bugs.

>>> comparison = compare(reference, candidate)
>>> judge(comparison).sentence
'encoder.layers.3 is the first stage beyond tolerance f32: relative L2 0.013, limit 0.0001. ...'

The parts: `measures` computes how far two arrays are apart, `tokens` how far ids and logits are. `presets` holds the
expected differences. `verdict` and `noise` judge the measures, `guesses` and `explain` look for causes, `weights`
compares weight files, `comparison` is the result, and `report` formats it. These modules know arrays and `Trace`, but
no models; `workbench.trace.read` reads traces of any program.
"""

from workbench.compare.compare import compare
from workbench.compare.comparison import Comparison
from workbench.compare.noise.noise_or_bug import noise_or_bug
from workbench.compare.noise.report import NoiseReport
from workbench.compare.presets import PRESETS, Tolerances, find_preset, preset_of, read_rules
from workbench.compare.report import to_dict
from workbench.compare.stage import StageComparison
from workbench.compare.verdict import Verdict, judge
from workbench.trace.mapping import read_mapping
from workbench.trace.read import read_trace

__all__ = [
    "PRESETS",
    "Comparison",
    "NoiseReport",
    "StageComparison",
    "Tolerances",
    "Verdict",
    "compare",
    "find_preset",
    "judge",
    "noise_or_bug",
    "preset_of",
    "read_mapping",
    "read_rules",
    "read_trace",
    "to_dict",
]
