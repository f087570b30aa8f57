"""Training: set up a run, run its stages round by round, evaluate and record them.

The path of a run: :mod:`~unskew.engine.setup` checks what was requested,
:mod:`~unskew.engine.round_loop` runs the stages and their rounds (draw a cohort, train it,
aggregate), :mod:`~unskew.engine.evaluate` measures the result and
:mod:`~unskew.engine.round_metrics` turns it into the rows a run records.
"""
