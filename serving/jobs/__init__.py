"""Extract jobs: an extract as files, one per bucket, all at one read point.

``job`` has the values, ``store`` the records that API workers and the runner share, ``files`` where a job's
files are, and ``runner`` makes them, in a process of its own at the lowest priority. A job is complete if its
manifest is there.
"""
