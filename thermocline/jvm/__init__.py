"""The JVM for ingest and the demo: a Java that fits, and the locked jars.

Read `java` first (which Java), then `jars` (exactly those of `jars.lock`). `cache` is the folder where
both keep what they bring; `trust` lends Java the machine's certificate authorities.
"""
