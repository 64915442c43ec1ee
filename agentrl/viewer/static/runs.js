// All runs in a folder: a list, the curves of the chosen runs, and the settings in which they differ.
import { keep, query } from "./lib/address.js";
import { axisChoice, axisOf, chart, colorOf } from "./lib/chart.js";
import {
  clock,
  counted,
  get,
  h,
  keepToken,
  loading,
  notice,
  number,
  post,
  replace,
  seconds,
  placeholder,
} from "./lib/dom.js";

const POLL_MS = 3000;
/** Runs whose curves are shown at first. */
const FIRST = 5;
/** Maximum number of chosen runs; the server refuses more. */
const MOST = 100;
const COLUMNS = [
  ["name", "run"],
  ["result", "result (95% interval)"],
  ["environment", "environment"],
  ["algorithm", "algorithm"],
  ["seed", "seed", "num"],
  ["step", "steps", "num"],
  ["seconds", "time", "num"],
  ["state", "state"],
  ["started", "started", "num"],
];

keepToken();
const state = { runs: [], chosen: new Set(query.getAll("run")), asked: 0, figure: null, metrics: [] };
const view = document.getElementById("view");
/** An address below /runs/ shows this page only if it names no run. */
const absent = location.pathname.startsWith("/runs/")
  ? decodeURI(location.pathname.slice(6)).replace(/\/+$/, "")
  : null;
const said = h(
  "div",
  {},
  absent ? notice(`There is no run ${absent} in this folder. It may have been deleted, archived or renamed.`) : null,
);
const count = h("p", { class: "faint count", role: "status" });
const head = h("tr");
const body = h("tbody", {}, h("tr", {}, h("td", { colspan: COLUMNS.length + 1 }, loading())));
const curves = h("div", { class: "overlay" });
const without = h("p", { class: "faint", role: "status" });
const metrics = h("datalist", { id: "metrics" });
/** Cleared by a click or focus, because browsers only suggest values that contain the field's text. */
const metric = h("input", {
  name: "metric",
  class: "metric",
  list: metrics.id,
  autocomplete: "off",
  spellcheck: "false",
  onfocus: () => {
    metric.value = "";
  },
  onclick: () => {
    if (state.metrics.includes(metric.value)) metric.value = "";
  },
  onblur: () => {
    metric.value = metric.placeholder;
  },
  oninput: () => {
    if (state.metrics.includes(metric.value)) keep("metric", metric.value, draw);
  },
  onkeydown: (event) => {
    if (event.key === "Enter" && metric.value.trim()) search(metric.value);
  },
});
const differences = h("section", { class: "card", hidden: true });
const bar = h(
  "form",
  { class: "filters card", role: "search", onsubmit: (event) => event.preventDefault() },
  label(
    "Search",
    h("input", {
      type: "search",
      name: "text",
      value: query.get("text") ?? "",
      placeholder: "name, environment, algorithm, tag",
      oninput: (event) => keep("text", event.target.value, list),
    }),
  ),
  label(
    "State",
    h(
      "select",
      { name: "state", onchange: (event) => keep("state", event.target.value, list) },
      ["", "running", "finished", "failed", "stopped"].map((name) =>
        h("option", { value: name, selected: name === (query.get("state") ?? "") }, name || "all"),
      ),
    ),
  ),
  h(
    "button",
    {
      class: "button",
      type: "button",
      onclick: () =>
        choose(
          shown()
            .slice(0, MOST)
            .map((run) => run.name),
        ),
    },
    "Select all shown",
  ),
  h("button", { class: "button quiet", type: "button", onclick: () => choose([]) }, "Select none"),
);
const over = axisChoice(() => {
  state.figure = null;
  draw();
});
const drawing = h(
  "section",
  { class: "card", hidden: true },
  h(
    "form",
    { class: "filters", onsubmit: (event) => event.preventDefault() },
    label("Metric", metric),
    metrics,
    label(
      "Smoothing",
      h("input", {
        type: "range",
        name: "smooth",
        min: "0",
        max: "0.99",
        step: "0.01",
        value: query.get("smooth") ?? "0",
        oninput: (event) => {
          keep("smooth", event.target.value === "0" ? "" : event.target.value);
          adjust();
        },
      }),
    ),
    over,
    check("log", "Log axis", adjust),
    check("seeds", "Seeds as mean and range", draw),
  ),
  curves,
  without,
);
const renaming = h("button", { class: "button", type: "button", onclick: rename }, "Rename");
const actions = h(
  "div",
  { class: "filters", hidden: true },
  h("button", { class: "button", type: "button", onclick: addTag }, "Add a tag"),
  renaming,
  h("button", { class: "button", type: "button", onclick: () => change("archive") }, "Archive"),
  h("button", { class: "button bad", type: "button", onclick: () => change("delete") }, "Delete"),
);

