"""Files for a small search: phonemes, a lexicon with homophones, and a model of words in which a later word decides."""

from __future__ import annotations

from pathlib import Path

import numpy as np

TOKENS = ("<blk>", "T", "UW", "L", "EY")
LEXICON = "two\tT UW\ntoo\tT UW\nlate\tL EY T\nlay\tL EY\n"
WORDS = """\\data\\
ngram 1=7
ngram 2=2

\\1-grams:
-99\t<s>\t0
-1.0\t</s>
-2.0\t<unk>
-0.4\ttwo\t-0.3
-1.4\ttoo\t-0.1
-1.0\tlate\t-0.1
-1.2\tlay\t-0.1

\\2-grams:
-0.05\ttoo late
-0.1\tlate </s>

\\end\\
"""
TOKENS_ARPA = """\\data\\
ngram 1=6

\\1-grams:
-1.0\t</s>
-0.6\tT
-0.6\tUW
-2.0\tL
-2.0\tEY
-3.0\t<unk>

\\end\\
"""
SPOKEN = ("T", "UW", "L", "EY", "T")


def sounds_like(spoken: tuple[str, ...] = SPOKEN, certain: float = 4.0, seed: int = 1) -> np.ndarray:
    """Logits [frames, tokens] of a head that hears these tokens, each in two frames with a blank after it."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(3 * len(spoken) + 1, len(TOKENS)))
    logits[:, 0] += certain
    for number, token in enumerate(spoken):
        logits[3 * number + 1 : 3 * number + 3, TOKENS.index(token)] += 2 * certain
    return logits.astype(np.float32)


def write_files(folder: Path, **more: np.ndarray) -> dict[str, Path]:
    """Writes the files; returns their paths by the option that takes them, `logits` and `tokens` among them.

    Args:
        more: further logits, by the name of their file.
    """
    texts = {
        "tokens": "\n".join(TOKENS),
        "lexicon": LEXICON,
        "word_lm": WORDS,
        "lm": TOKENS_ARPA,
        "boost": "too late\n",
    }
    names = {
        "tokens": "tokens.txt",
        "lexicon": "words.lex",
        "word_lm": "words.arpa",
        "lm": "tokens.arpa",
        "boost": "p.txt",
    }
    paths = {name: folder / names[name] for name in texts}
    for name, text in texts.items():
        paths[name].write_text(text, encoding="utf-8")
    for name, logits in {"logits": sounds_like(), **more}.items():
        paths[name] = folder / f"{name}.npy"
        np.save(paths[name], logits)
    return paths
