"""The files of user-defined code: which are found, and what changes their hashes."""

import importlib
import shutil
import sys

import pytest

from unskew.composition.part_files import class_from_file
from unskew.utils.code_files import code_files

FILES = {
    "mine.py": '''
import json
import lib.rates
import numpy as np
from helpers import centred
from unskew.methods import ServerSide

POWER = 1.0


def scaled(values):
    """Raise values to a power."""
    return values**POWER


class Mine(ServerSide):
    def receive(self, server, uploads):
        from lazy import FACTOR

        return {}
''',
    "helpers.py": "from deeper import MEAN\n\n\ndef centred(values):\n    return values - MEAN\n",
    "deeper.py": "MEAN = 0.0\n",
    "lazy.py": "FACTOR = 1.0\n",
    "unused.py": "X = 1\n",
    "lib/__init__.py": "",
    "lib/rates.py": "from .more import RATE\nfrom . import most\n",
    "lib/more.py": "RATE = 1.0\n",
    "lib/most.py": "MOST = 1.0\n",
}
USED = set(FILES) - {"unused.py"}


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    yield tmp_path / "code"
    forget(tmp_path)


def forget(folder):
    for name, module in tuple(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(folder)):
            del sys.modules[name]
    importlib.invalidate_caches()


def hashes(folder):
    """Return the hashes of the method's files as a new process finds them."""
    forget(folder.parent)
    copied = shutil.copytree(folder, folder.parent / str(len(list(folder.parent.iterdir()))))
    return code_files(module_in(copied))


def module_in(folder):
    return sys.modules[class_from_file(folder / "mine.py", "Mine").__module__]


def replace(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_local_imports_are_found_also_in_functions_and_packages(folder):
    assert set(hashes(folder)) == USED


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("mine.py", "POWER = 1.0", "POWER = 3.0"),
        ("mine.py", "values**POWER", "values**POWER * 2"),
        ("helpers.py", "values - MEAN", "values - MEAN - 1"),
        ("deeper.py", "0.0", "0.5"),
        ("lazy.py", "1.0", "0.5"),
        ("lib/__init__.py", "", "X = 1"),
        ("lib/most.py", "1.0", "0.5"),
    ],
)
def test_a_change_of_a_constant_or_function_changes_one_hash(folder, name, old, new):
    before = hashes(folder)
    replace(folder / name, old, new)
    after = hashes(folder)
    assert {each for each in before if before[each] != after[each]} == {name}


def test_comments_docstrings_and_other_files_change_nothing(folder):
    before = hashes(folder)
    replace(folder / "mine.py", "Raise values to a power.", "Other words.")
    replace(folder / "mine.py", "POWER = 1.0", "POWER = 1.0  # a comment")
    replace(folder / "unused.py", "1", "2")
    assert hashes(folder) == before


def test_a_file_that_is_edited_keeps_its_hash_until_its_module_is_reloaded(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    module = module_in(folder)
    before = code_files(module)
    replace(folder / "deeper.py", "0.0", "0.25")
    assert code_files(module) == before  # what is executed is the old file
    importlib.reload(sys.modules["deeper"])
    assert code_files(module)["deeper.py"] != before["deeper.py"]


def test_code_without_a_file_has_none():
    assert code_files(None) == {}
    assert code_files(sys.modules["__main__"]) == {}
