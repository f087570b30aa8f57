"""Which clients sent a model or a value that is too large.

Of three replies or more, each is compared with their median. A median of one or two says nothing:
these are compared with what was accepted in earlier rounds, with the client's own past and with the
size of the model that was broadcast. Where two disagree and nothing tells which one is wrong, both
are rejected, and the round keeps the model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from unskew.composition.accepted_sizes import AcceptedSizes, lower_median
from unskew.composition.upload_values import Value

MOVEMENT = "movement of the model"
"""The name under which the distances are kept that models moved."""

_ROUNDING = 1e-6
"""A model that moved less, relative to its size, did not move: its weights are float32."""

_UNDECIDED = "that of the other reply, and nothing tells which of the two is wrong"


@dataclass(frozen=True)
class SizeLimits:
    """What one quantity may be, whatever the other replies and earlier rounds say."""

    name: str
    times: float
    """How many times larger than what it is compared with a size may be."""
    say: Callable[[float, str], str]
    """The reason for a rejection, given how many times larger than what a size is."""
    floor: float = 0.0
    """What sizes are compared with is at least this."""
    negligible: float = 0.0
    """Sizes up to this are no evidence, and are not compared with others."""
    harmless: float = 0.0
    """One or two replies up to this are always accepted."""
    largest: float = 0.0
    """The largest size of one or two replies if the past does not decide; 0: unknown."""
    model: float = 0.0
    """The size of the model that was broadcast."""
    needs_others: bool = False
    """Whether a single reply is accepted, because nothing depends on its size."""

    @classmethod
    def of_movement(cls, times: float, model: float) -> "SizeLimits":
        """Return the limits of the distance that a model moves, given the size that it had."""

        def say(ratio: float, what: str) -> str:
            return f"its model moved {ratio:.3g} times as far as {what}"

        return cls(
            name=MOVEMENT,
            times=times,
            say=say,
            negligible=_ROUNDING * model,
            harmless=model,
            largest=times * model,
            model=model,
        )

    @classmethod
    def of_value(cls, name: str, value: Value, model: float) -> "SizeLimits":
        """Return the limits of a value that is sent beside the model.

        Its unit is unknown, so the model's size is a weaker hint. A value with a floor has its own
        scale.
        """
        assert value.times is not None

        def say(ratio: float, what: str) -> str:
            return f"its {name!r} is {ratio:.3g} times as large as {what}"

        return cls(
            name=name,
            times=value.times,
            say=say,
            floor=value.floor,
            negligible=-1.0 if value.floor > 0 else 0.0,
            harmless=value.times * value.floor or model,
            largest=value.times**2 * (value.floor or model),
            model=model,
            needs_others=value.only_relative,
        )

    def too_large(self, size: float, reference: float, what: str) -> str:
        """Return the reason for a rejection by comparison."""
        return f"{self.say(size / reference, what)}; at most {self.times:g} times is allowed"

    def impossible(self, size: float) -> str:
        """Return the reason for a rejection where there is nothing else to compare with."""
        if self.floor > 0:
            return self.say(size / self.floor, f"{self.floor:g}")
        return self.say(size / self.model, "the norm of the model that it received")


@dataclass(frozen=True)
class SizeCheck:
    """The clients whose size is wrong, and those that are accepted and say something."""

    wrong: Mapping[int, str] = field(default_factory=dict)
    undecided: bool = False
    """Whether two disagree and nothing tells which one is wrong."""
    sizes: Mapping[int, float] = field(default_factory=dict)


def check_sizes(
    sizes: Mapping[int, float], limits: SizeLimits, accepted: AcceptedSizes
) -> SizeCheck:
    """Compare the sizes of one quantity, by client."""
    counted = {k: size for k, size in sizes.items() if size > limits.negligible}
    if len(counted) < 3:
        return _check_few(counted, limits, accepted)
    median = max(lower_median(counted), limits.floor)
    wrong = {
        k: limits.too_large(size, median, "the median")
        for k, size in counted.items()
        if size > limits.times * median
    }
    return _without(counted, wrong)


def _check_few(
    sizes: Mapping[int, float], limits: SizeLimits, accepted: AcceptedSizes
) -> SizeCheck:
    """Check one or two sizes: only the larger one can be wrong."""
    if not sizes:
        return SizeCheck()
    suspect = max(sizes, key=sizes.__getitem__)
    size, least, alone = sizes[suspect], min(sizes.values()), len(sizes) == 1
    least = max(least, limits.floor)
    agree = limits.needs_others if alone else size <= limits.times * least
    known = [max(each, limits.floor) for each in accepted.known(limits.name, suspect)]
    accusing = [each for each in known if size > limits.times * each]
    if agree or size <= limits.harmless or (known and not accusing):
        return SizeCheck(sizes=sizes)
    if known and accusing == known:
        return _without(sizes, {suspect: limits.too_large(size, max(known), "in earlier rounds")})
    if size > limits.largest > 0 and not (alone and known):
        return _without(sizes, {suspect: limits.impossible(size)})
    if alone:
        return SizeCheck(sizes=sizes)
    ratio = size / least
    wrong = {k: limits.say(ratio if k == suspect else 1 / ratio, _UNDECIDED) for k in sizes}
    return SizeCheck(wrong, undecided=True)


def _without(sizes: Mapping[int, float], wrong: Mapping[int, str]) -> SizeCheck:
    return SizeCheck(wrong, sizes={k: size for k, size in sizes.items() if k not in wrong})
