"""Vocabularies of any size: SentencePiece models and token lists that look like the published ones.

This file knows no checkpoint.
"""

from __future__ import annotations

import io
import struct

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
