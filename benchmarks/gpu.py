"""Every demo model on a GPU against this machine's processor, stage by stage and in its answers.

    python -m benchmarks.gpu [--model M ...] [--device cuda] [--dtype T ...] [--inputs N]

The parity lab compares PyTorch on the device, in each type, with PyTorch in float32 and in float64 on the processor:
the worst stage, and whether the tokens are equal. Exit status 1 if a float32 candidate differs beyond the noise of
float32, or writes other tokens.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.parity_table import MODELS, inputs, outcomes, row
from workbench.registry.registry import Registry


def main() -> int:
    """Prints a table; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help="a demo's id (default: all)")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", action="append", help="default: float32, bfloat16 and float16")
    parser.add_argument("--inputs", type=int, default=4, help="recordings, prompts or conversations of each model")
    options = parser.parse_args()
    good = True
    print(
        "| model | type | verdict | worst stage | equal tokens | from float64 |\n| --- | --- | --- | --- | --- | --- |"
    )
    with Registry() as registry:
        for model in options.model or [model for model in MODELS if model.startswith("demo/")]:
            candidates = {f"pytorch:{kind}+device={options.device}": kind for kind in options.dtype or
                          ("float32", "bfloat16", "float16")}  # fmt: skip
            results = outcomes(registry, model, list(candidates), inputs(registry, model, options.inputs))
            for name, kind in candidates.items():
                if kind == "float32":
                    good = good and all(each.status == "within" for each in results[name].whole)
                cells = row(model, "pytorch", kind, results[name])
                print(
                    f"| `{model}` | {kind} | {cells.verdict} | {cells.worst} | {cells.tokens} | {cells.exact} |",
                    flush=True,
                )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
