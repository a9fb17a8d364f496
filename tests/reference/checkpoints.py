"""Writes checkpoint directories in FunASR's published format, with seeded random weights, at any size.

For tests and benchmarks that need the real dimensions without the real weights. The weights are drawn so that nothing
degenerates on speech: frames differ, the CTC path mixes blanks and many tokens, CIF counts about as many tokens as
speech has, every norm and bias matters. Calibration runs the workbench's own network over a synthetic voice; the
original package is not needed. This file compares nothing.
"""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor, nn

from workbench.audio.cmvn import Cmvn
from workbench.audio.frontend import Frontend, FrontendConfig
from workbench.families.paraformer import ParaformerModel, read_paraformer
from workbench.families.sensevoice import QUERY_FRAMES, SenseVoiceModel, SenseVoiceOptions, query_ids, read_sensevoice
from workbench.runtimes.pytorch.paraformer import ParaformerNetwork
from workbench.runtimes.pytorch.sensevoice import SenseVoiceNetwork

MELS, LFR_M, LFR_N = 80, 7, 6
FEATURES = MELS * LFR_M
SAMPLE_RATE = 16000


@dataclass(frozen=True)
class EncoderSize:
    """Dimensions of a SAN-M encoder; the defaults are the published ones."""

    width: int = 512
    heads: int = 4
    units: int = 2048
    blocks: int = 50
    kernel: int = 11
    shift: int = 0


@dataclass(frozen=True)
class SenseVoiceSize:
    """SenseVoiceSmall: 917 tensors, 234 million parameters."""

    encoder: EncoderSize = EncoderSize()
    tp_blocks: int = 20
    vocabulary: int = 25055


@dataclass(frozen=True)
class ParaformerSize:
    """Paraformer-large: 956 tensors with CifPredictorV2, 968 with CifPredictorV3; 220 and 225 million parameters."""

    encoder: EncoderSize = EncoderSize()
    decoder_heads: int = 4
    decoder_units: int = 2048
    decoder_blocks: int = 16
    decoder_attending: int = 16  # fewer than blocks: the rest are layers without attention (`decoders2`)
    decoder_kernel: int = 11
    vocabulary: int = 8404


SMALL_ENCODER = EncoderSize(width=64, heads=4, units=128, blocks=4)
SMALL_SENSEVOICE = SenseVoiceSize(SMALL_ENCODER, tp_blocks=2, vocabulary=800)
SMALL_PARAFORMER = ParaformerSize(SMALL_ENCODER, 4, 128, 3, 3, 11, 300)
# Two decoder layers without attention (`decoders2`), other kernels, a shifted encoder memory.
ODD_PARAFORMER = ParaformerSize(EncoderSize(48, 2, 80, 3, kernel=7, shift=1), 3, 96, 4, 2, 5, 200)

# Where the published SenseVoiceSmall vocabulary has its tags; FunASR's code relies on 25009 (`ban_emo_unk`).
TAG_IDS = {
    "<|zh|>": 24884,
    "<|en|>": 24885,
    "<|yue|>": 24888,
    "<|ja|>": 24892,
    "<|ko|>": 24896,
    "<|nospeech|>": 24992,
    "<|Speech|>": 24993,
    "<|BGM|>": 24995,
    "<|Laughter|>": 24997,
    "<|Applause|>": 24999,
    "<|HAPPY|>": 25001,
    "<|SAD|>": 25002,
    "<|ANGRY|>": 25003,
    "<|NEUTRAL|>": 25004,
    "<|EMO_UNKNOWN|>": 25009,
    "<|withitn|>": 25016,
    "<|woitn|>": 25017,
}


# Files ---------------------------------------------------------------------------------------------------------------


