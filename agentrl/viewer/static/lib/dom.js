// Create elements and format numbers. Text only becomes text nodes, so a model cannot inject markup.

/** Prefix of the addresses of this run, if the server has a folder of runs. */
export const base = document.documentElement.dataset.base ?? "";
const LINKS = new Set(["href", "src"]);

export function h(tag, attributes = {}, ...children) {
  const element = SVG.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || (value === false && !name.startsWith("aria-"))) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (LINKS.has(name) && value.startsWith("/")) element.setAttribute(name, base + value);
    else element.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : String(value));
  }
  element.append(...present(children));
  return element;
}
const present = (children) =>
  children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false);
const SVG = new Set(["svg", "circle", "line", "rect", "path", "g", "polyline", "title"]);

/** Replace an element's children; a control that exists before and after keeps the focus. */
export function replace(parent, ...children) {
  const held =
    parent.contains(document.activeElement) && parent !== document.activeElement
      ? document.activeElement
      : null;
  parent.replaceChildren(...present(children));
  if (held && !parent.contains(held)) {
    [...parent.querySelectorAll(held.tagName)]
      .find((other) => known(other) === known(held))
      ?.focus({ preventScroll: true });
  }
  return parent;
}
const known = (control) =>
  control.getAttribute("aria-label") ?? control.getAttribute("href") ?? (control.name || control.textContent);

/** GET JSON; throws an Error with the server's message if it refuses. */
export async function get(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  return ask(query.size ? `${path}?${query}` : path);
}

/** POST a change, which requires the token; `body` is sent as JSON. */
export const post = (path, parameters = {}, body = undefined) =>
  ask(`${path}${path.includes("?") ? "&" : "?"}${new URLSearchParams(parameters)}`, {
    method: "POST",
    headers: { "x-agentrl-token": sessionStorage.getItem("token") ?? "" },
    body: body && JSON.stringify(body),
  });

/** Keep the token that is part of the address that the server prints; every change requires it. */
export function keepToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  sessionStorage.setItem("token", token);
  history.replaceState(null, "", location.pathname + location.search);
}

async function ask(address, options = {}) {
  let answer;
  try {
    answer = await fetch(base + address, options);
  } catch {
    throw Object.assign(new Error("The server is not responding. Is agentrl still running?"), { status: 0 });
  }
  const body = answer.headers.get("content-type")?.startsWith("application/json")
    ? await answer.json()
    : null;
  if (body?.reading) {
    progress.show(body);
    return ask(address, options);
  }
  progress.hide();
  if (!answer.ok) {
    const words = body?.error ?? describe(body?.detail) ?? `${answer.status} ${answer.statusText}`;
    throw Object.assign(new Error(words), { status: answer.status });
  }
  return body;
}

/** A line at the top of the page while the server is still reading a long run. */
const progress = {
  show({ reading, share: done }) {
    this.bar ??= h("progress", { "aria-hidden": "true" });
    this.words ??= h("span");
    this.line ??= h("p", { class: "reading", role: "status" }, this.bar, this.words);
    this.bar.value = done;
    this.words.textContent = `Reading the ${reading}: ${Math.floor(100 * done)}%`;
    if (!this.line.isConnected) document.getElementById("view").before(this.line);
  },
  hide() {
    this.line?.remove();
  },
};

const describe = (detail) =>
  Array.isArray(detail) ? detail.map((d) => `${d.loc?.at(-1)}: ${d.msg}`).join("; ") : detail;

export const frame = (id, width) => `/frames/${id}${width ? `?width=${width}` : ""}`;

/** A number with a few significant digits. */
export function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size < 0.001) return Number(value.toPrecision(digits)).toExponential();
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return Number(value.toPrecision(digits)).toString();
}
export const signed = (value, digits = 3) =>
  value === null || value === undefined ? "–" : (value > 0 ? "+" : "") + number(value, digits);
export const share = (value) => (value === null || value === undefined ? "–" : `${number(100 * value)}%`);
export const tone = (value) => (value > 0 ? "good" : value < 0 ? "bad" : "");

/** A duration, such as 42 s, 3:05 or 1:02:05, as in the terminal. */
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 0.001) return "under 1 ms";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 59.5) return `${value < 10 ? number(value) : Math.round(value)} s`;
  const whole = Math.round(value);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  const two = (part) => String(part).padStart(2, "0");
  return `${hours ? `${hours}:${two(minutes)}` : minutes}:${two(whole % 60)}`;
}

