"""Models of libraries: by name, or in a folder as their hubs keep them. Nothing is downloaded."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, ClassVar

from fedmia.encoders.base import EncoderFacts, LoadedEncoder, LoadOptions
from fedmia.settings.errors import InputError, suggest_nearest
from fedmia.untrusted import text
from fedmia.untrusted.filetype import check_file_type
from fedmia.untrusted.limits import first_line, unreadable


class Hub:
    """What forms of a library's models share: the library, its names, folders of its models.

    Attributes:
        prefix: what the user writes before a `:`.
        library: the module that makes models.
        extra: with which it is installed; empty: with fedmia.
        files: names of a folder's weights; the first that exists is taken.
    """

    prefix: ClassVar[str]
    library: ClassVar[str]
    extra: ClassVar[str] = ""
    files: ClassVar[tuple[str, ...]] = ("model.safetensors", "pytorch_model.bin")

    def load(self, source: str, load_options: LoadOptions) -> LoadedEncoder:
        """The model `source`, by name or of a folder.

        Args:
            source: what the user gave, without the prefix.
            load_options: of the user.

        Returns:
            The encoder with its control.

        Raises:
            InputError: the library is not installed, it has no such model, the folder lacks one or
                describes what is not read, or weights do not fit.
        """
        folder = self.folder(source)
        name, form = (source, "NAME") if folder is None else (folder.resolve().name, "FOLDER")
        weights = None if folder is None else self.read_folder(folder)
        library = import_extra(self.library, f"{self.prefix}:{form}", self.extra)
        facts = EncoderFacts(f"{self.prefix}:{name}", load_options)
        if folder is None or weights is None:
            if not self.knows(library, name):
                names = self.names(library)  # all of them are too many to print
                near = f"{suggest_nearest(name, names)} ({len(names)} are known)"
                raise InputError(f"unknown {self.prefix} model '{name}'{near}")
            return self.load_name(library, facts, name)
        try:
            return self.load_folder(library, facts, *weights)
        except InputError as error:
            if folder.name in str(error):
                raise
            raise InputError(f"the configuration in '{folder}': {error}") from None
        except Exception as error:  # of many libraries, which share no class
            why = f"{type(error).__name__}: {first_line(error)}"
            raise InputError(f"the configuration in '{folder}' cannot be used: {why}") from error

    def folder(self, source: str) -> Path | None:
        """The folder that `source` names; None: it is the name of a model."""
        return None

    def names(self, library: Any) -> list[str]:
        """The models of the library."""
        return list(library.list_models())

    def knows(self, library: Any, name: str) -> bool:
        """Whether the library has a model of that name; it looks nowhere else."""
        return name in self.names(library)

    def load_name(self, library: Any, facts: EncoderFacts, name: str) -> LoadedEncoder:
        """The model of that name; its weights are the checkpoint's, else random."""
        raise NotImplementedError

    def load_folder(
        self, library: Any, facts: EncoderFacts, weights_file: Path, config: dict[str, Any]
    ) -> LoadedEncoder:
        """The model that the config.json of a folder describes, with the weights beside it."""
        raise NotImplementedError

    def read_folder(self, folder: Path) -> tuple[Path, dict[str, Any]]:
        """The file of weights in a folder, and the config.json beside it.

        Args:
            folder: the folder.

        Returns:
            Path of the file, and what the configuration holds.

        Raises:
            InputError: no such folder, it lacks one of the two, or its weights are quantised.
        """
        form = f"{self.prefix}:FOLDER"
        if not folder.is_dir():
            raise InputError(f"{form}: no such folder: '{folder}' (nothing is downloaded)")
        config = read_json(folder / "config.json")
        present = [folder / name for name in self.files if (folder / name).is_file()]
        for file in (*present, *folder.glob("*.safetensors")):
            check_file_type(file, form)
        if not present:
            lacks = f"it has no {' or '.join(self.files)}"
            raise InputError(f"{form}: no weights in '{folder}': {lacks}")
        if config.get("quantization_config"):
            raise InputError(
                f"{folder / 'config.json'}: quantization_config: a quantised network is not read; "
                "save it in float32"
            )
        return present[0], config


def read_json(path: Path) -> dict[str, Any]:
    """The configuration in a JSON file.

    Args:
        path: of the file.

    Returns:
        What it says, by name.

    Raises:
        InputError: there is none, or it cannot be read.
    """
    if not path.exists():
        raise InputError(f"'{path.parent}' has no {path.name}")
    check_file_type(path, "configuration")
    with unreadable(f"'{path}' cannot be read"):
        content = text.read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"'{path}' holds no configuration")
    return content


def import_extra(module: str, what: str, name: str) -> Any:
    """Import a library that is installed only with an extra.

    Args:
        module: to import.
        what: needs it, for the error.
        name: of the extra.

    Returns:
        The module.

    Raises:
        InputError: the extra is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        install = f"pip install '.[{name}]' in a clone of fedmia"
        raise InputError(f"{what} needs the extra: {install}") from None
