"""The registry: every method by name, and spec strings to methods and back."""

import re
from collections.abc import Mapping
from typing import Any

from unskew.composition.compose import compose
from unskew.composition.method import Method
from unskew.composition.part_files import names_file, part_from_file
from unskew.composition.parts import Part
from unskew.composition.search_space import Searched
from unskew.errors import UnskewError
from unskew.methods.afl import AFL
from unskew.methods.bulyan import Bulyan
from unskew.methods.ccvr import CCVR
from unskew.methods.central import Central
from unskew.methods.cfl import CFL
from unskew.methods.data_sharing import DataSharing
from unskew.methods.ditto import Ditto
from unskew.methods.fedacg import FedACG
from unskew.methods.fedadagrad import FedAdagrad
from unskew.methods.fedadam import FedAdam
from unskew.methods.fedala import FedALA
from unskew.methods.fedas import FedAS
from unskew.methods.fedavg import FedAvg
from unskew.methods.fedavgm import FedAvgM
from unskew.methods.fedawa import FedAWA
from unskew.methods.fedbabu import FedBABU
from unskew.methods.fedbn import FedBN
from unskew.methods.fedcluster import FedCluster
from unskew.methods.fedcm import FedCM
from unskew.methods.feddbe import FedDBE
from unskew.methods.feddecorr import FedDecorr
from unskew.methods.feddisco import FedDisco
from unskew.methods.feddisk.method import FedDisk
from unskew.methods.feddna import FedDNA
from unskew.methods.feddyn import FedDyn
from unskew.methods.fedexp import FedExP
from unskew.methods.fedfusion import FedFusion
from unskew.methods.fedgen import FedGen
from unskew.methods.fedgn import FedGN
from unskew.methods.fedgroup import FedGroup
from unskew.methods.fedlc import FedLC
from unskew.methods.fedlesam import FedLESAM
from unskew.methods.fedlws import FedLWS
from unskew.methods.fedma import FedMA
from unskew.methods.fednova import FedNova
from unskew.methods.fedntd import FedNTD
from unskew.methods.fedpac import FedPAC
from unskew.methods.fedper import FedPer
from unskew.methods.fedproto import FedProto
from unskew.methods.fedprox import FedProx
from unskew.methods.fedrep import FedRep
from unskew.methods.fedrod import FedROD
from unskew.methods.fedrs import FedRS
from unskew.methods.fedsa import FedSA
from unskew.methods.fedsam import FedSAM
from unskew.methods.fedsmoo import FedSMOO
from unskew.methods.fedspeed import FedSpeed
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
from unskew.methods.mofedsam import MoFedSAM
from unskew.methods.moon import MOON
from unskew.methods.multikrum import MultiKrum
from unskew.methods.qffl import QFFL
from unskew.methods.rfa import RFA
from unskew.methods.scaffold import SCAFFOLD
from unskew.methods.trimmed import Trimmed
from unskew.utils.specs import build, create

Option = tuple[str, str]
"""The names of a part and of one of its options."""

METHODS: dict[str, type[Part]] = {
    "fedavg": FedAvg,
    "mean": Mean,
    "fedprox": FedProx,
    "fedbn": FedBN,
    "fedper": FedPer,
    "fedrep": FedRep,
    "fedbabu": FedBABU,
    "ditto": Ditto,
    "fedala": FedALA,
    "fedproto": FedProto,
    "feddbe": FedDBE,
    "fedpac": FedPAC,
    "fedas": FedAS,
    "fedgn": FedGN,
    "local": Local,
    "central": Central,
    "scaffold": SCAFFOLD,
    "feddyn": FedDyn,
    "fedacg": FedACG,
    "fedlc": FedLC,
    "fedrs": FedRS,
    "feddecorr": FedDecorr,
    "fednova": FedNova,
    "ccvr": CCVR,
    "fedntd": FedNTD,
    "moon": MOON,
    "fedrod": FedROD,
    "fedgen": FedGen,
    "fedcm": FedCM,
    "fedsam": FedSAM,
    "mofedsam": MoFedSAM,
    "fedlesam": FedLESAM,
    "fedspeed": FedSpeed,
    "fedsmoo": FedSMOO,
    "ida": IDA,
    "intrac": INTRAC,
    "feddisco": FedDisco,
    "feddisk": FedDisk,
    "latent": Latent,
    "fedfusion": FedFusion,
    "fedawa": FedAWA,
    "fedlws": FedLWS,
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
    "fedexp": FedExP,
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


def make_method(method: str | Part | Method) -> Method:
    """Return the method that a spec string such as ``fedprox:mu=0.01+ida`` names.

    ``my.py:GradNorm:mu=0.5`` names a class in a file of the user, which is imported. A part becomes
    a method of one part, and a method is returned as it is.
    """
    if isinstance(method, Method):
        return method
    if isinstance(method, Part):
        return compose([method])
    if not isinstance(method, str):
        raise UnskewError(f"method must be a name or a method object, not {method!r}")
    specs = _PLUS.split(method.strip())
    if not all(specs):
        raise UnskewError(f"method {method!r}: name a method on both sides of each plus")
    return compose([_part(spec) for spec in specs])


_PLUS = re.compile(r"\s*\+\s*(?=[A-Za-z]|[^+,:]*\.py:|$)")
"""A plus before the next part; the one of a number such as 1e+5 is before a digit."""


def names_files(method: str) -> bool:
    """Return whether the spec string of a method names files that would be imported."""
    return any(names_file(spec) for spec in _PLUS.split(method))


def _part(spec: str) -> Part:
    return part_from_file(spec) if names_file(spec) else build(METHODS, spec, "method")


def search_grid(method: Method) -> dict[Option, Searched]:
    """Return what to search of every part's options."""
    return {
        (part.name, option): values for part in method.parts for option, values in part.grid.items()
    }


def with_options(method: Method, options: Mapping[Option, Any]) -> Method:
    """Return a method with some of its parts' options changed."""
    unknown = {name for name, _ in options} - {part.name for part in method.parts}
    if unknown:
        raise UnskewError(f"method {method.spec!r} has no part {sorted(unknown)[0]!r}")
    changed = []
    for part in method.parts:
        own = {option: getattr(part, option) for option in part.given_options}
        own |= {option: value for (name, option), value in options.items() if name == part.name}
        changed.append(create(type(part), own, f"method {part.name!r}"))
    return compose(changed)
