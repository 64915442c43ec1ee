"""Space fighter: shoot enemies, and avoid everything that comes down."""
