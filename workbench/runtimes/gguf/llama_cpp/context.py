"""A context of llama.cpp: the KV cache of a few sequences, and the passes over a model that fill it.

It takes embeddings or tokens and returns logits or hidden states. It knows nothing of decoding, and grows when the
sequences need more room.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.runtimes.gguf.llama_cpp.llama import CACHES, LlamaModel, call_error, take_reason
from workbench.system.processors import default_threads

STEP = 256  # positions; llama.cpp rounds a context up to a multiple of this
STEPWISE = ("f32", "f16")  # types of keys and values for which llama.cpp can compute attention in steps
PASS = 512  # the most positions computed at once; longer prompts take several passes in one call


class Context:
    """A KV cache with room for `positions` positions in all sequences together.

    Args:
        sequences: the largest number of sequences.
        threads: None for all processors that this process may use, or one for a small model.
        kv_cache: f32, f16 or q8_0, the type of keys and values.
        longest: the most positions in one call.
        outputs: the most rows of logits in one call.
        watch: called as llama.cpp's `cb_eval`.
        hidden: give the states after the final norm, of all positions of a call; `outputs` must allow for them.
        weights: compute attention in steps, so that its weights exist; q8_0 keys and values do not allow it.
    """

    def __init__(
        self,
        model: LlamaModel,
        positions: int,
        sequences: int = 1,
        threads: int | None = None,
        kv_cache: str = "f32",
        longest: int = 0,
        outputs: int = 0,
        watch: Any = None,
        hidden: bool = False,
        weights: bool = False,
    ):
        self.model = model
        self.sequences = sequences
        self._functions = model.functions
        self._vocabulary = self._functions.llama_vocab_n_tokens(model.vocabulary)
        self._width = self._functions.llama_model_n_embd(model.pointer)
        self._parameters = self._parameters_of(threads, kv_cache, watch)
        self._parameters.embeddings = hidden
        if weights and kv_cache in STEPWISE:
            self._parameters.flash_attn_type = 0
        self.positions = -(-positions // STEP) * STEP
        self.longest = max(longest, STEP)
        self.outputs = max(outputs, sequences)
        self._batches: dict[int, _Batch] = {}  # for steps, by their number of tokens
        self._embedded: dict[int, _Batch] = {}  # for rows of embeddings, by their number
        self._handle = self._new()

    def _parameters_of(self, threads: int | None, kv_cache: str, watch: Any) -> Any:
        functions = self._functions
        if kv_cache not in CACHES:
            raise BadInput(f"kv_cache is {kv_cache!r}; expected one of {', '.join(CACHES)}")
        count = threads or default_threads(functions.llama_model_size(self.model.pointer))
        parameters = functions.llama_context_default_params()
        parameters.n_seq_max = self.sequences
        parameters.n_threads = parameters.n_threads_batch = count
        parameters.type_k = parameters.type_v = CACHES[kv_cache]
        # Flash attention computes in half precision, so it is off for f32 keys and values; quantised values need it.
        parameters.flash_attn_type = int(kv_cache != "f32")
        parameters.kv_unified = True
        parameters.offload_kqv = parameters.op_offload = False
        parameters.no_perf = True
        if watch is not None:
            parameters.cb_eval = watch
        return parameters

    def _new(self) -> _Handle:
        parameters = self._parameters
        parameters.n_ctx = self.positions
        parameters.n_batch = min(self.longest, self.positions)
        parameters.n_ubatch = min(parameters.n_batch, PASS)
        parameters.n_outputs_max = parameters.n_outputs_max_per_seq = min(self.outputs, parameters.n_batch)
        take_reason()
        pointer = self._functions.llama_init_from_model(self.model.pointer, parameters)
        if not pointer:
            reason = take_reason()
            if "block size" in reason:
                raise BadInput(
                    f"the keys and values of {self.model.name} cannot be stored as q8_0, as the width of its heads is "
                    "not a multiple of 32; choose kv_cache f16 or f32"
                )
            raise call_error(f"making a context of {self.positions} positions for {self.model.name}: {reason}")
        return _Handle(self.model, pointer)

    def fits(self, positions: int, sequences: int, longest: int) -> bool:
        """Returns whether the context has enough room, but not far too much."""
        has_sequences = sequences <= self.sequences and longest <= self.longest
        return has_sequences and positions <= self.positions <= 4 * max(positions, STEP)

    def clear(self) -> None:
        """Removes all sequences."""
        self._functions.llama_memory_clear(self._memory, False)

    def drop(self, sequence: int) -> None:
        """Removes a sequence."""
        self._functions.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def cut(self, sequence: int, count: int) -> None:
        """Removes all positions of a sequence but the first `count`."""
        self._functions.llama_memory_seq_rm(self._memory, sequence, count, -1)

    def copy(self, source: int, target: int, count: int = -1) -> None:
        """Makes the empty target sequence share the source's keys and values; nothing is copied in memory.

        Args:
            count: of the source's first positions; -1 for all.
        """
        self._functions.llama_memory_seq_cp(self._memory, source, target, -1, count)

    @property
    def _memory(self) -> Any:
        return self._functions.llama_get_memory(self._handle.pointer)

    def grow(self, positions: int) -> None:
        """Enlarges the context to `positions` positions if it is smaller; all sequences stay."""
        if positions <= self.positions:
            return
        functions, old = self._functions, self._handle
        self.positions = -(-max(positions, self.positions * 3 // 2) // STEP) * STEP
        size = functions.llama_state_get_size(old.pointer)
        state = (ctypes.c_uint8 * size)()
        byte_count = functions.llama_state_get_data(old.pointer, state, size)
        new = self._new()
        if not functions.llama_state_set_data(new.pointer, state, byte_count):
            raise call_error(f"moving the keys and values of {self.model.name} to a larger context")
        self._handle = new
        old.close()

    def prefill(self, embeddings: np.ndarray, sequence: int, outputs: bool = False) -> None:
        """Runs one pass over embeddings float32 [positions, hidden], the whole prompt of an empty sequence.

        Afterwards there are logits of the last position, or of all positions with `outputs`.
        """
        count = len(embeddings)
        batch = _Batch(self._functions, count)
        embeddings = np.ascontiguousarray(embeddings, dtype=np.float32)
        batch.point_to(embeddings)
        batch.positions[:] = np.arange(count)
        batch.sequences[:] = sequence
        batch.outputs[:] = outputs
        batch.outputs[-1] = True
        self._decode(batch)

    def step(self, tokens: Sequence[int] | np.ndarray, positions: np.ndarray, sequences: np.ndarray) -> None:
        """Adds one token to some sequences, each at its position [sequences]; afterwards there are logits of all of
        them.
        """
        batch = self._batches.get(len(tokens))
        if batch is None:
            batch = self._batches[len(tokens)] = _Batch(self._functions, len(tokens))
        batch.tokens[:] = tokens
        batch.positions[:] = positions
        batch.sequences[:] = sequences
        batch.outputs[:] = True
        self._decode(batch)

    def branch(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        sequences: Sequence[Sequence[int]],
        outputs: Sequence[bool],
    ) -> None:
        """Adds tokens, each at its position to all of its sequences; afterwards there are logits of those with output.

        Sequences that share one of the tokens must be equal up to it.
        """
        batch = _Batch(self._functions, len(tokens), sum(map(len, sequences)))
        batch.tokens[:] = tokens
        batch.positions[:] = positions
        batch.share(sequences)
        batch.outputs[:] = outputs
        self._decode(batch)

    def extend(self, embeddings: np.ndarray, positions: np.ndarray, sequences: np.ndarray) -> None:
        """Adds embeddings float32 [n, hidden] to some sequences, each at its position [n]; afterwards there are
        hidden states of all of them, in a context with `hidden`.
        """
        count = len(embeddings)
        batch = self._embedded.get(count) or _Batch(self._functions, count)
        if count <= self.sequences:
            self._embedded[count] = batch
        batch.point_to(np.ascontiguousarray(embeddings, dtype=np.float32))
        batch.positions[:] = positions
        batch.sequences[:] = sequences
        batch.outputs[:] = True
        self._decode(batch)

    def _decode(self, batch: _Batch) -> None:
        take_reason()
        result = self._functions.llama_decode(self._handle.pointer, batch.struct)
        if result:
            raise call_error(f"a pass over {batch.struct.n_tokens} positions with {self.model.name} (status {result})")

    def logits(self, number: int = -1) -> np.ndarray:
        """Returns the logits [vocabulary] of a position of the last call; a view that the next call overwrites."""
        address = self._functions.llama_get_logits_ith(self._handle.pointer, number)
        return np.ctypeslib.as_array(address, (self._vocabulary,))

    def all_logits(self, count: int) -> np.ndarray:
        """Returns a copy of the logits [count, vocabulary] of all positions of the last call."""
        return np.stack([self.logits(number) for number in range(count)])

    def states(self, count: int) -> np.ndarray:
        """Returns a copy of the hidden states [count, hidden] of the last positions of the last call."""
        pointer, get = self._handle.pointer, self._functions.llama_get_embeddings_ith
        rows = [np.ctypeslib.as_array(get(pointer, number), (self._width,)) for number in range(-count, 0)]
        return np.stack(rows)

    def state(self, sequence: int) -> bytes:
        """Returns the keys and values of a sequence, in llama.cpp's own format (see `cache_state`)."""
        functions, pointer = self._functions, self._handle.pointer
        size = functions.llama_state_seq_get_size(pointer, sequence)
        state = (ctypes.c_uint8 * size)()
        if functions.llama_state_seq_get_data(pointer, state, size, sequence) != size:
            raise call_error(f"reading the keys and values of {self.model.name}")
        return bytes(state)

    def close(self) -> None:
        """Frees the context."""
        self._handle.close()


