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


def images_cropped(where: str, images: int) -> str:
    cut = "were cropped to their middle square, what lies beside it is not read"
    return f"{where}: {images} images that are not square {cut}."


def unreadable_out(where: str, images: str) -> str:
    return f"{where}: {images} cannot be decoded and were left out."


def other_files_out(where: str, files: str) -> str:
    return f"{where}: {files}."


def files_in_order(where: str, files: int) -> str:
    return f"{where}: read {files} files, in order of their names."


# -- their classes ------------------------------------------------------------------------------


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
