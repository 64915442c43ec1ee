// Overview of a run.
import { keep, query } from "../lib/address.js";
import { axisChoice, axisOf, chart } from "../lib/chart.js";
import {
  clock,
  counted,
  fact,
  frame,
  get,
  h,
  named,
  number,
  replace,
  seconds,
  share,
  signed,
  placeholder,
} from "../lib/dom.js";
import { lastScreen } from "../lib/episode_card.js";

const of = (step, steps) =>
  steps && steps !== step ? `${number(step)} of ${number(steps)} steps` : counted(step, "step");
const JOB = {
  running: (step, steps, left, stage) =>
    `running${stage ? `: ${stage}` : ""}, ${step ? `${of(step, steps)} done` : "no training step done yet"}${left ? `, about ${seconds(left)} left` : ""}`,
  finished: (step) => `finished after ${of(step)}`,
  failed: (step, steps) => `failed after ${of(step, steps)}`,
  stopped: (step, steps) => `stopped after ${of(step, steps)}`,
};

const EVALUATION = {
  running: "running",
  finished: "finished",
  failed: "failed",
  stopped: "stopped before finishing",
};

/** Shown instead of a curve that is zero everywhere. */
/** What columns of the table of episodes mean. */
const COLUMNS = {
  success: "fraction of episodes whose metric success (or accuracy, if there is no success) is 1",
  problems:
    "fractions of episodes that are stuck or claim completion falsely, of replies cut off at " +
    "rollout.max_new_tokens, and the mean number of side effects",
};
const NONE = { "Void episodes": "No void episodes so far." };
/** Delay after the last keystroke. */
const TYPING_MS = 300;
/** Maximum number of phones without failures to list; more are collapsed. */
const FEW = 4;

/** Number of an audit's wrong verdicts to show; its file has more. */
const WORST = 10;

export async function overview(place) {
  const head = h("section", { class: "card" });
  const curves = h("section", { class: "charts" });
  const over = axisChoice(async () => {
    drawn.clear();
    all.forget();
    await refresh();
  });
  const examples = h("div");
  const all = new Metrics();
  const rest = h("div");
  const fleet = new Phones();
  const config = h("pre");
  const configuration = h(
    "details",
    { class: "card", hidden: true },
    h("summary", {}, "Configuration"),
    config,
  );
  const drawn = new Map();
  replace(place, head, h("form", { class: "filters over" }, over), curves, examples, all.card, rest, fleet.card, configuration);

  async function refresh() {
    const [run, { charts, axes }, found] = await Promise.all([
      get("/api/run"),
      get("/api/curves", { axis: axisOf() }),
      get("/api/highlights"),
    ]);
    replace(head, heading(run));
    over.offer(charts.length ? axes : []);
    if (awaitsEpisodes(run) && !charts.length && !evaluation(run)) replace(curves);
    else draw(curves, drawn, charts, () => withoutCurves(run));
    replace(examples, highlights(found));
    await all.refresh(run.sections);
    replace(rest, tables(run));
    fleet.draw(run.devices);
    configuration.hidden = !run.config;
    if (config.textContent !== run.config) config.textContent = run.config;
  }
  await refresh();
  return refresh;
}

/** Each chart is created once and then updated, so that nothing flickers while a job runs. */
function draw(place, drawn, charts, withoutAny, options = {}) {
  if (!charts.length) {
    replace(place, withoutAny());
    return;
  }
  let isNew = false;
  for (const { title, curves, about, span } of charts) {
    if (drawn.get(title)?.grow(curves)) continue;
    const isNone = NONE[title] && isZero(curves);
    drawn.set(title, isNone ? sentence(title) : chart(title, curves, { about, least: span, axis: axisOf(), ...options }));
    isNew = true;
  }
  if (isNew)
    replace(
      place,
      charts.map(({ title }) => drawn.get(title)),
    );
}

function withoutCurves(run) {
  if (evaluation(run)) return results(evaluation(run));
  if (run.job === "failed")
    return placeholder("empty", "The run failed before its first step", "The error is above.");
  if (run.job !== "stopped")
    return placeholder("empty", "No curves yet", "They appear after the first training step.");
  return placeholder("empty", "The run stopped before its first step", `Resume it with ${resume(run)}`);
}

const resume = (run) => `${run.command?.trim() || "agentrl train"} …/${run.name} --resume`;

