"""How values and commands are printed."""
