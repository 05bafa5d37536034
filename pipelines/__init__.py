"""The plumbing from corpus files to Parquet shards, and back to training batches.

The public names are imported when they are first used: Beam alone takes a second.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.config import FeaturizeConfig
    from pipelines.featurize import Featurize
    from pipelines.reader import EmbeddedSentence, ShardDataset

__all__ = ["EmbeddedSentence", "Featurize", "FeaturizeConfig", "ShardDataset"]

# GNU OpenMP's threads wait for each other by spinning. Its default of some milliseconds stalls every product when another
# program takes a core; this is the shortest wait that costs nothing on an idle machine (docs/performance.md).
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

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