/** The error that ended the job, and how to resume it. */
function failure(run) {
  if (!run.failure) return null;
  const { type, message, traceback, may_pass: mayPass } = run.failure;
  return h(
    "div",
    { class: "notice", role: "alert" },
    h("b", {}, h("bdi", {}, type)),
    " ",
    h("bdi", {}, message),
    mayPass && !evaluation(run) ? h("p", {}, `Resume it with ${resume(run)}`) : null,
    h("details", {}, h("summary", {}, "Traceback"), h("pre", {}, traceback)),
  );
}

/** The summary of an evaluation; null for training. */
const evaluation = (run) => (run.summary?.policy ? run.summary : null);

function player({ policy, checkpoint, greedy, target }) {
  const who =
    policy !== "model" ? policy : checkpoint === null ? "the model" : `the model after step ${checkpoint}`;
  return `${who}${greedy ? ", greedy" : ""}, of ${target}`;
}

function results({
  target,
  policy,
  checkpoint,
  greedy,
  audit,
  episodes,
  void: void_,
  seconds: took,
  ...metrics
}) {
  const found = Object.entries(metrics).filter(([, value]) => typeof value === "number");
  if (!found.length) return placeholder("empty", "Not finished yet", "The results will appear here.");
  return h(
    "section",
    { class: "card" },
    h("h2", {}, "Results"),
    h(
      "dl",
      { class: "facts" },
      fact("episodes", number(episodes)),
      fact("void", number(void_)),
      fact("duration", seconds(took)),
      found.map(([name, value]) => fact(name, number(value))),
    ),
  );
}

const isZero = (curves) => curves.every(({ points }) => points.every(([, value]) => value === 0));

function sentence(title) {
  const figure = h("p", { class: "faint none" }, NONE[title]);
  figure.grow = isZero;
  return figure;
}

const restarts = (all) => `${all.length}, the last after step ${all.at(-1).step}: ${all.at(-1).error}`;

function heading(run) {
  const void_ = Object.values(run.causes).reduce((sum, count) => sum + count, 0);
  return [
    h("h1", {}, h("bdi", {}, run.name)),
    failure(run),
    run.headline ? h("p", { class: "headline" }, run.headline.replaceAll("->", "→")) : null,
    h(
      "dl",
      { class: "facts" },
      evaluation(run) ? fact("evaluation", player(evaluation(run))) : null,
      evaluation(run)?.suite ? fact("suite", `${run.summary.suite}: ${run.summary.task ?? ""}`) : null,
      run.job
        ? fact(
            "job",
            evaluation(run)
              ? EVALUATION[run.job]
              : JOB[run.job](run.step, run.steps, run.remaining_s, run.stage),
          )
        : null,
      run.state?.restarts?.length ? fact("restarts", restarts(run.state.restarts), "bad") : null,
      run.command ? fact("command", run.command.trim()) : null,
      run.host ? fact("host", run.host) : null,
      run.code ? fact("commit", run.code) : null,
      run.tags.length ? fact("tags", run.tags.join(", ")) : null,
      run.log ? fact("log", h("a", { href: "/logs/job.log" }, "job.log")) : null,
      ...(unplayed(run) ? [] : played(run, void_)),
    ),
    awaitsEpisodes(run) ? placeholder("empty", "No episodes yet", "They appear here as they end.") : null,
  ];
}

/** Whether no episode has ended yet, but episodes are expected. */
const awaitsEpisodes = (run) => !run.count && !unplayed(run) && !["failed", "stopped"].includes(run.job);

/** Whether the job trains on a data set, without episodes. */
const unplayed = (run) =>
  !run.count && run.command && !["agentrl train", "agentrl play"].includes(run.command.trim());

const played = (run, void_) => [fact("environment", run.env_id), ...(run.count ? counts(run, void_) : [])];

const counts = (run, void_) => [
  fact("episodes", number(run.count)),
  fact("turns", number(run.turns)),
  run.tokens ? fact("tokens sampled", number(run.tokens)) : null,
  fact("void", `${number(void_)} (${share(void_ / run.count)})`, void_ ? "bad" : ""),
  fact("started", clock(run.first)),
  fact("last episode", clock(run.last)),
  fact("configuration", run.configs.join(", ") || "–"),
];

