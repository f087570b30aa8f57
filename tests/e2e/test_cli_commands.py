"""What all commands share: errors name options as they are typed, and help is in paragraphs."""

import pytest

from unskew.cli.commands import in_options, in_paragraphs


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--data", "digitz"), "error: --data: 'digitz' is not known; did you mean 'digits'?"),
        (("--lr", "-1"), "error: --lr must be greater than 0 (got -1.0)"),
        (("--clients", "0"), "error: --clients must be greater than or equal to 1 (got 0)"),
        (("--skew", "nope"), "error: --skew: 'nope' is not known"),
        (
            ("--skew", "dirichlet:alpha=x"),
            "error: --skew 'dirichlet': alpha must be a valid number (got 'x')",
        ),
        (("--methods", "ida+median"), "error: --methods 'ida+median': median replaces"),
        (("--metric", "nope"), "error: --metric: 'nope' is not known"),
        (("--metrics", "auc,nope"), "error: --metrics: 'nope' is not known"),
        (("--set", "runner=foo"), "error: --set runner must be 'auto'"),
    ],
)
def test_a_comparison_names_the_option(terminal, options, words):
    assert terminal.error("compare", *options).startswith(words)


def test_an_argument_keeps_its_name(terminal):
    assert terminal.error("data", "show", "digitz").startswith("error: source: 'digitz'")


@pytest.mark.parametrize(
    "message",
    [
        "visits.csv: no such file",
        "client 3 failed",
        "settings: lr and steps",
        "rounds: has the same value in all training samples",  # a column
    ],
)
def test_other_messages_are_unchanged(message):
    assert in_options(message, {"rounds": "--rounds", "client": "--client"}) == message


def test_help_is_in_paragraphs():
    text = "Compare\nmethods.\n\n    a = 1\n    b = 2\n\nExample: compare --a 1 \\\n--b 2"
    paragraphs = "Compare methods.\n\n    a = 1\n    b = 2\n\nExample: compare --a 1 --b 2"
    assert in_paragraphs(text) == paragraphs
