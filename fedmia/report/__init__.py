"""Scores of a run as numbers, sentences, pages and figures.

Simulations, audits, Flower deployments and studies import it; it imports records, statistics and
lower bounds. Start with `build.build_report`, which makes report.json; `page` and `terminal` show
its numbers.
"""
