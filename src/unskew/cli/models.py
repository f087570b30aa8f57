"""``unskew models``: the networks there are, and all there is to know of one."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from unskew.cli.output import Json, print_json, print_rich
from unskew.cli.tables import details, options_of, show_rows, with_meanings

if TYPE_CHECKING:
    from unskew.models.spec import ModelSpec

Row = dict[str, Any]


def list_models(
    name: Annotated[str | None, typer.Argument(help="One network, in detail.")] = None,
    json: Json = False,
) -> None:
    """List the networks, with their options. Any torch module works too, from Python.

    With a name: what its options mean, and the smallest image it takes. Spell a network as
    name:option=value,option=value.

    Example:  [bold]unskew models vae[/bold]

    Example:  [bold]unskew compare --data cifar10 --model resnet18:norm=group[/bold]
    """
    from unskew.models import MODELS  # noqa: PLC0415
    from unskew.utils.specs import build  # noqa: PLC0415

    if name is None:
        rows = [_facts(each, cls) for each, cls in MODELS.items()]
        return show_rows(rows, "models", json=json)
    recipe = build(MODELS, name, "model")
    row = with_meanings(_facts(name, type(recipe)), type(recipe))
    if json:
        return print_json([row])
    facts = {key: row[key] for key in ("takes", "trained for")}
    if recipe.takes == "image":
        facts["smallest image"] = f"{recipe.min_image_size()} x {recipe.min_image_size()}"
    return print_rich(details(f"{name}: {row['summary']}", facts, row))


def _facts(name: str, cls: "type[ModelSpec]") -> Row:
    return {
        "name": name,
        "summary": cls.summary,
        "takes": cls.takes,
        "trained for": cls.aim,
        "options": options_of(cls),
    }