def write_sensevoice(
    directory: Path,
    size: SenseVoiceSize = SenseVoiceSize(),
    seed: int = 0,
    *,
    cmvn: bool = True,
    configuration: bool = True,
    save: Callable[[dict[str, Tensor], Path], object] = torch.save,
) -> Path:
    """A SenseVoiceSmall checkpoint in `directory`, which is made; returns it.

    Args:
        directory: to write to.
        size: dimensions; a vocabulary of the published size gets the published tag ids and single characters as
            pieces, any other a SentencePiece model trained on a small text.
        seed: of all weights.
        cmvn: whether to write `am.mvn`.
        configuration: whether to write ModelScope's `configuration.json`; FunASR then takes the file names from it.
        save: writes the state dict to a path.
    """
    directory.mkdir(parents=True, exist_ok=True)
    bpe = "chn_jpn_yue_eng_ko_spectok.bpe.model" if configuration else "bpe.model"
    pieces = character_pieces if size.vocabulary > max(TAG_IDS.values()) else trained_pieces
    (directory / bpe).write_bytes(pieces(size.vocabulary))
    config = {
        "encoder": "SenseVoiceEncoderSmall",
        "encoder_conf": {**_encoder_conf(size.encoder), "tp_blocks": size.tp_blocks},
        "model": "SenseVoiceSmall",
        "model_conf": {"length_normalized_loss": True, "sos": 1, "eos": 2, "ignore_id": -1},
        "tokenizer": "SentencepiecesTokenizer",
        "tokenizer_conf": {"bpemodel": None, "unk_symbol": "<unk>", "split_with_space": True},
        "frontend": "WavFrontend",
        "frontend_conf": _frontend_conf(),
    }
    _write_config(directory, config, {"tokenizer_conf": {"bpemodel": bpe}}, cmvn, configuration)
    (directory / "model.pt").touch()  # the reader asks for it; replaced below
    model = read_sensevoice(directory)
    network = SenseVoiceNetwork(model.encoder, len(model.vocabulary)).eval()
    fill(network, seed)
    _calibrate_sensevoice(network, model, cmvn)
    save(dict(network.state_dict()), directory / "model.pt")
    return directory


