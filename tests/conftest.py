"""Fixtures that all tests share; this file also makes ``toys`` importable."""

import gc
import signal

import pytest
from hypothesis import settings

from unskew.utils.threads import threads

# Asserts of helper modules show the values they compare, too.
pytest.register_assert_rewrite("deployments", "pages", "terminal")

# A busy machine or a slow first import must not fail a property test. `make test` tries fewer
# examples; `make test-all` then runs property tests again with `--hypothesis-profile thorough`.
settings.register_profile("quick", deadline=None, max_examples=20)
settings.register_profile("thorough", deadline=None)
settings.load_profile("quick")

# Programs that tests start must receive Ctrl-C, even if the shell ignores it for background jobs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--no-skips", action="store_true", help="fail where a test would be skipped")


def refuse_skips(config, report):
    """Turn a skip into a failure where ``--no-skips`` was asked for; an expected failure stays."""
    if config.option.no_skips and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"--no-skips: {report.longrepr[2]}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for no garbage among the modules and the tests, which stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items):
    """Put real federations and clusters first: they wait more than they compute.

    At the end, nothing would be left to run beside them (with ``--no-loadscope-reorder``).
    """
    items.sort(key=lambda item: not {"flower_deploy", "cluster"} & set(item.path.parts))


def pytest_runtest_setup(item):
    """Skip a test whose optional packages, the arguments of its mark ``extras``, are missing."""
    for mark in item.iter_markers("extras"):
        for package in mark.args:
            pytest.importorskip(package)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return refuse_skips(item.config, (yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return refuse_skips(collector.config, (yield))


@pytest.fixture
def unmeasured(monkeypatch):
    """Start subprocesses without coverage, which prints warnings and handles SIGTERM itself."""
    for name in ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch):
    """Skip waiting for the disk, which protects only against power cuts."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture(autouse=True)
def one_core(monkeypatch):
    """Tests compute too little for several threads, which would only wait for each other.

    Nor do their comparisons start processes unless they ask for ``jobs``: a forked run costs more
    than it computes, and the tests themselves run in parallel.
    """
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)
    with threads(1):
        yield


@pytest.fixture(scope="session")
def federation():
    from toys import small_federation

    return small_federation()


@pytest.fixture
def hooks_called_once(monkeypatch):
    """For tests whose custom hooks note what they receive: the first rounds do not repeat them."""
    monkeypatch.setattr("unskew.engine.pure_hooks._is_custom", lambda part: False)
