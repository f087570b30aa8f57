"""What a command does at its start besides importing modules."""

import gc

import pytest

from unskew.cli.collection import without_garbage_collection


def test_the_collector_works_again_after_the_imports():
    with without_garbage_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), without_garbage_collection():
        raise ImportError
    assert gc.isenabled()
    gc.disable()
    try:
        with without_garbage_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_list_of_methods_reads_no_source_code(terminal, monkeypatch):
    from unskew.cli import option_docs

    def unexpected(cls):
        raise AssertionError(cls)

    monkeypatch.setattr(option_docs, "_under_fields", unexpected)
    assert "fedavg" in terminal.output("methods")
    with pytest.raises(AssertionError):
        terminal.output("methods", "fedprox")
