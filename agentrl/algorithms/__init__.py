"""The algorithms, one file each: advantages, loss, defaults and what each requires."""
