"""The arguments of `workbench evaluate`."""

from __future__ import annotations

import argparse
from pathlib import Path

from workbench.cli.arguments.models import add_options, add_settings
from workbench.text.normalisers import NORMALISERS

OF_THE_KEY = ("quantization", "dtype", "stepwise", "weights", "summation")  # a model's name says the type


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        "Continues an earlier run with the same --out. Ctrl-C stops the run; finished results stay. "
        "Exit status: 0 when every recording has a result, also one that is an error; 1 when a model has failed on "
        "every recording; 130 when Ctrl-C stopped it, 143 when SIGTERM did."
    )
    files = parser.add_argument_group("input and output")
    files.add_argument(
        "manifest",
        metavar="MANIFEST",
        help="a list of recordings with their texts: .csv, .tsv, .jsonl (NeMo, Hugging Face), a lhotse cut set, a "
        "Kaldi data directory, Parquet files, or a folder or archive with transcripts beside the recordings",
    )
    files.add_argument(
        "--split", metavar="NAME", help="split of a folder of Parquet files, such as test (default: the only one)"
    )
    files.add_argument(
        "--text-column", metavar="NAME", help="column with the reference text (default: text, sentence, ...)"
    )
    files.add_argument(
        "--out", required=True, type=Path, metavar="DIR", help="directory for the results; may hold an earlier run"
    )
    files.add_argument("--json", action="store_true", help="print JSON")
    model = parser.add_argument_group("models")
    model.add_argument(
        "--model",
        "-m",
        action="append",
        default=[],
        metavar="M[|R[|TYPE]],...",
        help="models, each with a runtime and a type if need be: 'demo/sensevoice|gguf|q8_0'; the flag may be repeated",
    )
    model.add_argument(
        "--transcripts",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="transcripts of another program, which stand beside the models as NAME: a .trn or .ctm for sclite, a text "
        "file of Kaldi, .csv, .tsv or .jsonl; may be repeated",
    )
    model.add_argument(
        "--server",
        action="append",
        default=[],
        metavar="URL",
        help="another address of a server with the model of the card; may be repeated",
    )
    scoring = parser.add_argument_group("what is computed")
    scoring.add_argument(
        "--normaliser",
        choices=tuple(NORMALISERS),
        default="basic",
        help="normaliser of both texts (default: %(default)s)",
    )
    scoring.add_argument("--limit", type=int, metavar="N", help="compute only the first N recordings")
    scoring.add_argument("--retry-failed", action="store_true", help="compute failed recordings again")
    where = parser.add_argument_group("workers")
    where.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="number of workers (default: as many as CPU cores and memory allow; one for an engine or a GPU)",
    )
    where.add_argument(
        "--batch-size",
        type=int,
        metavar="B",
        help="recordings that a worker takes at a time; some models compute them in one batch (default: 8)",
    )
    where.add_argument(
        "--address",
        metavar="ADDRESS",
        help="Ray cluster: auto, ray://HOST:PORT, or local to start Ray here (default: processes without Ray)",
    )
    add_options(parser, ("transcribe",), excluded=("batch_size",))
    add_settings(parser, excluded=OF_THE_KEY)
