"""The pages for people: the status of all tables and of one, and signing in.

``routes`` has the endpoints, ``render`` makes pages of templates and pictures (``pictures``), ``session``
keeps who signed in within a sealed cookie. A further page is a template that extends ``layout.html``, a route
in ``pages``, and a line in the layout's navigation.
"""
