"""Real local processes for `dev`, the demo and the tests.

Read `broker` (Kafka) first, which `dev` runs as a command of its own. Then `stack`: all of Thermocline on it.
`workload` writes records that a person can believe; `oracle` says what they must come to; `crowd` asks from
many threads. `demo` is the command. `s3` is an object store and `rest_catalog` a catalog on it. Java and the
jars are in `thermocline.jvm`.
"""
