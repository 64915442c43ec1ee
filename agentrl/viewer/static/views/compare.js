// Compare two evaluations seed by seed.
import {
  counted,
  fact,
  get,
  h,
  named,
  notice,
  number,
  outcomeBadge,
  replace,
  share,
  signed,
  placeholder,
  tone,
} from "../lib/dom.js";

export async function compare(place) {
  const run = await get("/api/run");
  const plays = [
    ...run.plays,
    ...(run.other?.plays ?? []).map((play) => ({ ...play, run: run.other.name })),
  ].filter((play) => play.split !== "train");
  const query = new URLSearchParams(location.search);
  const key = (play) => `${play.run ? "with:" : ""}${play.label}@${play.step}`;
  /** The evaluation in the address, null if it does not exist; the fallback without one in the address. */
  const known = (name, fallback) =>
    query.get(name) ? (plays.find((p) => key(p) === query.get(name)) ?? null) : fallback;
  const sampled = plays.filter((p) => p.split === "eval" && /sampled|step|train/.test(p.label));
  let a = known("a", sampled[0] ?? plays[0]);
  let b = known("b", sampled.at(-1) ?? plays.at(-1));
  const missing = ["a", "b"]
    .filter((name) => known(name) === null)
    .map((name) => absent(query.get(name), run));
  let only = query.get("only") ?? "";
  if (only && !SEEDS.some(([value]) => value === only)) {
    missing.push(`There is no seed filter ${only.slice(0, 60)}; all seeds are shown.`);
    only = "";
  }
  const warnings = h(
    "div",
    {},
    missing.map((words) => notice(words, "plain")),
  );
  const choose = h("form", { class: "filters card", onsubmit: (event) => event.preventDefault() });
  const result = h("div");
  replace(place, h("h1", {}, "Compare two evaluations"), warnings, choose, result);
  if (plays.length < 2) {
    replace(
      result,
      placeholder(
        "empty",
        "Nothing to compare yet",
        "This run has fewer than two evaluations. Compare two runs with agentrl view RUN --with OTHER.",
      ),
    );
    return;
  }
  const pick = (label, chosen, act) =>
    h(
      "label",
      {},
      h("span", {}, label),
      h(
        "select",
        { name: label.toLowerCase(), onchange: (event) => act(plays[Number(event.target.value)]) },
        chosen ? null : h("option", { value: "", selected: true, disabled: true }, "choose an evaluation"),
        plays.map((play, i) =>
          h(
            "option",
            { value: i, selected: play === chosen },
            `${play.run ? `${play.run}: ` : ""}${play.label === `step-${play.step}` ? "" : `${named(play.label)}, `}step ${play.step} (${play.count})`,
          ),
        ),
      ),
    );
  const filter = () =>
    h(
      "label",
      {},
      h("span", {}, "Seeds"),
      h(
        "select",
        {
          name: "only",
          onchange: (event) => {
            only = event.target.value;
            choice();
          },
        },
        SEEDS.map(([value, words]) => h("option", { value, selected: value === only }, words)),
      ),
    );

  /** After a choice, put both evaluations into the address; until then, keep even an invalid address. */
  const choice = () => {
    if (a && b) {
      const settings = new URLSearchParams({ a: key(a), b: key(b), ...(only ? { only } : {}) });
      history.replaceState(null, "", `?${settings}`);
      replace(warnings);
    }
    return draw();
  };

  async function draw() {
    replace(
      choose,
      pick("A", a, (play) => {
        a = play;
        choice();
      }),
      pick("B", b, (play) => {
        b = play;
        choice();
      }),
      filter(),
    );
    if (!a || !b) {
      replace(result, placeholder("empty", "Choose two evaluations above"));
      return;
    }
    try {
      const found = await get("/api/compare", {
        a: a.label,
        a_step: a.step,
        a_other: Boolean(a.run),
        b: b.label,
        b_step: b.step,
        b_other: Boolean(b.run),
      });
      replace(result, pairs(found, a, b, only));
    } catch (error) {
      replace(result, notice(error.message));
    }
  }
  await (missing.length ? draw() : choice());
}

