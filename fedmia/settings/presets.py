"""Presets: the YAML files that `--config NAME` finds beside the source."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

from fedmia.settings.errors import InputError, suggest_nearest

BESIDE = Path(__file__).resolve().parents[2] / "configs"
# A clone has the presets beside the source, an installed copy where its data files go.
PRESETS = (
    BESIDE
    if (BESIDE / "smoke.yaml").is_file()
    else Path(sysconfig.get_path("data")) / "share" / "fedmia" / "configs"
)


def preset_names(patterns: tuple[str, ...]) -> list[str]:
    """Names of the presets that match `patterns`, glob patterns of files below the folder."""
    files = sorted(p for pattern in patterns for p in PRESETS.glob(pattern))
    return [p.relative_to(PRESETS).with_suffix("").as_posix() for p in files]


def describe_preset(name: str) -> str:
    """The first sentence of the comment at the top of a preset's file."""
    lines: list[str] = []
    for line in (PRESETS / f"{name}.yaml").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    # A sentence ends before a capital letter; "et al., " and "Fig. 3" do not end one.
    return re.split(r"(?<=[.?])\s+(?=[A-Z])|:\s+python -m|\s+(?:Audit it with)", " ".join(lines))[0]


def find_config(name: str, presets: tuple[str, ...]) -> Path:
    """The file that `--config NAME` means.

    Args:
        name: a path, or the name of a preset beside the source.
        presets: glob patterns of the command's presets.

    Returns:
        The path of an existing file.

    Raises:
        InputError: there is neither such a file nor such a preset.
    """
    path = Path(name)
    if path.is_file():
        return path
    if not presets:
        raise InputError(f"--config '{name}' cannot be read: no such file")
    known = preset_names(presets)
    if name in known:
        return PRESETS / f"{name}.yaml"
    if path.is_dir():
        raise InputError(f"--config '{name}' is a folder; give the YAML file in it")
    hint = suggest_nearest(name, known)
    raise InputError(f"no config file or preset '{name}'{hint} (presets: {', '.join(known)})")
