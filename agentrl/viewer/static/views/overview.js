// The whole run at a glance.
import { chart } from "../lib/chart.js";
import { clock, fact, get, h, named, number, replace, seconds, share } from "../lib/dom.js";

export async function overview(place) {
  const head = h("section", { class: "card" });
  const curves = h("section", { class: "charts" });
  const rest = h("div");
  replace(place, head, curves, rest);

  async function refresh() {
    const [run, charts] = await Promise.all([get("/api/run"), get("/api/curves")]);
    replace(head, heading(run));
    replace(curves, charts.length ? charts.map(({ title, curves }) => chart(title, curves))
      : h("p", { class: "empty" }, "No training step has ended yet: there are no curves."));
    replace(rest, tables(run));
  }
  await refresh();
  return refresh;
}

function heading(run) {
  const void_ = Object.values(run.causes).reduce((sum, count) => sum + count, 0);
  return [
    h("h1", {}, h("bdi", {}, run.name)),
    h("dl", { class: "facts" },
      fact("environment", run.env_id ?? "–"),
      fact("episodes", number(run.count)),
      fact("turns", number(run.turns)),
      fact("tokens sampled", number(run.tokens)),
      fact("void", run.count ? `${number(void_)} (${share(void_ / run.count)})` : "–", void_ ? "bad" : ""),
      fact("began", clock(run.first)),
      fact("last episode", clock(run.last)),
      fact("configuration", run.configs.join(", ") || "–"),
    ),
    run.count ? null : h("p", { class: "empty" }, "Nothing has been played yet. Episodes appear here as they end."),
  ];
}

function tables(run) {
  return [
    h("section", { class: "card" },
      h("h2", {}, "What was played"),
      h("div", { class: "scroll" }, h("table", {},
        h("thead", {}, h("tr", {}, ["play", "step", "episodes", "void", "reward", "won"].map((name, i) => h("th", { class: i ? "num" : "" }, name)))),
        h("tbody", {}, byPlay(run.plays).map((play) => h("tr", {},
          h("td", {}, h("a", { href: listing(play) }, named(play.label))),
          h("td", { class: "num" }, play.steps),
          h("td", { class: "num" }, number(play.count)),
          h("td", { class: `num ${play.void ? "bad" : ""}` }, number(play.void)),
          h("td", { class: "num" }, number(play.total)),
          h("td", { class: "num" }, share(play.won)),
        )))))),
    Object.keys(run.causes).length ? h("section", { class: "card" },
      h("h2", {}, "Why episodes were void"),
      h("ul", { class: "bars" }, Object.entries(run.causes).sort((a, b) => b[1] - a[1]).map(([cause, count]) =>
        bar(cause, count, Math.max(...Object.values(run.causes)), `/episodes?cause=${encodeURIComponent(cause)}`)))) : null,
    run.devices.length ? h("section", { class: "card" },
      h("h2", {}, "Phones"),
      h("div", { class: "scroll" }, h("table", {},
        h("thead", {}, h("tr", {}, ["phone", "episodes", "void", "a turn", "last episode"].map((name, i) => h("th", { class: i ? "num" : "" }, name)))),
        h("tbody", {}, run.devices.map((device) => h("tr", {},
          h("td", {}, h("a", { href: `/episodes?device=${encodeURIComponent(device.device)}` }, h("bdi", {}, device.device))),
          h("td", { class: "num" }, number(device.episodes)),
          h("td", { class: `num ${device.void ? "bad" : ""}`, title: Object.entries(device.causes).map((c) => c.join(" ")).join(", ") }, number(device.void)),
          h("td", { class: "num" }, seconds(device.seconds_per_turn)),
          h("td", { class: "num" }, clock(device.last)),
        )))))) : null,
    run.config ? h("details", { class: "card" }, h("summary", {}, "Configuration"), h("pre", {}, run.config)) : null,
  ];
}

/** Training is one line, however many steps it has had; everything else one a step. */
function byPlay(plays) {
  const rows = [];
  for (const play of plays) {
    const same = play.split === "train" ? rows.find((row) => row.label === play.label) : null;
    if (!same) { rows.push({ ...play, steps: String(play.step), first: play.step }); continue; }
    const weight = (row, key) => row[key] === null ? [0, 0] : [row[key] * (row.count - row.void), row.count - row.void];
    for (const key of ["total", "won"]) {
      const [a, n] = weight(same, key);
      const [b, m] = weight(play, key);
      same[key] = n + m ? (a + b) / (n + m) : null;
    }
    same.count += play.count;
    same.void += play.void;
    same.steps = `${same.first}–${play.step}`;
  }
  return rows;
}
const listing = (play) => `/episodes?label=${encodeURIComponent(play.label)}` +
  (play.split === "train" ? "" : `&step=${play.step}`);

function bar(name, count, most, href) {
  return h("li", {}, h("a", { href }, h("bdi", {}, name)),
    h("span", { class: "track" }, h("span", { class: "fill", style: { width: `${100 * count / most}%` } })),
    h("span", { class: "num" }, number(count)));
}
