"""A tokeniser for short informal texts, and a vocabulary.

Both depend only on the text, so every client and every run gets the same tokens.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import unescape
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from unskew.errors import UnskewError

PADDING, UNKNOWN = 0, 1
SPECIAL = ("<pad>", "<unk>")

URL, HANDLE = "<url>", "<user>"

_APOSTROPHE = "\N{RIGHT SINGLE QUOTATION MARK}"
_TOKEN = re.compile(
    r"""
    (?P<url> https?://\S+ | \bwww\.\S+ )
  | (?P<handle> (?<!\w)@\w+ )
  | (?P<word> (?:(?<!\w)\#)? \w+ (?: '\w+ | (?<=\d)[.,]\d+ )* )   # don't, #fail, 3.5
  | (?P<mark> [^\w\s] ) (?P=mark)*                                # "!!!" counts as one "!"
    """,
    re.VERBOSE,
)


def tokenise(text: str) -> list[str]:
    """Split a text into lower-case words, hashtags and punctuation marks.

    Links and handles become ``<url>`` and ``<user>``. HTML entities and typographic apostrophes
    are replaced by plain characters. A repeated punctuation mark is one token.
    """
    plain = normalize("NFKC", unescape(text)).replace(_APOSTROPHE, "'").lower()
    return [_token(match) for match in _TOKEN.finditer(plain)]


def _token(match: re.Match[str]) -> str:
    match match.lastgroup:
        case "url":
            return URL
        case "handle":
            return HANDLE
        case _:
            return match["word"] or match["mark"]


@dataclass(frozen=True)
class Vocabulary:
    """The known words; a word's index in ``words`` is its token.

    Index 0 is padding, index 1 represents every unknown word.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.words[: len(SPECIAL)] != SPECIAL:
            raise UnskewError(f"words must start with {' and '.join(SPECIAL)}")

    def __len__(self) -> int:
        return len(self.words)

    @classmethod
    def from_texts(
        cls, texts: Iterable[str], *, min_count: int = 1, max_size: int | None = None
    ) -> "Vocabulary":
        """Collect the words of training texts by decreasing frequency, then alphabetically.

        Words that occur less than ``min_count`` times are left out; ``max_size`` limits the size
        including the padding and unknown tokens. Do not pass test texts: words that occur only
        there must stay unknown.
        """
        if min_count < 1:
            raise UnskewError(f"min_count must be at least 1 (got {min_count})")
        if max_size is not None and max_size < len(SPECIAL):
            raise UnskewError(f"max_size must be at least {len(SPECIAL)} (got {max_size})")
        counts = Counter(token for text in texts for token in tokenise(text))
        frequent = (word for word, count in counts.items() if count >= min_count)
        ranked = sorted(frequent, key=lambda word: (-counts[word], word))
        return cls((*SPECIAL, *ranked)[:max_size])

    @cached_property
    def _tokens(self) -> Mapping[str, int]:
        return {word: token for token, word in enumerate(self.words)}

    def encode(self, texts: Sequence[str], length: int) -> NDArray[np.int32]:
        """Return one row of ``length`` tokens per text, truncated or padded at the end."""
        if length < 1:
            raise UnskewError(f"length must be at least 1 (got {length})")
        matrix = np.full((len(texts), length), PADDING, np.int32)
        for row, text in zip(matrix, texts, strict=True):
            tokens = [self._tokens.get(word, UNKNOWN) for word in tokenise(text)[:length]]
            row[: len(tokens)] = tokens
        return matrix
