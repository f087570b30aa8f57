"""What all commands share: errors name options as they are typed, and help is in paragraphs."""

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

from typer import Typer
from typer.core import TyperCommand, TyperOption
from typer.models import CommandInfo

from unskew.errors import UnskewError

_OPTIONS = {"source": ("data",), "method": ("methods",), "metric": ("metric", "metrics")}
"""The parameters of commands that may set a field of another name."""

_FIELD = re.compile(r"(settings: )?(\w+)(?=: (?!has |is |holds |exists)| '| must | is not known)")
"""A field at the start of a message; "target: has …" is about a column or a file of that name."""


class CommandWithOptions(TyperCommand):
    """A command whose errors name its options."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; its context is click's, or of the copy of click in a newer typer."""
        try:
            return super().invoke(ctx)
        except UnskewError as error:
            error.args = (in_options(str(error), _options(ctx)), *error.args[1:])
            raise


def complete_commands(app: Typer) -> None:
    """Give all commands of an app their errors and their help."""
    for command in _commands(app):
        command.cls = CommandWithOptions
        command.help = in_paragraphs(inspect.getdoc(command.callback) or "")


def in_paragraphs(text: str) -> str:
    """Return a docstring without the line breaks inside its paragraphs, except in indented text."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(
        each if each.startswith(" ") else each.replace(" \\\n", " ").replace("\n", " ")
        for each in paragraphs
    )


def in_options(message: str, options: Mapping[str, str]) -> str:
    """Return a message with the option that sets the field at its start in place of the field."""
    found = _FIELD.match(message)
    if found is None:
        return message
    field, rest = found[2], message[found.end() :]
    if field in options:
        # A field that is parsed names itself again: "skew: skew 'dirichlet': alpha must be …".
        return options[field] + rest.removeprefix(f": {field}")
    if found[1] and "settings" in options:
        return f"{options['settings']} {field}{rest}"
    return message


def _commands(app: Typer) -> Iterator[CommandInfo]:
    yield from app.registered_commands
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from _commands(group.typer_instance)


def _options(ctx: Any) -> dict[str, str]:
    """Return the options by the fields they set; of several, the one that was typed."""
    options = {
        param.name: max(param.opts, key=len)
        for param in ctx.command.params
        if isinstance(param, TyperOption) and param.name is not None
    }
    for field, names in _OPTIONS.items():
        known = [name for name in names if name in options]
        typed = [n for n in known if ctx.get_parameter_source(n).name == "COMMANDLINE"]
        if known:
            options[field] = options[(typed or known)[0]]
    return options