class _Handle:
    """A pointer to a context. The context is freed with its last reference, or when its model is closed."""

    def __init__(self, model: LlamaModel, pointer: int):
        self._model = model
        self._pointer = pointer
        # The callback holds a reference to the model, which must not be freed earlier.
        self.close = weakref.finalize(self, _free, model, pointer)
        model.users.add(self)

    @property
    def pointer(self) -> int:
        """Returns the pointer for llama.cpp's functions; raises `BadInput` after `close`."""
        if not self.close.alive:
            raise BadInput(f"{self._model.name} is closed; open it again")
        return self._pointer


def _free(model: LlamaModel, pointer: int) -> None:
    model.functions.llama_free(pointer)


class _Batch:
    """A `llama_batch` over numpy arrays.

    Args:
        members: numbers of sequences in all; by default each token belongs to one.
    """

    def __init__(self, functions: Any, count: int, members: int = 0):
        self.tokens = np.zeros(count, dtype=np.int32)
        self.positions = np.zeros(count, dtype=np.int32)
        self.sequences = np.zeros(members or count, dtype=np.int32)
        self.outputs = np.zeros(count, dtype=np.int8)
        self._counts = np.ones(count, dtype=np.int32)
        self._places = self.sequences.ctypes.data + 4 * np.arange(count, dtype=np.uintp)  # addresses
        self.struct = functions.llama_batch()
        self.struct.n_tokens = count
        for field, array in (
            ("token", self.tokens),
            ("pos", self.positions),
            ("n_seq_id", self._counts),
            ("seq_id", self._places),
            ("logits", self.outputs),
        ):
            self._set(field, array)

    def _set(self, field: str, array: np.ndarray) -> None:
        kind = dict(self.struct._fields_)[field]
        setattr(self.struct, field, ctypes.cast(array.ctypes.data, kind))

    def share(self, sequences: Sequence[Sequence[int]]) -> None:
        """Sets the sequences of each token."""
        self._counts[:] = [len(members) for members in sequences]
        self.sequences[:] = [number for members in sequences for number in members]
        self._places[1:] = self._places[0] + 4 * np.cumsum(self._counts[:-1], dtype=np.uintp)

    def point_to(self, embeddings: np.ndarray) -> None:
        """Makes the batch take embeddings instead of tokens."""
        self._embeddings = embeddings
        self._set("embd", embeddings)
        self.struct.token = None
