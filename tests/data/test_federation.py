import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.data.columns import Columns
from unskew.data.federation import Federation
from unskew.errors import FolderError, UnskewError
from unskew.partition.report import PartitionReport

X = np.arange(12, dtype=np.uint8).reshape(6, 2)
Y = np.array([0, 1, 2, 0, 1, 2])

owners = st.lists(st.integers(0, 8), min_size=1, max_size=60)


def rows_of(federation: Federation, part: str = "train") -> list[list[int]]:
    """The sample numbers of each client, where x is the number of a sample."""
    columns: Columns = getattr(federation, part)
    return [columns.client(k)[0].ravel().tolist() for k in range(len(columns))]


def numbered(client: list[int], **options) -> Federation:
    samples = np.arange(len(client), dtype=np.int32)[:, None]
    return Federation.from_arrays(samples, samples[:, 0] % 3, client, tokens=True, **options)


def test_clients_by_hand():
    federation = Federation.from_arrays(X, Y, ["b", "a", "b", "a", "a", "c"])
    assert federation.client_names is not None
    assert federation.client_names.tolist() == ["a", "b", "c"]
    assert federation.train.offsets.tolist() == [0, 3, 5, 6]
    assert federation.train.sizes.tolist() == [3, 2, 1]
    assert federation.train.client(1)[0].tolist() == [[0, 1], [4, 5]]
    assert federation.train.client(1)[1].tolist() == [0, 2]
    assert federation.train.owners().tolist() == [0, 0, 0, 1, 1, 2]
    assert federation.train.label_counts(3).tolist() == [[1, 2, 0], [1, 0, 1], [0, 0, 1]]
    assert federation.classes == 3
    assert (len(federation.test), federation.test.samples) == (3, 0)
    assert (len(federation.common), federation.common.samples) == (1, 0)


@given(owners)
def test_every_client_keeps_its_samples_in_order(client):
    federation = numbered(client)
    names = federation.client_names
    ids = range(len(federation)) if names is None else names.tolist()
    assert rows_of(federation) == [
        [row for row, owner in enumerate(client) if owner == name] for name in ids
    ]


@given(owners)
def test_ids_of_any_type_give_the_same_clients(client):
    by_number = numbered(client)
    for ids in (
        [f"client {owner}" for owner in client],
        np.array([f"client {owner}" for owner in client], object),
        np.array(client) - 5,
        np.array(client, np.uint8),
        np.array(client, np.uint64),
        np.array(client) * 10**12,
    ):
        assert rows_of(numbered(ids)) == rows_of(by_number)


def test_access_to_a_client_copies_nothing():
    federation = Federation.from_arrays(X, Y, [0, 0, 1, 1, 1, 2])
    assert np.shares_memory(federation.train.x, X)
    assert np.shares_memory(federation.train.client(2)[0], X)


def test_without_ids_there_is_one_client():
    federation = Federation.from_arrays(X, Y)
    assert (len(federation), federation.train.samples) == (1, 6)


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint16, np.int32, np.int64, np.uint64])
def test_labels_of_any_integer_type_give_the_same_counts(kind):
    federation = Federation.from_arrays(X, Y.astype(kind), [0, 1, 0, 1, 1, 2])
    assert federation.classes == 3
    assert federation.train.label_counts(3).sum(axis=1).tolist() == [2, 3, 1]


@pytest.mark.parametrize(
    ("given", "kept"),
    [("u1", "u1"), ("f4", "f4"), ("i4", "f4"), ("f8", "f4"), ("i8", "f4"), ("?", "f4")],
)
def test_compact_features_keep_their_type(given, kept):
    assert Federation.from_arrays(X.astype(given), Y).train.x.dtype == np.dtype(kept)


