import numpy as np
import pytest

from unskew.data import load as load_module
from unskew.data.federation import Federation
from unskew.data.load import federate, load
from unskew.data.sources import Source
from unskew.errors import UnskewError
from unskew.partition.dirichlet import Dirichlet


def images(shape: tuple[int, ...] = (4, 5, 3), groups: bool = False, **changes: object) -> Source:
    """200 training and 40 test images; the first pixel of each is its number."""
    x = np.zeros((240, *shape), np.uint8)
    x.reshape(240, -1)[:, 0] = np.arange(240)
    y = np.arange(240) % 4
    group = np.arange(240) % 5 if groups else None
    fields: dict[str, object] = {
        "name": "toy",
        "kind": "image",
        "x_train": x[:200],
        "y_train": y[:200],
        "x_test": x[200:],
        "y_test": y[200:],
        "group_train": None if group is None else group[:200],
        "group_test": None if group is None else group[200:],
        "class_names": ("a", "b", "c", "d"),
        "group_names": ("v", "w", "x", "y", "z") if groups else None,
    }
    return Source(**{**fields, **changes})  # type: ignore[arg-type]


def numbers(x: np.ndarray) -> np.ndarray:
    return x.reshape(len(x), -1)[:, 0]


def test_images_become_channels_first_and_keep_their_labels() -> None:
    f = federate(images(), clients=8)
    assert f.shape == (3, 4, 5)
    assert federate(images((4, 5)), clients=8).shape == (1, 4, 5)
    assert f.train.x.flags.c_contiguous
    assert np.array_equal(numbers(f.train.x) % 4, f.train.y)
    assert (f.name, f.classes, f.class_names) == ("toy", 4, ("a", "b", "c", "d"))
    assert f.client_names is None


def test_a_fifth_is_held_out_and_no_sample_is_lost() -> None:
    f = federate(images(), clients=8)
    assert set(f.train.sizes) == {20}
    assert set(f.test.sizes) == {5}
    seen = np.concatenate([numbers(f.train.x), numbers(f.test.x)])
    assert sorted(seen) == list(range(200))
    assert numbers(f.common.x).tolist() == list(range(200, 240))
    none = federate(images(), clients=8, holdout=0.0)
    assert none.test.samples == 0
    assert none.train.samples == 200


def test_the_union_of_local_tests_can_be_the_common_test() -> None:
    f = federate(images(), clients=8, holdout=0.1, common="union")
    assert len(f.common) == 1
    assert np.array_equal(f.common.x, f.test.x)
    with pytest.raises(UnskewError, match="holdout must be more than 0"):
        federate(images(), clients=8, holdout=0.0, common="union")


def test_all_samples_can_be_merged_as_in_pfllib() -> None:
    f = federate(images(), "pathological:balance=true", 4, holdout=0.25, pool="all")
    seen = np.concatenate([numbers(f.train.x), numbers(f.test.x)])
    assert sorted(seen) == list(range(240))
    assert f.test.sizes.tolist() == [15] * 4
    assert np.array_equal(f.common.y, f.test.y)
    assert f.report is not None
    assert "merged" in f.report.notes[0]


def test_natural_groups_have_the_test_samples_of_their_group() -> None:
    f = federate(images(groups=True), "natural")
    assert f.train.sizes.tolist() == [40] * 5
    assert f.test.sizes.tolist() == [8] * 5
    assert f.client_names is not None
    assert f.client_names.tolist() == ["v", "w", "x", "y", "z"]
    for k in range(5):
        assert set(numbers(f.train.client(k)[0]) % 5) == {k}
        assert set(numbers(f.test.client(k)[0]) % 5) == {k}
    held = federate(images(groups=True), "natural", holdout=0.5)
    assert held.train.sizes.tolist() == [20] * 5


def test_clients_of_one_group_split_its_tests_and_are_numbered() -> None:
    f = federate(images(groups=True), "natural", clients=10)
    assert f.train.sizes.tolist() == [20] * 10
    assert f.test.sizes.tolist() == [4] * 10
    assert f.client_names is not None
    assert f.client_names[:3].tolist() == ["v/1", "v/2", "w/1"]


