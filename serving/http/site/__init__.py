"""The pages for people: the status of all tables and of one, looking up rows, and signing in.

``routes`` has the endpoints, ``render`` makes pages of templates and pictures (``pictures``), ``framed`` puts
them into the frame that all have, and ``session`` keeps who signed in within a sealed cookie. ``lookup`` is
the page on which rows are looked up; ``asked`` words its question for curl, Python and the command line. A
further page is a template, a route in ``pages``, and a line in the layout's navigation.
"""
