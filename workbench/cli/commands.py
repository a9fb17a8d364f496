"""The `workbench` command. Results go to stdout; progress and errors, one line each, to stderr.

Exit status: 0 success, 2 bad input, 3 a runtime or source that is not available, 1 anything else. For `compare` and
`parity`, 1 means only "beyond tolerance"; any other error is 2 there. This file prints results that other modules
compute; `workbench.cli.arguments.parser` defines the arguments, and `workbench.cli.program` ends on Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from workbench.cli.arguments.help_text import one_line, short_line
from workbench.cli.arguments.models import chosen_options, chosen_settings
from workbench.cli.arguments.parser import parser
from workbench.cli.live import check_live, transcribe_live
from workbench.cli.models import model_lines
from workbench.cli.serving_commands import change_keys, start_page, start_server
from workbench.cli.sources import source_of
from workbench.cli.standard_input import read_prompt, recording_paths
from workbench.cli.transcribe import ProgressLine, doubts, transcribed
from workbench.cli.writing import chosen_embeddings, print_text
from workbench.core.errors import BadInput, WorkbenchError, named_message_of
from workbench.core.packages import PICTURES, check_packages
from workbench.core.phrases import dimensions
from workbench.embeddings import Embedding
from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry
from workbench.registry.resolve import check_options
from workbench.session.values import Transcript
from workbench.system.atomic_files import check_outputs
from workbench.system.endings import end_in_order, is_ended, stopped_status
from workbench.system.streams import WatchedOutput, open_closed_streams, print_any_letter, watched_stdout
from workbench.text.exports import find_format
from workbench.trace.steps import read_steps
from workbench.trace.trace import StageFilter
from workbench.trace.write import trace_place

COMPARING = ("compare", "parity")  # commands whose exit status 1 means beyond tolerance
DEBUG = "WORKBENCH_DEBUG"  # if this environment variable is set, errors show their traceback


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status; `KeyboardInterrupt` is for `workbench.cli.program`."""
    open_closed_streams()
    print_any_letter()
    with watched_stdout() as stdout:
        return _run(list(sys.argv[1:] if arguments is None else arguments), stdout)


def _run(arguments: Sequence[str], stdout: WatchedOutput) -> int:
    try:
        parsed = parser().parse_args(arguments)
    except SystemExit as ended:  # after --help, whose text argparse prints without a look at errors
        failure = None if ended.code else stdout.explained_failure()
        if failure is None:
            raise
        return _failed(ended, str(failure), failure.exit_status)
    end_in_order()
    try:
        status = COMMANDS[parsed.command](parsed)
        print(end="", flush=True)
        return stopped_status() if is_ended() else status  # a command may finish its work after SIGTERM
    except WorkbenchError as error:
        return _failed(error, str(error), error.exit_status if error.exit_status != 1 else _else(parsed.command))
    except BrokenPipeError:
        stdout.mute()  # the reader has closed the pipe, as `head` does
        return _else(parsed.command)
    except Exception as error:
        failure = stdout.explained_failure() if isinstance(error, OSError) else None
        if failure is not None:
            return _failed(error, str(failure), failure.exit_status)
        return _failed(error, f"{named_message_of(error)}; {DEBUG}=1 shows where", _else(parsed.command))


def _else(command: str) -> int:
    """Returns the exit status for errors that are neither bad input nor a missing runtime.

    For commands that compare, 1 is a result: a script must not take a failure for it.
    """
    return BadInput.exit_status if command in COMPARING else 1


def _failed(error: BaseException, sentence: str, status: int) -> int:
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    _say(f"workbench: {sentence}")
    return status


def _say(sentence: str) -> None:
    print(short_line(sentence), file=sys.stderr, flush=True)


# The commands.


def _models(parsed: argparse.Namespace) -> int:
    return _printed(model_lines(Registry(), parsed.json, _say))


def _options(parsed: argparse.Namespace) -> int:
    from workbench.cli.options import option_lines

    for line in option_lines(Registry(), parsed.model, parsed.json):
        print(line)
    return 0


