"""Real local processes for the demo and the tests.

Read `broker` (Kafka) first, then `java` and `jars`: what it and Spark run on. `workload` writes
records that a person can believe; `oracle` says what they must come to.
"""
