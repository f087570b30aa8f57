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


def test_plain_spelling() -> None:
    assert parse_partitioner("dirichlet:alpha=0.5,min_size=3") == Dirichlet(alpha=0.5, min_size=3)


@pytest.mark.parametrize("name", PARTITIONERS)
def test_every_recipe_stands_with_its_defaults_and_is_described(name: str) -> None:
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
def test_spelling_and_back(text: str) -> None:
    assert partitioner_spec(parse_partitioner(text)) == text


def test_a_recipe_of_ones_own_is_called_by_its_class() -> None:
    class Mine(Partitioner):
        pass

    assert partitioner_spec(Mine()) == "Mine"


def test_a_composed_skew_deals_by_the_first_and_distorts_by_the_others() -> None:
    pool = SamplePool(np.tile(np.arange(4), 50), 4)
    composed = parse_partitioner("pathological:classes_per_client=1+noise:level=0.01")
    assert composed == Composed(
        parse_partitioner("pathological:classes_per_client=1"), (Noise(level=0.01),)
    )
    assert composed.clients(pool, None) == 10
    dealt: list[Partition] = [
        skew.deal(pool, 4, generator(0, "skew"))
        for skew in (composed, parse_partitioner("pathological:classes_per_client=1"))
    ]
    assert np.array_equal(dealt[0].owner, dealt[1].owner)
    x = np.full((200, 3), 0.5, np.float32)
    noisy, alone = (
        skew.distort(x, dealt[0].owner, 4, generator(0, "distort"))
        for skew in (composed, Noise(level=0.01))
    )
    assert np.array_equal(noisy, alone)
    assert not np.array_equal(noisy, x)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("dirichlett", "did you mean 'dirichlet'"),
        ("dirichlet:alfa=1", "did you mean 'alpha'"),
        ("dirichlet:alpha=0", "alpha must be greater than 0"),
        ("dirichlet:alpha=high", "alpha must be a valid number"),
        ("noise:kind=sd", "kind must be 'variance' or 'std'"),
        ("niid-2:variant=other", "variant must be 'thesis' or 'feddisco'"),
        ("n-classes:double=1-2", "double"),
        ("eta-shards:eta=1.1", "eta must be less than or equal to 1"),
        ("iid+dirichlet", "'dirichlet' deals samples out and must stand first"),
        ("iid+", "'' is not known"),
    ],
)
def test_bad_spellings_name_what_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(UnskewError, match=complaint):
        parse_partitioner(text)
