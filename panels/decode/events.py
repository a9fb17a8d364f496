"""The event handlers of the Decode tab: from the values of inputs to the values of outputs.

All users of the page share the same object. The user's session keeps the results of the user's last run. The layout
is in `layout`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gradio as gr

from panels.decode.follow import follow
from panels.decode.form import Form, job_of
from panels.decode.heads import headed_offers, layout_of
from panels.decode.knowledge import FILES, Checked, check_file, find_example, read_examples
from panels.decode.run import TASK, Decodings, Row, run
from panels.decode.sweep import SWEPT, NBestLists, Pair, check_swept, read_grid, run_sweep, same_lists
from panels.decode.view import results_html, rival_html, status_html, sweep_html, sweep_status_html
from panels.running.cancel import ActiveRuns
from panels.running.choices import chosen_offers, offers
from panels.running.kept_views import KeptViews
from panels.running.last_results import LastResults
from panels.running.sessions import SessionPool
from panels.widgets.html_block import visibility_classes
from panels.widgets.markup import datum, element, text
from panels.widgets.option_inputs import OptionField
from panels.widgets.recording_actions import RecordingActions, sample_values
from panels.widgets.samples import Sample, samples_named
from panels.widgets.tab_parts import run_buttons
from panels.widgets.templates import render
from workbench.core.errors import BadInput, WorkbenchError
from workbench.core.options import option_specs
from workbench.decoding.ctc_beam.options import SearchOptions
from workbench.decoding.rivals import find_rival
from workbench.families.vocabularies.ctc_layouts import LogitsLayout
from workbench.pipelines.ctc.token_files import blank_of, read_tokens

Update = dict[str, Any]
VIEW = "decode/view.html"


class DecodeActions(RecordingActions):
    """The event handlers of the Decode tab."""

    def __init__(self, pool: SessionPool, samples: Sequence[Sample]):
        self.pool = pool
        self.samples = tuple(samples)
        self.options = tuple(OptionField(spec, (), True) for spec in option_specs(SearchOptions))
        self.last_runs: LastResults[Decodings] = LastResults("that run is not kept any more; press Decode again")
        self.lists: LastResults[NBestLists] = LastResults("that sweep is not kept any more; press Sweep again")
        self._runs = ActiveRuns()
        self._sweeps = ActiveRuns()
        self._followed: dict[str, Row] = {}  # by user, the result whose search is being followed

    # Inputs.

    def refresh(self, model: str | None, neural: str | None) -> tuple[Update, Update]:
        """Returns the models that can be chosen now, without changing the choice."""
        heads = [(each.title, each.cell.value) for each in headed_offers(self.pool.registry) if each.possible]
        texts = [(each.title, each.cell.value) for each in offers(self.pool.registry, TASK) if each.possible]
        chosen_model = model if model in [value for _, value in heads] else heads[0][1] if heads else None
        return gr.update(choices=heads, value=chosen_model), gr.update(
            choices=[("none", ""), *texts], value=neural or ""
        )

    def examples_html(self) -> str:
        """Returns the examples as buttons; empty if none ship."""
        examples = read_examples()
        return render(VIEW, "examples", examples) if examples else ""

    def pick_sample(self, event: gr.EventData) -> tuple[Any, ...]:
        """Uses a sample, or all of them; also returns the reference text, the credit, the sample's text, and no logits,
        because recordings replace them.
        """
        return *sample_values(samples_named(self.samples, datum(event._data, "sample"))), None

    def pick_example(self, event: gr.EventData) -> tuple[Any, ...]:
        """Fills in an example: files, neural model, options, logits, tokens, blank, recordings, reference, credit and
        the text that the example brought.
        """
        example = find_example(datum(event._data, "example"))
        files = [example.path(example.files.get(option, "")) for option in FILES]
        available = [each.cell.value for each in offers(self.pool.registry, TASK) if each.possible]
        neural = example.neural if example.neural in available else ""
        options = [example.options.get(each.spec.name, _default(each)) for each in self.options]
        logits = [example.path(name) for name in example.logits] or None
        reference = "\n".join(example.references)
        inputs: tuple[Any, ...] = (None, reference, "", reference)
        if example.samples:
            inputs = sample_values([each for name in example.samples for each in samples_named(self.samples, name)])
        return (*files, neural, *options, logits, example.path(example.tokens), "0", *inputs)

    def check(
        self,
        checked_options: tuple[str, ...],
        model: str | None,
        recordings: list[str] | None,
        logits: list[str] | None,
        tokens: str | None,
        blank: str,
        *paths: str | None,
    ) -> Any:
        """Returns what was found in the files of these options, or what is wrong with them."""
        path_of_option = dict(zip(FILES, paths))
        # A list of tokens may come before its logits, but it means nothing to a model that hears recordings.
        listed = None if recordings and not logits else tokens
        layout = (
            self._layout(model, logits, listed, blank)
            if any(path_of_option[option] for option in checked_options)
            else None
        )
        lexicon = path_of_option["lexicon"]
        if isinstance(layout, Checked):
            results = [layout if path_of_option[option] else None for option in checked_options]
        else:
            results = [check_file(option, path_of_option[option], layout, lexicon) for option in checked_options]
        html = ["" if each is None else render(VIEW, "checked", each.message, each.wrong) for each in results]
        return html if len(html) > 1 else html[0]

    def check_again(self, *values: Any) -> Any:
        """Checks all files as `check` does, after a change that decides whether a list of tokens counts.

        Without such a list, nothing is read, and the notes stay.
        """
        _, _, _, tokens, *_ = values
        return self.check(tuple(FILES), *values) if tokens else [gr.skip()] * len(FILES)

    def _layout(
        self, model: str | None, logits: list[str] | None, tokens: str | None, blank: str
    ) -> LogitsLayout | Checked | None:
        """Returns the tokens that files are checked against; None if they are not known yet."""
        try:
            if logits or tokens:
                if not tokens:
                    return None
                pieces = read_tokens(tokens)
                return LogitsLayout(pieces, blank_of(blank or None, pieces))
            if not model:
                return None
            [offer] = chosen_offers([model], headed_offers(self.pool.registry))
            return layout_of(offer.card) if offer.ready else None
        except WorkbenchError as error:
            return Checked(str(error), wrong=True)

    # Runs.

    def start(self, request: gr.Request, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Decodes; yields table, progress, Decode and Cancel button, the answer to why, and the followed search.

        Args:
            values: the inputs of a run, in the order of `Form`.
        """
        job = job_of(self.pool, self.options, Form.of(values))
        user = str(request.session_hash)
        decodings = Decodings(job)
        hidden = gr.update(elem_classes=visibility_classes(False, "card"))
        try:
            with self._runs.run(user) as stop:
                for state in run(self.pool, decodings, stop):
                    yield results_html(state), status_html(state), *run_buttons(not state.finished), "", hidden
            self.last_runs.put(user, decodings)
        except Exception:
            yield gr.skip(), "", *run_buttons(False), gr.skip(), gr.skip()
            raise

    def keep(self, views: KeptViews, user: str, values: Sequence[Any]) -> Any:
        """Stores the run that has ended, with what is shown of it; returns the list of earlier runs.

        Args:
            values: the inputs' values, then the HTML of the table, the progress, and the answer to why.
        """
        decodings = self.last_runs.get(user)
        searched_rows = [row for row in decodings.state.rows if row.searched] if decodings else []
        if not searched_rows:
            return gr.skip()
        names = list(dict.fromkeys(row.recording for row in searched_rows))
        recordings = names[0] if len(names) == 1 else f"{len(names)} recordings"
        title = f"{recordings} · {', '.join(dict.fromkeys(row.title for row in searched_rows))}"
        return views.keep(title, values[: views.inputs], values[views.inputs :])

    def cancel(self, request: gr.Request) -> Update:
        """Stops the user's run and sweep."""
        self._runs.stop(str(request.session_hash))
        self._sweeps.stop(str(request.session_hash))
        return gr.update(interactive=False)

    def leave(self, request: gr.Request) -> None:
        """Stops the runs of a user who closed the page, and forgets what they found."""
        user = str(request.session_hash)
        self._runs.stop(user)
        self._sweeps.stop(user)
        self.last_runs.drop(user)
        self.lists.drop(user)

    # Results.

    def look_at_first(self, request: gr.Request) -> Iterator[tuple[Any, Any, Any]]:
        """Follows the search that knows most on the first source after a run."""
        user = str(request.session_hash)
        decodings = self.last_runs.get(user)
        rows = [row for row in decodings.state.rows if row.searched] if decodings else []
        first = [row for row in rows if row.place == rows[0].place]
        if decodings is None or not first:
            yield gr.skip(), gr.skip(), gr.skip()
            return
        yield from self._follow(decodings, first[-1], user)

    def look(self, event: gr.EventData, request: gr.Request) -> Iterator[tuple[Any, Any, Any]]:
        """Follows the search whose button was pressed."""
        user = str(request.session_hash)
        decodings = self.last_runs.of(user)
        yield from self._follow(decodings, decodings.state.row(datum(event._data, "key")), user)

    def _follow(self, decodings: Decodings, row: Row, user: str) -> Iterator[tuple[Any, Any, Any]]:
        """Yields the values that show a search. A second press of its button computes nothing; another takes over."""
        if self._followed.get(user) is row:
            yield gr.skip(), gr.skip(), gr.skip()
            return
        self._followed[user] = row
        visible = gr.update(elem_classes=visibility_classes(True, "card"))
        heading = element("h3", text(f"{row.title}, frame by frame ") + element("span", text(row.recording), "muted"))
        waiting = element("p", "Searching once more, step by step…", "muted small", role="status")
        try:
            yield visible, heading + waiting, None
            view_value = follow(decodings, row)
            if self._followed.get(user) is row:
                yield visible, heading, view_value
        finally:
            if self._followed.get(user) is row:
                del self._followed[user]

    def why(self, event: gr.EventData, request: gr.Request) -> str:
        """Explains a word of a result: compares it with the best hypothesis that has something else in that place."""
        decodings = self.last_runs.of(str(request.session_hash))
        row = decodings.state.row(datum(event._data, "key"))
        place = datum(event._data, "place")
        if not place.isdecimal() or not row.words or int(place) >= len(row.words[0]):
            raise BadInput("that word belongs to an earlier run; pick one of those shown now")
        rival = find_rival(row.hypotheses, row.words, int(place))
        return rival_html(row, rival, row.words[0][int(place)])

    # The sweep.

    def sweep(self, pair: str, first: str, second: str, request: gr.Request, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Sweeps two weights; yields the heat map, the progress, and the buttons.

        Args:
            first: the values of the first weight, as `panels.decode.sweep.read_grid` reads them.
            second: the same for the second weight.
            values: the inputs of a run, in the order of `Form`.
        """
        weight_pair = _pair(pair)
        grid = read_grid(first, weight_pair.weight), read_grid(second, weight_pair.bonus)
        job = job_of(self.pool, self.options, Form.of(values))
        check_swept(job, weight_pair)
        user = str(request.session_hash)
        lists, earlier = self.lists.get(user), self.last_runs.get(user)
        if lists is None or lists.pair != weight_pair or not same_lists(lists.job, job, weight_pair):
            lists = NBestLists(job, weight_pair)
        if earlier is not None and (earlier.job.sources, earlier.job.offer, earlier.job.layout) != (
            job.sources,
            job.offer,
            job.layout,
        ):
            earlier = None
        used_weights = (getattr(job.options, weight_pair.weight), getattr(job.options, weight_pair.bonus))
        try:
            with self._sweeps.run(user) as stop:
                for state in run_sweep(self.pool, lists, earlier, *grid, stop):
                    result = state.result
                    names = (weight_pair.weight, weight_pair.bonus.replace("_", " "))
                    heat = gr.skip() if result is None else sweep_html(result, names, used_weights)
                    yield heat, sweep_status_html(state), *run_buttons(not state.finished)
            self.lists.put(user, lists)
        except Exception:
            yield gr.skip(), "", *run_buttons(False)
            raise

    def use(self, pair: str, event: gr.EventData) -> list[Any]:
        """Uses the weights of the pressed cell."""
        weight_pair = _pair(pair)
        try:
            pressed_weights = {
                weight_pair.weight: float(datum(event._data, "first")),
                weight_pair.bonus: float(datum(event._data, "second")),
            }
        except ValueError:
            raise BadInput("the weights of that cell cannot be read; reload the page") from None
        return [pressed_weights.get(each.spec.name, gr.skip()) for each in self.options]


def _pair(pair: str) -> Pair:
    """Returns the pair of weights with that key."""
    if pair not in SWEPT:
        raise BadInput(f"there is no pair of weights {pair!r:.40}; expected one of {', '.join(SWEPT)}")
    return SWEPT[pair]


def _default(option: OptionField) -> Any:
    """Returns the value of an input that nobody touched."""
    return "" if option.spec.default is None else option.spec.default
