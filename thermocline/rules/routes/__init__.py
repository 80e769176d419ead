"""A route: records of some topics, by one text of each, into a table for every text that comes.

``names`` makes a table's name of a *value*, which is that text. ``directory`` is what a route knows: which
values have which table. Pure, as all rules are.
"""