function tables(run) {
  return [
    !run.count
      ? null
      : h(
          "section",
          { class: "card" },
          h("h2", {}, "Episodes by label"),
          h(
            "div",
            { class: "scroll" },
            h(
              "table",
              {},
              h(
                "thead",
                {},
                h(
                  "tr",
                  {},
                  ["label", "step", "episodes", "void", "reward", "success", "problems"].map((name, i) =>
                    h(
                      "th",
                      {
                        class: i ? "num" : "",
                        title: COLUMNS[name] ?? null,
                      },
                      name,
                    ),
                  ),
                ),
              ),
              h(
                "tbody",
                {},
                run.plays.map((play) =>
                  h(
                    "tr",
                    {},
                    h("td", {}, h("a", { href: listing(play) }, named(play.label))),
                    h("td", { class: "num" }, play.steps),
                    h("td", { class: "num" }, number(play.count)),
                    h("td", { class: `num ${play.void ? "bad" : ""}` }, number(play.void)),
                    h(
                      "td",
                      { class: "num" },
                      number(play.reward),
                      play.unscored ? ` (${share(play.unscored)} unscored)` : "",
                    ),
                    h("td", { class: "num" }, share(play.success)),
                    h("td", { class: "num" }, play.problems || "–"),
                  ),
                ),
              ),
            ),
          ),
        ),
    run.rings ? rings(run.rings) : null,
    run.audits.map(audit),
    Object.keys(run.causes).length
      ? h(
          "section",
          { class: "card" },
          h("h2", {}, "Why episodes were void"),
          h(
            "ul",
            { class: "bars" },
            Object.entries(run.causes)
              .sort((a, b) => b[1] - a[1])
              .map(([cause, count]) =>
                bar(
                  cause,
                  count,
                  Math.max(...Object.values(run.causes)),
                  `/episodes?cause=${encodeURIComponent(cause)}`,
                ),
              ),
          ),
        )
      : null,
  ];
}

/** The results on unseen seeds, on unseen levels and under unseen rules, a row per evaluation. */
const rings = ({ columns, rows }) =>
  h(
    "section",
    { class: "card" },
    h("h2", {}, "Unseen seeds, levels and rules"),
    h(
      "p",
      { class: "faint" },
      "Means with 95% intervals. Unseen seeds: the training environment with other seeds. Unseen levels and " +
        "rules: settings that do not occur in training (eval.rings).",
    ),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, columns.map((name, i) => h("th", { class: i ? "num" : "" }, name)))),
        h(
          "tbody",
          {},
          rows.map((row) =>
            h(
              "tr",
              {},
              row.map((cell, i) => h("td", { class: i ? "num" : "" }, i ? cell || "–" : h("bdi", {}, cell))),
            ),
          ),
        ),
      ),
    ),
  );

/** The best and worst episodes, and those of the same seed before and after training. */
function highlights({ label, best, worst, changed }) {
  const rank = (title, rows) =>
    rows.length
      ? h(
          "div",
          {},
          h("h3", {}, title),
          h(
            "div",
            { class: "gallery" },
            rows.map((one) => thumbnail(one)),
          ),
        )
      : null;
  return [
    best.length
      ? h(
          "section",
          { class: "card" },
          h("h2", {}, worst.length ? "Best and worst episodes, " : "Episodes, ", named(label)),
          worst.length
            ? h("div", { class: "columns" }, rank("Best", best), rank("Worst", worst))
            : rank(`All have a reward of ${signed(best[0].reward)}`, best),
        )
      : null,
    changed.length
      ? h(
          "section",
          { class: "card" },
          h("h2", {}, "What changed"),
          h(
            "p",
            { class: "faint" },
            "The same seeds before and after training, with the largest changes in reward first. ",
            h("a", { href: "/compare" }, "Compare all seeds"),
          ),
          h(
            "div",
            { class: "changes" },
            changed.map(({ before, after }) =>
              h("div", { class: "change" }, thumbnail(before, "before"), thumbnail(after, "after")),
            ),
          ),
        )
      : null,
  ];
}

/** The last screen of an episode, its reward and seed. */
function thumbnail(one, when = "") {
  const words = `${when ? `${when}, ` : ""}seed ${one.seed}, reward ${signed(one.reward)}`;
  return h(
    "a",
    { class: "thumbnail", href: `/episodes/${encodeURIComponent(one.id)}`, "aria-label": words },
    lastScreen(one),
    h(
      "span",
      {},
      when ? h("span", { class: "faint" }, when, " ") : null,
      h("b", {}, signed(one.reward)),
      " ",
      h("span", { class: "faint of" }, `seed ${one.seed}`),
    ),
  );
}

