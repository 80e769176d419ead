"""Changes to a whole table: create, alter, drop, resume, restore its schema; and looking without owning."""