def test_the_common_test_set_belongs_to_no_client():
    federation = Federation.from_arrays(X, Y, [0, 0, 0, 1, 1, 1], common=(X[:2], [3, 1]))
    assert federation.common.y.tolist() == [3, 1]
    assert federation.classes == 4
    assert len(federation) == 2


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((X, Y[:5]), {}, "one row per sample: 6, 5"),
        ((X, Y, [0, 1]), {}, "6, 6 and 2"),
        ((X, Y, [[0]] * 6), {}, "client must be one id per sample"),
        ((X, Y - 1), {}, r"y must hold labels of at least 0 \(got -1\)"),
        ((X, Y / 2), {}, "y must be one integer label per sample"),
        ((X, Y[:, None]), {}, "y must be one integer label per sample"),
        ((X.astype(str), Y), {}, "read by Federation.from_table"),
        ((np.float32(1), Y), {}, "x must have one row per sample"),
        ((X[:0], Y[:0]), {}, "at least one sample"),
        ((X, Y), {"classes": 2}, "classes must be at least 3"),
        ((X, Y), {"holdout": 1.0}, "holdout must be at least 0 and less than 1"),
        ((X, Y), {"holdout": -0.1}, "holdout must be at least 0 and less than 1"),
        (
            (X, Y),
            {"common": (X[:, :1], Y)},
            r"common: samples must have the shape \(2,\) of x \(got \(1,\)\)",
        ),
        ((X, Y), {"common": (X, Y[:2])}, "x has 6, y has 2"),
        ((X, Y), {"common": (X, Y - 1)}, r"common\[1\] must hold labels of at least 0"),
    ],
)
def test_errors_explain_wrong_arrays(arguments, options, message):
    with pytest.raises(UnskewError, match=message):
        Federation.from_arrays(*arguments, **options)


@pytest.mark.parametrize("offsets", [[0, 4], [1, 6], [0, 5, 3, 6], []])
def test_columns_reject_impossible_offsets(offsets):
    with pytest.raises(UnskewError, match="offsets must increase from 0"):
        Columns(X, Y, np.array(offsets, np.int64))


@given(owners, st.floats(0, 0.99), st.integers(0, 2**32))
def test_holdout_splits_every_client_by_its_share(client, share, seed):
    whole = numbered(client)
    split = whole.held_out(share, seed)
    for all_rows, train, test in zip(
        rows_of(whole), rows_of(split), rows_of(split, "test"), strict=True
    ):
        assert sorted(train + test) == sorted(all_rows)
        assert train == sorted(train)
        assert abs(len(test) - share * len(all_rows)) < 1
        assert len(test) <= share * len(all_rows) + 1e-8
        assert train


def test_holdout_counts_by_hand():
    split = numbered([0] * 100 + [1] * 3 + [2] * 7, holdout=0.29)
    assert split.test.sizes.tolist() == [29, 0, 2]
    assert split.train.sizes.tolist() == [71, 3, 5]


def test_holdout_is_random_and_determined_by_the_seed():
    first, again, other = (numbered([0] * 50, holdout=0.5, seed=seed) for seed in (1, 1, 2))
    assert rows_of(first) == rows_of(again)
    assert rows_of(first) != rows_of(other)
    assert rows_of(first, "test") != [list(range(25))]


def test_holdout_chooses_each_sample_with_equal_probability():
    counts = np.zeros(10)
    for seed in range(400):
        counts[rows_of(numbered([0] * 10, holdout=0.3, seed=seed), "test")[0]] += 1
    # 400 draws with probability 0.3: five standard deviations are 46.
    assert np.all(np.abs(counts - 120) < 46)


def test_a_second_holdout_is_rejected():
    with pytest.raises(UnskewError, match="the clients already have test samples"):
        numbered([0] * 10, holdout=0.5).held_out(0.5)


def full() -> Federation:
    federation = Federation.from_arrays(
        X, Y, ["b", "a", "b", "a", "a", "c"], common=(X[:1], Y[:1]), holdout=0.5, name="small"
    )
    report = PartitionReport("iid", (3, 2, 1), ((1, 2, 0), (1, 0, 1), (0, 0, 1)), 4, ("a note",))
    return replace(federation, report=report, class_names=("x", "y", "z"), vocabulary=("ä", "b"))


@pytest.mark.parametrize("mmap", [True, False])
def test_a_saved_federation_opens_unchanged(tmp_path, mmap):
    federation = full()
    opened = Federation.open(federation.save(tmp_path / "saved"), mmap=mmap)
    assert opened.fingerprint == federation.fingerprint
    assert opened.client_names is not None
    assert opened.client_names.tolist() == ["a", "b", "c"]
    for name in ("name", "classes", "class_names", "vocabulary", "report"):
        assert getattr(opened, name) == getattr(federation, name)
    assert repr(opened) == repr(federation)


def test_a_federation_can_replace_the_one_it_is_mapped_from(tmp_path):
    federation = full()
    federation.save(tmp_path / "saved")
    Federation.open(tmp_path / "saved").save(tmp_path / "saved")
    assert Federation.open(tmp_path / "saved").fingerprint == federation.fingerprint


