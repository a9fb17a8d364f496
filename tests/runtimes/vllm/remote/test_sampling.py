"""Conversion of decoding options to the fields of a request."""

from __future__ import annotations

import pytest

from workbench.core.errors import BadInput
from workbench.decoding.generation import GenerationOptions
from workbench.runtimes.vllm.remote.sampling import alternatives_fields, form_fields, sampling_fields


def test_every_sampling_field_is_sent_explicitly() -> None:
    assert sampling_fields(GenerationOptions(), 20, (9,)) == {
        "max_tokens": 20,
        "min_tokens": 0,
        "temperature": 0.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop_token_ids": [9],
    }


def test_alternatives_use_the_logprobs_fields_of_each_route() -> None:
    assert alternatives_fields(0, chats=True) == alternatives_fields(0, chats=False) == {}
    by_id = {"return_tokens_as_token_ids": True}
    assert alternatives_fields(3, chats=True) == {"logprobs": True, "top_logprobs": 4, **by_id}
    assert alternatives_fields(20, chats=True) == {"logprobs": True, "top_logprobs": 20, **by_id}
    assert alternatives_fields(3, chats=False) == {"logprobs": 3, **by_id}


def test_each_sampled_row_gets_its_own_seed() -> None:
    options = GenerationOptions(temperature=0.7, top_p=0.0, top_k=5, seed=3, min_new_tokens=50, repetition_penalty=2.0)
    fields = sampling_fields(options, 20, row=4)
    assert fields["seed"] == 7
    assert fields["top_p"] > 0, "a top_p of 0 would leave no token to sample"
    assert (fields["min_tokens"], fields["top_k"], fields["repetition_penalty"]) == (20, 5, 2.0)


def test_form_fields_are_strings() -> None:
    fields = form_fields(GenerationOptions(temperature=0.5, seed=1), 20, row=1)
    assert fields == {
        "max_completion_tokens": "20",
        "temperature": "0.5",
        "top_k": "0",
        "top_p": "1.0",
        "min_p": "0.0",
        "repetition_penalty": "1.0",
        "seed": "2",
    }


def test_min_new_tokens_is_refused_for_transcription_forms() -> None:
    with pytest.raises(
        BadInput, match="option min_new_tokens is 3, and the server's transcriptions have no such field"
    ):
        form_fields(GenerationOptions(min_new_tokens=3), 20)
