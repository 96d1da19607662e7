"""The tables and figures of the five papers, each by one command.

`entries` reads what a table asks for from `tables/PAPER.yaml`; `jobs` makes encoders, audits, heads
and federations, each once; `central` trains an encoder without Flower; `cells` reads a number off a
finished job; `tables`, `drawing` and `claims` make of the numbers what the paper prints.
"""
