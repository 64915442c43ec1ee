"""A space fighter: shoot enemies, and keep clear of what comes down."""