replace(
  view,
  h("h1", {}, "Runs"),
  said,
  bar,
  h(
    "section",
    { class: "card" },
    count,
    h("div", { class: "scroll" }, h("table", { class: "list" }, h("thead", {}, head), body)),
    actions,
  ),
  drawing,
  differences,
);

function label(name, control) {
  return h("label", {}, h("span", {}, name), control);
}

function check(name, words, changed) {
  const box = h("input", {
    type: "checkbox",
    name,
    checked: query.get(name) === "1",
    onchange: () => keep(name, box.checked ? "1" : "", changed),
  });
  return h("label", { class: "check" }, box, h("span", {}, words));
}

function choose(names) {
  state.chosen = new Set(names);
  query.delete("run");
  for (const name of names) query.append("run", name);
  keep("chosen", names.length ? "" : "none", () => {
    list();
    draw();
  });
}

/** The runs that match the filters, sorted. */
function shown() {
  const words = (query.get("text") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = query.get("state");
  const [by, down] = [query.get("sort") ?? "started", (query.get("down") ?? "1") === "1"];
  const value = (run) =>
    by === "result" ? (run.after?.mean ?? run.before?.mean ?? -Infinity) : (run[by] ?? "");
  const order = (a, b) =>
    (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : a.name < b.name ? -1 : 1) * (down ? -1 : 1);
  return state.runs
    .filter(
      (run) =>
        (!wanted || run.state === wanted) &&
        words.every((word) => `${run.name} ${run.environment} ${run.algorithm} ${run.tags.join(" ")}`.toLowerCase().includes(word)),
    )
    .sort(order);
}

function list() {
  const rows = shown();
  const [by, down] = [query.get("sort") ?? "started", (query.get("down") ?? "1") === "1"];
  const sort = (key) => {
    query.set("down", by === key && down ? "0" : "1");
    keep("sort", key, list);
  };
  count.textContent =
    rows.length === state.runs.length
      ? counted(rows.length, "run")
      : `${number(rows.length)} of ${number(state.runs.length)} runs`;
  replace(
    head,
    h("th", {}, h("span", { class: "unseen" }, "chosen")),
    COLUMNS.map(([key, name, kind]) =>
      h(
        "th",
        { class: kind, "aria-sort": by === key ? (down ? "descending" : "ascending") : null },
        h(
          "button",
          { class: "bare", type: "button", onclick: () => sort(key) },
          name,
          by === key ? (down ? " ↓" : " ↑") : "",
        ),
      ),
    ),
  );
  replace(
    body,
    rows.map((run) => {
      const box = h("input", {
        type: "checkbox",
        "aria-label": `Choose ${run.name}`,
        checked: state.chosen.has(run.name),
        onchange: () => {
          choose(
            box.checked ? [...state.chosen, run.name] : [...state.chosen].filter((name) => name !== run.name),
          );
        },
      });
      return h(
        "tr",
        {},
        h(
          "td",
          {},
          box,
          h("span", {
            class: "dot",
            style: state.chosen.has(run.name) ? { background: css(colorOf(place(run.name))) } : {},
          }),
        ),
        h(
          "td",
          {},
          h(
            "a",
            { href: `/runs/${run.name.split("/").map(encodeURIComponent).join("/")}/` },
            h("bdi", {}, run.name),
          ),
          run.tags.map((name) => tag(run, name)),
        ),
        h("td", {}, run.result.replace("->", "→")),
        h("td", { class: "environment" }, h("bdi", {}, run.environment)),
        h("td", {}, h("bdi", {}, run.algorithm)),
        h("td", { class: "num" }, String(run.seed)),
        h(
          "td",
          { class: "num" },
          run.steps === null || run.steps === run.step
            ? number(run.step)
            : `${number(run.step)} of ${number(run.steps)}`,
        ),
        h("td", { class: "num" }, seconds(run.seconds || null)),
        h(
          "td",
          {},
          run.state
            ? h(
                "span",
                {
                  class: `badge ${run.state === "running" ? "success" : ["failed", "stopped"].includes(run.state) ? "void" : "plain"}`,
                  title: run.error ?? null,
                },
                run.state,
              )
            : "",
          run.stage ? h("small", {}, run.stage) : null,
        ),
        h(
          "td",
          { class: "num" },
          clock(run.started),
        ),
      );
    }),
  );
  actions.hidden = !chosen().length;
  renaming.hidden = chosen().length !== 1;
  if (!state.runs.length)
    replace(
      body,
      h(
        "tr",
        {},
        h(
          "td",
          { colspan: COLUMNS.length + 1 },
          placeholder(
            "empty",
            "No runs in this folder yet",
            "Start one with agentrl train CONFIG; it will appear here.",
          ),
        ),
      ),
    );
  else if (!rows.length)
    replace(
      body,
      h(
        "tr",
        {},
        h(
          "td",
          { colspan: COLUMNS.length + 1 },
          placeholder("filtered", `None of ${number(state.runs.length)} runs matches`),
        ),
      ),
    );
}

/** Count runs from the oldest, so that a run keeps its color while others are added or removed. */
const place = (name) => state.runs.length - 1 - state.runs.findIndex((run) => run.name === name);
const css = (color) => (color.startsWith("--") ? `var(${color})` : color);

/** The chosen runs that still exist. */
const chosen = () => state.runs.map((run) => run.name).filter((name) => state.chosen.has(name));

async function draw() {
  const mine = ++state.asked;
  const names = chosen();
  drawing.hidden = !names.length;
  differences.hidden = names.length < 2;
  if (!names.length) return;
  const asked = new URLSearchParams(names.map((name) => ["run", name]));
  if (query.get("metric")) asked.set("metric", query.get("metric"));
  asked.set("axis", axisOf());
  let found;
  try {
    found = await get(`/api/runs/curves?${asked}`);
  } catch (error) {
    replace(curves, notice(error.message));
    return;
  }
  if (mine !== state.asked) return;
  if (String(found.metrics) !== String(state.metrics))
    replace(
      metrics,
      found.metrics.map((name) => h("option", { value: name })),
    );
  state.metrics = found.metrics;
  over.offer(found.axes);
  metric.placeholder = found.metric ?? "";
  if (document.activeElement !== metric) metric.value = metric.placeholder;
  const sets =
    query.get("seeds") === "1"
      ? grouped(found.curves)
      : found.curves.map(({ run, points }) => ({ name: run, points, color: colorOf(place(run)) }));
  const drawn = sets.filter((set) => set.points.length);
  const empty = found.curves.filter(({ points }) => !points.length).map(({ run }) => run);
  without.textContent = drawn.length && empty.length ? `No ${found.metric} in ${empty.join(", ")}.` : "";
  if (!drawn.length) {
    state.figure = null;
    replace(curves, placeholder("empty", "No curves yet", "None of the selected runs has finished a step."));
  } else if (state.figure?.title !== found.metric || !state.figure.drawn.grow(drawn)) {
    state.figure = { title: found.metric, drawn: chart(found.metric, drawn, { height: 320, axis: axisOf(), ...look() }) };
    replace(curves, state.figure.drawn);
  }
  differ(found.differences, names);
}

/** Draw the first metric whose name contains these words. */
function search(text) {
  const words = text.toLowerCase().split(/\s+/);
  const name = state.metrics.find((one) => words.every((word) => one.toLowerCase().includes(word)));
  if (name) keep("metric", (metric.value = name), draw);
  else without.textContent = `No metric of the selected runs has “${text}” in its name.`;
}

function look() {
  return { smoothing: Number(query.get("smooth") ?? 0), log: query.get("log") === "1" };
}

function adjust() {
  state.figure?.drawn.adjust(look());
}

/** Merge runs that differ only in the seed into one curve with the range over seeds. */
function grouped(all) {
  const groups = Map.groupBy(all, (one) => one.group);
  return [...groups.values()].map((members) => {
    if (members.length === 1)
      return { name: members[0].run, points: members[0].points, color: colorOf(place(members[0].run)) };
    const steps = [...new Set(members.flatMap(({ points }) => points.map(([x]) => x)))].sort((a, b) => a - b);
    const at = members.map(({ points }) => new Map(points));
    const values = steps.map((x) => at.map((map) => map.get(x)).filter((value) => value !== undefined));
    const curve = (summary) => steps.map((x, i) => [x, summary(values[i])]);
    return {
      name: `${members[0].run} and ${counted(members.length - 1, "more seed")}`,
      color: colorOf(place(members[0].run)),
      points: curve((all) => all.reduce((sum, value) => sum + value, 0) / all.length),
      low: curve((all) => Math.min(...all)),
      high: curve((all) => Math.max(...all)),
    };
  });
}

function differ(found, names) {
  replace(
    differences,
    h("h2", {}, "What differs"),
    found.length
      ? h(
          "div",
          { class: "scroll" },
          h(
            "table",
            { class: "differences" },
            h(
              "thead",
              {},
              h(
                "tr",
                {},
                h("th", {}, "setting"),
                names.map((name) => h("th", {}, h("bdi", {}, name))),
              ),
            ),
            h(
              "tbody",
              {},
              found.map(({ key, values }) =>
                h(
                  "tr",
                  {},
                  h("th", { scope: "row" }, h("code", {}, key)),
                  names.map((name) => h("td", {}, h("bdi", {}, values[name] ?? "–"))),
                ),
              ),
            ),
          ),
        )
      : h("p", { class: "faint" }, "All selected runs have the same settings."),
  );
}

/** A tag of a run; a click removes it. */
function tag(run, name) {
  const words = `Remove the tag ${name} from ${run.name}`;
  const rest = run.tags.filter((other) => other !== name);
  return h(
    "button",
    {
      class: "tag",
      type: "button",
      title: words,
      "aria-label": words,
      onclick: () => attempt([run.name], () => setTags(run.name, rest)),
    },
    h("bdi", {}, name),
    " ×",
  );
}

const setTags = (name, tags) =>
  post(`/api/runs/tag?${new URLSearchParams([["run", name], ...tags.map((one) => ["tags", one])])}`);

function addTag() {
  const names = chosen();
  const added = prompt(`Tag for ${counted(names.length, "run")}`)?.trim();
  if (!added) return;
  const tags = Object.fromEntries(state.runs.map((run) => [run.name, run.tags]));
  attempt(names, (name) => setTags(name, [...tags[name], added]));
}

async function rename() {
  const [name] = chosen();
  const wanted = prompt(`New name for ${name}`, name)?.trim();
  if (!wanted || wanted === name) return;
  if (await attempt([name], () => post("/api/runs/rename", { run: name, name: wanted }))) choose([wanted]);
}

/** Change runs one by one, report failures, and show the result; return whether all succeeded. */
async function attempt(names, action) {
  const failed = [];
  for (const name of names) {
    try {
      await action(name);
    } catch (error) {
      failed.push(`${name}: ${error.message}`);
    }
  }
  replace(
    said,
    failed.map((words) => notice(words)),
  );
  await load();
  return !failed.length;
}

async function change(what) {
  const names = chosen();
  const question =
    what === "delete"
      ? `Delete ${names.length === 1 ? "this run" : `these ${names.length} runs`} with all recordings, checkpoints and models? This cannot be undone.\n\n${names.join("\n")}`
      : `Move ${names.length === 1 ? "this run" : `these ${names.length} runs`} to the folder archive?\n\n${names.join("\n")}`;
  if (!confirm(question)) return;
  await attempt(names, (name) => post(`/api/runs/${what}`, { run: name }));
  choose([]);
}

/** The newest training runs of one environment, as rewards of different environments do not compare. */
function firstChoice(runs) {
  const trained = runs.filter((run) => run.algorithm);
  const alike = trained.filter((run) => run.environment === trained[0].environment);
  return new Set(alike.slice(0, FIRST).map((run) => run.name));
}

async function load() {
  const found = await get("/api/runs");
  const news = JSON.stringify(found.runs);
  document.getElementById("folder").textContent = found.folder;
  document.title = `${found.folder} · agentrl`;
  if (news === state.news) return false;
  Object.assign(state, { runs: found.runs, news });
  if (!state.chosen.size && !query.get("chosen")) state.chosen = firstChoice(found.runs);
  list();
  await draw();
  return true;
}

async function poll() {
  const lost = document.getElementById("lost");
  try {
    await load();
    if (!lost.hidden) replace(said);
    lost.hidden = true;
  } catch (error) {
    lost.hidden = error.status !== 0;
    if (error.status) replace(said, notice(error.message));
  }
  setTimeout(poll, POLL_MS);
}
poll();
