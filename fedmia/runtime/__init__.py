"""What a command needs beside the science: machine, clock, display, folder, Ctrl-C."""
