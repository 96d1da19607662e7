"""From models to scores. Nothing here trains, and nothing needs Flower.

`suite` is every attack on the models of some rounds, `score` the one call that scores them. `run`
and `encoder` say what the rounds, the images and the attacker are: of a run of fedmia's own, and of
an audit of an encoder, of vectors or of any federation. `steps` are the parts of scoring, `audits`
what an audit is made of, `trajectories` the active attack of a run.
"""