/** A date and time, such as 2026-11-28 19:54, as in the terminal. */
export function clock(time) {
  if (!time) return "–";
  const at = new Date(time * 1000);
  const two = (part) => String(part).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}`;
}

const ICONS = {
  first: "M4 3h2v10H4zM13 3v10L6 8z",
  back: "M11 3v10L4 8z",
  play: "M5 3v10l8-5z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  star: "M8 1.2l2.1 4.4 4.8.6-3.5 3.3.9 4.8L8 12l-4.3 2.3.9-4.8L1.1 6.2l4.8-.6z",
  on: "M5 3v10l7-5z",
  last: "M10 3h2v10h-2zM3 3v10l7-5z",
};
export const icon = (name) =>
  h("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, h("path", { d: ICONS[name] }));

/** A count with its noun: 1 turn, 2 turns. */
export const counted = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

/** A name as the text of a button. */
export const capitalized = (name) => name[0].toUpperCase() + name.slice(1);

/** A label such as after-greedy with spaces. */
export const named = (label) => label.replaceAll("-", " ");

export function fact(name, value, extra = "") {
  return h("div", { class: "fact" }, h("dt", {}, name), h("dd", { class: extra }, h("bdi", {}, value)));
}
export const notice = (words, kind = "bad") =>
  h("p", { class: `notice ${kind}`, role: kind === "bad" ? "alert" : null }, h("bdi", {}, words));

/**
 * Shown instead of a view's content if it is empty, nothing matches, or it cannot be shown. Titles
 * have no final period.
 */
export const placeholder = (kind, title, words = null, ...actions) =>
  h(
    "div",
    { class: `state ${kind}`, role: kind === "error" ? "alert" : null },
    h(
      "svg",
      { viewBox: "0 0 48 48", "aria-hidden": "true" },
      DRAWN[kind].map((d) => h("path", { d })),
    ),
    h("p", { class: "title" }, title),
    words ? h("p", { class: "faint" }, h("bdi", {}, words)) : null,
    present(actions).length ? h("p", { class: "actions" }, actions) : null,
  );
const PHONE = "M16 5h16a4 4 0 0 1 4 4v30a4 4 0 0 1-4 4H16a4 4 0 0 1-4-4V9a4 4 0 0 1 4-4z";
const DRAWN = {
  empty: [PHONE, "M21 38h6", "M19 19h10M19 25h6"],
  filtered: ["M21 7a14 14 0 1 1 0 28 14 14 0 0 1 0-28z", "M31 31l11 11", "M16 21h10"],
  error: [PHONE, "M24 14v12", "M24 32v.5"],
};

/** Placeholders while a view loads; they appear after a moment, so that fast answers do not flash. */
export const loading = (count = 3) =>
  h(
    "div",
    { class: "loading", role: "status" },
    h("span", { class: "unseen" }, "Loading…"),
    Array.from({ length: count }, () => h("span", { class: "skeleton" })),
  );

/** Report a failed change at the edge of the window, until a click. */
export function failed(error) {
  document.querySelector(".toast")?.remove();
  document.body.append(
    h(
      "button",
      {
        class: "toast notice",
        type: "button",
        role: "alert",
        title: "Close",
        onclick: (event) => event.currentTarget.remove(),
      },
      h("bdi", {}, error.message),
    ),
  );
}

/** The rest of the error that made an episode void, without its cause. */
export function voidReason(row) {
  if (!row.void || !row.error) return null;
  const said = row.error.startsWith(`${row.cause}: `) ? row.error.slice(row.cause.length + 2) : row.error;
  return h("span", { class: "reason", title: row.error }, h("bdi", {}, said));
}

/** Only success and void episodes are colored, because most episodes of an untrained model fail. */
export function outcomeBadge(row) {
  const kind = row.void ? "void" : row.success === true ? "success" : "plain";
  const words = row.void
    ? row.cause
    : row.success === true
      ? "success"
      : row.success === false
        ? "no success"
        : row.outcome;
  return h(
    "span",
    {
      class: `badge ${kind}`,
      title: row.error ?? (row.truncated_by ? `truncated by: ${row.truncated_by}` : row.outcome),
    },
    h("bdi", {}, words),
  );
}
