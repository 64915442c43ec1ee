// The list of episodes, filtered by the server; the filters are the address.
import { clock, get, h, named, notice, number, outcomeBadge, replace, seconds, signed, tone } from "../lib/dom.js";

const COUNT = 100;
/** Between two looks while words are still being read. */
const AGAIN_MS = 500;
/** After the last key that was typed. */
const TYPING_MS = 300;
const OUTCOMES = ["terminated", "truncated", "void", "timeout", "device_error", "env_error"];

export async function episodes(place) {
  const query = new URLSearchParams(location.search);
  const bar = h("form", { class: "filters card", role: "search", hidden: true, onsubmit: (event) => event.preventDefault() });
  const table = h("section", { class: "card" });
  replace(place, h("h1", {}, "Episodes"), bar, table);
  let drawn = false;
  let asked = 0;
  let again = null;
  let typed = null;

  const change = (name, value, keepPage = false) => {
    clearTimeout(typed);
    if (value) query.set(name, value); else query.delete(name);
    if (!keepPage) query.delete("first");
    history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
    return load().catch(tell);
  };
  /** What is typed counts before it is whole. */
  const type = (name, value) => {
    clearTimeout(typed);
    typed = setTimeout(() => change(name, value), TYPING_MS);
  };
  const tell = (error) => replace(table, notice(error.message), h("p", {}, h("a", { href: "/episodes" }, "Show all episodes")));

  async function load() {
    clearTimeout(again);
    const mine = ++asked;
    const sort = query.get("sort") ?? "time";
    const text = hasWords(query) ? query.get("text") : null;
    const found = await get("/api/episodes", { ...Object.fromEntries(query), text, sort, count: COUNT });
    if (mine !== asked) return; // something else was asked for since
    if (!drawn) { replace(bar, controls(query, found, change, type)); drawn = true; bar.hidden = false; }
    replace(table, rows(query, found, change));
    if (isReading(found)) again = setTimeout(() => load().catch(tell), AGAIN_MS);
  }

  await load().catch(tell);
  return async () => { if (!query.get("first")) await load(); };
}

/** Signs alone, such as "*" or spaces, are no words: they leave all episodes. */
const hasWords = (query) => /[\p{L}\p{N}]/u.test(query.get("text") ?? "");

const isReading = (found) => found.searched !== null && found.searched[0] < found.searched[1];

function controls(query, found, change, typing) {
  const pick = (name, label, values, words = (v) => v) => h("label", {}, h("span", {}, label),
    h("select", { name, onchange: (event) => change(name, event.target.value) },
      h("option", { value: "" }, "any"),
      values.map((value) => h("option", { value, selected: query.get(name) === value }, words(value)))));
  const type = (name, label, size, kind = "number") => h("label", {}, h("span", {}, label),
    h("input", { name, type: kind, inputmode: kind === "number" ? "numeric" : null, step: "any", size,
      value: query.get(name), onchange: (event) => { if (event.target.value !== (query.get(name) ?? "")) change(name, event.target.value); },
      oninput: (event) => typing(name, event.target.value),
      placeholder: kind === "search" ? "all of these, such as nex tap" : null,
      title: kind === "search" ? "Each may be the beginning of a word; \"in quotation marks\" one after the other" : null }));
  const labels = query.get("label") && !found.labels.includes(query.get("label"))
    ? [...found.labels, query.get("label")] : found.labels;
  return [
    type("text", "Words", 26, "search"),
    pick("label", "Play", labels, named),
    pick("outcome", "Outcome", OUTCOMES),
    pick("won", "Won", ["true", "false"], (v) => v === "true" ? "yes" : "no"),
    type("step", "Step", 5), type("seed", "Seed", 8), type("least", "Reward from", 6), type("most", "Reward to", 6),
    [["cause", "Cause"], ["device", "Phone"], ["group", "Group"]].filter(([name]) => query.get(name)).map(([name, label]) => type(name, label, 14, "text")),
    h("a", { class: "button quiet", href: "/episodes" }, "Clear"),
  ];
}

function rows(query, found, change) {
  const sort = query.get("sort") ?? "time";
  const down = (query.get("down") ?? "true") === "true";
  const first = Number(query.get("first") ?? 0);
  const order = (name, words) => h("th", { class: "num", "aria-sort": sort === name ? (down ? "descending" : "ascending") : null },
    h("button", { class: "bare", "aria-label": words, onclick: async () => {
      query.set("down", String(sort === name ? !down : true));
      await change("sort", name);
    } }, words, sort === name ? (down ? " ↓" : " ↑") : ""));
  const searching = isReading(found);
  const so_far = searching ? h("p", { class: "faint" }, `Reading: ${number(found.searched[0])} of ${number(found.searched[1])} episodes are searched so far…`) : null;
  if (!found.found) {
    if (searching) return so_far;
    return h("p", { class: "empty" }, found.all ? `None of ${number(found.all)} episodes is like this.` : "Nothing has been played yet.");
  }
  return [
    so_far,
    query.get("text")?.trim() && !hasWords(query) ? h("p", { class: "faint" }, "Words have a letter or a digit: there is none to look for.") : null,
    h("p", { class: "count" }, `${number(found.found)} of ${number(found.all)} episodes`),
    h("div", { class: "scroll" }, h("table", { class: "list" },
      h("thead", {}, h("tr", {}, h("th", {}, "episode"), h("th", {}, "outcome"), order("total", "reward"), order("step", "step"),
        order("seed", "seed"), order("turns", "turns"), order("tokens", "tokens"), order("seconds", "time"), h("th", {}, "phone"), order("time", "ended"))),
      h("tbody", {}, found.rows.map((row) => [h("tr", { class: row.excerpt ? "above" : null },
        h("td", {}, h("a", { href: `/episodes/${encodeURIComponent(row.id)}` }, h("bdi", {}, row.id)),
          row.removed ? [" ", h("span", { class: "badge plain", title: "retention has removed this episode; its scores are kept" }, "removed")] : null),
        h("td", {}, outcomeBadge(row)),
        h("td", { class: `num ${row.void ? "" : tone(row.total)}` }, row.void ? "–" : signed(row.total)),
        h("td", { class: "num" }, number(row.step)),
        h("td", { class: "num" }, String(row.seed)),
        h("td", { class: "num" }, number(row.turns)),
        h("td", { class: "num" }, number(row.tokens)),
        h("td", { class: "num" }, seconds(row.seconds)),
        h("td", {}, h("bdi", {}, row.device ?? "")),
        h("td", { class: "num faint" }, clock(row.time)),
      ), excerpt(row.excerpt)])))),
    found.found > COUNT ? h("nav", { class: "pages", "aria-label": "pages" },
      h("button", { class: "button", disabled: first === 0, onclick: () => change("first", String(Math.max(0, first - COUNT)), true) }, "← newer"),
      h("span", {}, `${number(first + 1)}–${number(Math.min(first + COUNT, found.found))}`),
      h("button", { class: "button", disabled: first + COUNT >= found.found, onclick: () => change("first", String(first + COUNT), true) }, "older →")) : null,
  ];
}

/** Where the words were found. */
const excerpt = (parts) => parts ? h("tr", { class: "excerpt" }, h("td", { colspan: 10 },
  h("bdi", {}, parts.map(([words, found]) => found ? h("mark", {}, words) : words)))) : null;