def test_saving_removes_the_client_names_of_the_old_federation(tmp_path):
    full().save(tmp_path / "saved")
    Federation.from_arrays(X, Y).save(tmp_path / "saved")
    assert Federation.open(tmp_path / "saved").client_names is None


def test_an_incomplete_save_is_not_a_federation(tmp_path, monkeypatch):
    folder = full().save(tmp_path / "saved")

    def disk_full(*arguments, **options):
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(np, "save", disk_full)
        with pytest.raises(OSError, match="No space"):
            full().save(folder)
    with pytest.raises(UnskewError, match="holds no saved federation"):
        Federation.open(folder)
    full().save(folder)
    assert Federation.open(folder).fingerprint == full().fingerprint


@pytest.mark.parametrize("name", ["train_x.npy", "client_names.npy", "federation.json", "notes"])
def test_foreign_files_are_neither_overwritten_nor_removed(tmp_path, name):
    (tmp_path / name).write_text('{"mine": 1}')
    with pytest.raises(FolderError, match="no saved federation; choose an empty"):
        full().save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == '{"mine": 1}'
    with pytest.raises(FolderError, match="is not a folder"):
        full().save(tmp_path / name)


def test_errors_explain_what_cannot_be_opened(tmp_path):
    with pytest.raises(UnskewError, match="holds no saved federation"):
        Federation.open(tmp_path)
    folder = full().save(tmp_path / "saved")
    metadata = json.loads((folder / "federation.json").read_text())
    (folder / "federation.json").write_text(json.dumps(metadata | {"format": 99}))
    with pytest.raises(UnskewError, match="format 99 is not supported"):
        Federation.open(folder)
    (folder / "federation.json").write_text("{")
    with pytest.raises(UnskewError, match="is damaged"):
        Federation.open(folder)


@pytest.mark.parametrize("file", ["train_x.npy", "test_y.npy", "common_offsets.npy"])
def test_missing_and_truncated_files_are_errors(tmp_path, file):
    folder = full().save(tmp_path / "saved")
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[:-1])
    with pytest.raises(UnskewError, match="is damaged"):
        Federation.open(folder)
    (folder / file).unlink()
    with pytest.raises(UnskewError, match="is damaged"):
        Federation.open(folder)


def test_the_fingerprint_depends_on_data_and_owners():
    base = Federation.from_arrays(X, Y, [0, 0, 0, 1, 1, 1])
    changed = X.copy()
    changed[3, 1] += 1
    fingerprints = [
        base.fingerprint,
        Federation.from_arrays(changed, Y, [0, 0, 0, 1, 1, 1]).fingerprint,
        Federation.from_arrays(X, Y[::-1], [0, 0, 0, 1, 1, 1]).fingerprint,
        Federation.from_arrays(X, Y, [0, 0, 1, 1, 1, 1]).fingerprint,
        Federation.from_arrays(X, Y, [0, 0, 0, 1, 1, 1], classes=4).fingerprint,
    ]
    assert len(set(fingerprints)) == len(fingerprints)
    assert Federation.from_arrays(X, Y, list("aaabbb"), name="b").fingerprint == base.fingerprint


def test_gathered_rows_by_hand():
    parts = [np.array([5, 0]), np.empty(0, np.int64), np.array([3])]
    columns = Columns.gathered(X, Y, parts)
    assert columns.offsets.tolist() == [0, 2, 2, 3]
    assert columns.y.tolist() == [2, 0, 0]
    assert columns.x.tolist() == [[10, 11], [0, 1], [6, 7]]


def test_from_a_torch_dataset():
    import torch
    from torch.utils.data import TensorDataset

    dataset = TensorDataset(torch.arange(8.0).reshape(4, 2), torch.tensor([0, 1, 1, 0]))
    federation = Federation.from_dataset(dataset, ["b", "b", "a", "b"])
    assert federation.train.x.tolist() == [[4, 5], [0, 1], [2, 3], [6, 7]]
    assert federation.train.y.tolist() == [1, 0, 1, 0]


def test_nbytes_adds_up():
    federation = Federation.from_arrays(X, Y.astype(np.uint8), [0, 0, 0, 1, 1, 1])
    # 12 features, 6 labels, and three, three and two offsets of eight bytes
    assert federation.nbytes == 12 + 6 + 8 * (3 + 3 + 2)