def write_paraformer(
    directory: Path,
    size: ParaformerSize = ParaformerSize(),
    seed: int = 0,
    *,
    predictor: str = "CifPredictorV2",
    upsample_type: str = "cnn_blstm",
    use_cif1_cnn: bool = False,
    cmvn: bool = True,
    configuration: bool = True,
    save: Callable[[dict[str, Tensor], Path], object] = torch.save,
) -> Path:
    """A Paraformer checkpoint (BiCifParaformer with CifPredictorV3) in `directory`, which is made; returns it.

    `upsample_type` and `use_cif1_cnn` are CifPredictorV3's; the other arguments are as in `write_sensevoice`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    fine = predictor == "CifPredictorV3"
    predictor_conf: dict[str, Any] = {
        "idim": size.encoder.width,
        "threshold": 1.0,
        "l_order": 1,
        "r_order": 1,
        "tail_threshold": 0.45,
    }
    if fine:
        predictor_conf |= {
            "smooth_factor2": 0.25,
            "noise_threshold2": 0.01,
            "upsample_times": 3,
            "use_cif1_cnn": use_cif1_cnn,
            "upsample_type": upsample_type,
        }
    config = {
        "model": "BiCifParaformer" if fine else "Paraformer",
        "model_conf": {
            "ctc_weight": 0.0,
            "lsm_weight": 0.1,
            "length_normalized_loss": True,
            "predictor_weight": 1.0,
            "predictor_bias": 1,
            "sampling_ratio": 0.75,
        },
        "encoder": "SANMEncoder",
        "encoder_conf": _encoder_conf(size.encoder),
        "decoder": "ParaformerSANMDecoder",
        "decoder_conf": {
            "attention_heads": size.decoder_heads,
            "linear_units": size.decoder_units,
            "num_blocks": size.decoder_blocks,
            "att_layer_num": size.decoder_attending,
            "kernel_size": size.decoder_kernel,
            "sanm_shfit": 0,
            "dropout_rate": 0.1,
            "positional_dropout_rate": 0.1,
            "self_attention_dropout_rate": 0.1,
            "src_attention_dropout_rate": 0.1,
        },
        "predictor": predictor,
        "predictor_conf": predictor_conf,
        "tokenizer": "CharTokenizer",
        "tokenizer_conf": {"unk_symbol": "<unk>", "split_with_space": True},
        "frontend": "WavFrontend",
        "frontend_conf": _frontend_conf(),
    }
    tokens = paraformer_tokens(size.vocabulary)
    (directory / "tokens.json").write_text(json.dumps(tokens, ensure_ascii=False, indent=0), encoding="utf-8")
    (directory / "seg_dict").write_text("".join(f"{piece} {piece}\n" for piece in tokens[3:20]), encoding="utf-8")
    files = {"tokenizer_conf": {"token_list": "tokens.json", "seg_dict_file": "seg_dict"}}
    _write_config(directory, config, files, cmvn, configuration)
    (directory / "model.pt").touch()
    model = read_paraformer(directory)
    network = ParaformerNetwork(model.encoder, model.predictor, model.decoder, len(model.vocabulary)).eval()
    fill(network, seed)
    _calibrate_paraformer(network, model, cmvn)
    tensors = dict(network.state_dict())
    embedding = torch.empty(size.vocabulary, size.encoder.width)  # used in training only, but in every published file
    tensors["decoder.embed.0.weight"] = embedding.normal_(generator=torch.Generator().manual_seed(seed + 1))
    save(tensors, directory / "model.pt")
    return directory


def _encoder_conf(size: EncoderSize) -> dict[str, Any]:
    return {
        "output_size": size.width,
        "attention_heads": size.heads,
        "linear_units": size.units,
        "num_blocks": size.blocks,
        "dropout_rate": 0.1,
        "positional_dropout_rate": 0.1,
        "attention_dropout_rate": 0.1,
        "input_layer": "pe",
        "pos_enc_class": "SinusoidalPositionEncoder",
        "normalize_before": True,
        "kernel_size": size.kernel,
        "sanm_shfit": size.shift,
        "selfattention_layer_type": "sanm",
    }


def _frontend_conf() -> dict[str, Any]:
    return {
        "fs": SAMPLE_RATE,
        "window": "hamming",
        "n_mels": MELS,
        "frame_length": 25,
        "frame_shift": 10,
        "lfr_m": LFR_M,
        "lfr_n": LFR_N,
        "cmvn_file": None,
    }


def _write_config(
    directory: Path, config: dict[str, Any], files: dict[str, Any], cmvn: bool, configuration: bool
) -> None:
    (directory / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    if cmvn:
        (directory / "am.mvn").write_text(am_mvn(*cmvn_vectors()), encoding="utf-8")
    if configuration:
        metas = {"init_param": "model.pt", "config": "config.yaml", **files}
        if cmvn:
            metas["frontend_conf"] = {"cmvn_file": "am.mvn"}
        content = {
            "framework": "pytorch",
            "task": "auto-speech-recognition",
            "model": {"type": "funasr"},
            "pipeline": {"type": "funasr-pipeline"},
            "file_path_metas": metas,
        }
        (directory / "configuration.json").write_text(json.dumps(content, indent=2), encoding="utf-8")


def cmvn_vectors() -> tuple[np.ndarray, np.ndarray]:
    """Shift and scale [560], about the published ones: the lowest bands quieter; 80 values repeated 7 times."""
    band = np.linspace(0.0, 1.0, MELS)
    shift = -8.31 - 6.2 * (1 - np.exp(-12 * band))
    scale = 0.1436 + 0.012 * np.exp(-12 * band)
    return np.tile(shift, LFR_M).astype(np.float32), np.tile(scale, LFR_M).astype(np.float32)


def am_mvn(shift: np.ndarray, scale: np.ndarray) -> str:
    """The text of a Kaldi nnet with these two vectors, as FunASR publishes it."""

    def vector(values: Iterable[float]) -> str:
        return f"<LearnRateCoef> 0 [ {' '.join(f'{value:.7g}' for value in values)} ]\n"

    n = len(shift)
    return (
        f"<Nnet> \n<Splice> {n} {n} \n[ 0 ]\n<AddShift> {n} {n} \n{vector(shift)}"
        f"<Rescale> {n} {n} \n{vector(scale)}</Nnet> \n"
    )


# Vocabularies --------------------------------------------------------------------------------------------------------


def paraformer_tokens(count: int) -> list[str]:
    """A token list like the published one: specials, letters, Latin pieces (most ending in @@), Chinese characters."""
    letters = [chr(number) for number in range(ord("a"), ord("z") + 1)]
    tokens = ["<blank>", "<s>", "</s>", *letters, "it's", "@@"]
    latin = max((count - len(tokens) - 1) * 3 // 10, 0)
    syllables = [a + b + c for a in "bcdfghklmnprstvw" for b in "aeiou" for c in ("", *"lmnrst")]
    for number in range(latin):
        stem = syllables[number % len(syllables)] + (
            syllables[number // len(syllables) * 7] if number >= len(syllables) else ""
        )
        tokens.append(stem + ("@@" if number % 3 else ""))
    tokens = list(dict.fromkeys(tokens))[: count - 1]
    tokens += [chr(0x4E00 + number) for number in range(count - 1 - len(tokens))]
    return [*tokens, "<unk>"]


def trained_pieces(count: int) -> bytes:
    """A SentencePiece model of `count` pieces, trained on a small text, with tags and byte pieces, then filled up."""
    import sentencepiece

    words = [
        "three",
        "seven",
        "the",
        "then",
        "seventeen",
        "one",
        "only",
        "stone",
        "nine",
        "ninety",
        "weather",
        "heather",
    ]
    text = [" ".join(words[(i * k + k) % len(words)] for i in range(9)) for k in range(1, 40)]
    text += ["我想问我在滨海新区有房", "开放时间早上九点至下午五点", "滨海 新区 seven 点", "三七一 three seven one"] * 9
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text),
        model_writer=model,
        model_type="bpe",
        vocab_size=min(count, 400),
        byte_fallback=True,
        character_coverage=1.0,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        user_defined_symbols=list(TAG_IDS),
        minloglevel=2,
    )
    trained = model.getvalue()
    processor = sentencepiece.SentencePieceProcessor(model_proto=trained)
    have = {processor.id_to_piece(number) for number in range(processor.get_piece_size())}
    spare = (chr(number) for number in range(0x4E00, 0x9FFF) if chr(number) not in have)
    # A serialised message and more entries of its repeated field make the longer message: no library is needed.
    return trained + b"".join(_piece(next(spare), -1000.0 - number) for number in range(count - len(have)))


def character_pieces(count: int) -> bytes:
    """A SentencePiece model of `count` pieces, each one character, with the published tag ids.

    Encoding what it decoded gives the same ids back, which FunASR's timestamps of SenseVoice rely on.
    """
    tags = {number: tag for tag, number in TAG_IDS.items()}
    characters = (chr(number) for block in ((0x4E00, 0xA000), (0xAC00, 0xD7A4)) for number in range(*block))
    pieces = [_piece("<unk>", 0.0, 2), _piece("<s>", 0.0, 3), _piece("</s>", 0.0, 3)]
    for number in range(3, count):
        user_defined = 4 if number in tags else 1
        pieces.append(_piece(tags.get(number) or next(characters), -float(number), user_defined))
    trainer = _varint_field(3, 4)  # model_type CHAR
    normalizer = (
        _bytes_field(1, b"identity") + _varint_field(3, 0) + _varint_field(4, 0)
    )  # no dummy prefix, spaces kept
    return b"".join(pieces) + _bytes_field(2, trainer) + _bytes_field(3, normalizer)


def _piece(text: str, score: float, kind: int = 1) -> bytes:
    """A `SentencePiece` message as an entry of `ModelProto.pieces`; kinds: 1 normal, 2 unknown, 3 control, 4 user's."""
    message = (
        _bytes_field(1, text.encode("utf-8")) + bytes([2 << 3 | 5]) + struct.pack("<f", score) + _varint_field(3, kind)
    )
    return _bytes_field(1, message)