def _transcribe(parsed: argparse.Namespace) -> int:
    writer = find_format(parsed.format)
    check_live(parsed)
    if parsed.live:
        with _opened(parsed) as (session, options):
            for text in transcribe_live(parsed, session, options):
                print(text, end="", flush=True)
        return 0
    if len(parsed.audio) > 1 and not writer.several:
        raise BadInput(
            f"one .{parsed.format} file holds one recording, and {len(parsed.audio)} are given; run one at a time"
        )
    transcripts: dict[int, Transcript] = {}
    failures: dict[int, int] = {}
    printed = 0
    with (
        recording_paths(parsed.audio) as paths,
        contextlib.closing(transcribed(partial(_opened, parsed), paths)) as found,
    ):
        for number, result in found:
            if isinstance(result, Transcript):
                transcripts[number] = result
                for note in (*result.notes, *doubts(result, parsed.model)):
                    _say(f"{Path(parsed.audio[number]).name}: {note}")
            elif len(parsed.audio) == 1:
                raise result
            else:
                # The other recordings continue; the exit status reports the failure.
                failures[number] = _failed(result, str(result), result.exit_status)
            while printed in transcripts or printed in failures:  # a batch may finish in another order
                if printed in transcripts and parsed.format in ("text", "json"):
                    as_text = parsed.format == "text"
                    # Of several recordings, each line names its own.
                    names = [parsed.audio[printed]] if len(parsed.audio) > 1 else []
                    prefix = f"{one_line(names[0])}: " if names else ""
                    transcript = transcripts[printed]
                    output = f"{prefix}{transcript.text}\n" if as_text else writer.write(transcript, names)
                    print(output, end="", flush=True)
                printed += 1
    if parsed.format not in ("text", "json") and transcripts:
        numbers = sorted(transcripts)
        names_recordings = writer.named or (writer.several and len(parsed.audio) > 1)
        names = [parsed.audio[number] for number in numbers] if names_recordings else []
        print(writer.write([transcripts[number] for number in numbers], names), end="")
    return next(iter(failures.values()), 0)


def _generate(parsed: argparse.Namespace) -> int:
    return _write(parsed, read_prompt(parsed.prompt), ())


def _inject(parsed: argparse.Namespace) -> int:
    prompt = read_prompt(parsed.prompt)
    return _write(parsed, prompt, chosen_embeddings(parsed))


def _write(parsed: argparse.Namespace, prompt: str, embeddings: Sequence[Embedding]) -> int:
    with _opened(parsed) as (session, options):
        print_text(session, prompt, embeddings, options, parsed.format == "json", _say)
    return 0


def _chat(parsed: argparse.Namespace) -> int:
    from workbench.cli.chat import chat

    return chat(parsed, partial(_opened, parsed, chat=True), _say)


def _trace(parsed: argparse.Namespace) -> int:
    trace_place(parsed.out)
    StageFilter(parsed.stages)
    read_steps(parsed.steps)
    embeddings = chosen_embeddings(parsed)
    with contextlib.ExitStack() as stack:
        with Registry() as registry:
            source = stack.enter_context(source_of(parsed, registry.card(parsed.model)))
        session, options = stack.enter_context(_opened(parsed))
        if embeddings and not session.reads_text:
            raise BadInput(f"{session.model} takes a recording; expected a language model and a prompt for --embedding")
        if embeddings:
            options["embeddings"] = embeddings
        steps = {"steps": parsed.steps, "follow": parsed.follow}
        trace = session.trace(source, stages=parsed.stages, given=parsed.given, out=parsed.out, **steps, **options)
    for stage, array in trace.items():
        shape = dimensions(array.shape) or one_line(str(array))
        print(f"{stage}\t{shape}\t{array.dtype if array.dtype.kind != 'U' else 'text'}")
    return 0


def _compare(parsed: argparse.Namespace) -> int:
    from workbench.cli.weights import compare_weights
    from workbench.compare.files import compare_files
    from workbench.formats.gguf_file import is_gguf
    from workbench.trace.formats import is_trace_name

    if is_gguf(parsed.candidate) and not is_trace_name(parsed.reference):
        return compare_weights(parsed)
    if parsed.profiles and not parsed.json:
        raise BadInput("--profiles are part of the JSON; give --json too")
    progress = ProgressLine()
    try:
        result = compare_files(
            parsed.reference,
            parsed.candidate,
            preset=parsed.preset,
            rules=parsed.tolerance,
            mapping=parsed.mapping,
            stages=parsed.stages,
            exact=parsed.float64,
            peer=parsed.same_precision,
            force=parsed.force,
            on_stage=lambda done, count, stage: progress.show(f"comparing {stage} ({done + 1} of {count})"),
        )
    finally:
        progress.clear()
    for warning in result.comparison.warnings:
        _say(f"workbench: {warning}")
    screen = shutil.get_terminal_size() if sys.stdout.isatty() else None
    for line in result.lines(parsed.json, parsed.profiles, screen):
        print(line)
    return result.status


