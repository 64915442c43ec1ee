"""The algorithms, one file each: advantages, policy loss, defaults and what each requires."""
