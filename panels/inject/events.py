"""The event handlers of the Inject tab: from the values of inputs to the values of outputs.

All users of the page share the same objects. A user's embeddings are in that user's state, and running runs belong to
the user's session. The layout is in `layout`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import gradio as gr

from panels.inject.embedding_view import (
    ArrayChoice,
    ListedEmbedding,
    array_choices,
    listed_embeddings,
    listed_html,
    look_html,
)
from panels.inject.run import TASK, prepare, run
from panels.inject.view import answers_html, status_html
from panels.running.cancel import ActiveRuns
from panels.running.choices import RuntimeOffer, chosen_offers, offers
from panels.running.kept_views import KeptViews
from panels.running.sessions import SessionPool
from panels.transcribe.events import unavailable_html
from panels.transcribe.segment_editor import saved
from panels.widgets.html_block import visibility_classes
from panels.widgets.markup import datum, element, text
from panels.widgets.model_chooser import chooser_value, chosen_in, with_sizes
from panels.widgets.option_inputs import OptionField, read_inputs
from panels.widgets.recording_actions import fault_html
from panels.widgets.samples import Sample, samples_named
from panels.widgets.tab_parts import run_buttons
from workbench.audio.check import check_sound
from workbench.core.errors import BadInput, WorkbenchError
from workbench.core.visitors import told
from workbench.embeddings import ENCODINGS, Embedding, SeveralTensors, embedding_of, read_embedding, write_embedding
from workbench.families import FAMILIES
from workbench.session.values import Neighbours
from workbench.system.tempdirs import tempdir

Update = dict[str, Any]
STAGES = "adaptor.output,prompt.text"
SUFFIXES = tuple(f".{encoding}" for encoding in ENCODINGS)
UNSAFE = re.compile(r'\s*[\\/:*?"<>|]+\s*')
RECORDED = "r"  # after the number in a stored file's name: the embedding of a recording


@dataclass(frozen=True, eq=False)
class NewEmbedding:
    """What a speech model made of a recording, on its way to the list."""

    embedding: Embedding
    prompt: str  # the speech model's, with a placeholder for the embedding


class InjectActions:
    """The event handlers of the Inject tab."""

    def __init__(self, pool: SessionPool, samples: Sequence[Sample], options: Sequence[OptionField]):
        self.pool = pool
        self.samples = tuple(samples)
        self.options = tuple(options)
        self._runs = ActiveRuns()
        self._making = ActiveRuns()

    # Models.

    def refresh(self, chooser: Any) -> tuple[dict[str, Any], str]:
        """Returns the models that can be chosen now, without changing the choice; and why the others cannot."""
        listed = offers(self.pool.registry, TASK)
        return chooser_value(listed, chosen_in(chooser)), unavailable_html(listed)

    def measure(self, chooser: Any, event: gr.EventData) -> dict[str, Any]:
        """Looks up the size of a model's files in every quantisation."""
        return with_sizes(self.pool.registry, chooser, datum(event._data, "cell"), TASK)

    def speech_models(self) -> list[tuple[str, str]]:
        """Returns the models whose adaptor makes embeddings and that can run here: (title, cell)."""
        return [(offer.title, offer.cell.value) for offer in self._offers_for_speech() if offer.possible]

    def _offers_for_speech(self) -> list[RuntimeOffer]:
        return [
            offer
            for offer in offers(self.pool.registry)
            if FAMILIES[offer.card.family].has_language_model and not offer.elsewhere
        ]

    # Embeddings.

    def add(self, files: list[str] | None, listed: Any, waiting: Any) -> tuple[Any, ...]:
        """Reads files and appends their embeddings to the list; files that cannot be read are reported and left out.

        Args:
            waiting: the files with several arrays of which none is chosen yet.

        Returns values for: embeddings, list, the row to choose arrays in, its choices, files that wait, files.
        """
        embeddings, several = list(listed_embeddings(listed)), list(array_choices(waiting))
        for path in files or []:
            try:
                self.pool.guard.check_arrays([path])
                embeddings.append(ListedEmbedding(read_embedding(Path(path), name=Path(path).name)))
            except SeveralTensors as error:
                several.append(
                    ArrayChoice(path, tuple((f"{each.name} {each.described}", each.name) for each in error.tensors))
                )
            except BadInput as error:
                gr.Warning(text(error))
        return tuple(embeddings), listed_html(embeddings), *_question(several), None

    def take(self, waiting: Any, chosen: list[str] | None, listed: Any) -> tuple[Any, ...]:
        """Reads the chosen arrays of a file with several. Returns values like `add`, without the files."""
        first, *following = array_choices(waiting) or (None,)
        if first is None:
            raise BadInput("no file has several arrays any more; add it again")
        if not chosen:
            raise BadInput(f"no array of {Path(first.path).name} is chosen; choose one or more, or press Skip")
        found = [ListedEmbedding(read_embedding(Path(first.path), tensor=each)) for each in chosen]
        embeddings = [*listed_embeddings(listed), *found]
        return tuple(embeddings), listed_html(embeddings), *_question(following)

    def leave_out(self, waiting: Any) -> tuple[Any, ...]:
        """Skips a file with several arrays. Returns values for: the row, its choices, files that wait."""
        return _question(array_choices(waiting)[1:])

    def remove(self, listed: Any, event: gr.EventData) -> tuple[Any, ...]:
        """Removes an embedding from the list."""
        embeddings = [each for each in listed_embeddings(listed) if each.key != datum(event._data, "key")]
        return tuple(embeddings), listed_html(embeddings)

    def earlier(self, listed: Any, event: gr.EventData) -> tuple[Any, ...]:
        """Moves an embedding one position up."""
        embeddings = list(listed_embeddings(listed))
        at = next((n for n, each in enumerate(embeddings) if each.key == datum(event._data, "key")), 0)
        if at:
            embeddings[at - 1], embeddings[at] = embeddings[at], embeddings[at - 1]
        return tuple(embeddings), listed_html(embeddings)

    def save(self, listed: Any, event: gr.EventData) -> dict[str, Any]:
        """Returns an embedding as a file for `segment_editor.saver`."""
        embedding, form = self._embedding_of_event(listed, event), datum(event._data, "form")
        content = write_embedding(embedding.values, None, form)
        return saved(f"{_download_name(embedding.name)}.{form}", "application/octet-stream", content)

    def look(self, listed: Any, chooser: Any, event: gr.EventData) -> str:
        """Returns an embedding as pictures, with the nearest tokens of the first chosen model that exposes its
        table.
        """
        embedding = self._embedding_of_event(listed, event)
        neighbours, why = self._neighbours(embedding, chosen_in(chooser))
        return look_html(embedding, neighbours, why)

    def _embedding_of_event(self, listed: Any, event: gr.EventData) -> Embedding:
        key = datum(event._data, "key")
        for each in listed_embeddings(listed):
            if each.key == key:
                return each.embedding
        raise BadInput("that embedding is not in the list any more; pick one of those shown now")

    def _neighbours(self, embedding: Embedding, cells: Sequence[str]) -> tuple[Neighbours | None, str]:
        """Returns the nearest tokens of an embedding and their model's name; or why there are none."""
        if not cells:
            return None, "tick a language model to see its nearest words"
        reasons = []
        for offer in chosen_offers(cells, offers(self.pool.registry, TASK)):
            cell = offer.cell
            try:
                session = self.pool.session(cell.model, cell.runtime, cell.quantization)
                return session.neighbours(embedding.values), offer.title
            except WorkbenchError as error:
                reasons.append(f"{offer.title}: {told(error)}")
        return None, "; ".join(reasons)

    # Embeddings from a recording.

    def pick_sample(self, event: gr.EventData) -> str:
        """Uses a sample as the recording."""
        return str(samples_named(self.samples, datum(event._data, "sample"))[0].path)

    def begin_with(self, recording: str | None, listed: Any) -> Iterator[tuple[Any, ...]]:
        """Checks a new recording, and removes embeddings of earlier recordings; files that were added stay.

        Yields values for: embeddings, list, look, the recording's fault. Raises `BadInput` for a file that is not a
        sound file after it has shown that fault, so that no model is loaded.
        """
        try:
            if recording:
                check_sound(recording)
        except WorkbenchError as error:
            yield *(gr.skip(),) * 3, fault_html(error)
            raise
        embeddings = tuple(each for each in listed_embeddings(listed) if not each.from_recording)
        yield embeddings, listed_html(embeddings), "", ""

    def make(self, recording: str | None, chosen: str | None, request: gr.Request) -> Iterator[tuple[Any, ...]]:
        """Computes a speech model's adaptor output for a recording, for `append`.

        Yields values for: the new embedding, progress. If the user has begun with another recording meanwhile, it
        raises an error without a message, and nothing follows.
        """
        if not recording:
            raise BadInput("there is no recording; upload one, record one, or click a sample")
        speech_models = [offer for offer in self._offers_for_speech() if offer.cell.value == chosen]
        if not speech_models:
            raise BadInput("no speech model is chosen; choose one in the list")
        cell = speech_models[0].cell
        status = element("p", f"{text(speech_models[0].title)} makes the embeddings", role="status")
        user = str(request.session_hash)
        with self._making.run(user) as making:
            yield gr.skip(), element("div", status + element("div", element("i", ""), "bar unsure"), "progress")
            try:
                session = self.pool.session(cell.model, cell.runtime, cell.quantization)
                trace = session.trace(recording, STAGES)
            except Exception:
                yield gr.skip(), ""
                raise
            if not self._making.is_latest(user, making):
                raise gr.Error(visible=False, print_exception=False)
        found = embedding_of(trace["adaptor.output"], f"{Path(recording).stem} by {cell.model}")
        yield NewEmbedding(found, str(trace["prompt.text"])), ""

    def append(self, new: Any, listed: Any, prompt: str, made_prompt: str) -> tuple[Any, ...]:
        """Appends the embedding from `make` to the list as it is now: the user may have changed it during the work.

        The speech model's prompt replaces an empty prompt, and one that came from a recording. Returns values for:
        embeddings, list, prompt, the option chat, the prompt that a recording brought, the new embedding.
        """
        embeddings = listed_embeddings(listed)
        if not isinstance(new, NewEmbedding):
            raise BadInput("the embeddings cannot be read; reload the page")
        embeddings = (*embeddings, ListedEmbedding(new.embedding, from_recording=True))
        replaces_prompt = not (prompt or "").strip() or prompt == made_prompt
        filled = (new.prompt, False, new.prompt) if replaces_prompt else (gr.skip(),) * 3
        return embeddings, listed_html(embeddings), *filled, None

    def look_at_last(self, listed: Any, chooser: Any) -> str:
        """Returns the newest embedding as `look` shows it; nothing if the user has removed all."""
        embeddings = listed_embeddings(listed)
        if not embeddings:
            return ""
        embedding = embeddings[-1].embedding
        return look_html(embedding, *self._neighbours(embedding, chosen_in(chooser)))

    # Runs.

    def start(
        self, listed: Any, prompt: str, chooser: Any, request: gr.Request, *values: Any
    ) -> Iterator[tuple[Any, ...]]:
        """Runs the models; yields answers, progress, Inject and Cancel button. It ends an earlier run of the user.

        Args:
            values: the values of the options' inputs.
        """
        options = read_inputs(self.options, values)
        embeddings = [each.embedding for each in listed_embeddings(listed)]
        job = prepare(self.pool.registry, prompt or "", embeddings, chosen_in(chooser), options)
        user = str(request.session_hash)
        self._runs.stop(user)
        try:
            with self._runs.run(user) as stop:
                for answers in run(self.pool, job, stop):
                    if not self._runs.is_latest(user, stop):
                        return  # the later run shows its answers now
                    yield answers_html(answers), status_html(answers), *run_buttons(not answers.finished)
        except Exception:
            yield gr.skip(), "", *run_buttons(False)
            raise

    def keep(self, views: KeptViews, listed: Any, prompt: str, chooser: Any, *values: Any) -> Any:
        """Stores the run that has ended, with its embeddings and what is shown of it; returns the list of earlier runs.

        Args:
            values: the values of the options' inputs, then the HTML of answers, progress and look.
        """
        options, results = values[: views.inputs - 3], values[views.inputs - 3 :]
        if "result done" not in str(results[0]):
            return gr.skip()
        names = ", ".join(each.embedding.name for each in listed_embeddings(listed))
        with tempdir() as folder:
            files = [_write_entry(each, number, folder) for number, each in enumerate(listed_embeddings(listed))]
            return views.keep(names, (files, prompt, chosen_in(chooser), *options), results)

    def restore(self, views: KeptViews, event: gr.EventData) -> list[Any]:
        """Returns the values of the tab for the run of a link: those of `KeptViews.restore`, and the list."""
        values = views.restore(event)
        files, cells = values[1], values[3]
        if not isinstance(cells, list):
            return [*values, gr.skip()]
        listed = tuple(map(_read_entry, files or []))
        values[1], values[3] = listed, chooser_value(offers(self.pool.registry, TASK), cells)
        return [*values, listed_html(listed)]

    def cancel(self, request: gr.Request) -> Update:
        """Stops the user's run; finished answers stay on the page."""
        self.leave(request)
        return gr.update(interactive=False)

    def leave(self, request: gr.Request) -> None:
        """Stops the run of a user who closed the page."""
        self._runs.stop(str(request.session_hash))


