"""The command line: flags, help, exit codes."""
