"""The Python examples of a docs page, and their expected outputs."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def examples(page: str) -> list[tuple[str, str]]:
    """Return the Python examples of a page that are followed by their output, with the output."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert len(found) == text.count("```text"), f"{page}: an output without its example"
    return found


def printed(code: str) -> str:
    """Run an example and return what it prints."""
    output = StringIO()
    with redirect_stdout(output):
        exec(compile(code, "an example", "exec"), {})
    return output.getvalue()
