"""The arguments of the commands around CTC beam search: `decode` and `train-lm`."""

from __future__ import annotations

import argparse
from pathlib import Path

from workbench.cli.arguments.models import add_flags, path_of
from workbench.core.options import option_specs
from workbench.decoding.ctc_options import CtcBeamOptions
from workbench.decoding.ngram.tables import MAX_TRAINED_ORDER


def add_decode(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `workbench decode`."""
    files = parser.add_argument_group("input and output")
    files.add_argument(
        "logits",
        nargs="+",
        type=path_of,
        metavar="LOGITS",
        help="logits or log-probabilities [frames, vocabulary], one array in each file: .npy, .npz or .safetensors",
    )
    known = files.add_mutually_exclusive_group(required=True)
    known.add_argument(
        "--tokens",
        type=path_of,
        metavar="tokens.txt",
        help="the token of each column, one per line, with or without its id after it; or a .json",
    )
    known.add_argument(
        "--model",
        "-m",
        metavar="M",
        help="instead of --tokens: the model that computed the logits of a trace; its tags count as blank",
    )
    files.add_argument(
        "--blank",
        metavar="TOKEN",
        help="index or name of the blank among --tokens (default: the tokens' names decide, such as <blk> or <pad>)",
    )
    files.add_argument("--json", action="store_true", help="print a line of JSON for each file")
    add_flags(parser.add_argument_group("beam search"), option_specs(CtcBeamOptions))


def add_train_lm(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `workbench train-lm`."""
    parser.description = "Modified Kneser-Ney smoothing. The model is for --lm and --word-lm of a beam search."
    parser.add_argument(
        "text",
        nargs="+",
        type=path_of,
        metavar="TEXT",
        help="UTF-8 files, also gzipped, with one sentence per line; - for standard input",
    )
    parser.add_argument(
        "--out", required=True, type=Path, metavar="FILE.arpa", help="ARPA file to write; FILE.arpa.gz is compressed"
    )
    parser.add_argument(
        "--order",
        type=int,
        default=4,
        metavar="N",
        help=f"longest n-grams, 1 to {MAX_TRAINED_ORDER} (default: %(default)s)",
    )
    parser.add_argument(
        "--model",
        "-m",
        metavar="M",
        help="split the text into the tokens of this model's CTC network (default: words, separated by spaces)",
    )
    parser.add_argument(
        "--vocabulary",
        type=Path,
        metavar="FILE",
        help="the vocabulary, one word per line; other words are <unk> (default: all words of the text)",
    )
