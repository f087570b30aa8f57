"""What a check of data found: a list of findings, each with its severity and its remedy."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from unskew.errors import UnskewError
from unskew.utils.html import html_block, html_heading, html_line, html_table
from unskew.utils.printable import printable
from unskew.utils.wording import plural

Severity = Literal["error", "warning", "note"]

_ORDER: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong (error), doubtful (warning) or worth knowing (note).

    ``subject`` is what it is about, such as a column or a client, and ``fix`` what to do.
    """

    severity: Severity
    subject: str
    text: str
    fix: str

    def __post_init__(self) -> None:
        """Make the texts printable: names of clients and columns may come from any file."""
        for name in ("subject", "text", "fix"):
            object.__setattr__(self, name, printable(getattr(self, name)))

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}; {self.fix}"


@dataclass(frozen=True)
class DataCheck:
    """The findings about a federation, errors first; it is true if there are no errors."""

    name: str
    findings: tuple[Finding, ...]

    def __post_init__(self) -> None:
        ranked = sorted(self.findings, key=lambda finding: _ORDER.index(finding.severity))
        object.__setattr__(self, "findings", tuple(ranked))

    def __bool__(self) -> bool:
        return self.ok

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    @property
    def ok(self) -> bool:
        """Whether the data can be trained on: there are no errors."""
        return not self.errors

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What must be corrected before training."""
        return self._of("error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What probably is a mistake, or makes results misleading."""
        return self._of("warning")

    @property
    def notes(self) -> tuple[Finding, ...]:
        """What is worth knowing."""
        return self._of("note")

    def _of(self, severity: Severity) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == severity)

    def raise_errors(self) -> None:
        """Raise an error with one line per finding that is an error, if there are any."""
        if self.errors:
            lines = [f"{self.name}: {finding}" for finding in self.errors]
            raise UnskewError("\n".join(lines))

    @property
    def summary(self) -> str:
        """The number of findings of each severity, as a text."""
        counts = [
            plural(len(found), name) for name in _ORDER if (found := self._of(name))
        ]  # fmt: skip
        return ", ".join(counts) or "nothing found"

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.summary}"]
        for finding in self.findings:
            lines += [
                f"{finding.severity}: {finding.subject}: {finding.text}",
                f"  {finding.fix}",
            ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [[each.severity, each.subject, each.text, each.fix] for each in self.findings]
        columns = ["severity", "about", "finding", "what to do"]
        return html_block(
            html_heading(f"Check of {self.name}"),
            html_line(self.summary, soft=True),
            html_table(columns, rows, text_columns=range(4)) if rows else "",
        )

    def to_notes(self) -> dict[str, object]:
        """Return what a run records: the findings, under a name of their own, if there are any."""
        return {"findings": [asdict(finding) for finding in self]} if self.findings else {}

    def to_dict(self) -> dict[str, object]:
        """Return plain values for JSON."""
        return {
            "name": self.name,
            "ok": self.ok,
            "findings": [asdict(finding) for finding in self.findings],
        }
