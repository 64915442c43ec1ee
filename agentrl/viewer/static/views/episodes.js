// The list of episodes, filtered by the server; the filters are part of the address.
import {
  capitalized,
  clock,
  get,
  h,
  named,
  notice,
  number,
  outcomeBadge,
  voidReason,
  replace,
  seconds,
  signed,
  placeholder,
} from "../lib/dom.js";
import { gallery, star } from "../lib/episode_card.js";

const COUNT = { list: 100, gallery: 60 };
/** Delay between reloads while the search index is still being built. */
const AGAIN_MS = 500;
/** Delay after the last keystroke. */
const TYPING_MS = 300;
/** The same width is in style.css. */
const NARROW = matchMedia("(max-width: 700px)");
const OUTCOMES = ["terminated", "truncated", "void", "timeout", "device_error", "env_error"];

export async function episodes(place) {
  const query = new URLSearchParams(location.search);
  const fields = h("div", { class: "filters" });
  const bar = h(
    "form",
    { class: "card", role: "search", hidden: true, onsubmit: (event) => event.preventDefault() },
    fold(fields, query),
  );
  const table = h("section", { class: "card" });
  const views = h("span", { class: "choose" });
  replace(place, h("div", { class: "episode-head" }, h("h1", {}, "Episodes"), views), bar, table);
  let drawn = false;
  let asked = 0;
  let again = null;
  let typed = null;

  const change = (name, value, keepPage = false) => {
    clearTimeout(typed);
    if (value) query.set(name, value);
    else query.delete(name);
    if (!keepPage) query.delete("first");
    history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
    return load().catch(fail);
  };
  /** Apply filters while they are being typed. */
  const type = (name, value) => {
    clearTimeout(typed);
    typed = setTimeout(() => change(name, value), TYPING_MS);
  };
  const fail = (error) =>
    replace(
      table,
      placeholder(
        "error",
        "These filters cannot be applied",
        error.message,
        h("a", { class: "button", href: "/episodes" }, "Show all episodes"),
      ),
    );

  async function load() {
    clearTimeout(again);
    const mine = ++asked;
    const sort = query.get("sort") ?? "time";
    const text = hasWords(query) ? query.get("text") : null;
    const { view, ...filters } = Object.fromEntries(query);
    const found = await get("/api/episodes", { ...filters, text, sort, count: COUNT[viewOf(query)] });
    if (mine !== asked) return; // a newer request was sent in the meantime
    replace(
      views,
      Object.keys(COUNT).map((name) =>
        h(
          "button",
          {
            class: "button",
            type: "button",
            "aria-pressed": name === viewOf(query),
            onclick: () => change("view", name === "list" ? "" : name),
          },
          capitalized(name),
        ),
      ),
    );
    if (!drawn) {
      replace(fields, controls(query, found, change, type));
      drawn = true;
      bar.hidden = false;
    }
    replace(table, rows(query, found, change));
    if (isReading(found)) again = setTimeout(() => load().catch(fail), AGAIN_MS);
  }

  await load().catch(fail);
  return async () => {
    if (!query.get("first")) await load();
  };
}

/** The filters, collapsed at first on a narrow screen, because they would fill half of it. */
function fold(fields, query) {
  const isUsed = [...query.keys()].some((name) => !["view", "sort", "down", "first"].includes(name));
  const details = h("details", { class: "fold" }, h("summary", {}, "Filters"), fields);
  const adjust = () => {
    details.open = !NARROW.matches || isUsed;
  };
  NARROW.addEventListener("change", adjust);
  adjust();
  return details;
}

/** Placeholder and tooltip of free-text filters. */
const HINTS = {
  text: ["all of these words, such as next tap", 'Words match as prefixes; "in quotes" as a phrase'],
  query: [
    "accuracy < 0.5 and turns > 9",
    "Names of columns and metrics with = != < <= > >= ~ (contains), combined by and, or, not and parentheses",
  ],
};

