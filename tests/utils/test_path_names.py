"""Whatever a text holds, it becomes the name of one file, which no other text has."""

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hostile_names import HOSTILE
from unskew.experiments.scheduler import folder_name
from unskew.utils.path_names import path_name

WINDOWS = {"con", "prn", "aux", "nul", "com1", "lpt9"}


def with_examples(test):
    for text in HOSTILE:
        test = example(text)(test)
    return test


@with_examples
@given(st.text() | st.text(alphabet="./\\%:~-=aA0\0\n", max_size=8))
def test_a_name_is_one_part_of_a_path_on_every_system(text):
    for name in (path_name(text), folder_name(text)):
        assert 0 < len(name.encode()) <= 100
        assert not set(name) & set('/\\:*?"<>|\0\n\r ')
        assert name.isascii()
        assert name.isprintable()
        assert name[0] not in ".-"
        assert name[-1] != "."
        assert name.partition(".")[0].lower() not in WINDOWS
        assert os.path.normpath(f"a/{name}") == f"a/{name}"


@given(st.text(), st.text())
def test_two_texts_have_two_names(a, b):
    names = {text: path_name(text) for text in {a, b, *HOSTILE}}
    assert len(set(names.values())) == len(names)
    again = {name: path_name(name) for name in names.values()}
    assert len(set(again.values())) == len(again)


@pytest.mark.parametrize("name", ["Delft", "clinic-a", "3", "0123abcdef", "UMC_1.2"])
def test_ordinary_names_stay(name):
    assert path_name(name) == name


def test_folders_of_methods_keep_their_names():
    assert folder_name("fedprox:mu=0.1,buffers=local") == "fedprox-mu=0.1-buffers=local"