def _parity(parsed: argparse.Namespace) -> int:
    from workbench.cli.parity import lines, narrow_advice, parity_options, write_files
    from workbench.cli.parity_inputs import lines as lines_of_inputs
    from workbench.cli.parity_inputs import parity_on_inputs, several_asked
    from workbench.compare import read_mapping
    from workbench.parity_lab import report_place, run_parity
    from workbench.parity_lab.judgement.baseline import read_baseline, regressions

    reads = [*parsed.inputs, *parsed.audio, *parsed.embedding, *parsed.candidates, parsed.reference]
    reads += filter(None, (parsed.messages, parsed.baseline, parsed.mapping))
    outputs = {"--report": parsed.report, "--junit": parsed.junit, "--summary": parsed.summary}
    check_outputs({flag: report_place(path) for flag, path in outputs.items() if path}, reads)
    if parsed.report or parsed.summary:
        check_packages("pictures need", PICTURES)
    if not 1 <= parsed.worse_by < float("inf"):
        raise BadInput(f"--worse-by is {parsed.worse_by:g}; expected a factor of at least 1")
    baseline = read_baseline(parsed.baseline) if parsed.baseline else None
    mapping = read_mapping(parsed.mapping) if parsed.mapping else None
    progress = ProgressLine()
    parsed.source = parsed.inputs[0] if parsed.inputs else None
    with Registry() as registry:
        if several_asked(parsed, registry.card(parsed.model)):
            runs = parity_on_inputs(parsed, registry, mapping, progress)
            for line in lines_of_inputs(runs, parsed.json):
                print(line)
            return runs.status
        with source_of(parsed, registry.card(parsed.model)) as source:
            try:
                run = run_parity(
                    registry,
                    parsed.model,
                    source,
                    parsed.reference,
                    parsed.candidates,
                    parity_options(parsed, mapping),
                    on_progress=progress.fetching,
                    keep=parsed.keep,
                    embeddings=chosen_embeddings(parsed),
                )
            finally:
                progress.clear()
    with run:
        for outcome in run.outcomes:
            for warning in outcome.comparison.warnings if outcome.comparison else [outcome.reason]:
                _say(f"workbench: {outcome.name}: {warning}")
            for advice in [] if parsed.narrow or parsed.isolated else narrow_advice(outcome):
                _say(f"workbench: {outcome.name}: {advice}")
        worse = regressions(baseline, run.to_dict(), parsed.worse_by) if baseline else None
        write_files(run, worse, parsed.report, parsed.junit, parsed.summary)
        for line in lines(run, worse, parsed.json):
            print(line)
        return run.status if worse is None else int(bool(worse))


def _evaluate(parsed: argparse.Namespace) -> int:
    from workbench.cli.evaluate import evaluate

    return evaluate(parsed, _say)


def _decode(parsed: argparse.Namespace) -> int:
    from workbench.cli.decode import decode_files

    return _printed(decode_files(parsed, _say))


def _visualise(parsed: argparse.Namespace) -> int:
    from workbench.cli.visualise import visualise_file

    return _printed(visualise_file(parsed, _say))


def _report(parsed: argparse.Namespace) -> int:
    from workbench.cli.report import report_on

    return _printed(report_on(parsed))


def _convert(parsed: argparse.Namespace) -> int:
    from workbench.cli.model_commands import convert_model

    return _printed(convert_model(parsed, _say))


def _train_demo(parsed: argparse.Namespace) -> int:
    from workbench.cli.model_commands import train_model

    return _printed(train_model(parsed, _say))


def _train_lm(parsed: argparse.Namespace) -> int:
    from workbench.cli.train_lm import train_language_model

    return _printed(train_language_model(parsed, _say))


def _printed(lines: Iterable[str]) -> int:
    for line in lines:
        print(line)
    return 0


@contextlib.contextmanager
def _opened(parsed: argparse.Namespace, chat: bool = False) -> Iterator[tuple[OpenSession, dict[str, Any]]]:
    """Yields the session and the options for its calls, or for `chat`. They are checked before the model is loaded."""
    with Registry() as registry:
        options = chosen_options(parsed)
        if chat:
            check_options(registry.card(parsed.model), options, chat=True)
        progress = ProgressLine()
        progress.show(f"loading {parsed.model}")
        try:
            session = registry.open(
                parsed.model,
                runtime=parsed.runtime,
                on_progress=progress.fetching,
                options=None if chat else options,
                **chosen_settings(parsed),
            )
        finally:
            progress.clear()
        yield session, options


COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "app": start_page,
    "serve": start_server,
    "key": change_keys,
    "models": _models,
    "options": _options,
    "transcribe": _transcribe,
    "generate": _generate,
    "chat": _chat,
    "inject": _inject,
    "trace": _trace,
    "compare": _compare,
    "parity": _parity,
    "evaluate": _evaluate,
    "report": _report,
    "decode": _decode,
    "visualise": _visualise,
    "convert": _convert,
    "train-demo": _train_demo,
    "train-lm": _train_lm,
}
