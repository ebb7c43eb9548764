# Nothing but what the page itself makes.
