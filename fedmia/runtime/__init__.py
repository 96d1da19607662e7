"""What every command needs of the machine: cores, device, threads, clock, progress bars, Ctrl-C.

Commands, evaluation and studies import it; it knows nothing of the science. Start at
`device.resolve_device` and `progress.ProgressBars`.
"""
