"""The examples of docs/rules.md print what the page says they print."""

import re
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("place", range(len(EXAMPLES)))
def test_examples_print_what_the_page_says(place):
    code, expected = EXAMPLES[place]
    printed = StringIO()
    with redirect_stdout(printed), warnings.catch_warnings():
        exec(compile(code, str(PAGE), "exec"), {})
    assert printed.getvalue() == expected


def test_the_page_has_its_examples():
    assert len(EXAMPLES) == 6
    assert PAGE.read_text().count("```python") == 6
