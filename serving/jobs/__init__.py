"""Extract jobs: an extract as files in a folder of the server, a file a bucket, at one read point.

``job`` has the values, ``store`` the folder that API workers and the runner share, and ``runner`` makes
the files, in a process of its own at the lowest priority. A job is complete if its manifest is there.
"""
