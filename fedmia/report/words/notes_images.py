"""Notes on the images of a report: what was converted or left out, and who belongs to whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedmia.settings.errors import opt

# -- as their source keeps them -----------------------------------------------------------------


def images_converted(where: str, modes: Mapping[str, int]) -> str:
    listed = ", ".join(f"{count} of mode {mode}" for mode, count in sorted(modes.items()))
    into = "became 8-bit gray or RGB, without transparency"
    return f"{where}: images were converted: {listed} {into}."


def several_pictures(where: str, files: int) -> str:
    return f"{where}: {files} files hold more than one picture, the first is read."


def images_surveyed(
    where: str,
    sizes: str,
    depths: Mapping[str, int],
    kinds: Mapping[str, int],
    windows: Mapping[str, int],
) -> str:
    """What the headers of the files say.

    Args:
        where: what the note calls the source.
        sizes: how many images, and their sizes.
        depths: bits of a value, and how many images have so many.
        kinds: format, and how many files have it.
        windows: values that files name as black and white, and how many files name them.

    Returns:
        A sentence.
    """
    bits = ", ".join(f"{count:,} of {depth}" for depth, count in depths.items())
    files = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
    own = ", ".join(f"{span} ({count:,} files)" for span, count in windows.items())
    tail = f"; windows that the files name: {own}" if own else ""
    return f"{where}: {sizes}, {bits if len(depths) > 1 else min(depths)}; {files}{tail}."


def dicom_read(where: str, files: int, done: Mapping[str, int], limits: str | None) -> str:
    """What was done to DICOM files.

    Args:
        where: what the note calls the source.
        files: how many were read.
        done: `rescaled`, `inverted`, `clipped`, and to how many.
        limits: values that became black and white, or None.

    Returns:
        A sentence.
    """
    words = {"rescaled": "rescaled by their slope and intercept",
             "inverted": "of MONOCHROME1 inverted"}  # fmt: skip
    parts = [f"{done[key]:,} {text}" for key, text in words.items() if key in done]
    if limits is not None:
        beyond = f" (values beyond it became black or white in {done.get('clipped', 0):,})"
        parts.append(f"read from {limits}" + beyond * ("clipped" in done))
    parts.append("their own windows are not used")
    return f"{where}: {files:,} DICOM files: {', '.join(parts)}."


def images_cropped(where: str, images: int, most: float) -> str:
    cut = "were cropped to their middle square, what lies beside it is not read"
    return f"{where}: {images} images that are not square {cut} (at most {most:.0%} of the area)."


def images_padded(where: str, images: int, most: float) -> str:
    black = f"(at most {most:.0%} of the square)"
    return f"{where}: {images} images that are not square were padded with black {black}."


def unreadable_out(where: str, images: str) -> str:
    return f"{where}: {images} cannot be decoded and were left out."


def other_files_out(where: str, files: str) -> str:
    return f"{where}: {files}."


def files_in_order(where: str, files: int) -> str:
    return f"{where}: read {files} files, in order of their names."


# -- their classes ------------------------------------------------------------------------------


def list_columns(
    where: str, columns: Mapping[str, tuple[str, int | None]], side: str,
    sides: Mapping[str, Mapping[str, int]], separator: str, subjects: bool, torn: int,
    repeated: int, moved: int,
) -> str:  # fmt: skip
    """Which column of a list was taken for what.

    Args:
        where: the list.
        columns: role -> its column, and how many values that has; None: as many as images.
        side: the column of sides; empty: there is none.
        sides: side -> how many lines have each value of it; empty side: left out.
        separator: of the cells of a line; empty: they have none.
        subjects: whether whole subjects are drawn.
        torn: subjects with images of several owners.
        repeated: lines that repeat an image with the same values.
        moved: files that lie elsewhere than their path says.

    Returns:
        One to five sentences.
    """
    clauses = [
        f"{role} from '{column}'" + ("" if count is None else f" ({count})")
        for role, (column, count) in columns.items()
        if role != "side"
    ]
    if sides:
        names = {"members": "members", "nonmembers": "non-members", "": "left out"}
        parts = [
            f"{name}: " + ", ".join(f"{value or 'empty'} {n}" for value, n in sides[one].items())
            for one, name in names.items()
            if one in sides
        ]
        clauses.insert(1, f"side from '{side}' ({'; '.join(parts)})")
    cells = {"": "", "\t": ", cells between tabs"}.get(separator, f", cells between '{separator}'")
    lines = [f"{where}: {', '.join(clauses)}{cells}."]
    if side and not sides:
        lines.append(f"All lines are used, whatever '{side}' says.")
    if subjects:
        lines.append(f"Whole subjects are drawn; {opt('groups', None)}: images one by one.")
    if torn:
        lines.append(f"{torn} subjects have images of several owners.")
    if repeated:
        lines.append(f"{repeated} lines that repeat an image with the same values count once.")
    if moved:
        lines.append(f"{moved} files were found under {opt('data.dir')} by the end of their path.")
    return " ".join(lines)


def clients_by_column(column: str, option: str) -> str:
    return (
        f"The numbers of '{column}' are the clients of the federation; {option} '': they are not."
    )


def classes_with_gaps(where: str, column: str, gaps: int) -> str:
    return f"{where}: {gaps} lines have no value in '{column}': the images have no labels."


def label_column(where: str, column: str, classes: int) -> str:
    return f"{where}: the labels are column '{column}', {classes} classes."


def label_array(where: str, array: str) -> str:
    return f"{where}: the labels are the array '{array}'."


def no_class_column(where: str, columns: Sequence[str]) -> str:
    why = f"column '{', '.join(columns)}' has another value in each row, no class"
    return f"{where}: {why}: the images have no labels."


def labels_of_their_own(where: str) -> str:
    return f"{where}: each image has a label of its own, which is no class: left out."


def no_labels() -> str:
    probes = "the kNN and the linear probe, which need them, are left out."
    return f"The images have no labels: {probes}"


def classes_differ(members: Sequence[str], nonmembers: Sequence[str]) -> str:
    own, theirs = _examples(members), _examples(nonmembers)
    among = f"No class of the members ({own}) is among those of the non-members ({theirs})"
    return f"{among}: they are taken for different ones."


def _examples(classes: Sequence[str]) -> str:
    return ", ".join(classes[:3]) + ", .." * (len(classes) > 3)


# -- their roles --------------------------------------------------------------------------------


def images_of_run() -> str:
    return "Members and non-members are those of the run itself."


def copies_out(copies: int) -> str:
    return f"{copies} byte-equal copies were left out."


def copies_of_side_out(copies: int, side: str) -> str:
    return f"{copies} byte-equal copies among the {side} left out."


def duplicates_removed(images: int) -> str:
    return f"{images} byte-equal duplicates were removed before the images were given roles."


def images_of_nobody(images: int, data: str) -> str:
    return f"{images} images of {data} belong to no client and play no role."


def one_colour(count: int, images: int, side: str) -> str:
    return f"{count} of the {images} {side} have one colour throughout."


def channels_chosen(channels: int, option: str) -> str:
    return f"The images were audited in {channels} channels: {opt('data.channels', option)}."


def nonmembers_out(images: int, why: str) -> str:
    return f"{images} scored non-members are left out, {why}."


def subjects_shared(subjects: int) -> str:
    """How many subjects, such as patients, have images at several clients."""
    return (
        f"{subjects} subjects have images at several clients: each counts once in every interval, "
        "and its images stay with the client that has them."
    )


def subjects_drawn(
    known: Sequence[tuple[int, int]], scored: Sequence[tuple[int, int]], alone: str | None
) -> str:
    """How many images of how many subjects play which role.

    Args:
        known: images and subjects of the known members, then of the known non-members.
        scored: likewise, of those that are scored.
        alone: the one subject to which all members belong; None: there are several.

    Returns:
        Two or three sentences.
    """
    counts = [
        " and ".join(
            f"{images} {side} of {subjects}"
            for (images, subjects), side in zip(sides, ("members", "non-members"), strict=True)
            if images
        )
        for sides in (known, scored)
    ]
    drawn = f"known {counts[0]}, scored {counts[1]} subjects"
    note = f"Images belong to subjects, which are drawn whole: {drawn}. "
    note += "Intervals and tests are by subject."
    question = f" All members are of {alone}, in question as a whole."
    if not known[0][0]:
        question += " The attacker knows no image of it, and no attack on single images runs."
    return note if alone is None else note + question
