"""The settings of every command, one frozen dataclass each, and which settings suit one another.

The command line, the evaluation and the studies import them; settings import no torch. Start at
`experiment.Experiment`; `compatibility` says what is void.
"""

__all__: list[str] = []  # pages of these options are `--help`
