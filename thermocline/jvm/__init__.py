"""What the JVM parts run on, ingest's as well as the demo's: a Java that fits, and the locked jars.

Read `java` first (which Java), then `jars` (exactly those of `jars.lock`). `cache` is the folder where
both keep what they bring; `trust` lends Java the machine's certificate authorities.
"""
