import sys

import numpy as np
import pytest
from PIL import Image

from unskew import Federation, UnskewError


def draw(path, value=0, *, size=(4, 3), mode="L"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


@pytest.fixture
def clinics(tmp_path):
    draw(tmp_path / "clinics" / "south" / "ill" / "1.png", 30)
    draw(tmp_path / "clinics" / "north" / "well" / "2.png", 20)
    draw(tmp_path / "clinics" / "north" / "well" / "10.png", 10)
    draw(tmp_path / "clinics" / "north" / "ill" / "3.PNG", 40)
    return tmp_path / "clinics"


def test_folders_are_clients_and_classes_in_order_of_name(clinics):
    federation = Federation.from_folder(clinics)
    assert federation.client_names.tolist() == ["north", "south"]
    assert federation.class_names == ("ill", "well")
    assert federation.name == "clinics"
    assert federation.train.x.shape == (4, 1, 3, 4)
    assert federation.train.x.dtype == np.uint8
    assert federation.train.x[:, 0, 0, 0].tolist() == [40, 10, 20, 30]
    assert federation.train.y.tolist() == [0, 1, 1, 0]
    assert federation.train.sizes.tolist() == [3, 1]


def test_folders_of_classes_alone_are_one_client(tmp_path):
    draw(tmp_path / "cat" / "a.png")
    draw(tmp_path / "dog" / "b.png")
    (tmp_path / "dog" / "notes.txt").write_text("no image")
    draw(tmp_path / "dog" / ".hidden.png")
    federation = Federation.from_folder(tmp_path, name="pets")
    assert (len(federation), federation.train.samples) == (1, 2)
    assert federation.client_names is None
    assert federation.name == "pets"


def test_images_are_rgb_if_any_has_color(tmp_path):
    draw(tmp_path / "a" / "grey.png", 7)
    draw(tmp_path / "b" / "red.png", (255, 0, 0), mode="RGB")
    assert Federation.from_folder(tmp_path).train.x[:, :, 0, 0].tolist() == [[7, 7, 7], [255, 0, 0]]
    assert Federation.from_folder(tmp_path, color=False).shape == (1, 3, 4)


def test_images_of_different_size_need_a_size(tmp_path):
    draw(tmp_path / "a" / "1.png", 9)
    draw(tmp_path / "a" / "2.png", 9, size=(8, 8))
    with pytest.raises(UnskewError, match=r"1\.png is 3x4, .*2\.png is 8x8; set size"):
        Federation.from_folder(tmp_path)
    federation = Federation.from_folder(tmp_path, size=6)
    assert federation.shape == (1, 6, 6)
    assert np.all(federation.train.x == 9)
    assert Federation.from_folder(tmp_path, size=(5, 2)).shape == (1, 5, 2)


def test_options_are_those_of_from_arrays(clinics):
    federation = Federation.from_folder(clinics, holdout=0.5, classes=3)
    assert federation.test.sizes.tolist() == [1, 0]
    assert federation.classes == 3
    assert federation.class_names is None


def test_broken_images_are_named(tmp_path):
    draw(tmp_path / "a" / "1.png")
    whole = (tmp_path / "a" / "1.png").read_bytes()
    (tmp_path / "a" / "2.png").write_bytes(b"not an image")
    with pytest.raises(UnskewError, match=r"2\.png: cannot be read as an image"):
        Federation.from_folder(tmp_path)
    (tmp_path / "a" / "2.png").write_bytes(whole[:45])
    with pytest.raises(UnskewError, match=r"2\.png: cannot be read as an image"):
        Federation.from_folder(tmp_path)


def test_images_of_more_than_8_bits_are_rejected(tmp_path):
    draw(tmp_path / "a" / "1.png", 40_000, mode="I;16")
    with pytest.raises(UnskewError, match=r"1\.png: has more than 8 bits"):
        Federation.from_folder(tmp_path)


def test_errors_explain_wrong_folders(tmp_path, clinics):
    with pytest.raises(UnskewError, match="is not a folder"):
        Federation.from_folder(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnskewError, match="has no images"):
        Federation.from_folder(tmp_path / "empty")
    draw(clinics / "north" / "4.png")
    with pytest.raises(UnskewError, match="mixes"):
        Federation.from_folder(clinics)
    draw(tmp_path / "one" / "a" / "1.png")
    with pytest.raises(UnskewError, match="size must be at least 1"):
        Federation.from_folder(tmp_path / "one", size=0)


def table(tmp_path, text, name="visits.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_table_by_hand(tmp_path):
    path = table(
        tmp_path, "age,site,weight,outcome\n1,b,2.5,well\n3,a,4,ill\n\n5,b,-6e1,well\n7,b,8,dead\n"
    )
    federation = Federation.from_table(path, label="outcome", client="site", prepare="none")
    assert federation.name == "visits"
    assert federation.client_names.tolist() == ["a", "b"]
    assert federation.class_names == ("dead", "ill", "well")
    assert federation.train.x.tolist() == [[3, 4], [1, 2.5], [5, -60], [7, 8]]
    assert federation.train.x.dtype == np.float32
    assert federation.train.y.tolist() == [1, 2, 2, 0]
    assert federation.train.sizes.tolist() == [1, 3]


def test_whole_numbers_stay_labels_and_clients_sort_as_numbers(tmp_path):
    path = table(tmp_path, "x,y,c\n1,2,10\n2,0,9\n")
    federation = Federation.from_table(path, label="y", client="c")
    assert federation.classes == 3
    assert federation.class_names is None
    assert federation.client_names.tolist() == [9, 10]
    assert federation.train.y.tolist() == [0, 2]


def test_features_can_be_chosen_and_the_client_left_out(tmp_path):
    path = table(tmp_path, "\ufeffname,a,b,y\nAda,1,2,0\nBob,3,4,1\n")
    federation = Federation.from_table(path, label="y", features=["b", "a"], prepare="none")
    assert federation.train.x.tolist() == [[2, 1], [4, 3]]
    assert len(federation) == 1


def test_commas_and_line_breaks_in_quotes_are_part_of_a_name(tmp_path):
    path = table(tmp_path, 'x,c,y\n1,"Rome, IT",0\n2,"two\nlines",1\n')
    federation = Federation.from_table(path, label="y", client="c")
    assert federation.client_names.tolist() == ["Rome, IT", "two\\x0alines"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("x,c,y\n", "has no rows"),
        ("x,c\n1,2\n", "has no column 'y'; it has: x, c"),
        ("c,y\n1,2\n", "has no columns left for features"),
        ("x,x,c,y\n1,1,2,3\n", "two columns have the same name"),
        ("x,c,y\n1,2\n", "row 1 has 2 fields, but the header has 3"),
        ("x,c,y\n1,2,0\nred,2,0\n", "column 'x' must hold numbers, but row 2 has 'red'"),
        ("x,c,y\n1,2,0\n,2,0\n", "column 'x' must hold numbers, but row 2 has ''"),
        ("x,c,y\nnan,2,0\n", "column 'x' has no number in row 1"),
        ("x,c,y\n1,2,0\n-inf,2,0\n", "column 'x' is infinite in row 2"),
        ("x,c,y\n1,2,0\n1,2,\n", "column 'y' is empty in row 2"),
        ("x,c,y\n1,,0\n", "column 'c' is empty in row 1"),
        ("x,c,y\n1,1,-1\n", "labels of at least 0"),
    ],
)
def test_errors_explain_wrong_tables(tmp_path, text, message):
    with pytest.raises(UnskewError, match=message):
        Federation.from_table(table(tmp_path, text), label="y", client="c", prepare="none")


def test_a_missing_table_and_a_binary_file_are_rejected(tmp_path):
    with pytest.raises(UnskewError, match="is not a file"):
        Federation.from_table(tmp_path / "nowhere.csv", label="y")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(UnskewError, match="cannot be read as CSV"):
        Federation.from_table(tmp_path / "binary.csv", label="y")


def test_parquet_without_pyarrow_names_the_package_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(UnskewError, match=r'pip install "unskew\[parquet\]"'):
        Federation.from_table(tmp_path / "a.parquet", label="y")


@pytest.mark.extras("pyarrow")
def test_parquet_is_read_like_csv(tmp_path):
    import pyarrow
    from pyarrow import parquet

    columns = {"x": [1.5, 2, 3], "c": ["b", "a", "b"], "y": [2, 0, 1], "ok": [True, False, True]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    options = {"label": "y", "client": "c", "prepare": "none"}
    federation = Federation.from_table(tmp_path / "a.parquet", **options)
    assert federation.train.x.tolist() == [[2, 0], [1.5, 1], [3, 1]]
    assert federation.train.y.tolist() == [0, 2, 1]
    assert federation.client_names.tolist() == ["a", "b"]
    truth = Federation.from_table(tmp_path / "a.parquet", label="ok", features=["x"])
    assert truth.class_names == ("False", "True")
    parquet.write_table(pyarrow.table({"x": [1.0], "y": pyarrow.array([None], "string")}),
                        tmp_path / "b.parquet")  # fmt: skip
    with pytest.raises(UnskewError, match="column 'y' is empty in row 1"):
        Federation.from_table(tmp_path / "b.parquet", label="y")
    (tmp_path / "c.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(UnskewError, match="cannot be read as Parquet"):
        Federation.from_table(tmp_path / "c.parquet", label="y")


@pytest.mark.parametrize(
    "roles",
    [
        {"label": "y", "features": ["x", "y"]},
        {"label": "y", "client": "y", "features": ["x"]},
        {"label": "y", "features": ["x", "x"]},
    ],
)
def test_a_column_has_one_role(tmp_path, roles):
    path = tmp_path / "table.csv"
    path.write_text("x,c,y\n1,2,0\n2,2,1\n")
    with pytest.raises(UnskewError, match="is named twice among label, client and features"):
        Federation.from_table(path, **roles)
