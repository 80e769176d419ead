"""Changes to a whole table: create, alter, apply, drop, resume, restore; and looking without owning."""
