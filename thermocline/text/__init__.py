"""Text for people: values and commands as they are printed."""
