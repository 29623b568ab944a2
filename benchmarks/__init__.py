"""How fast osculate is, as ratios: to a plain training pass, and to laplace-torch in the same process.

    python -m benchmarks                        every row
    python -m benchmarks fit --quick            the rows whose name contains "fit", with few repeats
    python -m benchmarks --json benchmarks/results/benchmarks.json

A row is one function in ``rows/`` that returns a :class:`benchmarks.result.Result`; it is registered by its decorator.
"""
