"""The examples of docs/privacy.md print what the page shows."""

import pytest

from pages import examples, printed

EXAMPLES = examples("privacy.md")


@pytest.mark.long
@pytest.mark.parametrize(("code", "expected"), EXAMPLES)
def test_privacy_examples_print_what_the_page_shows(code, expected):
    if "noise_multiplier(" in code:
        pytest.importorskip("opacus")
    assert printed(code) == expected


def test_the_privacy_page_has_its_examples():
    assert len(EXAMPLES) == 4
