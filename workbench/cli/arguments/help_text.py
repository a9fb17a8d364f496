"""The layout of `--help`: short usage, no line over 80 columns, and examples of every command."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from workbench.core.errors import BadInput

EXAMPLES: Mapping[str, Sequence[tuple[str, str]]] = {
    "serve": (
        ("OpenAI's routes on this machine, at http://127.0.0.1:8000/v1", "workbench serve"),
        ("for an assistant that speaks MCP: http://127.0.0.1:8000/mcp is its address", "workbench serve"),
        ("for others in the network, on another port", "workbench serve --host 0.0.0.0 --port 9000"),
    ),
    "key": (
        ("a key for a program, shown once", "workbench key add notebook"),
        ("the names of all keys, and their dates", "workbench key list"),
        ("remove a key; it is no longer valid", "workbench key remove notebook"),
    ),
    "app": (
        ("the page, for this machine only", "workbench app"),
        ("for others in the network, on another port", "workbench app --host 0.0.0.0 --port 8000"),
    ),
    "models": (
        ("all models, and which are ready", "workbench models"),
        ("the same for a script", "workbench models --json"),
    ),
    "options": (
        ("the options of a model", "workbench options demo/funasr-nano"),
        ("the options of your own checkpoint", "workbench options path/to/a/checkpoint"),
    ),
    "transcribe": (
        ("one recording to text", "workbench transcribe talk.wav --model demo/sensevoice"),
        ("subtitles", "workbench transcribe talk.wav -m sensevoice-small --format srt > talk.srt"),
        ("several recordings, a JSON object each", "workbench transcribe a.wav b.mp3 -m paraformer-zh --format json"),
        ("while somebody speaks", "workbench transcribe --live -m demo/sensevoice"),
    ),
    "generate": (
        ("continue a text", 'workbench generate "Count from two to six." --model demo/qwen3'),
        ("sample other texts", 'workbench generate "Hello" -m demo/qwen3 --temperature 0.8 --seed 1'),
        ("the text from a file", "workbench generate - -m qwen3-0.6b < prompt.txt"),
    ),
    "chat": (
        ("one answer, its audio in a file", 'workbench chat "Count from two to six." --model demo/qwen3'),
        ("about a recording", "workbench chat --audio question.wav -m demo/funasr-nano"),
        ("a chat in this terminal", "workbench chat --model demo/qwen3"),
    ),
    "inject": (
        (
            "an embedding for the placeholder",
            'workbench inject -m demo/qwen3 --embedding speech.npy --prompt "<|fim_pad|>"',
        ),
        (
            "two embeddings from a file with several tensors",
            "workbench inject -m demo/qwen3 --embedding a.npz --tensor left \\\n"
            '      --embedding a.npz --tensor right --prompt "<|fim_pad|> and <|fim_pad|>"',
        ),
    ),
    "trace": (
        ("all stages of a recording", "workbench trace talk.wav --model demo/sensevoice --out t.safetensors"),
        (
            "some stages, on another runtime",
            "workbench trace talk.wav -m demo/paraformer -r gguf -q q8_0 \\\n"
            "      --stages 'encoder.*' --out t.safetensors",
        ),
    ),
    "compare": (
        (
            "the first stage at which two traces diverge",
            "workbench compare reference.safetensors candidate.safetensors",
        ),
        (
            "with your own limit",
            "workbench compare a.safetensors b.npz --tolerance 'encoder.*:relative_l2=1e-3'",
        ),
        (
            "the weights of a GGUF file against their checkpoint",
            "workbench compare sensevoice-small port.gguf",
        ),
    ),
    "parity": (
        (
            "two candidates, with a report",
            "workbench parity demo/sensevoice talk.wav \\\n      --candidates gguf:q8_0,gguf:f16 --report report.html",
        ),
        (
            "each stage by itself",
            "workbench parity demo/paraformer talk.wav --candidates gguf:f32 --isolated",
        ),
    ),
    "evaluate": (
        ("a model", "workbench evaluate list.csv --model demo/sensevoice --out results"),
        (
            "another type, with four workers",
            "workbench evaluate list.csv \\\n      --model 'demo/sensevoice|gguf|q8_0' --out results --workers 4",
        ),
    ),
    "decode": (
        ("logits of your own model", "workbench decode logits.npy --tokens tokens.txt"),
        (
            "with a language model of tokens, five hypotheses",
            "workbench decode a.npy b.npy --tokens tokens.txt --lm lm.arpa --nbest 5",
        ),
        (
            "words of a lexicon, and a language model of words",
            "workbench decode logits.npy --tokens tokens.txt --lexicon lexicon.txt \\\n"
            "      --word-lm words.arpa --gamma 0.8 --json",
        ),
    ),
    "report": (
        ("the report, written again", "workbench report results"),
        ("all rows as a table too", "workbench report results --table rows.csv"),
    ),
    "visualise": (
        (
            "the frames of each token of a CTC model",
            "workbench visualise talk.wav -m demo/sensevoice --view ctc --out it.svg",
        ),
        (
            "two types of weights side by side, and their difference",
            "workbench visualise talk.wav -m demo/paraformer -r gguf -q f16 \\\n"
            "      --view attention --layer 3 --against q4_0 --out it.png",
        ),
        ("the views of a model", "workbench visualise --list -m demo/fireredasr"),
    ),
    "convert": (
        (
            "a GGUF file of a quarter of the size",
            "workbench convert demo/sensevoice --quantization q8_0 --out it.gguf",
        ),
        ("the size of the file in each type", "workbench convert demo/funasr-nano --list"),
        ("a directory for vLLM's server", "workbench convert funasr-nano --for vllm --out nano"),
    ),
    "train-demo": (
        (
            "train the shipped demo again",
            "workbench train-demo sensevoice --data free-spoken-digit-dataset --out my-demo",
        ),
        (
            "a shorter training, with more errors",
            "workbench train-demo paraformer --data free-spoken-digit-dataset \\\n      --out my-demo --scale 0.1",
        ),
    ),
    "train-lm": (
        ("a model of words", "workbench train-lm sentences.txt --order 3 --out words.arpa"),
        (
            "a model of a recogniser's tokens, for --lm",
            "workbench train-lm sentences.txt --model demo/sensevoice --out tokens.arpa",
        ),
        (
            "a model of tokens, from a text that is split into tokens",
            "workbench train-lm spelled.txt --vocabulary tokens.txt --out lm.arpa",
        ),
    ),
}
"""Examples of each command: a purpose, and the line that does it."""


# All control characters but the tab and the line break; and those that turn the direction of what stands behind them.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
MAX_MESSAGE_CHARACTERS, EACH_END = 4000, 500  # characters of a message, and of each end of a longer one


def one_line(sentence: str) -> str:
    """Returns the sentence without line breaks and control characters, even if it quotes file names that contain some.

    A terminal would obey a control character, so it is written as its number, such as \\x1b.
    """
    line = re.sub(r"\s*[\r\n\u2028\u2029]\s*", " ", sentence)
    return CONTROL.sub(lambda found: ascii(found[0])[1:-1], line)


def short_line(sentence: str) -> str:
    """Returns the sentence on one line; a very long sentence keeps only its two ends."""
    line = one_line(sentence)
    return line if len(line) <= MAX_MESSAGE_CHARACTERS else f"{line[:EACH_END]} … {line[-EACH_END:]}"


NUMBERS = ((int, "a whole number"), (float, "a number"))  # argparse would name the type of Python

# Values, not flags: argparse would take -1e-3 and -inf for flags.
NEGATIVE = re.compile(r"-(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$|-(inf|nan)$")


DASH = re.compile("-.")  # the beginning of a flag; - alone is standard input
OUTPUT_FLAGS = ("--out", "--output", "-o")  # of other programs, and of commands that do not print their result
MISSING = "the following arguments are required"  # argparse's words


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """A formatter that writes the usage in one line: required arguments by name, the rest as OPTIONS."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=28)

    def add_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Iterable[object], prefix: str | None = None
    ) -> None:
        """Adds the usage as argparse does, without the optional flags."""
        actions = list(actions)
        listed_actions = [each for each in actions if each.required or not each.option_strings]
        commands = any(isinstance(each, argparse._SubParsersAction) for each in actions)
        if usage is None and len(listed_actions) < len(actions) and not commands:
            words = [self._prog, *filter(None, map(self._usage_of, listed_actions)), "[OPTIONS]"]
            usage = " ".join(words).replace("%", "%%")
        super().add_usage(usage, actions, groups, prefix)  # type: ignore[arg-type]

    def _usage_of(self, action: argparse.Action) -> str:
        """Returns an argument or a required flag as the usage shows it; an empty text for a hidden one."""
        if action.help == argparse.SUPPRESS:
            return ""
        if not action.option_strings:
            return self._format_args(action, self._get_default_metavar_for_positional(action))
        if action.nargs == 0:
            return action.option_strings[0]
        return f"{action.option_strings[0]} {self._format_args(action, self._get_default_metavar_for_optional(action))}"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Returns wrapped paragraphs. Paragraphs that already contain line breaks, such as examples, stay unchanged."""
        parts = text.split("\n\n")
        return "\n\n".join(part if "\n" in part else "\n".join(self._split_lines(part, width)) for part in parts)

    def _split_lines(self, text: str, width: int) -> list[str]:
        """Returns lines as argparse does, but never breaks a flag at its hyphen."""
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as for all bad input, and whose help uses `HelpFormatter`.

    For a word that is nearly a choice or a flag, the error names the right one.
    """

    def __init__(self, **options: object):
        super().__init__(**{"formatter_class": HelpFormatter, **options})  # type: ignore[arg-type]
        self._negative_number_matcher = NEGATIVE
        self._words: Sequence[str] = ()  # the arguments that are parsed now

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parses as argparse does; exits for unknown arguments, here and not in the parser of the whole command line.

        Inputs may also stand behind flags: argparse would take none of them if it has taken an argument before these
        flags. The error says what to do about an unknown flag, or how to name a file that begins with a dash.
        """
        self._words = sys.argv[1:] if args is None else args
        parsed, unknown = super().parse_known_args(args, namespace)
        rest = next((each for each in self._actions if not each.option_strings and each.nargs in ("*", "+")), None)
        if rest and unknown and not any(map(DASH.match, unknown)):
            values = [self._get_value(rest, each) for each in unknown]
            setattr(parsed, rest.dest, [*(getattr(parsed, rest.dest) or []), *values])
            unknown = []
        if unknown:
            hints = [
                self._flag_hint(unknown)[1],
                *(
                    f"for the file of this name, write ./{each}"
                    for each in unknown
                    if each.startswith("-") and Path(each).exists()
                ),
            ]
            if any(not each.option_strings for each in self._actions) and not any(map(DASH.match, unknown)):
                hints.append("put a text or a path with spaces in quotes")
            self.error("; ".join([f"unrecognized arguments: {' '.join(unknown)}", *filter(None, hints)][:2]))
        return parsed, unknown

    def _flag_hint(self, words: Iterable[str]) -> tuple[str, str]:
        """Returns the first unknown flag of these words, and what to do about it; empty texts if there is none."""
        flags = [each.partition("=")[0] for each in words if each.startswith("--") or each in OUTPUT_FLAGS]
        known = self._option_string_actions
        flag = next((each for each in flags if not any(name.startswith(each) for name in known)), "")
        if flag in OUTPUT_FLAGS and "--out" not in known and not {"--json", "--format"}.isdisjoint(known):
            return flag, f"the result goes to stdout: leave out {flag}, and add > FILE at the end"
        return flag, next((f"did you mean {each}?" for each in difflib.get_close_matches(flag, known, 1, 0.75)), "")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        if action.type is Path and not arg_string:  # as of a variable of the shell that is not set
            raise argparse.ArgumentError(action, "the path is empty")
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError:
            expected = next((words for kind, words in NUMBERS if action.type is kind), None)
            if expected is None:
                raise
            raise argparse.ArgumentError(action, f"{arg_string!r:.80} is not {expected}") from None

    def _check_value(self, action: argparse.Action, value: object) -> None:
        flags_first = isinstance(action, argparse._SubParsersAction) and "".join(self._words[:1]).startswith("-")
        commands = [each for each in self._words if flags_first and each in (action.choices or ())]
        if commands:
            raise argparse.ArgumentError(None, f"the command comes first: {self.prog} {commands[0]} ...")
        choices = [] if action.choices is None or value in action.choices else [str(each) for each in action.choices]
        if suggestions := difflib.get_close_matches(str(value).lower(), choices, 1):
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}; did you mean {suggestions[0]}?")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        """Prints one line, as for all bad input, and exits. A missing flag may be there with a wrong name."""
        flag, hint = self._flag_hint(self._words)
        if message.startswith(MISSING) and hint:
            message = f"{message}; there is no {flag}: {hint}"
        self.exit(BadInput.exit_status, short_line(f"{self.prog}: {message}; see {self.prog} --help") + "\n")


def finish(command: str, parser: argparse.ArgumentParser) -> None:
    """Moves arguments without a group after the groups, and adds the command's examples at the end of its help."""
    if len(parser._action_groups) > 2:
        parser._optionals.title = "other"
        parser._action_groups.remove(parser._optionals)
        parser._action_groups.append(parser._optionals)
    lines = [f"  # {what}\n  {line}" for what, line in EXAMPLES.get(command, ())]
    if lines:
        parser.epilog = "\n\n".join([*filter(None, [parser.epilog]), "examples:\n" + "\n".join(lines)])
