"""The computed codec, checked against slow definitions, and the shipped codec on the demo's own voices."""

import itertools

import numpy as np
import pytest
import torch
from transformers import XcodecModel

from workbench.training.speechlm.codec import (
    FRAME,
    LEVELS,
    CodecOptions,
    channel_of_sample,
    decode,
    dequantise,
    encode,
    fit_codec,
    quantise,
    residual_codebooks,
    windows,
)

OPTIONS = CodecOptions(hidden=24, rounds=2)


def tone(frequency, frames):
    return (0.3 * np.sin(2 * np.pi * frequency / 16_000 * np.arange(frames * FRAME))).astype(np.float32)


@pytest.fixture(scope="module")
def clips():
    return [np.pad(tone(frequency, 8), 2 * FRAME) for frequency in (150, 260, 410, 700)]


@pytest.fixture(scope="module")
def codec(clips):
    return fit_codec(clips, [tone(330, 40)], OPTIONS)


def test_encoder_channels_hold_the_frame_samples_in_stride_order():
    signal = torch.arange(2.0 * FRAME)[None, None]
    for stride in (8, 5, 4, 2):  # as a strided convolution of unit vectors does
        batch, channels, length = signal.shape
        signal = (
            signal.view(batch, channels, length // stride, stride)
            .permute(0, 1, 3, 2)
            .reshape(batch, -1, length // stride)
        )
    assert signal[0, channel_of_sample(), 1].tolist() == list(range(FRAME, 2 * FRAME))


def test_codec_windows_hold_the_pre_emphasised_samples_around_each_frame():
    clip = tone(200, 3)
    emphasised = np.array([clip[n] - 0.5 * (clip[n - 1] if n else 0) for n in range(len(clip))])
    around = np.concatenate([np.zeros(80), emphasised, np.zeros(80)])
    result = windows(clip, 0.5)
    assert result.shape == (3, 480)
    assert np.allclose(result[1], around[FRAME : FRAME + 480], atol=1e-6)


def test_codec_network_gives_the_codes_of_the_nearest_codewords(codec, clips):
    """The codes are those of the nearest codewords, and the sound is decoded from their sum."""
    books = torch.stack([q.codebook.embed[:, : OPTIONS.hidden] for q in codec.quantizer.quantizers])
    latents = codec.acoustic_encoder(torch.from_numpy(clips[0])[None, None])[0].T
    codes = quantise(latents.detach(), books).numpy()
    assert (encode(codec, clips[0]) == codes).mean() > 0.98  # ties may fall either way
    assert torch.allclose(
        dequantise(torch.from_numpy(codes), books)[3], sum(books[k, codes[3, k]] for k in range(LEVELS))
    )


def test_codec_reconstructs_its_training_clips_above_15_db(codec, clips):
    for clip in clips:
        back = decode(codec, encode(codec, clip))
        assert back.shape == clip.shape
        assert 10 * np.log10(np.sum(clip**2) / np.sum((clip - back) ** 2)) > 15


def test_silence_encodes_to_code_zero_and_decodes_to_silence(codec):
    codes = encode(codec, np.zeros(6 * FRAME, np.float32))
    assert not codes.any()
    assert np.abs(decode(codec, codes)).max() < 1e-6


def test_codes_of_concatenated_clips_equal_the_concatenated_codes(codec, clips):
    joined = encode(codec, np.concatenate(clips))
    assert np.array_equal(joined, np.concatenate([encode(codec, clip) for clip in clips]))


def test_a_saved_codec_gives_the_same_codes_and_sound(codec, clips, tmp_path):
    codec.save_pretrained(tmp_path)
    loaded = XcodecModel.from_pretrained(tmp_path).eval()
    codes = encode(codec, clips[1])
    assert np.array_equal(encode(loaded, clips[1]), codes)
    assert np.array_equal(decode(loaded, codes), decode(codec, codes))


def test_residual_error_decreases_with_every_codebook():
    frames = torch.randn(2000, 6, generator=torch.Generator().manual_seed(0))
    books = residual_codebooks(frames, 2, np.random.default_rng(0))
    assert not books[:, 0].any()
    rest, errors = frames, []
    for book in books:
        nearest = torch.cdist(rest, book).argmin(dim=1)
        rest = rest - book[nearest]
        errors.append(float(rest.square().mean()))
    assert all(after < before for before, after in itertools.pairwise(errors))
    assert torch.allclose(dequantise(quantise(frames, books), books), frames - rest, atol=1e-4)
