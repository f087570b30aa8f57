"""The examples of docs/aggregation.md print what the page says they print."""

import warnings

import pytest

from pages import DOCS, examples, printed

EXAMPLES = examples("aggregation.md")


@pytest.mark.parametrize("place", range(len(EXAMPLES)))
def test_examples_print_what_the_page_says(place):
    code, expected = EXAMPLES[place]
    with warnings.catch_warnings():
        assert printed(code) == expected


def test_the_page_has_its_examples():
    assert len(EXAMPLES) == 6
    assert (DOCS / "aggregation.md").read_text(encoding="utf-8").count("```python") == 6
