"""Answers of a SpeechLM by the definition: every step computes the whole sequence again, over the whole vocabulary.

It shares no code with the library. From transformers it takes the decoder, the tower's layers and the mel features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.nn import functional as F

MASK = (1 << 64) - 1
TOWER = "multimodal_io_dict.continuous_audio.model.audio_tower."
ADAPTOR = "adaptor.continuous_audio."

Position = list[int] | Tensor  # ids of all streams, or an embedding of the audio tower


def uniform_numbers(seed: int, step: int, count: int) -> list[float]:
    """Words of Philox4x64-10 with the seed as key; the counter begins at (1, step, 0, 0)."""
    words: list[int] = []
    for block in range(-(-count // 4)):
        counter, key = [block + 1, step, 0, 0], [seed, 0]
        for _ in range(10):
            high, low = divmod(0xD2E7470EE14C6C93 * counter[0], 1 << 64)
            other_high, other_low = divmod(0xCA5A826395121157 * counter[2], 1 << 64)
            counter = [other_high ^ counter[1] ^ key[0], other_low, high ^ counter[3] ^ key[1], low]
            key = [(key[0] + 0x9E3779B97F4A7C15) & MASK, (key[1] + 0xBB67AE8584CAA73B) & MASK]
        words += counter
    return [(word >> 11) / (1 << 53) for word in words[:count]]


def drawn(logits: Mapping[int, float], temperature: float, top_k: int, number: float) -> int:
    """One id: the likeliest at temperature 0, otherwise drawn among the `top_k` likeliest."""
    order = sorted(logits, key=lambda name: (-logits[name], name))
    if temperature == 0:
        return order[0]
    order = order[: top_k or None]
    weights = [math.exp((logits[name] - logits[order[0]]) / temperature) for name in order]
    reached = 0.0
    for name, weight in zip(order, weights, strict=True):
        reached += weight
        if reached > number * sum(weights):
            return name
    return order[-1]


def heard_in_chunks(tower: Any, mel: Tensor) -> Tensor:
    """The tower's output [n, width] for log-mel features [bins, frames]: each chunk of frames goes through the
    convolutions alone, and each window of chunks through the layers alone. A last chunk that is shorter is filled up
    with zeros, as transformers does, and what they give is cut off."""
    config = tower.config
    chunks = []
    size = 2 * config.n_window
    for chunk in mel.split(size, dim=1):
        kept = chunk.shape[1]
        image = F.pad(chunk, (0, min(size, mel.shape[1]) - kept))[None, None]
        for convolution in (tower.conv2d1, tower.conv2d2, tower.conv2d3):
            image, kept = F.gelu(convolution(image)), (kept + 1) // 2
        rows = tower.conv_out(image.permute(0, 3, 1, 2).flatten(2))[0, :kept]
        chunks.append(rows + tower.positional_embedding.positional_embedding[: len(rows)])
    together = config.n_window_infer // (2 * config.n_window)
    windows = []
    for first in range(0, len(chunks), together):
        states = torch.cat(chunks[first : first + together])
        for layer in tower.layers:
            states = layer(states, torch.tensor([0, len(states)], dtype=torch.int32))[0]
        windows.append(states)
    found: Tensor = tower.proj2(tower.act(tower.proj1(tower.ln_post(torch.cat(windows)))))
    return found


@dataclass
class Wish:
    """What is asked of an answer."""

    modalities: str = "auto"
    most_text: int = 20
    least_text: int = 1
    most_audio: int = 20
    least_audio: int = 1
    text_temperature: float = 0.0
    audio_temperature: float = 0.0
    text_top_k: int = 0
    audio_top_k: int = 0
    cfg: float = 1.0
    seed: int = 0


class Reference:
    """A SpeechLM from its tensors.

    Args:
        tensors: by the checkpoint's names, in any type.
        language: the settings of the decoder; `tower`: those of the audio tower.
        layout: an object with the vocabulary's numbers.
    """

    def __init__(
        self, tensors: Mapping[str, Tensor], language: Mapping[str, Any], tower: Mapping[str, Any], layout: Any
    ):
        self.layout = layout
        own = {name: value.float() for name, value in tensors.items()}
        self.table, self.head = own["model.embed_tokens.weight"], own["lm_head.weight"]
        self.stream_table = own["stream_emb.weight"]
        self.adaptor = own[f"{ADAPTOR}weight"], own[f"{ADAPTOR}bias"]
        sizes: Any = {**language, "vocab_size": layout.vocabulary}
        self.decoder = transformers.Qwen3Model(transformers.Qwen3Config(**sizes)).eval()
        body = {name.removeprefix("model."): value for name, value in own.items() if name.startswith("model.")}
        self.decoder.load_state_dict(body)
        config = transformers.AutoConfig.for_model("qwen3_omni_moe_audio_encoder", **tower)
        module = transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe
        self.tower = module.Qwen3OmniMoeAudioEncoder(config).eval()
        self.tower.load_state_dict(
            {name.removeprefix(TOWER): value for name, value in own.items() if name.startswith(TOWER)}
        )
        self.mel = transformers.WhisperFeatureExtractor(feature_size=tower["num_mel_bins"])

    def row(self, first: int) -> list[int]:
        """A text or special token: the other streams are not in use."""
        return [first] + [0] * (self.layout.streams - 1)

    @torch.no_grad()
    def embed_audio(self, samples: np.ndarray) -> list[Position]:
        """The positions of what a user says."""
        options: Any = {"padding": "longest", "truncation": False, "do_normalize": True, "return_tensors": "pt"}
        mel = self.mel(samples, sampling_rate=16000, **options)["input_features"][0]
        return list(F.linear(heard_in_chunks(self.tower, mel), *self.adaptor))

    def delayed(self, codes: np.ndarray) -> list[Position]:
        """The positions of what the assistant said: stream s is s rows late."""
        layout = self.layout
        found: list[Position] = []
        for place in range(len(codes) + layout.streams - 1):
            row = []
            for stream in range(layout.streams):
                pad = layout.codec_first + stream * layout.layer_size
                frame = place - stream
                row.append(pad + 1 + int(codes[frame, stream]) if 0 <= frame < len(codes) else pad)
            found.append(row)
        return found

    def prompt(self, parts: Sequence[tuple[str, str, Sequence[Position]]]) -> list[Position]:
        """A conversation from (role, modality, positions) of each part."""
        layout = self.layout
        found: list[Position] = [self.row(layout.bos)]
        for number, (role, modality, content) in enumerate(parts):
            closing = layout.eos
            if number + 1 < len(parts) and parts[number + 1][0] == role:
                closing = layout.eot
            found += [self.row(getattr(layout, role)), self.row(getattr(layout, modality)), *content]
            found.append(self.row(closing))
        return [*found, self.row(layout.assistant)]

    def embedded(self, position: Position) -> Tensor:
        """The embedding of one position."""
        if isinstance(position, Tensor):
            return position
        first, *others = position
        total = self.table[first].clone()
        for number in others:
            if number != 0:
                total = total + self.table[number]
        return total

    @torch.no_grad()
    def logits(self, positions: Sequence[Position]) -> Tensor:
        """The logits of all streams [streams, vocabulary] after the last position."""
        embeddings = torch.stack([self.embedded(each) for each in positions])
        state = self.decoder(inputs_embeds=embeddings[None], use_cache=False).last_hidden_state[0, -1]
        rows = []
        for stream in range(self.layout.streams):
            added = self.stream_table[stream] if stream else torch.zeros_like(state)
            rows.append(self.head @ (state + added))
        return torch.stack(rows)

    def answer(self, prompt: Sequence[Position], wish: Wish) -> tuple[list[list[int]], str]:
        """The rows of an answer, markers and closing ids included, and why it ended."""
        layout = self.layout
        rows: list[list[int]] = []
        left = {"text": ["text"], "audio": ["audio"]}.get(wish.modalities, ["text", "audio"])
        while True:
            if wish.modalities == "auto" and len(left) == 2:
                z = self.logits([*prompt, *rows])[0]
                chosen = max(left, key=lambda each: float(z[getattr(layout, each)]))
            else:
                chosen = left[0]
            left.remove(chosen)
            null = [[0] * layout.streams] * (len(prompt) + len(rows))
            rows.append(self.row(getattr(layout, chosen)))
            begin = len(rows)
            closing, limited = self._segment(chosen, prompt, rows, null, begin, wish, bool(left))
            rows.append(self.row(closing))
            forced = wish.modalities == "text_audio" and bool(left)
            wished = wish.modalities == "auto" and bool(left) and closing == layout.eot
            if not (forced or wished):
                return rows, "length" if limited else "stop"
            rows.append(self.row(layout.assistant))

    def _segment(
        self,
        kind: str,
        prompt: Sequence[Position],
        rows: list[list[int]],
        null: Sequence[Position],
        begin: int,
        wish: Wish,
        more: bool,
    ) -> tuple[int, bool]:
        """Appends a segment's rows; returns its closing id, and whether a limit closed it."""
        layout, speaks = self.layout, kind == "audio"
        most, least = (wish.most_audio, wish.least_audio) if speaks else (wish.most_text, wish.least_text)
        temperature = wish.audio_temperature if speaks else wish.text_temperature
        top_k = wish.audio_top_k if speaks else wish.text_top_k
        for step in range(most):
            z = self.logits([*prompt, *rows])
            if speaks and wish.cfg != 1:
                z = wish.cfg * z + (1 - wish.cfg) * self.logits([*null, *rows[begin - 1 :]])
            scores = z.tolist()
            numbers = uniform_numbers(wish.seed, len(rows), layout.streams)
            row = []
            for stream in range(layout.streams if speaks else 1):
                first = layout.codec_first + stream * layout.layer_size if speaks else layout.text_first
                end = first + layout.layer_size if speaks else layout.text_end
                legal = list(range(first, end))
                if stream == 0 and step >= least:
                    legal += [layout.eos, layout.eot]
                row.append(drawn({each: scores[stream][each] for each in legal}, temperature, top_k, numbers[stream]))
            if row[0] in (layout.eos, layout.eot):
                return row[0], False
            rows.append(row if speaks else self.row(row[0]))
        return layout.eot if more and wish.modalities == "text_audio" else layout.eos, True
