"""The methods by name."""

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from unskew.errors import UnskewError
from unskew.methods.afl import AFL
from unskew.methods.central import Central
from unskew.methods.cfl import CFL
from unskew.methods.common.base import Method
from unskew.methods.common.compose import compose
from unskew.methods.data_sharing import DataSharing
from unskew.methods.ditto import Ditto
from unskew.methods.fedala import FedALA
from unskew.methods.fedavg import FedAvg
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
from unskew.methods.fedper import FedPer, FedRep
from unskew.methods.fedprox import FedProx
from unskew.methods.fedrod import FedROD
from unskew.methods.fedsa import FedSA
from unskew.methods.fesem import FeSEM
from unskew.methods.ida import IDA, INTRAC
from unskew.methods.ifca import IFCA
from unskew.methods.latent import Latent
from unskew.methods.local import Local
from unskew.methods.mean import Mean
from unskew.methods.moon import MOON
from unskew.methods.qffl import QFFL
from unskew.methods.robust import RFA, Bulyan, Krum, Median, MultiKrum, Trimmed
from unskew.methods.scaffold import SCAFFOLD
from unskew.methods.server_optimisers import FedAdagrad, FedAdam, FedAvgM, FedYogi
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
    """Return the method a spelling such as ``fedprox:mu=0.01+ida`` names, or the object itself."""
    if isinstance(method, Method):
        return method
    if not isinstance(method, str):
        raise UnskewError(f"method must be a name or a method object, not {method!r}")
    texts = re.split(r"\+(?=[A-Za-z])", method)
    parts = [build(METHODS, text, "method") for text in texts]
    return compose(parts, [name_of(part) for part in parts])


def name_of(method: Method) -> str:
    """Return the spelling of a method; one that is not in the table goes by its class."""
    composed: str | None = getattr(type(method), "spelling", None)
    if composed is not None:
        return composed
    known = {cls: name for name, cls in METHODS.items()}
    return spec_of(method, known.get(type(method), type(method).__name__.lower()))


def joined(*methods: str | Method) -> Method:
    """Return several methods as one, as a plus in a spelling does."""
    parts = [part for method in methods for part in _parts(make_method(method))]
    for part in parts:
        held = sorted(set(vars(part)) - {field.name for field in fields(part)})
        if held:
            raise UnskewError(
                f"method {name_of(part)!r}: {held[0]} would be lost beside other methods; make it "
                "a field of a dataclass"
            )
    return compose(parts, [name_of(part) for part in parts])


def with_options(method: Method, options: Mapping[str, Any]) -> Method:
    """Return a method with some of its options changed, in every part that has them."""
    changed = [replace(part, **_own(part, options)) for part in _parts(method)]
    return compose(changed, [name_of(part) for part in changed])


def _parts(method: Method) -> tuple[Method, ...]:
    parts: tuple[Method, ...] = getattr(type(method), "parts", (method,))
    return parts


def _own(part: Method, options: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: options[field.name] for field in fields(part) if field.name in options}
