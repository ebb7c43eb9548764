"""The tester: it knows the standard, and of the station under test no more than a cable and a UDP port."""
