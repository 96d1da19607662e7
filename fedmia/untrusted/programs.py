"""Programs of torch.export, checked before torch reads them: what is in them may be code.

torch unpickles whole members, evaluates expressions, calls any function of its own by name, writes
names into Python source, and loads compiled libraries. An encoder's program needs none of these.
"""

from __future__ import annotations

import io
import logging
import re
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from fedmia.settings.errors import InputError
from fedmia.untrusted.archives import check_zip
from fedmia.untrusted.limits import unreadable
from fedmia.untrusted.text import parse_json

# Members by the end of their names, behind the archive's own folder.
DATA = re.compile(
    r"(models/model\.json|data/(weights|constants)/(weight|tensor)_\d+"
    r"|data/(weights|constants)/model_(weights|constants)_config\.json"
    r"|data/sample_inputs/model\.pt|archive_(format|version)|byteorder|version"
    r"|\.data/(version|serialization_id)|\.format_version|\.storage_alignment|extra/[^/]*)"
)
TARGET = re.compile(
    r"torch\.ops\.aten\.(?!from_file|_print)\w+\.\w+"
    r"|torch\.ops\.(quantized|quantized_decomposed|torchvision|prims)\.\w+\.\w+"
    r"|torch\.ops\.higher_order\.(wrap_with_set_grad_enabled|wrap_with_autocast|cond)"
    r"|_operator\.(add|sub|mul|truediv|floordiv|mod|neg|pow|eq|ne|lt|le|gt|ge|and_|or_|getitem)"
    r"|math\.\w+|torch\.(sym_\w+|_sym_\w+)|"
)
# Sums and products of symbols, as sympy writes them.
EXPRESSION = re.compile(
    r"(Symbol\('\w+'|\b(positive|integer|nonnegative|real|zero|nonzero|negative)=(True|False)|\b[su]\d+\b|\b\d+(\.\d+)?\b"
    r"|\b(Max|Min|FloorDiv|CeilDiv|CleanDiv|Mod|PythonMod|ModularIndexing|Where|Pow|Mul|Add|Integer"
    r"|Rational|Eq|Ne|Ge|Gt|Le|Lt|And|Or|Not|True|False|true|false|IntTrueDiv|ToFloat|TruncToInt|floor"
    r"|ceiling|FloorToInt|CeilToInt|RoundToInt|evaluate|int_oo|oo)\b|[-+*/(),<>=!&|~ ])*"
)
NAME = re.compile(r"[\w.:/+-]*")
SPECS = ("builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict", None)
FREE = ("metadata", "as_string", "as_strings", "guards_code")  # texts that stay texts


def read_program(path: Path) -> ExportedProgram:
    """An exported program, which holds tensors and a graph of operators alone.

    Args:
        path: of the file.

    Returns:
        The program.

    Raises:
        InputError: as `check_program`, or it is none.
    """
    logger = logging.getLogger("torch.export")
    with unreadable(f"cannot read '{path}' as an exported program"), ExitStack() as after:
        after.callback(setattr, logger, "disabled", logger.disabled)
        logger.disabled = True  # it logs a traceback before it raises
        check_program(path)
        return torch.export.load(path)


def check_program(path: Path) -> None:
    """Refuse an exported program that holds anything but tensors and a graph of operators.

    Args:
        path: of the file.

    Raises:
        InputError: it holds code, or names that may become code, or unfolds to too much.
        OSError, ValueError, KeyError, zipfile.BadZipFile: it cannot be read.
    """
    members = check_zip(f"program '{path}'", path)
    root = members[0].filename.split("/")[0] + "/" if members else ""
    with zipfile.ZipFile(path) as archive:
        for member in members:
            name = member.filename.removeprefix(root)
            if not DATA.fullmatch(name):
                raise _refusal(path, f"'{name}', which may be code")
            if name.endswith("sample_inputs/model.pt"):
                _check_pickle(path, name, archive.read(member))
            elif name.endswith(".json") and not name.startswith("extra/"):
                _check_texts(path, parse_json(archive.read(member)))


def _check_pickle(path: Path, name: str, content: bytes) -> None:
    """Refuse what torch's restricted unpickler does not take: torch itself would unpickle it."""
    try:
        torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:
        raise _refusal(path, f"'{name}', which is more than tensors") from error


def _check_texts(path: Path, tree: Any) -> None:
    for key, value in _leaves(tree, ""):
        if key == "use_pickle" and value:
            raise _refusal(path, "a pickle in place of a tensor")
        if not isinstance(value, str):
            continue
        if key in ("in_spec", "out_spec"):
            types = {v for k, v in _leaves(parse_json(value or "[]"), "") if k == "type"}
            if not types <= set(SPECS) or "__enum__" in value:
                raise _refusal(path, f"inputs or outputs of '{sorted(map(str, types))[-1]}'")
            continue
        rule = {"target": TARGET, "expr_str": EXPRESSION}.get(key, NAME)
        # A state's name is a target too: `0.weight`.
        if not rule.fullmatch(value) and not (key == "target" and re.fullmatch(r"\d[\w.]*", value)):
            raise _refusal(path, f"the {key or 'name'} '{value[:60]}', which may run code")


def _leaves(tree: Any, key: str) -> Iterator[tuple[str, Any]]:
    """(nearest key, value) of all values and keys but those that stay text."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            if name not in FREE:
                yield "", name
                yield from _leaves(value, name)
    elif isinstance(tree, list):
        for value in tree:
            yield from _leaves(value, key)
    else:
        yield key, tree


def _refusal(path: Path, what: str) -> InputError:
    return InputError(f"program '{path}': not read: it holds {what}; nothing of it was run")
