"""The alignment of the demo SpeechLM's adaptor."""

import torch

from workbench.training.speechlm.align import peak_embeddings, weighted_least_squares


def test_first_position_of_a_digit_run_gets_the_word_embedding():
    embeddings = torch.randn(10, 4)
    rows = peak_embeddings(torch.tensor([0, 4, 4, 0, 4, 2, 2, 1]), embeddings)
    expected = [None, 3, None, None, 3, 1, None, 0]
    for row, digit in zip(rows, expected, strict=True):
        assert torch.equal(row, torch.zeros(4) if digit is None else embeddings[digit])


def test_least_squares_recovers_a_linear_map():
    torch.manual_seed(0)
    inputs, weight, bias = torch.randn(500, 6), torch.randn(3, 6), torch.randn(3)
    solution = weighted_least_squares(inputs, inputs @ weight.T + bias)
    assert torch.allclose(solution[0], weight, atol=1e-2)
    assert torch.allclose(solution[1], bias, atol=1e-2)
