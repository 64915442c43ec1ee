// Keep the choices on a page in its address, so that it can be shared and reloaded.

/** The query of the address. */
export const query = new URLSearchParams(location.search);

/** Keep a choice in the address, or remove an empty one. */
export function keep(name, value, then) {
  if (value) query.set(name, value);
  else query.delete(name);
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
  then?.();
}
