"""Changes to a whole table: create, alter, apply, drop, resume, restore its schema; and looks without owning."""
