"""The tokeniser, and the vocabulary, which depends only on the training texts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.data.text import SPECIAL, Vocabulary, tokenise
from unskew.errors import UnskewError


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Hello, World", ["hello", ",", "world"]),
        ("I LOVE it!!!", ["i", "love", "it", "!"]),
        ("what?! no...", ["what", "?", "!", "no", "."]),
        ("@Bob_1 look http://a.co/x?y=1 now", ["<user>", "look", "<url>", "now"]),
        ("see www.example.org", ["see", "<url>"]),
        ("don't don\N{RIGHT SINGLE QUOTATION MARK}t", ["don't", "don't"]),
        ("a &amp; b &lt;3", ["a", "&", "b", "<", "3"]),
        (
            "#MondayFail 3.5 stars, 1,000 more",
            ["#mondayfail", "3.5", "stars", ",", "1,000", "more"],
        ),
        ("mail me@home.org", ["mail", "me", "@", "home", ".", "org"]),
        ("so-so :)", ["so", "-", "so", ":", ")"]),
        ("Größe ΩMEGA", ["größe", "ωmega"]),
        ("<pad> <unk>", ["<", "pad", ">", "<", "unk", ">"]),
        ("  \n\t ", []),
        ("", []),
    ],
)
def test_tokens_by_hand(text, tokens):
    assert tokenise(text) == tokens


@given(st.text())
def test_tokens_hold_no_space_and_no_special(text):
    for token in tokenise(text):
        assert token
        assert not any(sign.isspace() for sign in token)
        assert token not in SPECIAL


def test_vocabulary_is_sorted_by_count_then_alphabet():
    words = Vocabulary.from_texts(["b a c", "c b", "c d"]).words
    assert words == ("<pad>", "<unk>", "c", "b", "a", "d")


def test_rare_words_are_left_out():
    assert Vocabulary.from_texts(["b a c", "c b", "c d"], min_count=2).words[2:] == ("c", "b")


def test_max_size_counts_the_special_words():
    vocabulary = Vocabulary.from_texts(["b a c", "c b", "c d"], max_size=4)
    assert vocabulary.words == ("<pad>", "<unk>", "c", "b")
    assert len(vocabulary) == 4


def test_encoding_pads_truncates_and_marks_unknown_words():
    vocabulary = Vocabulary(("<pad>", "<unk>", "good", "film"))
    tokens = vocabulary.encode(["Good film", "bad film", "", "film film good film"], 3)
    assert tokens.dtype == np.int32
    assert tokens.tolist() == [[2, 3, 0], [1, 3, 0], [0, 0, 0], [3, 3, 2]]


def test_no_texts():
    assert Vocabulary.from_texts([]).words == SPECIAL
    assert Vocabulary(SPECIAL).encode([], 4).shape == (0, 4)


@given(st.lists(st.text("abc !"), max_size=5), st.integers(1, 4), st.integers(2, 6), st.randoms())
def test_vocabulary_properties(texts, min_count, max_size, random):
    vocabulary = Vocabulary.from_texts(texts, min_count=min_count, max_size=max_size)
    shuffled = random.sample(texts, len(texts))
    assert Vocabulary.from_texts(shuffled, min_count=min_count, max_size=max_size) == vocabulary
    assert len(vocabulary) <= max_size
    all_tokens = [token for text in texts for token in tokenise(text)]
    assert all(all_tokens.count(word) >= min_count for word in vocabulary.words[2:])


@given(st.lists(st.text("abc !"), min_size=1, max_size=5), st.integers(1, 6))
def test_encoding_can_be_read_back(texts, length):
    vocabulary = Vocabulary.from_texts(texts)
    for row, text in zip(vocabulary.encode(texts, length), texts, strict=True):
        words = [vocabulary.words[token] for token in row if token]
        assert words == tokenise(text)[:length]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Vocabulary.from_texts([], min_count=0), "min_count must be at least 1"),
        (lambda: Vocabulary.from_texts([], max_size=1), "max_size must be at least 2"),
        (lambda: Vocabulary(("good",)), "words must start with <pad> and <unk>"),
        (lambda: Vocabulary(SPECIAL).encode(["a"], 0), "length must be at least 1"),
    ],
)
def test_wrong_arguments_are_rejected(call, message):
    with pytest.raises(UnskewError, match=message):
        call()
