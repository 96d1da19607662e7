"""How many images play each role: what is asked, what is left, and the refusal of too few."""

from __future__ import annotations

from dataclasses import dataclass

from fedmia.settings import Options, option
from fedmia.settings.errors import InputError, opt

# Upper bounds of the sizes that are chosen automatically. Members: the federated paper's 5,000 of
# CIFAR-10 train for 30 rounds in a quarter of an hour on two cores. Scored images: an attack embeds
# each many times, and its intervals are within .02 of 2,000 a side.
MOST_MEMBERS = 5000
MOST_SCORED = 2000
MOST_NONMEMBERS = 2000
MOST_TEST = 1000
# Fewest scored non-members, and fewest probe images: below these no number can be computed.
FEWEST = 2


@dataclass(frozen=True)
class SplitOptions(Options):
    """How many images play each role; None fills up from what the data source has left."""

    members: int | None = option(
        None,
        "images that honest clients train on, in total (none: 220 of digits and synthetic; of your "
        f"own images those that the other roles leave, to {MOST_MEMBERS})",
        ge=2,
    )
    nonmembers: int | None = option(
        None,
        f"non-members, known ones included (none: all that remain, to {MOST_NONMEMBERS}; 740 of "
        "digits, where no other role is given a size)",
        ge=3,
    )
    known: int = option(40, "members, and as many non-members, that the attacker knows", ge=2)
    test: int | None = option(
        None,
        f"images of the probes, half to fit and half to test (none: a quarter, to {MOST_TEST})",
        ge=2,
    )
    public: int = option(0, "non-member images for public pre-training", ge=0)
    scored: int | None = option(
        None,
        "members that are scored, drawn evenly over images (none: all but the known ones; of your "
        f"own images to {MOST_SCORED}, where split.members is not given)",
        ge=2,
    )  # fmt: skip


def check_clients(options: SplitOptions, clients: int, malicious: int) -> None:
    """Refuse numbers of clients and sizes that cannot go together, whatever the data.

    Args:
        options: the sizes that were asked for.
        clients: all of them.
        malicious: how many of them.

    Raises:
        InputError: fewer than 2 members for an honest client, or so many known images that none
            stays to be scored.
    """
    honest = clients - malicious
    if options.nonmembers is not None and options.nonmembers < options.known + FEWEST:
        raise InputError(
            f"{opt('split.nonmembers', options.nonmembers)} must be at least {FEWEST} more than "
            f"{opt('split.known', options.known)}"
        )
    if options.members is None:
        return
    if options.members < 2 * honest:
        raise InputError(
            f"{opt('split.members', options.members)} gives {honest} honest clients fewer than 2 "
            f"images each (at least {2 * honest} needed)"
        )
    # One member of each client must stay scored, so that each client can be judged.
    most = options.members - honest
    if options.known > most:
        raise InputError(
            f"{opt('split.known', options.known)} of {options.members} members leaves too few to "
            f"score (at most {most}: one stays scored for each of {honest} honest clients)"
        )
    if options.scored is not None and options.scored > options.members - options.known:
        raise InputError(
            f"{opt('split.scored', options.scored)}: of {options.members} members {options.known} "
            f"are known, so at most {options.members - options.known} can be scored"
        )


def role_sizes(
    options: SplitOptions, clients: int, malicious: int, placebo: bool, distinct: int, name: str
) -> dict[str, int]:
    """Fixed sizes as asked; of what they leave, at most a quarter to test, then non-members.

    Without a number of members a quarter of the images are kept for non-members and an eighth for
    test, or their limits; the others are members, and the reserve that goes with them.

    Args:
        options: the sizes that were asked for.
        clients: all of them.
        malicious: how many of them, less than `clients`.
        placebo: whether the reserve holds the images of a placebo federation, too.
        distinct: number of distinct images.
        name: of the data source, for the error.

    Returns:
        Images of each role, in this order: `members` that honest clients train on; `nonmembers`,
        known ones included; `test` of the probes; `public` for public pre-training; `reserve` that
        malicious clients and those of the placebo train on.

    Raises:
        InputError: too few images; the message holds the sum.
    """
    honest = clients - malicious
    takers = clients if placebo else malicious
    least_test = FEWEST if options.test is None else options.test
    least_out = options.known + FEWEST if options.nonmembers is None else options.nonmembers
    if (members := options.members) is None:
        left = distinct - options.public
        out = options.nonmembers or max(least_out, min(MOST_NONMEMBERS, left // 4))
        left -= out + (options.test or min(MOST_TEST, left // 8))
        most = min(MOST_MEMBERS, left * honest // (honest + takers))
        members = max(most, honest + max(honest, options.known))
    reserve = round(members * takers / honest)
    fixed = members + reserve + options.public
    needed = fixed + least_out + least_test
    if needed > distinct:
        raise InputError(
            f"{members} members + {reserve} reserve + {least_out} non-members + "
            f"{least_test} test + {options.public} public = {needed} images needed, {name} has "
            f"{distinct} distinct"
        )
    available = distinct - fixed
    test, nonmembers = options.test, options.nonmembers
    if test is None:
        share = available // 4 if options.members else (distinct - options.public) // 8
        share = share if nonmembers is None else available - nonmembers
        test = max(least_test, min(MOST_TEST, share, available - least_out))
    if nonmembers is None:
        nonmembers = min(max(MOST_NONMEMBERS, least_out), available - test)
    return {
        "members": members, "nonmembers": nonmembers, "test": test, "public": options.public,
        "reserve": reserve,
    }  # fmt: skip
