"""The rows, in the order of the table."""

from benchmarks.rows import (
    autoencoders as autoencoders,
    deployed as deployed,
    fits as fits,
    last_layer as last_layer,
    memory as memory,
    online as online,
    predictives as predictives,
    processes as processes,
    refinement as refinement,
    squared as squared,
    streams as streams,
    threads as threads,
    tuning as tuning,
    variational as variational,
)
