"""What is checked and estimated before the first token."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import version

from elmo_core import Bundle, ConfigError, load_bundle, load_tokenizer
from elmo_core.embedder import resolve_device
from pipelines import storage
from pipelines.config import FeaturizeConfig
from pipelines.corpus import check_encoding
from pipelines.layers import parse_layers
from pipelines.manifest import (
    MANIFEST_FILE,
    REJECTS_FOLDER,
    SHARDS_FOLDER,
    BundleFacts,
    Manifest,
    Recipe,
    RunSpec,
    find_manifest,
)
from pipelines.shards import BYTES_PER_TOKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run would do; tokens and bytes are estimates from the size of the files.

    Args:
        spec: For the workers.
        inputs: Files and globs as given, absolute.
        sources: The files, sorted by URI.
        n_ranges: Shards; too few where sources are compressed.
        n_text_bytes: Of all sources, as stored.
        n_tokens: Estimate; too small where sources are compressed.
        n_bytes: Estimate of the shards' size.
        n_left_out: Shards that the output's manifest names and the new one won't: other sources or another recipe.
    """

    spec: RunSpec
    inputs: tuple[str, ...]
    sources: tuple[storage.StoredFile, ...]
    n_ranges: int
    n_text_bytes: int
    n_tokens: int
    n_bytes: int
    n_left_out: int


def make_spec(config: FeaturizeConfig) -> RunSpec:
    """Resolve the options into what workers need, loading the bundle once to check it.

    Raises:
        ConfigError: An option is wrong.
        BundleError: The model can't be used.
    """
    encoding = check_encoding(config.encoding)
    tokenizer = load_tokenizer(config.tokenizer or ("spacy:en" if config.format == "text" else "whitespace"))
    bundle = _load_bundle(config.model)
    if config.initial_state == "warm" and bundle.warm_state is None:
        raise ConfigError("the bundle has no warm state; take initial_state 'zero'", config.model)
    recipe = Recipe(
        bundle_hash=bundle.hash,
        width=bundle.config.width,
        format=config.format,
        encoding=encoding,
        tokenizer=tokenizer.name,
        tokenizer_version=tokenizer.version,
        layers=parse_layers(config.layers, bundle.config.n_layers),
        dtype=config.dtype,
        vectors=config.vectors,
        compression=config.compression,
        precision=config.precision,
        initial_state=config.initial_state,
        range_bytes=config.shard_tokens * tokenizer.bytes_per_token,
    )
    model = storage.absolute(config.model)
    return RunSpec(
        recipe=recipe,
        bundle=BundleFacts(uri=model, hash=recipe.bundle_hash, trained=bundle.trained),
        output=storage.absolute(config.output),
        device=config.device,
        max_rejects=config.max_rejects,
        n_threads=None,
        versions=_versions(),
    )


def plan_run(config: FeaturizeConfig, *, runs_here: bool = True) -> Plan:
    """Check whatever can be known before the first token, cheap things first, and estimate the work.

    Args:
        config: Options.
        runs_here: Whether this machine's devices are the workers' too.

    Raises:
        ConfigError: An option, an input or the output is wrong.
        CorpusError: A source can't be read.
        BundleError: The model can't be used.
    """
    if not config.inputs:
        raise ConfigError("no input was given; name files or globs")
    files = {file.uri: file for pattern in config.inputs for file in storage.expand(pattern)}
    sources = tuple(files[uri] for uri in sorted(files))
    output = storage.absolute(config.output)
    manifest = _check_output(output)
    if inside := [file.uri for file in sources if file.uri.startswith(f"{output.rstrip('/')}/")]:
        raise ConfigError(f"lies in the output {output}; name another output, or inputs without it", inside[0])
    if runs_here:
        resolve_device(config.device)
    spec = make_spec(config)
    n_text_bytes = sum(file.n_bytes for file in sources)
    n_tokens = n_text_bytes * config.shard_tokens // spec.recipe.range_bytes
    return Plan(
        spec=spec,
        inputs=tuple(storage.absolute(pattern) for pattern in config.inputs),
        sources=sources,
        n_ranges=sum(max(1, -(-file.n_bytes // spec.recipe.range_bytes)) for file in sources),
        n_text_bytes=n_text_bytes,
        n_tokens=n_tokens,
        n_bytes=n_tokens * (spec.recipe.layout.bytes_per_token + BYTES_PER_TOKEN),
        n_left_out=0 if manifest is None else _count_left_out(manifest, spec.recipe.fingerprint, {file.uri for file in sources}),
    )


def _load_bundle(model: str) -> Bundle:
    with storage.local_folder(model) as folder:
        return load_bundle(folder)


def _check_output(output: str) -> Manifest | None:
    names = [name for name in storage.list_names(output) if not name.startswith(".")]
    manifest = find_manifest(output)
    if manifest is None and set(names) - {SHARDS_FOLDER, REJECTS_FOLDER}:
        raise ConfigError(f"is not empty and has no {MANIFEST_FILE} of ours; name another output", output)
    return manifest


def _count_left_out(manifest: Manifest, fingerprint: str, sources: set[str]) -> int:
    if manifest.fingerprint != fingerprint:
        return len(manifest.shards)
    return sum(shard.source not in sources for shard in manifest.shards)


def _versions() -> dict[str, str]:
    packages = ("elmo-corpus", "apache-beam", "torch", "pyarrow", "numpy")
    return {"python": platform.python_version(), **{package: version(package) for package in packages}}