const viewOf = (query) => (Object.hasOwn(COUNT, query.get("view") ?? "") ? query.get("view") : "list");

/** Punctuation alone, such as "*", is not a search term, so all episodes match. */
const hasWords = (query) => /[\p{L}\p{N}]/u.test(query.get("text") ?? "");

const isReading = (found) => found.searched !== null && found.searched[0] < found.searched[1];

function controls(query, found, change, typing) {
  const pick = (name, label, values, words = (v) => v) =>
    h(
      "label",
      {},
      h("span", {}, label),
      h(
        "select",
        { name, onchange: (event) => change(name, event.target.value) },
        h("option", { value: "" }, "any"),
        values.map((value) => h("option", { value, selected: query.get(name) === value }, words(value))),
      ),
    );
  const type = (name, label, size, kind = "number") =>
    h(
      "label",
      {},
      h("span", {}, label),
      h("input", {
        name,
        type: kind,
        inputmode: kind === "number" ? "numeric" : null,
        step: "any",
        size,
        value: query.get(name),
        onchange: (event) => {
          if (event.target.value !== (query.get(name) ?? "")) change(name, event.target.value);
        },
        oninput: (event) => typing(name, event.target.value),
        placeholder: HINTS[name]?.[0],
        title: HINTS[name]?.[1],
      }),
    );
  const labels =
    query.get("label") && !found.labels.includes(query.get("label"))
      ? [...found.labels, query.get("label")]
      : found.labels;
  return [
    type("text", "Text", 26, "search"),
    type("query", "Query", 26, "search"),
    pick("label", "Label", labels, named),
    pick("outcome", "Outcome", OUTCOMES),
    pick("success", "Success", ["true", "false"], (v) => (v === "true" ? "yes" : "no")),
    type("step", "Step", 5),
    type("seed", "Seed", 8),
    type("min_reward", "Min. reward", 6),
    type("max_reward", "Max. reward", 6),
    [
      ["cause", "Cause"],
      ["device", "Phone"],
      ["group", "Group"],
    ]
      .filter(([name]) => query.get(name))
      .map(([name, label]) => type(name, label, 14, "text")),
    h(
      "label",
      { class: "check" },
      h("input", {
        type: "checkbox",
        name: "starred",
        checked: query.get("starred") === "true",
        onchange: (event) => change("starred", event.target.checked ? "true" : ""),
      }),
      h("span", {}, "Starred"),
    ),
    h("a", { class: "button quiet", href: "/episodes" }, "Clear"),
  ];
}

const SORTS = [
  ["time", "end"],
  ["reward", "reward"],
  ["step", "step"],
  ["seed", "seed"],
  ["turns", "turns"],
  ["tokens", "tokens"],
  ["seconds", "duration"],
];

