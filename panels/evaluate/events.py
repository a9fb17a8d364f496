"""The event handlers of the Evaluate tab: from the values of inputs to the values of outputs.

All users of the page share the same object. Results are found by a key that only their user has.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from panels.evaluate.corpus import example, server_path, uploaded_corpus, uploaded_transcripts
from panels.evaluate.run import CORPUS, NOT_KEPT, Compute, Job, Results, Step, evaluate, new_folder, opened, run
from panels.evaluate.view import result_html, status_html
from panels.running.cancel import ActiveRuns
from panels.running.choices import chosen_offers, offers
from panels.running.kept_files import uploaded
from panels.running.last_results import LastResults
from panels.running.sessions import SessionPool
from panels.widgets.markup import datum
from panels.widgets.model_chooser import chooser_value, chosen_in, with_sizes
from panels.widgets.tab_parts import run_buttons
from workbench.audio.read import read as read_sound
from workbench.audio.read import write_wav
from workbench.core.errors import BadInput
from workbench.evaluation.store import read
from workbench.system.tempdirs import tempdir
from workbench.text.normalisers import find_normaliser

Update = dict[str, Any]


class EvaluateActions:
    """The event handlers of the Evaluate tab."""

    def __init__(self, pool: SessionPool, compute: Compute | None = None):
        self.pool = pool
        self.compute = compute or evaluate
        self.last_results: LastResults[Results] = LastResults(NOT_KEPT, close=Results.close)
        self._runs = ActiveRuns()

    def find(self, key: str) -> Results:
        """Returns the results with this key; raises `BadInput` if they are not kept."""
        return self.last_results.of(key)

    # Inputs.

    def refresh(self, chooser: Any) -> dict[str, Any]:
        """Returns the models that can be chosen now, without changing the choice."""
        return chooser_value(offers(self.pool.registry), chosen_in(chooser))

    def measure(self, chooser: Any, event: gr.EventData) -> dict[str, Any]:
        """Looks up the size of a model's files in every quantisation."""
        return with_sizes(self.pool.registry, chooser, datum(event._data, "cell"))

    # Runs.

    def start(
        self,
        files: list[str] | None,
        server_folder: str,
        chooser: Any,
        transcripts: list[str] | None,
        normaliser: str,
        limit: str,
        request: gr.Request,
    ) -> Iterator[tuple[Any, ...]]:
        """Evaluates models; yields progress, the report, and the buttons Evaluate and Cancel.

        Without files and without a place on the server, the corpus is the samples.
        """
        chosen = chosen_in(chooser)
        job = self.job(files or [], server_folder or "", chosen, normaliser, limit or "", transcripts or [])
        yield status_html_of_start(), gr.skip(), *run_buttons(True)
        try:
            with self._runs.run(str(request.session_hash)) as stop:
                for step in run(self.pool.registry, job, stop, self.compute, self.pool.guard):
                    report = gr.skip()
                    if step.results is not None:
                        self.last_results.put(step.results.key, step.results)
                        report = result_html(step.results)
                    yield status_html(step), report, *run_buttons(not step.finished)
        except Exception:
            yield "", gr.skip(), *run_buttons(False)
            raise

    def job(
        self,
        files: list[str],
        server_folder: str,
        chosen: list[str],
        normaliser: str,
        limit: str,
        transcripts: Sequence[str] = (),
    ) -> Job:
        """Returns what to evaluate, checked; raises `BadInput` for an invalid choice."""
        files_by_program = uploaded_transcripts(transcripts)
        models = chosen_offers(chosen, offers(self.pool.registry)) if chosen or not files_by_program else []
        find_normaliser(normaliser)
        limit_count = read_limit(limit)
        folder = new_folder(upload_folder())
        if files:
            try:
                manifest = str(uploaded_corpus(files, folder / CORPUS))
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        else:
            manifest = str(server_path(server_folder, self.pool.guard)) if (server_folder or "").strip() else example()
        keys = [each.cell.value for each in models]
        return Job(manifest, keys, normaliser, limit_count, folder, files_by_program)

    def open(self, folder: str) -> tuple[str, str]:
        """Opens a directory of results on the server's machine; returns a status and the report."""
        if not (folder or "").strip():
            raise BadInput("there is no path; expected a directory that `workbench evaluate` has written")
        evaluation = read(server_path(folder, self.pool.guard))
        results = opened(evaluation, new_folder(upload_folder()))
        self.last_results.put(results.key, results)
        return "", result_html(results)

    def cancel(self, request: gr.Request) -> Update:
        """Stops the user's run; finished results stay."""
        self.leave(request)
        return gr.update(interactive=False)

    def leave(self, request: gr.Request) -> None:
        """Stops the run of a user who closed the page."""
        self._runs.stop(str(request.session_hash))

    # A recording, for another tab.

    def take(self, event: gr.EventData) -> tuple[list[str], str]:
        """Returns the sound of the recording that the event names, as a list of one file, and what is said in it."""
        results = self.find(datum(event._data, "key"))
        utterance = results.utterance(datum(event._data, "id"))
        with contextlib.closing(results.recordings()) as recordings:
            sound = read_sound(recordings.source(utterance))
        name = "".join(each if each.isalnum() or each in "-_" else "-" for each in Path(utterance.id).name)[-60:]
        with tempdir() as folder:
            write_wav(folder / "sound.wav", sound.samples)
            # Recordings of other folders may have the same name, and the other tab may need this one for longer than
            # the results are kept.
            return [uploaded(folder / "sound.wav", f"{name or 'recording'}.wav")], utterance.text

    def take_one(self, event: gr.EventData) -> str:
        """Returns the path of the sound, as `take` does, for a tab with one recording and no text."""
        return self.take(event)[0][0]


def read_limit(text: str) -> int | None:
    """Reads how many recordings to take; None for an empty text. Raises `BadInput` for anything but a whole number."""
    text = text.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and int(text[:10]) >= 1):
        raise BadInput(f"the limit is {text!r:.40}; expected a number of recordings, at least 1, or nothing for all")
    return int(text[:10])


def status_html_of_start() -> str:
    """Returns the progress that the page shows before the first step of a run."""
    return status_html(Step())


def upload_folder() -> Path:
    """Returns the folder for the files of visitors; the server deletes it when it ends."""
    from gradio.utils import get_upload_folder

    return Path(get_upload_folder())
