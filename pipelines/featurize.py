"""The main job: as a transform for anyone's pipeline, and as a run of its own."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
from collections.abc import Sequence
from typing import Final

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions

from elmo_core import BundleError, ConfigError, CorpusError, ElmoError, ShardError
from pipelines import storage
from pipelines.config import FeaturizeConfig
from pipelines.manifest import Manifest, read_manifest
from pipelines.preflight import Plan, make_spec
from pipelines.transforms import FeaturizeSources

LOCAL_RUNNER: Final = "FnApiRunner"
"""Beam's `DirectRunner` first tries to download another runner's binary; this one runs in the process at once."""

_ERRORS: Final = {kind.__name__: kind for kind in (BundleError, ConfigError, CorpusError, ShardError)}
_WORKER_ERROR: Final = re.compile(r"elmo_core\.errors\.(\w+): (.*)$", re.MULTILINE)
_WHILE_RUNNING: Final = re.compile(r" \[while running '[^']*'\]")
_logger = logging.getLogger(__name__)


class Featurize(beam.PTransform):
    """Turn a collection of files into shards and a manifest, in a pipeline of the user's own.

    Takes a PCollection of file URIs or globs, gives one of a single string: the manifest's URI.

    Args:
        config: Options; `inputs` is not looked at.

    Raises:
        ConfigError: An option is wrong.
        BundleError: The model can't be used.

    Example:
        pipeline | beam.Create(["gs://corpus/*.txt"]) | Featurize(FeaturizeConfig(inputs=(), output="gs://features"))
    """

    def __init__(self, config: FeaturizeConfig) -> None:
        super().__init__()
        self._spec = make_spec(config)

    def expand(self, patterns: beam.PCollection) -> beam.PCollection:
        """Wire the job."""
        return patterns | FeaturizeSources(self._spec)


def run(plan: Plan, beam_args: Sequence[str] = ()) -> Manifest:
    """Run the job and wait for its end.

    Args:
        plan: From `plan_run`.
        beam_args: Beam's own options; without a runner among them the job runs here, in this process.

    Returns:
        The manifest that the run wrote.

    Raises:
        ElmoError: What went wrong, as a worker said it; the old manifest, if there was one, still holds.
        ShardError: Also when another run's manifest stands there afterwards.
    """
    options = _beam_options(beam_args)
    storage.check_writable(plan.spec.output)
    free = storage.free_bytes(plan.spec.output)
    if free is not None and free < plan.n_bytes:
        _logger.warning("about %.0f MB will be written, %.0f MB are free", plan.n_bytes / 1e6, free / 1e6)
    spec = plan.spec.started(_threads_per_process(options))
    try:
        pipeline = beam.Pipeline(options=options)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    try:
        with pipeline:
            _ = pipeline | "Sources" >> beam.Create(plan.inputs) | FeaturizeSources(spec)
    except ElmoError as error:  # in-process runners keep the class, and add the step to the message
        raise type(error)(_WHILE_RUNNING.sub("", error.message), error.where) from error
    except Exception as error:  # whatever Beam's runners raise for a worker's error, whose class is lost on the way
        if "KeyboardInterrupt" in str(error):
            raise KeyboardInterrupt from error
        raise _worker_error(error) from error
    manifest = read_manifest(spec.output)
    if manifest.run_id != spec.run_id:
        raise ShardError("the manifest is not this run's: the job was only submitted, or another run ended after it", spec.output)
    return manifest


def _beam_options(beam_args: Sequence[str]) -> PipelineOptions:
    if beam_args and not beam_args[0].startswith("-"):
        raise ConfigError(f"what follows -- is for Beam and begins with an option, not {beam_args[0]!r}")
    complaints = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaints):  # argparse prints its usage, which is pages long
            options = PipelineOptions(list(beam_args))
            known = options.get_all_options()
            unknown = options.get_all_options(drop_default=True, retain_unknown_options=True).keys() - known.keys()
    except SystemExit as error:
        told = complaints.getvalue().strip().splitlines() or ["what follows -- are options for a run, not for help"]
        raise ConfigError(f"Beam: {told[-1]}") from error
    if unknown:
        raise ConfigError(f"Beam knows no option --{min(unknown)}; what follows -- is for Beam")
    standard = options.view_as(StandardOptions)
    if standard.runner is None:
        standard.runner = LOCAL_RUNNER
    return options


def _threads_per_process(options: PipelineOptions) -> int | None:
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode != "multi_processing":
        return None
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, n_cores // (direct.direct_num_workers or n_cores))


def _worker_error(error: Exception) -> ElmoError:
    found = _WORKER_ERROR.findall(str(error))
    if found:
        name, message = found[-1]
        return _ERRORS.get(name, ShardError)(_WHILE_RUNNING.sub("", message))
    lines = [line for line in str(error).splitlines() if line.strip()]
    return ShardError(f"the Beam job failed: {_WHILE_RUNNING.sub('', lines[-1].strip()) if lines else type(error).__name__}")