def test_natural_groups_without_test_samples_hold_out_training_samples() -> None:
    f = federate(images(groups=True, group_test=np.arange(40) + 5, group_names=None), "natural")
    assert f.test.sizes.tolist() == [8] * 5
    assert f.client_names is not None
    assert f.client_names.tolist() == ["0", "1", "2", "3", "4"]
    assert numbers(f.test.x).max() < 200


def test_noise_changes_train_and_local_tests_but_not_the_common_test() -> None:
    f = federate(images(), "noise:level=0.5", 4)
    for part in (f.train, f.test):
        assert part.x.dtype == np.float32
        first, last = part.client(0)[0], part.client(3)[0]
        assert np.all(first.reshape(len(first), -1)[:, 1:] == 0)
        assert np.count_nonzero(last) > last.size / 3
    assert np.allclose(numbers(f.common.x), np.arange(200, 240) / 255)
    natural = federate(images(groups=True), "natural+noise:level=0.5")
    assert np.count_nonzero(natural.test.client(4)[0]) > 40


def test_text_becomes_tokens_of_training_words() -> None:
    texts = np.array(["good day", "bad day"] * 20)
    data = images(
        kind="text",
        x_train=texts,
        y_train=np.arange(40) % 2,
        x_test=np.array(["good night"]),
        y_test=np.array([0]),
        class_names=("good", "bad"),
    )
    f = federate(data, clients=4)
    assert f.train.x.dtype == np.int32
    assert f.vocabulary is not None
    assert set(f.vocabulary) >= {"good", "bad", "day"}
    assert "night" not in f.vocabulary
    words = [f.vocabulary[token] for token in f.train.x[0] if token]
    assert words == [("good", "bad")[f.train.y[0]], "day"]


def test_the_report_describes_the_partition() -> None:
    f = federate(images(), "n-classes:n=3", 3)
    assert f.report is not None
    assert f.report.sizes is not None
    assert f.report.skew == "n-classes:n=3"
    assert f.report.sizes.sum() == f.train.samples + f.test.samples
    assert f.report.dropped == 200 - f.report.sizes.sum()
    assert f.report.diagnosis is not None
    assert f.report.diagnosis.classes_held == 3
    by_object = federate(images(), Dirichlet(alpha=3.0), 5)
    assert by_object.report is not None
    assert by_object.report.skew == "dirichlet:alpha=3.0"


def test_the_seed_determines_the_federation() -> None:
    fingerprints = [
        federate(images(), "dirichlet:alpha=0.5+noise", 5, seed).fingerprint for seed in (1, 1, 2)
    ]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


def test_a_loaded_federation_can_be_saved_and_opened(tmp_path: object) -> None:
    f = federate(images(groups=True), "natural")
    again = Federation.open(f.save(str(tmp_path)))
    assert again.report == f.report
    assert again.fingerprint == f.fingerprint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pool": "test"}, "pool must be one of train, all"),
        ({"common": "none"}, "common must be one of source, union"),
        ({"holdout": 1.0}, "holdout must be at least 0 and less than 1"),
        ({"skew": "natural"}, "this data has no groups"),
        ({"clients": 201}, "clients must be from 1 to 200"),
    ],
)
def test_bad_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(UnskewError, match=message):
        federate(images(), **options)  # type: ignore[arg-type]


def test_load_reads_the_named_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_module, "source", lambda name: images(name=name))
    f = load("toy", "iid", 4, 3, holdout=0.5, pool="all", common="union")
    assert f.name == "toy"
    assert f.train.samples == f.test.samples == f.common.samples == 120


def test_a_part_of_the_samples_can_be_partitioned() -> None:
    part = federate(images(groups=True), clients=4, samples=50, seed=3)
    seen = np.concatenate([numbers(part.train.x), numbers(part.test.x)])
    assert len(set(seen)) == 50
    assert part.common.samples == federate(images(), clients=4).common.samples
    other = federate(images(groups=True), clients=4, samples=50, seed=4)
    assert set(seen) != set(np.concatenate([numbers(other.train.x), numbers(other.test.x)]))
    for number in (0, 1000):
        with pytest.raises(UnskewError, match="samples must be from 1 to 200"):
            federate(images(), clients=4, samples=number)
