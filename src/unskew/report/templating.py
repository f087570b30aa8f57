"""HTML rendered from the templates of this package; every value is escaped."""

from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined


def render(template: str, **values: object) -> str:
    """Render a template; every value that it uses must be given."""
    return template_environment().get_template(template).render(values)


@cache
def template_environment() -> Environment:
    """Return the environment of all templates, in which an undefined name is an error."""
    templates = Environment(
        loader=PackageLoader("unskew.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.globals["asset"] = _asset
    # NaN is not valid JSON; a browser would reject all of the data.
    templates.policies["json.dumps_kwargs"] = {
        "separators": (",", ":"),
        "allow_nan": False,
        "ensure_ascii": False,
    }
    return templates


def _asset(name: str) -> str:
    """Return the text of a script or style sheet of this package."""
    return (files("unskew.report") / "assets" / name).read_text(encoding="utf-8")
