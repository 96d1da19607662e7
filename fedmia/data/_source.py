"""Where the data of a source lie: the path after its name, and what may not lie there."""

from __future__ import annotations

from pathlib import Path

from fedmia.data.base import Request
from fedmia.settings.errors import InputError, opt
from fedmia.untrusted.filetype import check_file_type


def file_path(request: Request, name: str) -> Path:
    """The file that `name:PATH` names, which may be what it promises.

    Raises:
        InputError: no path given, or it is missing, a folder, empty, a pointer or compressed.
    """
    path = check_path(require_path(request, name), name, "file")
    check_file_type(path, name)
    return path


def check_path(path: Path, name: str, what: str) -> Path:
    """`path` itself; InputError if it is missing or no `what`, `file` or `folder`."""
    if not path.exists():
        raise InputError(f"{name}: no such {what}: {path}")
    if not (path.is_file() if what == "file" else path.is_dir()):
        check_file_type(path, name)
        other = "folder" if what == "file" else "file"
        packed = ": unpack it, and give its folder" * (path.suffix in (".zip", ".tar"))
        raise InputError(f"{name}: {path} is a {other}, expected a {what}{packed}")
    return path


def refuse_arrow(path: Path, name: str) -> None:
    """Refuse what the library `datasets` saved for itself, with the line that converts it.

    Args:
        path: of a file or folder without what the source reads.
        name: of the source, for the error.

    Raises:
        InputError: it is a file or a folder in Arrow's format.
    """
    where = repr(str(path))
    if path.suffix == ".arrow":
        dataset = f"Dataset.from_file({where})"
    elif any(path.glob("*.arrow")):
        dataset = f"load_from_disk({where})"
    elif parts := sorted(path.glob("*/*.arrow")):
        dataset = f"load_from_disk({where})[{parts[0].parent.name!r}]"
    else:
        return
    target = f"{path.with_suffix('')}.parquet"
    raise InputError(
        f"{name}: {path} is in Arrow's format, which is not read; {embedding_line(dataset, target)}"
    )


def embedding_line(dataset: str, target: str) -> str:
    """The line that writes a data set of the library `datasets` to a file, images and all."""
    return (
        'python -c "from datasets import Dataset, load_from_disk; from datasets.table import '
        f"embed_table_storage as embed; {dataset}.with_format('arrow').map(embed, batched=True)"
        f'.to_parquet({target!r})" writes parquet:{target}'
    )


def require_path(request: Request, name: str) -> Path:
    """The path after the colon of `name:PATH`; InputError without one."""
    if not request.path:
        raise InputError(f"{name} needs a path: {opt('data.name', f'{name}:PATH')}")
    return Path(request.path)
