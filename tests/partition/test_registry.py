import numpy as np
import pytest

from unskew.errors import UnskewError
from unskew.partition.base import Partition, Partitioner, SamplePool
from unskew.partition.dirichlet import Dirichlet
from unskew.partition.feature_noise import Noise
from unskew.partition.registry import (
    PARTITIONERS,
    Composed,
    describe,
    parse_partitioner,
    partitioner_spec,
)
from unskew.utils.rng import generator


def test_a_spec_string_sets_the_options() -> None:
    assert parse_partitioner("dirichlet:alpha=0.5,min_size=3") == Dirichlet(alpha=0.5, min_size=3)


@pytest.mark.parametrize("name", PARTITIONERS)
def test_every_partitioner_has_defaults_and_a_summary(name: str) -> None:
    assert partitioner_spec(parse_partitioner(name)) == name
    assert 20 < len(describe(name)) <= 100
    assert describe(name).endswith(".")


@pytest.mark.parametrize(
    "text",
    [
        "dirichlet:alpha=0.5,balance=true",
        "niid-2:variant=feddisco",
        "dirichlet:alpha=0.5+noise:level=0.1,kind=std",
        "noise:denominator=K-1+noise:level=0.2",
    ],
)
def test_spec_strings_round_trip(text: str) -> None:
    assert partitioner_spec(parse_partitioner(text)) == text


def test_the_spec_of_a_custom_partitioner_is_its_class_name() -> None:
    class Custom(Partitioner):
        pass

    assert partitioner_spec(Custom()) == "Custom"


def test_a_composed_partitioner_partitions_by_the_first_and_distorts_by_the_others() -> None:
    pool = SamplePool(np.tile(np.arange(4), 50), 4)
    composed = parse_partitioner("pathological:classes_per_client=1+noise:level=0.01")
    assert composed == Composed(
        parse_partitioner("pathological:classes_per_client=1"), (Noise(level=0.01),)
    )
    assert composed.num_clients(pool, None) == 10
    partitions: list[Partition] = [
        partitioner.partition(pool, 4, generator(0, "skew"))
        for partitioner in (composed, parse_partitioner("pathological:classes_per_client=1"))
    ]
    assert np.array_equal(partitions[0].owner, partitions[1].owner)
    x = np.full((200, 3), 0.5, np.float32)
    noisy, alone = (
        partitioner.distort(x, partitions[0].owner, 4, generator(0, "distort"))
        for partitioner in (composed, Noise(level=0.01))
    )
    assert np.array_equal(noisy, alone)
    assert not np.array_equal(noisy, x)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dirichlett", "did you mean 'dirichlet'"),
        ("dirichlet:alfa=1", "did you mean 'alpha'"),
        ("dirichlet:alpha=0", "alpha must be greater than 0"),
        ("dirichlet:alpha=high", "alpha must be a valid number"),
        ("noise:kind=sd", "kind must be 'variance' or 'std'"),
        ("niid-2:variant=other", "variant must be 'thesis' or 'feddisco'"),
        ("n-classes:double=1-2", "double"),
        ("eta-shards:eta=1.1", "eta must be less than or equal to 1"),
        ("iid+dirichlet", "'dirichlet' divides samples and must come first"),
        ("iid+", "'' is not known"),
    ],
)
def test_bad_spec_strings_name_the_mistake(text: str, message: str) -> None:
    with pytest.raises(UnskewError, match=message):
        parse_partitioner(text)
