"""The plumbing from corpus files to Parquet shards, and back to training batches.

The public names are imported when they are first used: Beam alone takes a second.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.config import FeaturizeConfig
    from pipelines.featurize import Featurize
    from pipelines.reader import EmbeddedSentence, ShardDataset

__all__ = ["EmbeddedSentence", "Featurize", "FeaturizeConfig", "ShardDataset"]

_HOMES = {
    "EmbeddedSentence": "pipelines.reader",
    "Featurize": "pipelines.featurize",
    "FeaturizeConfig": "pipelines.config",
    "ShardDataset": "pipelines.reader",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'pipelines' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
