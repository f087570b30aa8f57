"""The registry: every method by name, and spec strings to methods and back."""

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from unskew.errors import UnskewError
from unskew.methods.afl import AFL
from unskew.methods.bulyan import Bulyan
from unskew.methods.central import Central
from unskew.methods.cfl import CFL
from unskew.methods.common.base import Method
from unskew.methods.common.compose import compose
from unskew.methods.data_sharing import DataSharing
from unskew.methods.ditto import Ditto
from unskew.methods.fedadagrad import FedAdagrad
from unskew.methods.fedadam import FedAdam
from unskew.methods.fedala import FedALA
from unskew.methods.fedavg import FedAvg
from unskew.methods.fedavgm import FedAvgM
from unskew.methods.fedbabu import FedBABU
from unskew.methods.fedbn import FedBN
from unskew.methods.fedcluster import FedCluster
from unskew.methods.feddisco import FedDisco
from unskew.methods.feddisk.method import FedDisk
from unskew.methods.feddna import FedDNA
from unskew.methods.feddyn import FedDyn
from unskew.methods.fedfusion import FedFusion
from unskew.methods.fedgen import FedGen
from unskew.methods.fedgn import FedGN
from unskew.methods.fedgroup import FedGroup
from unskew.methods.fedma import FedMA
from unskew.methods.fednova import FedNova
from unskew.methods.fedntd import FedNTD
from unskew.methods.fedper import FedPer
from unskew.methods.fedprox import FedProx
from unskew.methods.fedrep import FedRep
from unskew.methods.fedrod import FedROD
from unskew.methods.fedsa import FedSA
from unskew.methods.fedyogi import FedYogi
from unskew.methods.fesem import FeSEM
from unskew.methods.ida import IDA
from unskew.methods.ifca import IFCA
from unskew.methods.intrac import INTRAC
from unskew.methods.krum import Krum
from unskew.methods.latent import Latent
from unskew.methods.local import Local
from unskew.methods.mean import Mean
from unskew.methods.median import Median
from unskew.methods.moon import MOON
from unskew.methods.multikrum import MultiKrum
from unskew.methods.qffl import QFFL
from unskew.methods.rfa import RFA
from unskew.methods.scaffold import SCAFFOLD
from unskew.methods.trimmed import Trimmed
from unskew.utils.specs import build, spec_of

METHODS: dict[str, type[Method]] = {
    "fedavg": FedAvg,
    "mean": Mean,
    "fedprox": FedProx,
    "fedbn": FedBN,
    "fedper": FedPer,
    "fedrep": FedRep,
    "fedbabu": FedBABU,
    "ditto": Ditto,
    "fedala": FedALA,
    "fedgn": FedGN,
    "local": Local,
    "central": Central,
    "scaffold": SCAFFOLD,
    "feddyn": FedDyn,
    "fednova": FedNova,
    "fedntd": FedNTD,
    "moon": MOON,
    "fedrod": FedROD,
    "fedgen": FedGen,
    "ida": IDA,
    "intrac": INTRAC,
    "feddisco": FedDisco,
    "feddisk": FedDisk,
    "latent": Latent,
    "fedfusion": FedFusion,
    "fedsa": FedSA,
    "median": Median,
    "trimmed": Trimmed,
    "rfa": RFA,
    "krum": Krum,
    "multikrum": MultiKrum,
    "bulyan": Bulyan,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "fedadagrad": FedAdagrad,
    "qffl": QFFL,
    "afl": AFL,
    "ifca": IFCA,
    "fesem": FeSEM,
    "cfl": CFL,
    "fedgroup": FedGroup,
    "fedcluster": FedCluster,
    "data-sharing": DataSharing,
    "fedma": FedMA,
    "feddna": FedDNA,
}


def make_method(method: str | Method) -> Method:
    """Build the method that a spec string such as ``fedprox:mu=0.01+ida`` names.

    A method object is returned as it is.
    """
    if isinstance(method, Method):
        return method
    if not isinstance(method, str):
        raise UnskewError(f"method must be a name or a method object, not {method!r}")
    specs = re.split(r"\+(?=[A-Za-z])", method)
    parts = [build(METHODS, spec, "method") for spec in specs]
    return compose(parts, [name_of(part) for part in parts])


def name_of(method: Method) -> str:
    """Return the spec string of a method; one that is not registered is named by its class."""
    composed: str | None = getattr(type(method), "composed_spec", None)
    if composed is not None:
        return composed
    names = {cls: name for name, cls in METHODS.items()}
    return spec_of(method, names.get(type(method), type(method).__name__.lower()))


def compose_methods(*methods: str | Method) -> Method:
    """Return several methods as one, as a plus in a spec string does."""
    parts = [part for method in methods for part in _parts(make_method(method))]
    for part in parts:
        attributes = sorted(set(vars(part)) - {field.name for field in fields(part)})
        if attributes:
            raise UnskewError(
                f"method {name_of(part)!r}: {attributes[0]} would be lost in the composition; make "
                "it a field of a dataclass"
            )
    return compose(parts, [name_of(part) for part in parts])


def with_options(method: Method, options: Mapping[str, Any]) -> Method:
    """Return a method with some of its options changed, in every part that has them."""
    changed = [replace(part, **_options_of(part, options)) for part in _parts(method)]
    return compose(changed, [name_of(part) for part in changed])


def _parts(method: Method) -> tuple[Method, ...]:
    parts: tuple[Method, ...] = getattr(type(method), "parts", (method,))
    return parts


def _options_of(part: Method, options: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: options[field.name] for field in fields(part) if field.name in options}
