"""Every error a caller may see, by what the caller should do about it.

ElmoError
├── ConfigError   the call is wrong: change an option or an argument
├── CorpusError   the input is wrong or out of reach: mend the corpus
├── BundleError   the model is damaged, incomplete or of an unknown kind
└── ShardError    the output could not be written, or differs: run again
"""

from __future__ import annotations


class ElmoError(Exception):
    """An error with a message for people: what is wrong, the value, what to do.

    Args:
        message: One sentence that needs no stack to be understood.
        where: The path, URI or key at fault, when there is one.
    """

    def __init__(self, message: str, where: str | None = None) -> None:
        super().__init__(message, where)
        self.message = message
        self.where = where

    def __str__(self) -> str:
        return self.message if self.where is None else f"{self.where}: {self.message}"


class ConfigError(ElmoError):
    """The call is wrong."""


class CorpusError(ElmoError):
    """The input is wrong or can't be read."""


class BundleError(ElmoError):
    """The model can't be used."""


class ShardError(ElmoError):
    """The output can't be written or can't be trusted."""
