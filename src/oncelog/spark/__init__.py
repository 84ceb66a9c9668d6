"""Spark's door to the log: `format("oncelog")`, to read and to write, batch and streaming. See `docs/spark.md`.

Nothing is imported here: Spark imports `pyspark_oncelog` in every process that looks a format up, and that must stay
cheap. What runs where: readers and writers are made and commit in Python workers beside the driver, `read` and
`write` run in Python workers beside the executors, and only pickled objects and commit messages pass between them.
"""