const SEEDS = [
  ["", "all"],
  ["better", "B better"],
  ["worse", "B worse"],
  ["same", "equal"],
  ["b_only", "only B succeeds"],
  ["a_only", "only A succeeds"],
];

/** Explain why an evaluation in the address does not exist. */
function absent(name, run) {
  const [, other, label] = /^(with:)?(.*)$/s.exec(name.slice(0, 120));
  if (!other) return `${run.name} has no evaluation ${label}; choose another one.`;
  if (run.other) return `${run.other.name} has no evaluation ${label}; choose another one.`;
  return `The evaluation ${label} belongs to a second run, which is not open. Open both with agentrl view RUN --with OTHER.`;
}

function pairs(found, a, b, only) {
  const better = (pair) => pair.b.reward - pair.a.reward;
  const tests = {
    better: (p) => better(p) > 0,
    worse: (p) => better(p) < 0,
    same: (p) => better(p) === 0,
    b_only: (p) => p.b.success === true && p.a.success === false,
    a_only: (p) => p.a.success === true && p.b.success === false,
  };
  const shown = found.pairs.filter(tests[only] ?? (() => true));
  const mean = found.pairs.reduce((sum, pair) => sum + better(pair), 0) / (found.pairs.length || 1);
  const within = found.interval ? ` (${found.interval.map((end) => signed(end)).join(" to ")})` : "";
  const count = (test) => found.pairs.filter(tests[test]).length;
  const beside = a.run ?? b.run;
  if (!found.pairs.length)
    return placeholder("filtered", `${named(a.label)} and ${named(b.label)} have no seeds in common`);
  return [
    h(
      "dl",
      { class: "facts" },
      fact("seeds in common", number(found.pairs.length)),
      fact("B minus A, mean reward (95% interval)", `${signed(mean)}${within}`, tone(mean)),
      fact("B better", `${count("better")} (${share(count("better") / found.pairs.length)})`),
      fact("B worse", `${count("worse")} (${share(count("worse") / found.pairs.length)})`),
      ...(found.pairs.some((pair) => pair.a.success != null || pair.b.success != null)
        ? [
            fact("only B succeeds", number(count("b_only"))),
            fact("only A succeeds", number(count("a_only"))),
          ]
        : []),
    ),
    shown.length
      ? h(
          "div",
          { class: "scroll card" },
          h(
            "table",
            { class: "list" },
            h(
              "thead",
              {},
              h(
                "tr",
                {},
                h("th", { class: "num" }, "seed"),
                h("th", { class: "num" }, "B minus A"),
                h("th", {}, "A"),
                h("th", { class: "num" }, "reward"),
                h("th", {}, "B"),
                h("th", { class: "num" }, "reward"),
              ),
            ),
            h(
              "tbody",
              {},
              shown
                .sort((x, y) => Math.abs(better(y)) - Math.abs(better(x)))
                .map((pair) =>
                  h(
                    "tr",
                    {},
                    h("td", { class: "num" }, String(pair.seed)),
                    h("td", { class: `num strong ${tone(better(pair))}` }, signed(better(pair))),
                    side(pair.a, a),
                    h("td", { class: "num" }, signed(pair.a.reward)),
                    side(pair.b, b),
                    h("td", { class: "num" }, signed(pair.b.reward)),
                  ),
                ),
            ),
          ),
        )
      : placeholder("filtered", "No seed matches"),
    beside
      ? h(
          "p",
          { class: "faint" },
          "Episodes of ",
          h("bdi", {}, beside),
          " have no page here; open them with ",
          h("code", {}, `agentrl view …/${beside}`),
          ".",
        )
      : null,
  ];
}

/** An episode of the other run has no page here, so show its id as tooltip. */
const side = (row, play) =>
  h(
    "td",
    { title: play.run ? row.id : null },
    play.run
      ? counted(row.turns, "turn")
      : h("a", { href: `/episodes/${encodeURIComponent(row.id)}` }, counted(row.turns, "turn")),
    " ",
    outcomeBadge(row),
  );