function rows(query, found, change) {
  const count = COUNT[viewOf(query)];
  const sort = query.get("sort") ?? "time";
  const down = (query.get("down") ?? "true") === "true";
  const first = Number(query.get("first") ?? 0);
  const order = (name, words) =>
    h(
      "th",
      { class: "num", "aria-sort": sort === name ? (down ? "descending" : "ascending") : null },
      h(
        "button",
        {
          class: "bare",
          "aria-label": words,
          onclick: async () => {
            query.set("down", String(sort === name ? !down : true));
            await change("sort", name);
          },
        },
        words,
        sort === name ? (down ? " ↓" : " ↑") : "",
      ),
    );
  const searching = isReading(found);
  const so_far = searching
    ? h(
        "p",
        { class: "faint" },
        `Searching: ${number(found.searched[0])} of ${number(found.searched[1])} episodes so far…`,
      )
    : null;
  if (!found.found) {
    if (searching) return so_far;
    return found.all
      ? placeholder(
          "filtered",
          `None of ${number(found.all)} episodes matches`,
          "Relax or clear the filters above.",
          h("a", { class: "button", href: "/episodes" }, "Show all episodes"),
        )
      : placeholder("empty", "No episodes yet", "They appear here as they end.");
  }
  return [
    so_far,
    query.get("text")?.trim() && !hasWords(query)
      ? h("p", { class: "faint" }, "Search terms need a letter or a digit, so all episodes are listed.")
      : null,
    h(
      "div",
      { class: "count" },
      h("span", {}, `${number(found.found)} of ${number(found.all)} episodes`),
      viewOf(query) === "list"
        ? null
        : [
            h(
              "select",
              { name: "sort", "aria-label": "Sort", onchange: (event) => change("sort", event.target.value) },
              SORTS.map(([name, words]) =>
                h("option", { value: name, selected: name === sort }, `by ${words}`),
              ),
            ),
            h(
              "button",
              {
                class: "button",
                type: "button",
                "aria-label": down ? "Largest first" : "Smallest first",
                onclick: () => change("down", String(!down)),
              },
              down ? "↓" : "↑",
            ),
          ],
    ),
    viewOf(query) === "gallery"
      ? gallery(found.rows)
      : h(
          "div",
          { class: "scroll" },
          h(
            "table",
            { class: "list" },
            h(
              "thead",
              {},
              h(
                "tr",
                {},
                h("th", {}, "episode"),
                h("th", {}, "outcome"),
                order("reward", "reward"),
                order("step", "step"),
                order("seed", "seed"),
                order("turns", "turns"),
                order("tokens", "tokens"),
                order("seconds", "time"),
                h("th", {}, "phone"),
                order("time", "ended"),
              ),
            ),
            h(
              "tbody",
              {},
              found.rows.map((row) => [
                h(
                  "tr",
                  { class: row.excerpt ? "above" : null },
                  h(
                    "td",
                    {},
                    star(row),
                    h("a", { href: `/episodes/${encodeURIComponent(row.id)}` }, h("bdi", {}, row.id)),
                    row.removed
                      ? [
                          " ",
                          h(
                            "span",
                            { class: "badge plain", title: "this episode was removed by pruning; only its scores were kept" },
                            "pruned",
                          ),
                        ]
                      : null,
                    row.note ? h("span", { class: "note" }, h("bdi", {}, row.note)) : null,
                  ),
                  h("td", {}, outcomeBadge(row), voidReason(row)),
                  h("td", { class: "num" }, row.void ? "–" : signed(row.reward)),
                  h("td", { class: "num" }, number(row.step)),
                  h("td", { class: "num" }, String(row.seed)),
                  h("td", { class: "num" }, number(row.turns)),
                  h("td", { class: "num" }, number(row.tokens)),
                  h("td", { class: "num" }, seconds(row.seconds)),
                  h("td", {}, h("bdi", {}, row.device ?? "")),
                  h("td", { class: "num faint" }, clock(row.time)),
                ),
                excerpt(row.excerpt),
              ]),
            ),
          ),
        ),
    found.found > count
      ? h(
          "nav",
          { class: "pages", "aria-label": "pages" },
          h(
            "button",
            {
              class: "button",
              disabled: first === 0,
              onclick: () => change("first", String(Math.max(0, first - count)), true),
            },
            "← Newer",
          ),
          h("span", {}, `${number(first + 1)}–${number(Math.min(first + count, found.found))}`),
          h(
            "button",
            {
              class: "button",
              disabled: first + count >= found.found,
              onclick: () => change("first", String(first + count), true),
            },
            "Older →",
          ),
        )
      : null,
  ];
}

/** The text around the matches. */
const excerpt = (parts) =>
  parts
    ? h(
        "tr",
        { class: "excerpt" },
        h(
          "td",
          { colspan: 10 },
          h(
            "bdi",
            {},
            parts.map(([words, found]) => (found ? h("mark", {}, words) : words)),
          ),
        ),
      )
    : null;
