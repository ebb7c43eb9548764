"""Writes the inputs of the recorded cases, and reads what the station answered: see README.md."""