/** A chart for every logged metric, in sections that are opened one by one, or found by name. */
class Metrics {
  constructor() {
    this.opened = new Map();
    this.text = query.get("metrics") ?? "";
    const search = h("input", {
      type: "search",
      name: "metrics",
      value: this.text,
      placeholder: "such as entropy",
      oninput: () => {
        clearTimeout(this.typed);
        this.typed = setTimeout(() => this.find(search.value.trim()), TYPING_MS);
      },
    });
    const smooth = h("input", {
      type: "range",
      name: "smooth",
      min: "0",
      max: "0.99",
      step: "0.01",
      value: query.get("smooth") ?? "0",
      oninput: () => keep("smooth", smooth.value === "0" ? "" : smooth.value, () => this.adjust()),
    });
    const log = h("input", {
      type: "checkbox",
      name: "log",
      checked: query.get("log") === "1",
      onchange: () => keep("log", log.checked ? "1" : "", () => this.adjust()),
    });
    this.found = h("div", { class: "charts" });
    this.sections = h("div");
    this.card = h(
      "section",
      { class: "card", hidden: true },
      h("h2", {}, "All metrics"),
      h(
        "form",
        { class: "filters", onsubmit: (event) => event.preventDefault() },
        h("label", {}, h("span", {}, "Search metrics"), search),
        h("label", {}, h("span", {}, "Smoothing"), smooth),
        h("label", { class: "check" }, log, h("span", {}, "Log axis")),
      ),
      this.found,
      this.sections,
    );
  }

  get look() {
    return { smoothing: Number(query.get("smooth") ?? 0), log: query.get("log") === "1" };
  }

  async refresh(sections) {
    this.card.hidden = !Object.keys(sections).length;
    for (const [name, count] of Object.entries(sections)) {
      if (!this.opened.has(name)) {
        const charts = h("div", { class: "charts" });
        const words = h("summary");
        const open = query.getAll("section").includes(name);
        const details = h("details", { open, ontoggle: () => this.toggle(name) }, words, charts);
        this.opened.set(name, { details, charts, words, drawn: new Map() });
        this.sections.append(details);
      }
      this.opened.get(name).words.textContent = `${name} (${number(count)})`;
      await this.draw(name);
    }
    if (this.text) await this.find(this.text);
  }

  async toggle(name) {
    query.delete("section");
    for (const [section, { details }] of this.opened) if (details.open) query.append("section", section);
    keep("", "");
    await this.draw(name);
  }

  async draw(name) {
    const { details, charts, drawn } = this.opened.get(name);
    if (!details.open) return;
    draw(charts, drawn, await get("/api/metrics", { section: name, axis: axisOf() }), () => null, this.look);
  }

  async find(text) {
    if (text !== this.text) this.matches = null;
    this.text = text;
    keep("metrics", text);
    this.sections.hidden = Boolean(text);
    const charts = text ? await get("/api/metrics", { text, axis: axisOf() }) : [];
    if (text !== this.text) return;
    this.matches ??= new Map();
    if (charts.length) draw(this.found, this.matches, charts, () => null, this.look);
    else replace(this.found, text ? h("p", { class: "empty" }, "No metric name contains this text.") : null);
  }

  /** Redraw all charts, for example over a different axis. */
  forget() {
    this.matches = null;
    for (const { drawn } of this.opened.values()) drawn.clear();
  }

  adjust() {
    for (const drawn of [this.matches ?? new Map(), ...[...this.opened.values()].map((one) => one.drawn)]) {
      for (const figure of drawn.values()) figure.adjust?.(this.look);
    }
  }
}