def _download_name(name: str) -> str:
    """Returns an embedding's name as the name of a file, without a suffix.

    The embedding's name may contain a model's id or an array's name, which have characters that no file's name has.
    """
    stem = name.removesuffix(suffix) if (suffix := Path(name).suffix) in SUFFIXES else name
    return UNSAFE.sub("-", stem) or "embedding"


def _write_entry(entry: ListedEmbedding, number: int, folder: Path) -> str:
    """Writes an embedding into the folder; returns the path, whose name `_read_entry` reads."""
    kind = RECORDED if entry.from_recording else ""
    path = folder / f"{number}{kind}-{_stored_name(entry.embedding.name)}.safetensors"
    path.write_bytes(write_embedding(entry.embedding.values, None, "safetensors"))
    return str(path)


def _stored_name(name: str) -> str:
    """Returns the beginning of a name as a part of a file's name, which `unquote` turns back."""
    pieces = [each if each.isprintable() and each not in "%/" else quote(each, safe="") for each in name[:80]]
    while len("".join(pieces).encode()) > 180:  # a name has 255 bytes at most
        pieces.pop()
    return "".join(pieces)


def _read_entry(path: str) -> ListedEmbedding:
    number, _, name = Path(path).stem.partition("-")
    return ListedEmbedding(read_embedding(Path(path), name=unquote(name)), from_recording=number.endswith(RECORDED))


def _question(waiting: Sequence[ArrayChoice]) -> tuple[Update, Update, tuple[ArrayChoice, ...]]:
    """Asks which arrays of the first waiting file to take: values for the row, its choices, files that wait."""
    row = gr.update(elem_classes=visibility_classes(bool(waiting)))
    if not waiting:
        return row, gr.update(choices=[], value=[]), ()
    choices = list(waiting[0].arrays)
    label = f"{Path(waiting[0].path).name} has {len(choices)} arrays; choose some"
    return row, gr.update(choices=choices, value=[choices[0][1]], label=label), tuple(waiting)
