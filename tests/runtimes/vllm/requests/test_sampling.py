"""Conversion of decoding options to vLLM's sampling parameters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.errors import BadInput
from workbench.decoding.generation import Decoding
from workbench.runtimes.vllm.capture.rows import EXTRA_ARGUMENT
from workbench.runtimes.vllm.requests.sampling import likeliest_of, sampling_params, token_limit

pytest.importorskip("vllm")


def test_greedy_decoding_uses_no_vllm_defaults() -> None:
    params = sampling_params(Decoding((7, 8), max_new_tokens=5), 0)
    assert (params.max_tokens, params.min_tokens, params.temperature) == (5, 0, 0.0)
    assert params.stop_token_ids == [7, 8] and params.ignore_eos
    assert params.repetition_penalty == 1.0 and params.presence_penalty == params.frequency_penalty == 0.0
    assert not params.detokenize and params.extra_args is None


def test_each_row_has_its_own_length() -> None:
    decoding = Decoding((1,), max_new_tokens=np.array([3, 9]), min_new_tokens=4)
    assert [token_limit(decoding, row) for row in range(2)] == [3, 9]
    first, second = (sampling_params(decoding, row) for row in range(2))
    assert (first.max_tokens, first.min_tokens) == (3, 3), "the minimum is at most the maximum"
    assert (second.max_tokens, second.min_tokens) == (9, 4)


@given(
    temperature=st.floats(0.0, 2.0),
    top_k=st.integers(0, 100000),
    top_p=st.floats(0.0, 3.0),
    penalty=st.floats(0.01, 10.0),
    seed=st.integers(0, 2**31),
)
def test_all_valid_options_are_accepted_by_vllm(
    temperature: float, top_k: int, top_p: float, penalty: float, seed: int
) -> None:
    decoding = Decoding((1,), temperature=temperature, top_k=top_k, top_p=top_p, repetition_penalty=penalty, seed=seed)
    params = sampling_params(decoding, 0)
    assert params.repetition_penalty == penalty
    if temperature >= 0.01:  # vLLM raises smaller temperatures to 0.01; below 1e-5 it is greedy
        assert (params.temperature, params.top_k, params.seed) == (temperature, top_k, seed)
        assert params.top_p == pytest.approx(min(top_p, 1.0), abs=1e-5)


def test_a_capture_travels_with_the_request() -> None:
    assert sampling_params(Decoding(()), 0, capture=3).extra_args == {EXTRA_ARGUMENT: 3}


def test_number_of_alternatives_sets_logprobs() -> None:
    assert sampling_params(Decoding(()), 0).logprobs is None
    assert sampling_params(Decoding((), alternatives=4), 0).logprobs == 4


def test_logprobs_of_a_step_are_sorted_and_limited_to_the_requested_number() -> None:
    """vLLM lists the sampled token first, also if it is not among the most likely ones."""

    class Logprob:
        def __init__(self, logprob: float):
            self.logprob = logprob

    step = {9: Logprob(-7.0), 4: Logprob(-0.5), 8: Logprob(-1.5), 2: Logprob(-1.5)}
    ids, logprobs = likeliest_of(step, 3)
    assert ids.tolist() == [4, 2, 8] and logprobs.tolist() == [-0.5, -1.5, -1.5]
    assert (ids.dtype, logprobs.dtype) == (np.int64, np.float64)


def test_beams_are_refused() -> None:
    with pytest.raises(BadInput, match=r"beam_size is 3.*one hypothesis.*pytorch or gguf"):
        sampling_params(Decoding((1,), beam_size=3), 0)


def test_refusal_of_vllm_is_raised_with_its_message() -> None:
    with pytest.raises(BadInput, match=r"vLLM does not take the options: temperature must be in \[0, 2\], got 3"):
        sampling_params(Decoding((1,), temperature=3.0), 0)
