"""The methods by name."""

from unskew.methods.base import Method
from unskew.methods.fedavg import FedAvg
from unskew.methods.fedprox import FedProx
from unskew.methods.mean import Mean
from unskew.spelling import build, spell

METHODS: dict[str, type[Method]] = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "mean": Mean,
}


def make_method(method: str | Method) -> Method:
    """Return the method a spelling such as ``fedprox:mu=0.01`` names, or the object itself."""
    return build(METHODS, method, "method") if isinstance(method, str) else method


def name_of(method: Method) -> str:
    """Return the spelling of a method; one that is not in the table goes by its class."""
    known = {cls: name for name, cls in METHODS.items()}
    return spell(method, known.get(type(method), type(method).__name__.lower()))
