"""``thermocline doctor``: checks of everything that a deployment rests on, each with its fix.

Read `finding` (what a check says), `check` (what one is, and what checks share) and `run` first; `checks` has
them in their order. The others are the checks, by what they look at: `configuration`, `versions`, `machine`,
`disks`, `kafka` (brokers, rights), `topics` (how these are set), `lake` (catalog, store), `clocks`, `tables`,
and `keys`, which looks at a `sample` of the newest records. What a check finds is judged by functions that
take facts and give findings (``…_of``, ``…_in``). Nothing is changed by any.
"""