/** How often a reward agrees with the truth, and the worst cases with their last screens. */
function audit({
  name,
  candidate,
  truth,
  accept_at,
  truth_at,
  episodes,
  agreement,
  false_accepts,
  false_rejects,
  failed,
  cases,
}) {
  const within = (found) =>
    found?.of
      ? `${share(found.share)} of ${number(found.of)} (95% interval ${share(found.low)} to ${share(found.high)})`
      : "–";
  return h(
    "section",
    { class: "card" },
    h("h2", {}, "Audit ", h("bdi", {}, name)),
    h(
      "dl",
      { class: "facts" },
      fact("reward", candidate),
      fact("accept threshold", number(accept_at)),
      fact("truth", truth),
      fact("truth threshold", number(truth_at)),
      fact("episodes", number(episodes)),
      fact("not scored", number(failed), failed ? "bad" : ""),
      fact("agreement", within(agreement)),
      fact("false accepts", within(false_accepts)),
      fact("false rejects", within(false_rejects)),
    ),
    cases?.length
      ? h(
          "div",
          { class: "scroll" },
          h(
            "table",
            {},
            h(
              "thead",
              {},
              h(
                "tr",
                {},
                ["worst cases", "verdict", "score", "truth"].map((title, i) =>
                  h("th", { class: i > 1 ? "num" : "" }, title),
                ),
              ),
            ),
            h(
              "tbody",
              {},
              cases
                .slice(0, WORST)
                .map((one) =>
                  h(
                    "tr",
                    {},
                    h(
                      "td",
                      {},
                      h(
                        "a",
                        { href: `/episodes/${encodeURIComponent(one.id)}` },
                        one.frame
                          ? h("img", {
                              src: frame(encodeURIComponent(one.frame), 96),
                              alt: "",
                              class: "case",
                              loading: "lazy",
                              width: 54,
                            })
                          : null,
                        " ",
                        h("bdi", {}, one.id),
                      ),
                    ),
                    h(
                      "td",
                      {},
                      String(one.kind),
                      one.why ? h("p", { class: "faint" }, h("bdi", {}, one.why)) : null,
                    ),
                    h("td", { class: "num" }, number(one.score)),
                    h("td", { class: "num" }, number(one.truth)),
                  ),
                ),
            ),
          ),
        )
      : null,
  );
}

/** The phones, those with failures first. Many phones without failures are collapsed into one line. */
class Phones {
  constructor() {
    this.shown = h("div", { class: "scroll" });
    this.words = h("summary");
    this.others = h("div", { class: "scroll" });
    this.more = h("details", {}, this.words, this.others);
    this.card = h("section", { class: "card", hidden: true }, h("h2", {}, "Phones"), this.shown, this.more);
  }

  draw(devices) {
    const failed = devices.filter((device) => device.void).sort((a, b) => b.void - a.void);
    const faultless = devices.filter((device) => !device.void);
    const isMany = faultless.length > FEW;
    const listed = isMany ? failed : [...failed, ...faultless];
    this.card.hidden = !devices.length;
    this.shown.hidden = !listed.length;
    this.more.hidden = !isMany;
    replace(this.shown, phones(listed));
    replace(this.others, isMany ? phones(faultless) : null);
    this.words.textContent = `${number(faultless.length)} ${failed.length ? "other phones" : "phones"} without failures`;
  }
}

const phones = (devices) =>
  h(
    "table",
    {},
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        ["phone", "episodes", "void", "time per turn", "last episode"].map((name, i) =>
          h("th", { class: i ? "num" : "" }, name),
        ),
      ),
    ),
    h(
      "tbody",
      {},
      devices.map((device) =>
        h(
          "tr",
          {},
          h(
            "td",
            {},
            h(
              "a",
              { href: `/episodes?device=${encodeURIComponent(device.device)}` },
              h("bdi", {}, device.device),
            ),
          ),
          h("td", { class: "num" }, number(device.episodes)),
          h(
            "td",
            {
              class: `num ${device.void ? "bad" : ""}`,
              title: Object.entries(device.causes)
                .map((c) => c.join(" "))
                .join(", "),
            },
            number(device.void),
          ),
          h("td", { class: "num" }, seconds(device.seconds_per_turn)),
          h("td", { class: "num" }, clock(device.last)),
        ),
      ),
    ),
  );

const listing = (play) =>
  `/episodes?label=${encodeURIComponent(play.label)}` + (play.split === "train" ? "" : `&step=${play.step}`);

function bar(name, count, most, href) {
  return h(
    "li",
    {},
    h("a", { href }, h("bdi", {}, name)),
    h("span", { class: "track" }, h("span", { class: "fill", style: { width: `${(100 * count) / most}%` } })),
    h("span", { class: "num" }, number(count)),
  );
}
