"""The contract of a table: what becomes of records whose writers' schemas differ from its definition.

`modes` has the kinds of changes, what may be done about each, and in which formats; `writers` reads the
fields of a writer's schema; `changes` compares these with the definition; `evolving` plans the definition
that follows; `sampled` tells the types of JSON's fields, which no schema declares; `refusing` makes records
bad that the contract does not let in; `in_file` adds to the file's definition what the table gained by
itself.
"""
