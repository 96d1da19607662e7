"""Checks for plugins of your own: `check_attack(MyAttack)` raises AssertionError with a sentence.

Each takes a class or an instance, makes its own tiny material and needs no test runner.
"""
