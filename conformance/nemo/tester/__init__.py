"""The tester: its own codec, links, stations and cases."""
