"""The examples of docs/aggregation.md print the output shown on the page."""

import warnings

import pytest

from pages import DOCS, examples, printed

EXAMPLES = examples("aggregation.md")


@pytest.mark.parametrize("index", range(len(EXAMPLES)))
def test_examples_print_the_output_on_the_page(index):
    code, expected = EXAMPLES[index]
    with warnings.catch_warnings():
        assert printed(code) == expected


def test_the_page_has_its_examples():
    assert len(EXAMPLES) == 6
    assert (DOCS / "aggregation.md").read_text(encoding="utf-8").count("```python") == 6
