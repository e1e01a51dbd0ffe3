"""Sends a rejected file through intake again.

The decision is written first, then the file moves from rejected/ into the drop folder. So it is in
one of the two places at any time, and a retry that was interrupted can be repeated.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tapeline.books.quarantine import Actor
from tapeline.books.rejected import DISMISS, RETRY, RejectedFile, RejectedFiles
from tapeline.errors import OperationError
from tapeline.intake.drop_folder import OPEN_FOLDER, UNFINISHED_ENDS, UNFINISHED_STARTS
from tapeline.store.disk import READ_SAFELY, copy_range
from tapeline.store.files import make_shared_folder


def retry(
    files: RejectedFiles, number: int, drop: Path, signed: Actor, mended: Path | None = None
) -> RejectedFile:
    """Put a rejected file, or the mended one in its place, into the drop folder under its name."""
    rejected = _retriable(files, number)
    make_shared_folder(drop)
    *folders, name = _parts_of(rejected)
    hidden = f".{name}.retry-{number}.part"
    with _folder(drop, folders) as folder:
        kept = rejected.path.exists() or _is_there(hidden, folder)
        if rejected.decided and not kept:
            raise _already(rejected)
        if _is_there(name, folder):
            raise OperationError(
                f"the input folder already has a file '{rejected.name}'. Wait until it is taken, "
                "then retry again."
            )
        if mended is not None:
            _replace(rejected.path, mended)
        elif not kept:
            raise OperationError(
                f"{rejected.path} is gone. Give the corrected file with --file, or dismiss the "
                "delivery."
            )
        found = rejected if rejected.decided else files.decide(number, RETRY, signed)
        _hand_over(rejected.path, name, hidden, folder)
    return found


def dismiss(files: RejectedFiles, number: int, signed: Actor) -> RejectedFile:
    """Record that a rejected file is left out; it stays in rejected/."""
    return files.decide(number, DISMISS, signed)


def _retriable(files: RejectedFiles, number: int) -> RejectedFile:
    rejected = files.get(number)
    if rejected is None:
        raise OperationError(f"there is no rejected file with the number {number}.")
    if rejected.decided and rejected.decided.act == DISMISS:
        raise _already(rejected)
    return rejected


def _already(rejected: RejectedFile) -> OperationError:
    done = rejected.decided
    assert done is not None, "somebody decided"
    return OperationError(f"{rejected.id} was already {done.act} by {done.who} at {done.at}.")


def _parts_of(rejected: RejectedFile) -> list[str]:
    """The folders and the name that a file had below the drop folder."""
    parts = rejected.name.split("/")
    hidden = os.fsencode(parts[-1])
    unsafe = any(part in ("", ".", "..") or "\0" in part for part in parts)
    if unsafe or hidden.startswith(UNFINISHED_STARTS) or hidden.endswith(UNFINISHED_ENDS):
        raise OperationError(
            f"'{rejected.name}' is not a name that intake takes. Copy {rejected.path} into the "
            "input folder under another name, then dismiss this delivery."
        )
    return parts


@contextmanager
def _folder(drop: Path, folders: list[str]) -> Iterator[int]:
    """A handle on a folder below the drop folder, made if it is missing; links are not followed."""
    with ExitStack() as held:
        handle = os.open(drop, OPEN_FOLDER)
        held.callback(os.close, handle)
        for each in folders:
            with suppress(FileExistsError):
                os.mkdir(each, dir_fd=handle)
            try:
                handle = os.open(each, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=handle)
            except OSError as error:
                raise OperationError(
                    f"'{each}' in the input folder {drop} cannot be used: {error.strerror}. Only "
                    "plain folders are."
                ) from None
            held.callback(os.close, handle)
        yield handle


def _replace(path: Path, mended: Path) -> None:
    """Put the mended file in the place of the rejected one, which is kept beside it."""
    try:
        handle = os.open(mended, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise OperationError(f"{mended}: {error.strerror}. Give another file.") from None
    partial = path.with_name(f"{path.name}.mended")
    try:
        copy_range(handle, 0, os.fstat(handle).st_size, partial)
    finally:
        os.close(handle)
    original = path.with_name(f"{path.name}.original")
    if path.exists() and not original.exists():
        os.rename(path, original)
    os.replace(partial, path)


def _hand_over(path: Path, name: str, hidden: str, folder: int) -> None:
    try:
        os.rename(path, name, dst_dir_fd=folder)
    except FileNotFoundError:  # an interrupted retry has copied it already
        os.rename(hidden, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        handle = os.open(path, READ_SAFELY)
        try:
            target = Path(f"/proc/self/fd/{folder}") / hidden
            copy_range(handle, 0, os.fstat(handle).st_size, target)
        finally:
            os.close(handle)
        os.fsync(folder)
        os.unlink(path)
        os.rename(hidden, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


def _is_there(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
