"""A list of image files, a line an image: its path, side, class, subject and owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmia.data._list_table import read_list
from fedmia.data._listed_files import ListedFiles, quote
from fedmia.data._source import file_path
from fedmia.data.base import FileDataset, Request
from fedmia.data.columns import NAMES, choose_column, find_columns, sides_of
from fedmia.data.encoded import EncodedSet
from fedmia.data.images import IntArray
from fedmia.data.labels import absent_labels, check_labels, renumber_labels
from fedmia.records.note import Note
from fedmia.settings import option
from fedmia.settings.errors import IncompleteError, InputError, opt, suggest_nearest
from fedmia.settings.values import disk_path, escape_name
from fedmia.untrusted.limits import unreadable

MOST_COLUMNS = 20  # that an error names
MOST_LOOKED_AT = 5  # values, to tell whether a column names files
MOST_NAMED = 5  # files, values or lines that an error names
# Option that asks for a column -> the role of the column.
ROLES: Mapping[str, str] = {
    "groups": "subject", "partition.column": "owner", "federation.owners": "owner",
    "group": "group", "federation.order": "first",
}  # fmt: skip
VALUES = {"members": "member_values", "nonmembers": "nonmember_values"}  # side -> option
UNKNOWN = "?"  # side of a line of which nobody says it: its file is looked up all the same
NEVER = -1  # first round of an image that no round was trained on


@dataclass(frozen=True)
class ListFile(FileDataset):
    """A list of image files, a line an image, with what is known of each: `list:FILE`.

    FILE is a table under a header: .csv, .tsv or .txt in UTF-8, or .parquet. A path in it is
    relative to the folder of the list, or to `--data-dir`. An empty name ('') of a column says that
    there is none.
    """

    takes_path: ClassVar[bool] = True
    columns: ClassVar[str] = "columns of the list"
    finds_columns: ClassVar[bool] = True

    image_column: str | None = option(
        None, "column of the images' paths (none: found by its name: path, file, image, Datei, ..)"
    )
    label_column: str | None = option(
        None, "column of classes (none: found by its name: label, class, diagnosis, ..)"
    )
    side_column: str | None = option(
        None, "column that tells members and non-members (none: found: split, set, member, ..)"
    )
    member_values: tuple[str, ...] | None = option(
        None, "its values for members (none: train, member, in and their like)"
    )
    nonmember_values: tuple[str, ...] | None = option(
        None, "its values for non-members (none: test, val, holdout and their like); where both "
        "are given, lines of other values are left out",
    )  # fmt: skip
    subject_column: str | None = option(
        None, "column of subjects, as for --groups (none: found: patient, subject, case, ..)"
    )
    owner_column: str | None = option(
        None, "column of owners, each a client (none: found: hospital, site, client, Klinik, ..)"
    )
    group_column: str | None = option(
        None, "column of groups to compare, such as a device (none: there is none)"
    )
    first_column: str | None = option(
        None, "column of the round from which an image was trained on (none: found: first, round)"
    )

    def encoded(self, request: Request) -> EncodedSet:
        """The images of the list in its order, those of one side where the request names one.

        Nothing is decoded. A line that repeats an image with the same values counts once.

        Raises:
            IncompleteError: all that is missing or contradicts itself: columns, values, files.
        """
        return _Reader(self, request).read()

    def implies(self, request: Request, absent: Collection[str]) -> dict[str, str]:
        """The other side, subjects and owners, as far as the list has columns for them.

        Raises:
            InputError: as of `encoded`, where `nonmembers` is absent.
        """
        needed = "nonmembers" in absent
        try:
            reader = _Reader(self, request)
        except InputError:
            if needed:
                raise
            return {}
        answers = {"nonmembers": f"list:{request.path}"} if needed else {}
        if "groups" in absent and (subject := reader.columns["subject"]):
            answers["groups"] = subject
        owner = reader.columns["owner"]
        clients = {*reader.table[owner]} - {""} if owner else set()
        if "federation.owners" in absent and owner and clients and all(map(str.isdecimal, clients)):
            answers["federation.owners"] = owner
        if needed:
            columns = {path: column for path, column in answers.items() if path in ROLES}
            _Reader(self, replace(request, columns=columns), both=True).read()
        return answers


class _Reader:
    """One reading of a list, which collects all that is missing.

    Args:
        source: says which columns are meant.
        request: as of the source.
        both: whether both sides are needed.
    """

    def __init__(self, source: ListFile, request: Request, both: bool = False) -> None:
        self.source, self.request, self.both = source, request, both
        self.path = file_path(replace(request, path=disk_path(request.path or "")), "list")
        self.where = f"list: {self.path}"
        with unreadable(self.where):
            self.header, self.lines, self.table, self.separator = read_list(self.path)
        self.lacks, self.options, self.mends = list[str](), dict[str, Any](), True
        self.columns = {role: self._column(role) for role in NAMES}

    def read(self) -> EncodedSet:
        """The images, or IncompleteError."""
        request, columns = self.request, self.columns
        if columns["image"] is None:
            self._miss_image()
        answers = self._columns_by_option()
        sides = self._sides()
        used = [i for i, side in enumerate(sides) if side != ""]
        files, moved = self._files(used)
        first, repeated = self._refuse_contradictions(files, moved, {*answers.values()})
        own = [i for i in used if request.side in (None, sides[i])]
        for path, name in answers.items():
            if path != "federation.order" and path in request.columns:
                self._refuse_gaps(name, opt(path, name), used if path == "groups" else own)
        self._refuse_torn(sides, answers, used)
        if self.lacks:
            error = IncompleteError(self.lacks, self.options if self.mends else {})
            error.args = (f"{self.where}: {error}",)
            raise error
        rows = [i for i in first if request.side in (None, sides[i])]
        labels, classes, notes = self._labels(rows)
        if column := request.columns.get("federation.owners"):
            option_path = self._option("owner_column")
            notes.append(Note("clients-by-column", {"column": column, "option": option_path}))
        columns_of_rows = {
            path: values
            for path, name in answers.items()
            if (values := self._values(path, name, rows)) is not None
        }
        return EncodedSet(
            self.where, [(str(files[i]), files[i]) for i in rows], labels,
            escape_name(self.path.stem), request.size, classes, columns_of_rows,
            (self._note(first, sides, repeated, len(moved)), *notes), request.pixel_range,
            request.fit,
        )  # fmt: skip

    # -- columns ------------------------------------------------------------------------------

    def _lack(self, text: str, options: Mapping[str, Any]) -> None:
        """Something is missing; the options that would do, empty: no option does for certain."""
        self.lacks.append(text)
        self.options.update(options)
        self.mends = self.mends and bool(options)

    def _option(self, name: str) -> str:
        return f"{self.request.side or 'data'}.{name}"

    def _listed(self) -> str:
        more = ", .." * (len(self.header) > MOST_COLUMNS)
        return ", ".join(map(quote, self.header[:MOST_COLUMNS])) + more

    def _unnamed(self, role: str) -> str:
        """No column is called like a role; the option that names it follows."""
        usual = ", ".join(NAMES[role][:MOST_NAMED])
        return f"no {role} column, as none is called {usual}, .. (there are {self._listed()})"

    def _column(self, role: str) -> str | None:
        """The column of a role; None: there is none. Without a file nothing is missing yet."""
        name = f"{role}_column"
        choice = getattr(self.source, name)
        if choice == "":
            return None
        if choice is not None:
            column = choose_column(self.header, choice)
            if column is None:
                self._miss_column(self._option(name), choice)
            return column
        columns = find_columns(self.header, role)
        asking = [
            path for path, of in ROLES.items() if of == role and self.request.columns.get(path)
        ]
        idle = {"owner": "partition.column", "first": "federation.order"}.get(role)
        if len(columns) > 1 and not asking and (idle is None or idle in self.request.columns):
            listed = " and ".join(map(quote, columns))
            guess = self._guess_image(columns) if role == "image" else None
            mend = {self._option(name): guess or columns[0]}
            self._lack(f"{listed} may each be the {role} column: {self._option(name)}", mend)
            return guess
        return columns[0] if len(columns) == 1 else None

    def _miss_column(self, path: str, choice: str) -> None:
        near = suggest_nearest(choice, self.header)
        text = f"{opt(path)}: no column {quote(choice)}{near} (there are {self._listed()})"
        self._lack(text, {})

    def _miss_image(self) -> None:
        """Say that no column of paths is known; the first of files that are there may be it."""
        path = self._option("image_column")
        if self.source.image_column is not None or path in self.options:
            return
        inside = f"; parquet:{self.path} reads images that the file itself holds"
        text = f"{self._unnamed('image')}: {path}" + inside * (self.path.suffix == ".parquet")
        guess = self._guess_image(self.header)
        self._lack(text, {} if guess is None else {path: guess})
        self.columns["image"] = guess  # so that its files are looked up all the same

    def _guess_image(self, columns: Sequence[str]) -> str | None:
        """The first of some columns that names files which are there."""
        folders = ListedFiles(self.path, self.request.data_dir)
        return next(
            (
                name
                for name in columns
                if any(folders.find(value)[0] for value in self.table[name][:MOST_LOOKED_AT])
            ),
            None,
        )

    def _columns_by_option(self) -> dict[str, str]:
        """Option -> the column that answers it, of those that there are."""
        answers = dict[str, str]()
        for path, role in ROLES.items():
            choice, own = self.request.columns.get(path), self.columns[role]
            if choice:
                column = choose_column(self.header, choice)
                if column is None:
                    self._miss_column(path, choice)
            else:
                column = own
                name = self._option(f"{role}_column")
                if choice == "" and own is None and name not in self.options:
                    self._lack(f"{self._unnamed(role)}: {opt(path)}", {})
            if column is not None:
                answers[path] = column
        return answers

    # -- rows ---------------------------------------------------------------------------------

    def _sides(self) -> list[str | None]:
        """The side of each line, empty: of none, so that it is left out; None: all are alike."""
        column, request = self.columns["side"], self.request
        if request.side is None:
            return [None] * len(self.lines)
        if column is None:
            name = self._option("side_column")
            if self.both and name not in self.options and self.source.side_column is None:
                others = f"{name}, or {opt('nonmembers')} with another list"
                self._lack(f"{self._unnamed('side')}: {others}", {})
            return [request.side] * len(self.lines)
        user_values = {side: getattr(self.source, name) for side, name in VALUES.items()}
        values = self.table[column]
        counts = Counter(values)
        known = sides_of(column, [*counts], user_values)
        if unknown := {value: n for value, n in counts.items() if value not in known and value}:
            usual = {
                self._option(name): tuple(value for value, of in known.items() if of == side)
                for side, name in VALUES.items()
            }
            members, others = usual
            self._lack(
                f"side column '{column}': {_count(unknown)} may mean either side: {members} and "
                f"{others} name the values of each, or {self._option('side_column')} '' if it "
                "tells no sides",
                usual if all(usual.values()) else {},
            )
        if "" in counts and "" not in known:
            self._refuse_gaps(column, f"side column '{column}'", range(len(values)))
        sides = [known.get(value, UNKNOWN) for value in values]
        needed = ("members", "nonmembers") if self.both else (request.side,)
        for side in needed:
            if side not in sides and not unknown:
                where = f"side column '{column}': no line is of the {side} ({_count(counts)})"
                self._lack(f"{where}: {self._option(VALUES[side])}", {})
        return list(sides)

    def _refuse_gaps(self, column: str, what: str, rows: Iterable[int]) -> None:
        """Say how many lines have no value in a column."""
        empty = [self.lines[i] for i in rows if not self.table[column][i]]
        if empty:
            count = f"lines without a value: {len(empty)} (the first: line {empty[0]})"
            self._lack(f"{what}: {count}", {})

    def _files(self, rows: Sequence[int]) -> tuple[dict[int, Path], set[int]]:
        """The file of each line that has one, and which lie elsewhere than their path says."""
        column, files, moved = self.columns["image"], dict[int, Path](), set[int]()
        if column is None:
            return files, moved
        self._refuse_gaps(column, f"image column '{column}'", rows)
        folders, values, missing = (
            ListedFiles(self.path, self.request.data_dir),
            self.table[column],
            [],
        )
        for i in rows:
            file, elsewhere = folders.find(values[i])
            if file is not None:
                files[i] = file
                moved |= {i} if elsewhere else set()
            elif values[i]:
                missing.append(values[i])
        if missing:
            examples = ", ".join(map(quote, missing[:MOST_NAMED]))
            more = ", .." * (len(missing) > MOST_NAMED)
            count = f"{len(missing)} of {len(rows)} files are missing"
            folder = None
            if not files and self.request.data_dir is None:
                folder = folders.guess(missing)
            text = f"{count}: {examples}{more}{folders.explain(missing[0])}"
            self._lack(text, {} if folder is None else {"data.dir": folder})
        return files, moved

    def _refuse_contradictions(
        self, files: Mapping[int, Path], moved: Collection[int], more: Collection[str]
    ) -> tuple[list[int], int]:
        """The first line of each image, and how many repeat one; a line that does so with other
        values, or by the end of another path, is wrong."""
        image = self.columns["image"]
        compared = [*dict.fromkeys([*filter(None, self.columns.values()), *sorted(more)])]
        compared = [name for name in compared if name != image]
        firsts, unlike, repeated = dict[Path, int](), [], 0
        for i, file in files.items():
            at = firsts.setdefault(file, i)
            if at == i:
                continue
            names = [*compared, *([image] if image and {at, i} & {*moved} else [])]
            other = [name for name in names if self.table[name][at] != self.table[name][i]]
            if other:
                unlike.append((at, i, other[0]))
            else:
                repeated += 1
        if unlike:
            at, i, name = unlike[0]
            self._lack(
                f"{len(unlike)} lines repeat an image with other values (the first: lines "
                f"{self.lines[at]} and {self.lines[i]}, {quote(self.table[name][at])} and "
                f"{quote(self.table[name][i])} in '{name}')",
                {},
            )
        return [*firsts.values()], repeated

    def _refuse_torn(
        self, sides: Sequence[str | None], answers: Mapping[str, str], rows: Sequence[int]
    ) -> None:
        """Say which subjects are on both sides, where whole subjects are drawn."""
        if "groups" not in self.request.columns or "groups" not in answers:
            return
        by_side: dict[str | None, set[str]] = {}
        for i in rows:
            by_side.setdefault(sides[i], set()).add(self.table[answers["groups"]][i])
        both = sorted(set.intersection(*by_side.values()) - {""}) if len(by_side) == 2 else []
        if both:
            more = f" and {len(both) - 1} more" if len(both) > 1 else ""
            where = f"subject {quote(both[0])}{more} of '{answers['groups']}' is on both sides"
            self._lack(f"{where}: {opt('groups', None)} draws images one by one", {})

    # -- what is handed over ------------------------------------------------------------------

    def _labels(self, rows: Sequence[int]) -> tuple[IntArray, tuple[str, ...], list[Note]]:
        """Number and name of each image's class, and what is said of them."""
        column = self.columns["label"]
        texts = [] if column is None else [self.table[column][i] for i in rows]
        if column is None or not texts:
            return *absent_labels(len(rows)), []
        if len({*texts}) == len(texts) > 1:
            return *absent_labels(len(rows)), [
                Note("no-class-column", {"where": self.where, "columns": [column]})
            ]
        if "" in texts:
            gaps, where = texts.count(""), self.where
            note = Note("classes-with-gaps", {"where": where, "column": column, "gaps": gaps})
            return *absent_labels(len(rows)), [note]
        numbers = [int(text) if _is_whole(text) else text for text in texts]
        values = numbers if all(isinstance(one, int) for one in numbers) else texts
        return *renumber_labels(check_labels(values, len(rows), f"{self.where}: '{column}'")), []

    def _values(self, path: str, column: str, rows: Sequence[int]) -> NDArray[Any] | None:
        """What the images have in a column; None where some have nothing, and nobody asks."""
        texts = [escape_name(self.table[column][i]) for i in rows]
        if path == "federation.order":
            whole = all(_is_whole(text) or not text for text in texts)
            return np.array([int(t) if t else NEVER for t in texts]) if whole else None
        return None if "" in texts else np.array(texts, dtype=str)

    def _note(
        self, rows: Sequence[int], sides: Sequence[str | None], repeated: int, moved: int
    ) -> Note:
        """What was taken for what."""
        columns = {
            role: (column, None if role == "image" else len({self.table[column][i] for i in rows}))
            for role, column in self.columns.items()
            if column is not None and (role != "side" or self.request.side is None)
        }
        counts: dict[str, dict[str, int]] = {}
        column, subject, owner = (self.columns[r] for r in ("side", "subject", "owner"))
        if column is not None and self.request.side is not None:
            for i, side in enumerate(sides):
                own = counts.setdefault(str(side), {})
                value = quote(self.table[column][i])[1:-1]
                own[value] = own.get(value, 0) + 1
        torn = 0
        if subject is not None and owner is not None:
            pairs = {(self.table[subject][i], self.table[owner][i]) for i in rows}
            torn = sum(n > 1 for n in Counter(one for one, _ in pairs).values())
        return Note(
            "list-columns",
            {
                "where": self.where,
                "columns": columns,
                "side": column or "",
                "sides": counts,
                "separator": self.separator,
                "subjects": subject is not None and self.request.columns.get("groups") == subject,
                "torn": torn,
                "repeated": repeated,
                "moved": moved,
            },
        )


def _is_whole(text: str) -> bool:
    """Whether a cell is a whole number, as numbers are written: not `007`."""
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0")


def _count(values: Mapping[str, int]) -> str:
    """`'train' (900), 'test' (300)`."""
    listed = [f"{quote(value)} ({count})" for value, count in values.items()]
    return ", ".join(listed[:MOST_NAMED]) + ", .." * (len(listed) > MOST_NAMED)
