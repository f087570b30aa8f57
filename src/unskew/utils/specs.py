"""Spec strings, which name an object and its options: ``dirichlet:alpha=0.1,min_size=10``.

Partitioners, methods and networks are frozen dataclasses in a table by name. A spec string picks
one of them and sets its fields. Pydantic checks types and ranges, and this module turns its errors
into one line that names the field.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, create_model
from pydantic.dataclasses import is_pydantic_dataclass

from unskew.errors import UnskewError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

OPTIONS = ConfigDict(
    extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False, defer_build=True
)
"""The pydantic configuration of every dataclass that can be built from a spec string."""

NONE_IS_A_WORD = BeforeValidator(lambda value: "none" if value is None else value)
"""For options with the choice ``none``, which spec strings parse as None."""

MAX_PROBLEMS = 20
"""How many problems an error lists: whoever sends a million gets no million lines."""

T = TypeVar("T")
PydanticModel = TypeVar("PydanticModel", bound=BaseModel)


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """Split ``name:key=value,key=value`` into the name and its options (still text)."""
    name, _, rest = text.strip().partition(":")
    options: dict[str, Any] = {}
    for piece in filter(None, (part.strip() for part in rest.split(","))):
        key, equals, value = piece.partition("=")
        if not equals:
            raise UnskewError(f"{text!r}: write options as key=value; {piece!r} has no '='")
        option = key.strip().replace("-", "_")
        if option in options:
            raise UnskewError(f"{text!r}: {option} is given twice")
        options[option] = _literal(value.strip())
    return name.strip(), options


def split_list(text: str) -> list[str]:
    """Split ``fedprox:mu=0.01,moon:mu=1,temperature=0.5`` at the commas that start a new name."""
    specs: list[str] = []
    for piece in filter(None, (part.strip() for part in text.split(","))):
        head = piece.partition("=")[0]
        if "=" in piece and ":" not in head and specs:
            specs[-1] += f",{piece}"
        else:
            specs.append(piece)
    return specs


def lookup(table: Mapping[str, T], name: str, kind: str) -> T:
    """Return ``table[name]``, or raise an error that suggests the closest name."""
    if name in table:
        return table[name]
    close = get_close_matches(name, table, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else "there are: " + ", ".join(sorted(table))
    raise UnskewError(f"{kind}: {name!r} is not known; {hint}")


def build(table: Mapping[str, type[T]], text: str, kind: str) -> T:
    """Build the object of a spec string; ``kind`` (skew, method, model) is for error messages."""
    name, options = parse(text)
    return create(lookup(table, name, kind), options, f"{kind} {name!r}")


def create(cls: type[T], options: Mapping[str, Any], label: str) -> T:
    """Return ``cls(**options)``; raise every problem as one :class:`UnskewError`."""
    known = [field.name for field in fields(cls) if field.init]  # type: ignore[arg-type]
    for key in options:
        if key not in known:
            close = get_close_matches(key, known, n=1, cutoff=0.5)
            hint = (
                f"did you mean {close[0]!r}?" if close else f"it takes: {', '.join(known) or '-'}"
            )
            raise UnskewError(f"{label} has no option {key!r}; {hint}")
    try:
        return cls(**_typed(cls, options))
    except ValidationError as error:
        raise UnskewError(f"{label}: {explain(error)}") from None


def _typed(cls: type[Any], options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return options with the types of their fields, for a dataclass that pydantic does not check.

    Pydantic's dataclasses check their fields themselves.
    """
    if not options or is_pydantic_dataclass(cls):
        return options
    hints = get_type_hints(cls, include_extras=True)
    types: dict[str, Any] = {name: (hints[name], ...) for name in options}
    checked = create_model(cls.__name__, __config__=OPTIONS, **types).model_validate(options)
    return {name: getattr(checked, name) for name in options}


def validated(
    model: type[PydanticModel], values: Mapping[str, Any], label: str = ""
) -> PydanticModel:
    """Build a pydantic model from plain values; an error is one line that names each field."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise UnskewError(f"{label}{explain(error, model)}") from None


def explain(error: ValidationError, model: type[object] | None = None) -> str:
    """Return a pydantic error as one line: the field, what it must be, what was given.

    ``model`` is the pydantic model that was to be built, whose fields are suggested.
    """
    if error.error_count() > 100 * MAX_PROBLEMS:  # each would be an object
        return f"{error.error_count()} of its values are wrong"
    problems = error.errors(include_url=False)
    listed = [_explain_one(problem, model) for problem in problems[:MAX_PROBLEMS]]
    more = [f"and {len(problems) - MAX_PROBLEMS} more"] * (len(problems) > MAX_PROBLEMS)
    return "; ".join((*listed, *more))


def _explain_one(problem: "ErrorDetails", model: type[object] | None) -> str:
    field = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"{field} is not known{_nearest_field(problem['loc'], model)}"
    if problem["type"] == "missing":
        return f"{field} is missing"
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    message = message.replace("should be", "must be").partition(", unable to parse")[0]
    if problem["type"] == "value_error" and not message.startswith("must be"):
        # A validator's message is complete, and may already start with the name of the field.
        message = message.removeprefix(f"{field.rpartition('.')[2]}: ")
        return f"{field}: {message}" if field else message
    return f"{field} {message} (got {problem['input']!r})"


def _nearest_field(path: tuple[int | str, ...], model: type[object] | None) -> str:
    """Suggest a field of the model, or of its section that ``path`` leads to."""
    for section in path[:-1]:
        field = getattr(model, "model_fields", {}).get(section)
        model = None if field is None else field.annotation
    known = _fields_of(model)
    close = get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
    return f"; did you mean {known[close[0]]!r}?" if close else ""


def _fields_of(model: object) -> dict[str, str]:
    """Return the path of each field of a model and of its sections, by name."""
    top_level = getattr(model, "model_fields", {})
    nested = {
        name: f"{section}.{name}"
        for section, field in top_level.items()
        for name in getattr(field.annotation, "model_fields", {})
    }
    return nested | {name: name for name in top_level}


def spec_of(thing: object, name: str, named: Set[str] = frozenset()) -> str:
    """Return the spec string of an object, with only the options that differ from the default.

    Options that are ``named`` are in it anyway.
    """
    options = []
    for field in fields(thing):  # type: ignore[arg-type]
        value = getattr(thing, field.name)
        if field.name in named or field.default is MISSING or value != field.default:
            options.append(f"{field.name}={_text(value)}")
    return name + (":" + ",".join(options) if options else "")


def raise_value_error(check: Callable[[T], object], value: T) -> None:
    """Call a check inside a pydantic validator, which expects ``ValueError``."""
    try:
        check(value)
    except UnskewError as error:
        raise ValueError(str(error)) from None


def _literal(value: str) -> str | None:
    return None if value.lower() == "none" else value


def _text(value: object) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
