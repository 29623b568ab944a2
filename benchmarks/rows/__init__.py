"""The rows, in the order of the table."""

from benchmarks.rows import fits as fits, predictives as predictives, memory as memory, tuning as tuning  # noqa: I001
