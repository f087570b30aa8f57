"""The shelf hands each tensor to a worker once, and fills its memory again."""

import torch

from unskew.engine.shared_tensors import Reader, SharedTensors


def test_what_many_clients_get_is_there_once_and_travels_once_a_worker():
    shelf, model = SharedTensors(), torch.arange(3.0)
    known: set[int] = set()
    first = shelf.deliver({"model": model}, known)
    second = shelf.deliver({"model": model.view(3)}, known)
    assert list(first.new) == list(first.numbers.values())
    assert second.new == {}
    assert second.numbers == first.numbers
    assert len(shelf.deliver({"model": model}, set()).new) == 1


def test_the_next_round_fills_the_same_memory():
    shelf, reader, known = SharedTensors(), Reader(), set[int]()
    shelf.begin_round()
    assert reader.receive(shelf.deliver({"model": torch.zeros(2)}, known))["model"].tolist() == [
        0.0,
        0.0,
    ]
    shelf.begin_round()
    delivery = shelf.deliver({"model": torch.ones(2)}, known)
    assert delivery.new == {}
    assert reader.receive(delivery)["model"].tolist() == [1.0, 1.0]


def test_two_models_of_one_round_do_not_share_memory():
    shelf, reader, known = SharedTensors(), Reader(), set[int]()
    for value in (0.0, 5.0):
        shelf.begin_round()
        models = [torch.full((2,), value), torch.full((2,), value + 1)]
        found = [reader.receive(shelf.deliver({"model": model}, known)) for model in models]
        assert [payload["model"].tolist() for payload in found] == [
            [value, value],
            [value + 1, value + 1],
        ]


def test_what_a_round_did_not_need_is_given_back():
    shelf, reader, known = SharedTensors(), Reader(), set[int]()
    shelf.begin_round()
    reader.receive(shelf.deliver({"a": torch.zeros(2), "b": torch.zeros(7)}, known))
    for _ in range(2):
        shelf.begin_round()
        delivery = shelf.deliver({"a": torch.zeros(2)}, known)
        reader.receive(delivery)
    assert len(reader._tensors) == len(known) == len(shelf._tensors) == 1


def test_other_types_and_orders_arrive_as_they_were_sent():
    shelf, reader, known = SharedTensors(), Reader(), set[int]()
    sent = {"whole": torch.tensor([1, 2]), "turned": torch.arange(6.0).view(2, 3).T}
    for _ in range(2):
        shelf.begin_round()
        got = reader.receive(shelf.deliver(sent, known))
        assert all(torch.equal(got[name], sent[name]) for name in sent)
        assert got["whole"].dtype == torch.int64
