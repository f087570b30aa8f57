"""Every pair of methods: trained for two rounds, or refused with a reason.

``python tests/pairs.py`` writes the table into docs/composition.md; a test compares the two.
"""

import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import torch

import unskew as us
from every_method import QUICK
from toys import small_federation, vector_of
from unskew.errors import UnskewError, UnskewWarning
from unskew.methods import METHODS, Aspect, make_method
from unskew.utils.threads import threads

PAGE = Path(__file__).parents[1] / "docs" / "composition.md"
BEGIN, END = "<!-- pairs: begin -->\n", "<!-- pairs: end -->\n"

SPECS = {name: QUICK.get(name, name) for name in METHODS} | {
    "fedcluster": "fedcluster:groups=2",  # two clients per round
    "krum": "krum:f=0",
    "multikrum": "multikrum:f=0",
    "bulyan": "bulyan:f=0",
    "trimmed": "trimmed:beta=0.4",
    "fedsa": "fedsa:cv_threshold=0.01",
    "fedgroup": "fedgroup:models=2",
    "cfl": "cfl:eps1=100,eps2=0,wait=0",
    "fedala": "fedala:eta=10,max_epochs=2",
    "fedacg": "fedacg:mu=0.1",
    "fedrs": "fedrs:soft=true",
    "fedproto": "fedproto:predict=head",
}
"""All methods, quick, and with options that have an effect on few clients and two rounds."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of training, or why the pair is refused."""

    models: tuple[torch.Tensor, ...] = ()
    """The global model, and what clients keep."""
    metrics: tuple[tuple[float, ...], ...] = ()
    refusal: str = ""

    @property
    def is_finite(self) -> bool:
        return all(bool(torch.isfinite(model).all()) for model in self.models)

    def equals(self, other: "Outcome") -> bool:
        """Return whether both give the same global model and the same metrics."""
        mine, theirs = self.models[0], other.models[0]
        if mine.shape != theirs.shape or not torch.allclose(mine, theirs, rtol=1e-5, atol=1e-6):
            return False
        levels = zip(self.metrics, other.metrics, strict=True)  # one without a model has no values
        return all(len(a) == len(b) and np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in levels)


@cache
def outcome(spec: str) -> Outcome:
    """Train two rounds on a small federation; CCVR's model is one round behind."""
    options = {"model": "mlp:hidden=6,norm=batch", "batch_size": 4, "lr": 0.1}
    options["rounds"] = 3 if "ccvr" in spec else 2
    federation = small_federation(sizes=(20, 13, 9, 7), unit=True)
    try:
        with warnings.catch_warnings(), threads(1):
            warnings.simplefilter("ignore", UnskewWarning)
            run = us.train(federation, spec, runner="loop", **options)
    except UnskewError as error:
        return Outcome(refusal=str(error))
    levels = tuple(tuple(run.curve(level, "loss")[1]) for level in ("global", "local", "personal"))
    return Outcome((vector_of(run), *_kept(run.states)), levels)


def pair(first: str, second: str) -> Outcome:
    """Train two methods as one, in alphabetical order."""
    return in_order(*sorted((first, second)))


def in_order(first: str, second: str) -> Outcome:
    """Train two methods as one, in this order."""
    return outcome(f"{SPECS[first]}+{SPECS[second]}")


def composes(first: str, second: str) -> bool:
    """Return whether two methods can be composed in this order, without training."""
    try:
        make_method(f"{SPECS[first]}+{SPECS[second]}")
    except UnskewError:
        return False
    return True


