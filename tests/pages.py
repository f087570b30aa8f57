"""The examples of a page of docs: what they are, and what they print."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def examples(page: str) -> list[tuple[str, str]]:
    """Each piece of Python on a page that is followed by what it prints, with that."""
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
