"""``unskew models``: list the networks, or show one in detail."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from unskew.cli.output import Json, print_json, print_rich
from unskew.cli.tables import details, options_of, show_rows, with_meanings

if TYPE_CHECKING:
    from unskew.models.spec import ModelSpec

Row = dict[str, Any]


def list_models(
    name: Annotated[str | None, typer.Argument(help="Show this network in detail.")] = None,
    json: Json = False,
) -> None:
    """List the networks with their options. In Python, any torch module can be used instead.

    With a name, also show what its options mean and the smallest image it accepts. A network's
    spec string is name:option=value,option=value.

    Example:  [bold]unskew models vae[/bold]

    Example:  [bold]unskew compare --data cifar10 --model resnet18:norm=group[/bold]
    """
    from unskew.models import MODELS  # noqa: PLC0415
    from unskew.utils.specs import build  # noqa: PLC0415

    if name is None:
        rows = [_row_of(each, cls) for each, cls in MODELS.items()]
        return show_rows(rows, "models", json=json)
    spec = build(MODELS, name, "model")
    row = with_meanings(_row_of(name, type(spec)), type(spec))
    if json:
        return print_json([row])
    entries = {key: row[key] for key in ("takes", "trained for")}
    if spec.takes == "image":
        entries["smallest image"] = f"{spec.min_image_size()} x {spec.min_image_size()}"
    return print_rich(details(f"{name}: {row['summary']}", entries, row))


def _row_of(name: str, cls: "type[ModelSpec]") -> Row:
    return {
        "name": name,
        "summary": cls.summary,
        "takes": cls.takes,
        "trained for": cls.aim,
        "options": options_of(cls),
    }
