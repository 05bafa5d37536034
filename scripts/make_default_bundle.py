"""Write the shipped default bundle: small, seeded, untrained.

python scripts/make_default_bundle.py elmo_core/bundles/default
"""

from __future__ import annotations

import sys
from pathlib import Path

from elmo_core import BiLMConfig, Bundle, CharCnnConfig, LstmConfig, initialize_bilm

CONFIG = BiLMConfig(
    char_cnn=CharCnnConfig(
        activation="relu",
        filters=((1, 16), (2, 16), (3, 32), (4, 64)),
        n_highway=1,
        embedding_dim=16,
        n_characters=262,
        max_characters_per_token=50,
    ),
    lstm=LstmConfig(cell_size=128, projection_size=32, n_layers=2, cell_clip=3.0, proj_clip=3.0, use_skip_connections=True),
)
SEED = 1


def main(folder: str) -> None:
    tensors = initialize_bilm(CONFIG, SEED).state_dict()
    Bundle(config=CONFIG, tensors=tensors, trained=False).save(Path(folder))


if __name__ == "__main__":
    main(sys.argv[1])