def _bytes_field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def _varint_field(number: int, value: int) -> bytes:
    return bytes([number << 3]) + _varint(value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


# Weights -------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def fill(network: nn.Module, seed: int) -> None:
    """Draws every parameter so that none is neutral and frames stay different through many layers.

    Random layers would add the same vector to every frame: what a ReLU has on average, and the mean over all frames
    that a flat attention is. So the second feed-forward matrix ignores the average, and queries and keys are larger.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in network.named_parameters():
        if parameter.dim() == 1:
            parameter.normal_(0.0, 0.1, generator=generator)
            if "norm" in name and name.endswith("weight"):
                parameter += 1.0
        elif name == "embed.weight":
            parameter.normal_(0.0, 1.0, generator=generator)
        else:
            fan_in = parameter[0].numel()
            parameter.normal_(0.0, 1.0 / math.sqrt(fan_in), generator=generator)
        if name.endswith("w_2.weight"):
            parameter -= parameter.mean(dim=1, keepdim=True)
        elif name.endswith("linear_q_k_v.weight"):
            parameter[: len(parameter) * 2 // 3] *= 2.0
        elif name.endswith("linear_q.weight"):
            parameter *= 3.0


def synthetic_voice(seconds: float = 6.0, seed: int = 0) -> np.ndarray:
    """Float32 samples [n] that vary as speech does: voiced and unvoiced syllables of changing pitch and colour."""
    generator = np.random.default_rng(seed)
    count = int(seconds * SAMPLE_RATE)
    samples = 1e-3 * generator.standard_normal(count)
    at = 0
    while at < count:
        length = int(generator.uniform(0.06, 0.25) * SAMPLE_RATE)
        time = np.arange(min(length, count - at)) / SAMPLE_RATE
        envelope = np.sin(np.pi * time * SAMPLE_RATE / length) ** 0.5
        if generator.random() < 0.7:
            pitch, colours = generator.uniform(90, 240), generator.uniform(300, 3500, 3)
            harmonics = np.arange(1, 25)
            gains = sum(np.exp(-(((harmonics * pitch - colour) / 250) ** 2)) for colour in colours) / harmonics**0.5
            sound = (gains[:, None] * np.sin(2 * np.pi * pitch * harmonics[:, None] * time)).sum(axis=0)
        else:
            sound = np.diff(generator.standard_normal(len(time) + 1))
        samples[at : at + len(time)] += generator.uniform(0.02, 0.2) * envelope * sound
        at += length + int(generator.exponential(0.04) * SAMPLE_RATE)
    return np.clip(0.3 * samples, -1, 1).astype(np.float32)


def _voice_features(config: FrontendConfig, cmvn: bool) -> Tensor:
    """Features [3, frames, 560] of voices at three levels: recordings differ in theirs."""
    frontend = Frontend(config, Cmvn(*cmvn_vectors()) if cmvn else None)
    voices = [level * synthetic_voice(4.0, seed) for seed, level in enumerate((0.1, 0.4, 1.6))]
    return torch.from_numpy(np.stack([frontend(voice).features for voice in voices]))


class _Keep:
    """A tap that keeps the stages by name."""

    def __init__(self) -> None:
        self.stages: dict[str, Tensor] = {}

    def __call__(self, stage: str, value: Tensor) -> Tensor:
        self.stages[stage] = value
        return value


@torch.no_grad()
def _calibrate_sensevoice(network: SenseVoiceNetwork, model: SenseVoiceModel, cmvn: bool) -> None:
    features = _voice_features(model.frontend, cmvn)
    queries = torch.tensor([query_ids(SenseVoiceOptions())]).expand(len(features), -1)
    keep = _Keep()
    network(features, queries, tap=keep)
    encoded = keep.stages["encoder.output"]
    speech = encoded[:, QUERY_FRAMES:].flatten(0, 1)
    head = network.ctc.ctc_lo
    _centre(head, speech)
    # The query frames say what they say in the published model: language, emotion, event, text normalisation. The
    # linear discriminant against speech keeps these tags rare elsewhere.
    centre = speech.mean(dim=0)
    spread = torch.cov(speech.T)
    spread += 0.3 * spread.diagonal().mean() * torch.eye(len(centre))
    for frame, tag in enumerate(("<|zh|>", "<|NEUTRAL|>", "<|Speech|>", "<|woitn|>")):
        distance = encoded[:, frame].mean(dim=0) - centre
        direction = torch.linalg.solve(spread, distance)
        number = model.vocabulary.ids[tag]
        head.weight[number] = 9.0 * direction / (direction @ distance)
        head.bias[number] = -(head.weight[number] @ centre)
    head.weight[0] = 2.0 * _lively_direction(encoded[:, QUERY_FRAMES:])
    head.bias[0] = 0.0
    logits = network.ctc(speech)
    head.bias[0] = (logits[:, 1:].max(dim=1).values - logits[:, 0]).quantile(0.4)  # blank wins in 40 % of the frames


@torch.no_grad()
def _calibrate_paraformer(network: ParaformerNetwork, model: ParaformerModel, cmvn: bool) -> None:
    features = _voice_features(model.frontend, cmvn)
    predictor = network.predictor
    encoded = network.encoder(features)
    local = predictor._local(encoded)
    _spread(predictor.cif_output, local, mean=-1.5, deviation=1.0)  # about 0.2 per frame of 60 ms
    if model.predictor.upsample:
        source = local if model.predictor.upsample_after_conv else encoded
        fine = predictor.upsample_cnn(source.transpose(1, 2)).transpose(1, 2)
        if predictor.blstm is not None:
            fine = predictor.blstm(fine)[0]
        _spread(predictor.cif_output2, fine, mean=-1.0, deviation=1.5)
    keep = _Keep()
    network(features, tap=keep)
    _centre(network.decoder.output_layer, keep.stages["decoder.output"].flatten(0, 1))


def _centre(layer: nn.Linear, inputs: Tensor) -> None:
    """Sets the bias so that no output is favoured by what all inputs have in common."""
    layer.bias -= (inputs @ layer.weight.T + layer.bias).mean(dim=0)


def _spread(layer: nn.Linear, inputs: Tensor, mean: float, deviation: float) -> None:
    """Makes a layer of one output follow the inputs [rows, n, width], with this mean and deviation over them."""
    layer.weight[0] = deviation * _lively_direction(inputs)
    layer.bias.fill_(mean - float((inputs @ layer.weight.T).mean()))


def _lively_direction(inputs: Tensor) -> Tensor:
    """Weights [width] along which inputs [rows, n, width] change most from frame to frame, scaled to a deviation of 1.

    What changes quickly depends least on the recording, so what is calibrated on one voice holds for another.
    """
    changes = (inputs[:, 1:] - inputs[:, :-1]).flatten(0, 1)
    direction = torch.linalg.svd(changes, full_matrices=False).Vh[0]
    direction = direction * direction[direction.abs().argmax()].sign()
    return direction / (inputs @ direction).std()
