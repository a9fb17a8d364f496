"""A causal language model on PyTorch, through transformers: from embeddings to tokens, one step at a time.

The plain language model and the decoders of the speech families use this class. Greedy decoding and sampling use a loop
of this project, which can stop after any token; beam search uses transformers (`beams`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import BadInput, message_of
from workbench.core.finite import check_logits
from workbench.decoding.alternatives import Watch, check_alternatives, likeliest
from workbench.decoding.forced_beams import ForcedBeamSearch
from workbench.decoding.generation import ENDED, Decoding
from workbench.embeddings.merge import Merged
from workbench.families.language.directory import LanguageConfig
from workbench.formats.json_files import read_json_file
from workbench.formats.weight_files import check_downloaded, weight_files
from workbench.runtimes.pytorch.inner_stages.gradients import choice_gradients
from workbench.runtimes.pytorch.inner_stages.inside import looking_inside_stack
from workbench.runtimes.pytorch.inner_stages.layer_maps import LANGUAGE
from workbench.runtimes.pytorch.language_models.decoding_steps import ForcedTokens, looking_at_pass
from workbench.runtimes.pytorch.numerics.arithmetic import (
    forget_longer_passes,
    keeping_float64,
    name_of,
    widen_positions,
)
from workbench.runtimes.pytorch.numerics.weight_override import register_network
from workbench.runtimes.pytorch.tap import tap_into, tap_output
from workbench.trace.ancestry import Ancestry
from workbench.trace.recorder import Recorder
from workbench.trace.steps import ForcedDecoding

TORCH_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


class LanguageModel:
    """A loaded language model that implements `workbench.pipelines.text.language.Language`; made by `open_language`."""

    def __init__(self, network: Any, config: LanguageConfig, device: torch.device):
        self.network = network
        self.config = config
        self.device = device
        self._scorer: Any = None  # made by the first call of `score`

    @property
    def dtype(self) -> str:
        """The name of the type that it computes in."""
        return name_of(self.network.dtype)

    @torch.inference_mode()
    def embed(self, ids: np.ndarray) -> Tensor:
        """Returns text embeddings [batch, tokens, hidden] of ids [batch, tokens]; raises `BadInput` for an
        unknown id.
        """
        table = self.network.get_input_embeddings()
        if ids.size and not 0 <= ids.min() <= ids.max() < len(table.weight):
            raise BadInput(f"the prompt has ids from {ids.min()} to {ids.max()}; expected 0 to {len(table.weight) - 1}")
        embeddings: Tensor = table(torch.from_numpy(ids).to(self.device))
        return embeddings

    @torch.inference_mode()
    def table_rows(self, first: int, last: int) -> np.ndarray:
        """Returns rows `first` to `last` (exclusive) of the embedding table: float32 [last - first, hidden]."""
        rows: np.ndarray = self.network.get_input_embeddings().weight[first:last].float().cpu().numpy()
        return rows

    def from_numpy(self, values: np.ndarray) -> Tensor:
        """Converts a float32 array to a tensor on the model's device."""
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

    def prompt(self, rows: Sequence[Sequence[int]]) -> Merged[Tensor]:
        """Returns text prompts from the ids of each row; shorter rows are padded on the left."""
        lengths = np.array([len(row) for row in rows])
        place = np.arange(lengths.max()) - (lengths.max() - lengths)[:, None]
        mask = place >= 0
        ids = np.zeros(mask.shape, dtype=np.int64)
        ids[mask] = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows])
        embeddings = self.embed(ids)
        not_padding = torch.from_numpy(mask).to(self.device)[..., None]
        return Merged(torch.where(not_padding, embeddings, embeddings.new_zeros(())), mask, np.where(mask, place, 0))

    @torch.inference_mode()
    def trace(self, prompt: Merged[Tensor], recorder: Recorder) -> None:
        """Records the stages `llm.*` and `logits` of one pass over a prompt of one row."""
        hidden = self.trace_body(prompt.embeddings, recorder)
        tap_into(recorder)("logits", self.network.lm_head(hidden))

    @torch.inference_mode()
    def trace_body(self, embeddings: Tensor, recorder: Recorder) -> Tensor:
        """Records the stages `llm.*` of one pass over embeddings [1, positions, hidden]; returns the last of them, the
        states after the final norm [1, positions, hidden]."""
        body, tap = self.network.model, tap_into(recorder)
        embeddings = tap("llm.embeddings", embeddings)
        with contextlib.ExitStack() as hooks, keeping_float64(self.network.dtype):
            for number, layer in enumerate(body.layers):
                hooks.callback(tap_output(layer, f"llm.layers.{number}", tap).remove)
            hooks.callback(tap_output(body.norm, "llm.norm", tap).remove)
            hooks.enter_context(looking_inside_stack("llm.layers", body.layers, LANGUAGE, recorder))
            hidden: Tensor = body(inputs_embeds=embeddings, use_cache=False).last_hidden_state
        return hidden

    def gradients(self, prompt: Merged[Tensor], ids: Sequence[int], places: Sequence[int]) -> Iterator[Tensor]:
        """See `workbench.pipelines.gradients.DifferentiatesLanguage`."""
        body, count = self.network.model, prompt.embeddings.shape[1]
        # Clones, as tensors of inference mode cannot be kept for the way back.
        id_embeddings = self.embed(np.array([ids[: max(places)]], dtype=np.int64)).clone()
        rows = [count - 1 + place for place in places]

        def logits_of(embeddings: Tensor) -> Tensor:
            joined = torch.cat([embeddings, id_embeddings], dim=1)
            hidden = body(inputs_embeds=joined, use_cache=False).last_hidden_state
            logits: Tensor = self.network.lm_head(hidden[0, rows])
            return logits

        choices = [(number, ids[place]) for number, place in enumerate(places)]
        arithmetic = partial(keeping_float64, self.network.dtype)
        for gradient in choice_gradients(prompt.embeddings, logits_of, lambda _: choices, body.layers, arithmetic):
            yield gradient[0]

    def follow(self, prompt: Merged[Tensor], forced: ForcedDecoding) -> None:
        """See `workbench.pipelines.text.language.Language.follow`."""
        for _ in self._steps(prompt, Decoding((), max_new_tokens=forced.last + 1), None, forced):
            pass

    def ancestry(self, prompt: Merged[Tensor], decoding: Decoding) -> Ancestry:
        """See `workbench.pipelines.text.language.SearchesBeams.ancestry`."""
        from workbench.runtimes.pytorch.language_models.beams import ancestry_of

        return ancestry_of(self.network, prompt, decoding)

    @torch.inference_mode()
    def follow_beams(self, prompt: Merged[Tensor], forced: ForcedBeamSearch) -> None:
        """See `workbench.pipelines.text.language.SearchesBeams.follow_beams`."""
        from workbench.runtimes.pytorch.language_models.beams import follow_beams

        follow_beams(self.network, prompt, forced)

    def score(self, rows: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """See `workbench.pipelines.text.language.Language.score`; raises `BadInput` for an unknown id."""
        from workbench.runtimes.pytorch.language_models.scoring import TreeScorer, logprobs_of_row, longest_shared_row

        vocabulary = len(self.network.get_input_embeddings().weight)
        for row in rows:
            if not 0 <= min(row) <= max(row) < vocabulary:
                raise BadInput(f"a text has ids from {min(row)} to {max(row)}; expected 0 to {vocabulary - 1}")
        if self._scorer is None:
            self._scorer = TreeScorer(self.network)
        longest = longest_shared_row(self.network.config)
        long_rows = [longest is not None and len(row) > longest for row in rows]
        tree_scores = iter(
            self._scorer.score([row for row, is_long in zip(rows, long_rows, strict=True) if not is_long])
        )
        return [
            logprobs_of_row(self.network, row) if is_long else next(tree_scores)
            for row, is_long in zip(rows, long_rows, strict=True)
        ]

    def _forward(self, **inputs: Any) -> Any:
        """Returns the output of one pass of the network."""
        with keeping_float64(self.network.dtype):
            return self.network(**inputs)

    def generate(self, prompt: Merged[Tensor], decoding: Decoding, watch: Watch | None = None) -> Iterator[np.ndarray]:
        """Yields the next token of every row [batch] after each step, and `ENDED` for rows that have ended.

        A stop id is yielded too, as the last token of its row. With beam search, each step yields all tokens of every
        row's best hypothesis so far [batch, tokens]; the last step is final and padded with `ENDED`.

        Args:
            prompt: padded on the left.
            watch: as in `workbench.pipelines.text.language.Language`.

        Raises `BadInput` if alternatives are asked of a beam search, and `NotFinite` for logits that are NaN.
        """
        check_alternatives(decoding)
        if decoding.beam_size > 1:
            from workbench.runtimes.pytorch.language_models.beams import beam_search

            return beam_search(self.network, prompt, decoding)
        return self._steps(prompt, decoding, watch if decoding.alternatives else None)

    @torch.inference_mode()
    def _steps(
        self, prompt: Merged[Tensor], decoding: Decoding, watch: Watch | None, forced: ForcedDecoding | None = None
    ) -> Generator[np.ndarray, None, None]:
        from transformers import DynamicCache

        batch = len(prompt.attention_mask)
        mask: Tensor | None = torch.from_numpy(prompt.attention_mask.astype(np.int64)).to(self.device)
        positions = torch.from_numpy(prompt.positions).to(self.device)
        if prompt.attention_mask.all():
            mask = None  # attention without a mask is faster
        choose = _TokenSampler(decoding, self.device) if forced is None else ForcedTokens(forced, self.device)
        cache = DynamicCache(config=self.network.config)
        inputs: dict[str, Tensor] = {"inputs_embeds": prompt.embeddings}
        alive = np.arange(batch)
        limits = np.broadcast_to(decoding.max_new_tokens, batch)
        generated = torch.empty((batch, 0), dtype=torch.long, device=self.device)
        for step in range(int(limits.max())):
            with looking_at_pass(self.network, forced, step, cache):
                output = self._forward(
                    **inputs,
                    attention_mask=mask,
                    position_ids=positions,
                    past_key_values=cache,
                    use_cache=True,
                    logits_to_keep=1,
                )
            logits = output.logits[:, -1]
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            if watch is not None:
                for row_alternatives in zip(alive.tolist(), *likeliest(logits.cpu().numpy(), decoding.alternatives)):
                    watch(*row_alternatives)
            if forced is None:
                check_logits(logits.amax(dim=-1).cpu().numpy())
            tokens = choose(generated, logits)
            next_tokens = tokens.cpu().numpy()
            row = np.full(batch, ENDED, dtype=np.int64)
            row[alive] = next_tokens
            yield row
            unfinished = ~np.isin(next_tokens, decoding.stop_ids) & (step + 1 < limits[alive])
            if not unfinished.any():
                return
            generated = torch.cat([generated, tokens[:, None]], dim=1)
            positions = positions[:, -1:] + 1
            if mask is not None:
                mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
            if not unfinished.all():
                indices = torch.from_numpy(np.flatnonzero(unfinished)).to(self.device)
                cache.batch_select_indices(indices)
                tokens, generated, positions = tokens[indices], generated[indices], positions[indices]
                mask = None if mask is None else mask[indices]
                alive = alive[unfinished]
            inputs = {"input_ids": tokens[:, None]}


class _TokenSampler:
    """Picks the next token from the logits as the options say, with transformers' processors."""

    def __init__(self, decoding: Decoding, device: torch.device):
        from transformers import (
            LogitsProcessorList,
            MinLengthLogitsProcessor,
            RepetitionPenaltyLogitsProcessor,
            TemperatureLogitsWarper,
            TopKLogitsWarper,
            TopPLogitsWarper,
        )

        processors: list[Any] = []
        if decoding.repetition_penalty != 1.0:
            processors.append(RepetitionPenaltyLogitsProcessor(decoding.repetition_penalty))
        if decoding.min_new_tokens and decoding.stop_ids:
            stops = list(decoding.stop_ids)
            processors.append(MinLengthLogitsProcessor(decoding.min_new_tokens, stops, device=str(device)))
        if decoding.samples:
            processors.append(TemperatureLogitsWarper(decoding.temperature))
            if decoding.top_k:
                processors.append(TopKLogitsWarper(decoding.top_k))
            if decoding.top_p < 1.0:
                processors.append(TopPLogitsWarper(decoding.top_p))
        self.processors: Any = LogitsProcessorList(processors)
        self.generator = torch.Generator(device).manual_seed(decoding.seed) if decoding.samples else None

    def __call__(self, generated: Tensor, logits: Tensor) -> Tensor:
        """Returns tokens [batch] from logits [batch, vocabulary], after the tokens generated so far [batch, n]."""
        scores: Tensor = self.processors(generated, logits) if self.processors else logits
        if self.generator is None:
            return scores.argmax(dim=-1)
        return torch.multinomial(scores.softmax(dim=-1), 1, generator=self.generator)[:, 0]


def open_language(
    config: LanguageConfig,
    device: torch.device,
    dtype: str = "float32",
    tensors: Mapping[str, Tensor] | None = None,
    where: str | None = None,
    stepwise: bool = False,
    architecture: Any = None,
) -> LanguageModel:
    """Opens the language model of a directory, with the weights beside its configuration or with `tensors`.

    Args:
        tensors: by transformers' names, if the weights come from another file.
        where: the name of that file in messages.
        stepwise: run attention in steps, and round its scores and its weights.
        architecture: transformers' configuration of the network, if `config.json` is not of the language model alone.

    Raises `BadInput` for missing, extra or misshapen tensors, a damaged file, or an unknown dtype.
    """
    import transformers

    if dtype not in TORCH_DTYPES:
        raise BadInput(f"dtype is {dtype!r}; expected one of {', '.join(TORCH_DTYPES)}")
    directory = config.directory
    where = where or directory.name
    for path in weight_files(directory) if tensors is None else ():
        check_downloaded(path, f"{where}/{path.name}")
    try:
        full = architecture or transformers.AutoConfig.from_pretrained(
            str(directory), local_files_only=True, trust_remote_code=False
        )
        network_class: Any = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(full)]
        with _quiet():
            network, report = network_class.from_pretrained(
                None if tensors is not None else str(directory),
                config=full,
                state_dict=dict(tensors) if tensors is not None else None,
                dtype=TORCH_DTYPES[dtype],
                attn_implementation="eager" if stepwise else None,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
    except BadInput:
        raise
    except Exception as error:  # its readers raise many kinds
        raise BadInput(f"the language model in {where} cannot be loaded: {message_of(error, 300)}") from error
    _check(report, where, directory.name)
    if dtype == "float64":
        widen_positions(network)
    forget_longer_passes(network)
    network.eval().requires_grad_(False).to(device)
    register_network(network)
    return LanguageModel(network, config, device)


def _check(report: Mapping[str, Any], where: str, directory: str) -> None:
    mismatched = sorted(report.get("mismatched_keys") or [])
    if mismatched:
        name, found, expected = mismatched[0][:3]
        raise BadInput(
            f"{where}: tensor {name} has shape {tuple(found)}; {directory}/config.json calls for {tuple(expected)}"
        )
    for key, verb in (("missing_keys", "lacks"), ("unexpected_keys", "has")):
        names = sorted(report.get(key) or [])
        if names:
            more_note = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            which = "which its config.json calls for" if verb == "lacks" else "which its network does not have"
            raise BadInput(f"{where} {verb} language tensor {names[0]}{more_note}, {which}")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Stops transformers from printing progress bars and tables; the caller checks what they report."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def language_dtype(directory: Path, requested: str) -> str:
    """Returns the dtype to compute in: the requested one, or for `auto` the one in the directory's configuration.

    float64 must be asked for: if a configuration names float64 or an unknown type, float32 is used.
    """
    if requested != "auto":
        return requested
    config = read_json_file(directory / "config.json")
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    return dtype if dtype in TORCH_DTYPES and dtype != "float64" else "float32"
