"""The door to files and object stores: every URI goes through fsspec here, every foreign error becomes ours."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import get_protocol

from elmo_core import ConfigError, CorpusError, ElmoError, ShardError

_BUFFER_BYTES: Final = 2**20
_OBJECT_STORES: Final = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss"}
"""They have no folders; asked for one, they may make a bucket."""

_VERSION_KEYS: Final = ("size", "mtime", "ino", "ETag", "etag", "generation", "LastModified", "last_modified")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file or object as a listing shows it."""

    uri: str
    n_bytes: int


def absolute(uri: str) -> str:
    """The same place for every process, whatever its working directory.

    Raises:
        ConfigError: The scheme is unknown, or its package isn't installed.
    """
    fs, path = _resolve(uri)
    return cast(str, fs.unstrip_protocol(path))


def is_local(uri: str) -> bool:
    """Whether a place is on this machine's disks."""
    return get_protocol(uri) in LocalFileSystem.protocol


def join(uri: str, *parts: str) -> str:
    """A place below another."""
    return "/".join([uri.rstrip("/"), *parts])


def expand(pattern: str) -> list[StoredFile]:
    """The files that a URI or glob names, sorted; hidden ones are left out of a glob's answer.

    Raises:
        ConfigError: Nothing is there, a folder was named, or the scheme is unknown.
    """
    fs, path = _resolve(pattern)
    with _mapped(ConfigError, "can't be listed", pattern):
        if fs.isfile(path):
            return [_stored(fs, path, fs.info(path))]
        if fs.isdir(path):
            raise ConfigError("is a folder; name its files, such as with a glob DIR/*.txt", pattern)
        found = fs.glob(path, detail=True) if _has_magic(path) else {}
    files = [
        _stored(fs, name, info if info["type"] == "file" else fs.info(name))
        for name, info in found.items()
        if not _is_hidden(name) and _is_file(fs, name, info)
    ]
    if not files:
        if pattern == "-" or (isinstance(fs, LocalFileSystem) and os.path.exists(path) and not _has_magic(path)):
            raise ConfigError("is no regular file; a range must be read again at will, so pipes can't be inputs", pattern)
        raise ConfigError("matches no file" if _has_magic(path) else "does not exist", pattern)
    return sorted(files, key=lambda file: file.uri)


@contextmanager
def open_input(uri: str) -> Iterator[BinaryIO]:
    """Open a file for reading.

    Raises:
        CorpusError: It can't be opened, or reading it fails inside the block.
    """
    fs, path = _resolve(uri)
    with _mapped(CorpusError, "can't be read", uri):
        raw = fs.open(path, "rb")
    try:
        # Remote files know neither readline(limit) nor small reads without a cost.
        with io.BufferedReader(raw, _BUFFER_BYTES) as stream:
            yield stream
    except OSError as error:
        raise CorpusError(f"can't be read: {_reason(error)}", uri) from error


def read_bytes(uri: str) -> bytes | None:
    """A whole file, or None where there is none.

    Raises:
        ShardError: It is there but can't be read.
    """
    fs, path = _resolve(uri)
    with _mapped(ShardError, "can't be read", uri):
        try:
            return cast(bytes, fs.cat_file(path))
        except FileNotFoundError:
            return None


def size(uri: str) -> int | None:
    """Bytes of a file, or None where there is none.

    Raises:
        ShardError: It is there but can't be asked for.
    """
    fs, path = _resolve(uri)
    with _mapped(ShardError, "can't be read", uri):
        try:
            return _stored(fs, path, fs.info(path)).n_bytes
        except FileNotFoundError:
            return None


def version(uri: str) -> str:
    """What tells a file's content from what it was or will be: its size, time and number, or an object's tag.

    Raises:
        CorpusError: It can't be asked for.
    """
    fs, path = _resolve(uri)
    with _mapped(CorpusError, "can't be read", uri):
        info = fs.info(path)
    return " ".join(str(info.get(key)) for key in _VERSION_KEYS)


def list_names(uri: str) -> list[str]:
    """Names of what lies directly in a folder, hidden ones too; none where there is no folder.

    Raises:
        ConfigError: A file lies there instead, or it can't be listed.
    """
    fs, path = _resolve(uri)
    with _mapped(ConfigError, "can't be listed", uri):
        if fs.isfile(path):
            raise ConfigError("is a file; the output is a folder", uri)
        try:
            return sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in fs.ls(path, detail=False))
        except FileNotFoundError:
            return []


