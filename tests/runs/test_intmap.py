"""Every version of the immutable map agrees with a dict."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.runs.intmap import IntMap

KEYS = st.one_of(st.integers(0, 40), st.integers(0, 10**12))


@settings(max_examples=50)
@given(st.lists(st.dictionaries(KEYS, st.integers()), max_size=8))
def test_versions_never_change(changes):
    versions, expected = [IntMap()], [{}]
    for change in changes:
        versions.append(versions[-1].updated(change))
        expected.append({**expected[-1], **change})
    for version, known in zip(versions, expected, strict=True):
        assert dict(version) == known
        assert list(version) == sorted(known)
        assert len(version) == len(known)


@settings(max_examples=50)
@given(st.dictionaries(KEYS, st.integers()), st.integers(-5, 10**13))
def test_missing_keys(entries, key):
    entries.pop(key, None)
    version = IntMap().updated(entries)
    assert key not in version
    with pytest.raises(KeyError):
        version[key]


def test_unchanged_parts_are_shared():
    """With 32 entries per tuple and 4096 entries, one change copies three tuples."""
    old = IntMap().updated({key: str(key) for key in range(4096)})
    new = old.updated({77: "other"})
    shared = sum(
        a is b
        for above, below in zip(old._root[:4], new._root[:4], strict=True)
        for a, b in zip(above, below, strict=True)
    )
    assert shared == 4096 // 32 - 1