def no_effect(part: str, other: str) -> str:
    """Return why ``part`` adds nothing to ``other``; empty if it should change the result."""
    weighted = Aspect.WEIGHTS in make_method(SPECS[other]).parts[0].adds
    acts_on = _aspects_of_the_server(part)
    combined = other not in ("local", "central", "fedproto")
    reasons = {
        "sample counts are the weights anyway": part == "fedavg" and combined and not weighted,
        "equal weights leave the product unchanged": part == "mean" and weighted,
        "fedgn leaves no BatchNorm": other == "fedgn" and part in ("fedbn", "feddna"),
        "a client takes part once in two rounds": part == "fedlesam" and other == "fedcluster",
        "krum takes one client's model": other == "krum" and part == "feddna",
        "local sends nothing that could be combined": other == "local"
        and (part in _ON_UPLOADS or acts_on & {Aspect.WEIGHTS, Aspect.COMBINATION}),
        "fedproto sends no model": other == "fedproto"
        and (part in _ON_UPLOADS | {"local"} or acts_on & {Aspect.WEIGHTS, Aspect.COMBINATION}),
        "central has a single client": other == "central"
        and (part in _ON_SEVERAL_UPLOADS or acts_on & {Aspect.WEIGHTS, Aspect.CANDIDATES}),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _aspects_of_the_server(name: str) -> frozenset[Aspect]:
    """Return what a method adds to or replaces if it leaves clients alone, else nothing."""
    part = make_method(SPECS[name]).parts[0]
    return frozenset() if part.affects_clients else part.adds | part.replaces


_STEPS = {
    *("fedavgm", "fedadam", "fedyogi", "fedadagrad", "fedexp", "fedlws"),
    *("qffl", "scaffold", "fedcm"),
}
_COMBINING = _STEPS | {
    *("fedavg", "mean", "ida", "intrac", "feddisco", "latent", "fedfusion", "fednova", "afl"),
    *("fedsa", "median", "trimmed", "rfa", "krum", "multikrum", "bulyan", "feddna"),
}  # fmt: skip


_ON_UPLOADS = _COMBINING | {"ifca", "fesem", "cfl", "fedgroup", "fedala", "fedper", "fedlesam"}
_ON_SEVERAL_UPLOADS = _COMBINING - _STEPS | {
    *("scaffold", "fedcluster", "fedma", "cfl", "fesem", "fedgroup", "fedala", "fedbn"),
}  # fmt: skip


def table() -> str:
    """Return the table: one row per method, with the methods that it does not compose with."""
    lines = ["| method | is refused with | changes nothing with |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {_grouped(_refusals(name))} | {_grouped(_neutral(name))} |"
        for name in sorted(METHODS)
    ]
    return "\n".join(lines) + "\n"


def _refusals(name: str) -> Iterator[tuple[str, str]]:
    for other in sorted(METHODS):
        if other != name and (refusal := pair(*sorted((name, other))).refusal):
            yield other, _reason(refusal, name, other)


def _neutral(name: str) -> Iterator[tuple[str, str]]:
    for other in sorted(METHODS):
        if other != name and not pair(*sorted((name, other))).refusal:
            reason = no_effect(name, other)
            if reason:
                yield other, reason


def without_spec(refusal: str) -> str:
    """Return a refusal without the spec that it starts with, which names both methods anyway."""
    return re.sub(r"^method(: | '[^']*': )", "", refusal)


def _reason(refusal: str, name: str, other: str) -> str:
    """Return a refusal in a few words that are the same for all pairs with the same reason."""
    text = without_spec(refusal).partition(";")[0]
    for pattern, words in _WORDS.items():
        if match := re.search(pattern, text):
            return match.expand(words)
    return text


_WORDS = {
    r"both replace (.*)": r"both replace \1",
    r"\w+ replaces (.*), to which \w+ adds": r"one replaces \1, the other adds to them",
    r"trains twice per round": "one trains twice, the other needs a single training",
    r"includes": "one includes the other",
}


def _grouped(reasons: Iterator[tuple[str, str]]) -> str:
    groups: dict[str, list[str]] = {}
    for other, reason in reasons:
        groups.setdefault(reason, []).append(other)
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in groups.items()) or "-"


def _kept(states) -> list[torch.Tensor]:
    tensors = [tensor for k in sorted(states) for tensor in states[k].values()]
    return [tensor for tensor in tensors if tensor.is_floating_point()]


def main() -> None:
    """Write the table into its page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + table() + END + after, encoding="utf-8")
    refused = sum(bool(pair(*each).refusal) for each in combinations(sorted(METHODS), 2))
    sys.stdout.write(f"{refused} of {len(METHODS) * (len(METHODS) - 1) // 2} pairs are refused\n")


if __name__ == "__main__":
    main()
