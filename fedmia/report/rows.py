"""The rows of a report under their former name; they are in `fedmia.records.rows`."""

from fedmia.records.rows import *  # noqa: F403
