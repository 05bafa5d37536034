"""ELMo: the biLM, its bundles, and vectors for sentences in memory."""

from elmo_core.bilm import BiLM, BiLMOutput, BiLMState
from elmo_core.bundle import DEFAULT_BUNDLE, Bundle, load_bundle
from elmo_core.config import BiLMConfig, CharCnnConfig, LstmConfig
from elmo_core.embedder import Embedder, EmbedderCounts, SentenceVectors, load_embedder
from elmo_core.errors import BundleError, ConfigError, CorpusError, ElmoError, ShardError
from elmo_core.initialization import initialize_bilm
from elmo_core.lstm import LstmState
from elmo_core.mixing import LayerMix, load_mix
from elmo_core.speed import SpeedReport, measure_speed
from elmo_core.text import Sentence, Tokenizer, load_tokenizer

__all__ = [
    "DEFAULT_BUNDLE",
    "BiLM",
    "BiLMConfig",
    "BiLMOutput",
    "BiLMState",
    "Bundle",
    "BundleError",
    "CharCnnConfig",
    "ConfigError",
    "CorpusError",
    "ElmoError",
    "Embedder",
    "EmbedderCounts",
    "LayerMix",
    "LstmConfig",
    "LstmState",
    "Sentence",
    "SentenceVectors",
    "ShardError",
    "SpeedReport",
    "Tokenizer",
    "initialize_bilm",
    "load_bundle",
    "load_embedder",
    "load_mix",
    "load_tokenizer",
    "measure_speed",
]
