"""Errors say where, and survive the way from a worker process."""

from __future__ import annotations

import pickle

import pytest

from elmo_core import BundleError, ConfigError, CorpusError, ElmoError, ShardError


@pytest.mark.parametrize("kind", [BundleError, ConfigError, CorpusError, ShardError])
@pytest.mark.parametrize(("where", "text"), [("a/b.txt", "a/b.txt: is broken"), (None, "is broken")])
def test_an_error_is_the_same_after_pickling(kind: type[ElmoError], where: str | None, text: str) -> None:
    error = pickle.loads(pickle.dumps(kind("is broken", where)))
    assert (type(error), error.message, error.where, str(error)) == (kind, "is broken", where, text)


@pytest.mark.parametrize("kind", [BundleError, ConfigError, CorpusError, ShardError])
def test_one_except_catches_every_error(kind: type[ElmoError]) -> None:
    with pytest.raises(ElmoError, match=r"^a: b$"):
        raise kind("b", "a")
