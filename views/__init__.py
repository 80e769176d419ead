"""The live view in Trino: what stands in Trino's configuration, and the SQL of the views.

`config` gives the files that Trino needs (`thermocline views config`): the Iceberg catalog (`lake`), the
Kafka catalog with a table for each topic (`topics`, `kafka_client`), rights (`access`), limits (`limits`).
"""
