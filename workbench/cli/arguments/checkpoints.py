"""The arguments of the commands that write checkpoints: `convert` and `train-demo`."""

from __future__ import annotations

import argparse
from pathlib import Path

from workbench.cli.arguments.models import help_of
from workbench.cli.model_commands import Training
from workbench.conversion import LAYOUTS
from workbench.core.options import option_specs
from workbench.families import FAMILIES
from workbench.formats.quantization import TYPES
from workbench.system.processors import available_processors

TARGETS = ("gguf", "vllm")  # runtimes for which checkpoints are converted


def add_convert(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `workbench convert`."""
    parser.add_argument("model", metavar="M", help="a model's id (see: workbench models) or a checkpoint directory")
    parser.add_argument(
        "--for",
        dest="target",
        choices=TARGETS,
        default=TARGETS[0],
        help="the target: gguf, a GGUF file; vllm, a directory for `vllm serve` (default: %(default)s)",
    )
    parser.add_argument(
        "--quantization",
        "-q",
        metavar="TYPE",
        help=f"type of a GGUF file's large matrices: {', '.join(TYPES)}, or auto",
    )
    parser.add_argument("--out", type=Path, metavar="PATH", help="FILE.gguf, or the directory for vllm")
    parser.add_argument(
        "--layout",
        choices=LAYOUTS,
        help="layout of GGUF files: workbench, one file for this program; funasr, for FunASR's own C++ runtime "
        f"(default: {LAYOUTS[0]})",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing GGUF file")
    parser.add_argument("--list", action="store_true", help="write nothing; print JSON of the types and their sizes")


def add_train_demo(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `workbench train-demo`."""
    scale, seed = option_specs(Training)
    trainable = [name.replace("_", "-") for name, family in FAMILIES.items() if family.recipe]
    parser.add_argument("family", choices=trainable, metavar="FAMILY", help=" or ".join(trainable))
    parser.add_argument(
        "--data",
        required=True,
        type=Path,
        metavar="FOLDER",
        help="folder of the Free Spoken Digit Dataset, a folder per speaker",
    )
    parser.add_argument(
        "--out",
        required=True,
        type=Path,
        metavar="FOLDER",
        help="checkpoint directory to write; an earlier checkpoint in it is replaced",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="FOLDER",
        help="folder that caches synthetic voices and training strings for the next run",
    )
    parser.add_argument(
        "--continue",
        dest="start",
        type=Path,
        metavar="FOLDER",
        help="continue the training of this checkpoint, with more short strings and with recordings without digits",
    )
    parser.add_argument(
        "--other-speech",
        type=Path,
        metavar="FOLDER",
        help="with --continue: recordings without English digits, one folder per speaker",
    )
    parser.add_argument(
        "--more-speakers",
        type=Path,
        metavar="FOLDER",
        help="with --continue: digits of more speakers, in files named as in the dataset",
    )
    parser.add_argument(
        "--scale",
        type=float,
        metavar="SHARE",
        default=scale.default,
        help=help_of(scale),
    )
    parser.add_argument("--seed", type=int, metavar="N", default=seed.default, help=help_of(seed))
    parser.add_argument(
        "--threads", type=int, metavar="N", default=available_processors(), help="threads of torch (default: all)"
    )