@contextmanager
def publishing(uri: str) -> Iterator[Path]:
    """A local scratch file that becomes `uri` whole when the block ends well, and disappears when it doesn't.

    On a local disk it is renamed in its folder; an object store gets one atomic put.

    Raises:
        ShardError: The disk is full, the place can't be written, or the upload fails.
    """
    fs, path = _resolve(uri)
    try:
        if isinstance(fs, LocalFileSystem):
            final = Path(path)
            final.parent.mkdir(parents=True, exist_ok=True)
            scratch = final.with_name(f".{final.name}.{uuid.uuid4().hex}.tmp")
            try:
                yield scratch
                _sync(scratch)
                os.replace(scratch, final)
                _sync(final.parent)
            finally:
                scratch.unlink(missing_ok=True)
        else:
            with tempfile.TemporaryDirectory(prefix="elmo-") as folder:
                scratch = Path(folder, "scratch")
                yield scratch
                with _mapped(ShardError, "can't be written", uri):
                    if not _OBJECT_STORES.intersection([fs.protocol] if isinstance(fs.protocol, str) else fs.protocol):
                        fs.makedirs(fs._parent(path), exist_ok=True)
                    fs.put_file(str(scratch), path)
    except OSError as error:
        raise ShardError(f"can't be written: {_reason(error)}", uri) from error


def check_writable(uri: str) -> None:
    """Write a small file below a folder and delete it.

    Raises:
        ConfigError: It can't be written.
    """
    probe = join(uri, f".probe-{uuid.uuid4().hex}")
    fs, path = _resolve(probe)
    try:
        with publishing(probe) as scratch:
            scratch.write_bytes(b"")
    except ShardError as error:
        raise ConfigError(f"can't be written: {_reason(error.__cause__ or error)}", uri) from error
    with _mapped(ConfigError, "can't be written", uri):
        fs.rm_file(path)


def free_bytes(uri: str) -> int | None:
    """Free space where a local folder is or will be; None for other stores."""
    fs, path = _resolve(uri)
    if not isinstance(fs, LocalFileSystem):
        return None
    folder = Path(path)
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


@contextmanager
def local_folder(uri: str) -> Iterator[Path]:
    """A folder on the local disk: itself where it is local, a copy for the length of the block elsewhere.

    Raises:
        ConfigError: It can't be fetched.
    """
    fs, path = _resolve(uri)
    if isinstance(fs, LocalFileSystem):
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="elmo-bundle-") as folder:
        with _mapped(ConfigError, "can't be fetched", uri):
            if not fs.isdir(path):
                raise ConfigError("is no folder; a bundle is one", uri)
            fs.get(path.rstrip("/") + "/", folder + "/", recursive=True)
        yield Path(folder)


def _resolve(uri: str) -> tuple[fsspec.AbstractFileSystem, str]:
    if not uri:
        raise ConfigError("an empty path names no file")
    local = uri.removeprefix("file://")
    # A local name may hold what fsspec takes for syntax, such as ::
    if os.path.exists(local) or ("://" not in local and local.split("::")[0] not in fsspec.available_protocols()):
        return LocalFileSystem(), os.path.abspath(os.path.expanduser(local))
    try:
        # A cached listing would hide what was written or appended since.
        fs, path = fsspec.core.url_to_fs(uri, use_listings_cache=False)
    except ImportError as error:
        raise ConfigError(f"needs a package that is not installed: {_reason(error)}", uri) from error
    except (ValueError, OSError) as error:
        raise ConfigError(f"is no place that can be opened: {_reason(error)}", uri) from error
    # One file has one name, however it was reached.
    return fs, os.path.abspath(path) if isinstance(fs, LocalFileSystem) else path


@contextmanager
def _mapped(kind: type[ElmoError], problem: str, uri: str) -> Iterator[None]:
    """Make an error of ours of whatever a storage's own library raises."""
    try:
        yield
    except ElmoError:
        raise
    except Exception as error:  # each of fsspec's backends has classes of its own
        raise kind(f"{problem}: {_reason(error)}", uri) from error


def _stored(fs: fsspec.AbstractFileSystem, path: str, info: dict[str, object]) -> StoredFile:
    if info.get("size") is None:
        raise ConfigError("is of unknown size; copy it to a storage that knows", fs.unstrip_protocol(path))
    return StoredFile(fs.unstrip_protocol(path), cast(int, info["size"]))


def _is_file(fs: fsspec.AbstractFileSystem, path: str, info: dict[str, object]) -> bool:
    """Whether a listed entry is a file, links to files included.

    Raises:
        ConfigError: It's a link to nowhere, which can't be told from a file that was forgotten.
    """
    if isinstance(fs, LocalFileSystem) and os.path.islink(path) and not os.path.exists(path):
        raise ConfigError("is a broken link; delete it, or name the files without it", path)
    return os.path.isfile(path) if isinstance(fs, LocalFileSystem) else info["type"] == "file"


def _has_magic(path: str) -> bool:
    return any(character in path for character in "*?[")


def _is_hidden(path: str) -> bool:
    return path.rsplit("/", 1)[-1].startswith(".")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: BaseException) -> str:
    strerror = error.strerror if isinstance(error, OSError) else None
    return strerror or str(error).strip() or type(error).__name__
