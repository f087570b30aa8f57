"""What a search tries for an option: a tuple of values, or a logarithmic range."""

import pytest

from unskew.methods import METHODS, LogRange, make_method


def test_points_of_a_range_have_equal_ratios():
    assert LogRange(0.001, 1.0).points(4) == (0.001, 0.01, 0.1, 1.0)
    assert str(LogRange(0.001, 1.0)) == "0.001 to 1"


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (-1.0, 1.0)])
def test_a_range_needs_a_logarithm(bounds):
    with pytest.raises(ValueError, match="0 < low < high"):
        LogRange(*bounds)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_accepts_everything_it_declares_to_be_searched(name):
    for option, searched in METHODS[name].grid.items():
        values = searched.points(5) if isinstance(searched, LogRange) else searched
        assert len(set(values)) == len(values) > 1
        for value in values:
            (part,) = make_method(f"{name}:{option}={value}").parts
            assert getattr(part, option) == value


@pytest.mark.parametrize("name", ["fedavgm", "fedadam", "fedyogi", "fedadagrad"])
def test_server_optimizers_search_the_learning_rate_of_the_server(name):
    assert isinstance(METHODS[name].grid["server_lr"], LogRange)
