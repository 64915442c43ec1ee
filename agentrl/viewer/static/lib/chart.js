// A chart with a legend that follows the pointer, drawn by uPlot. Dragging zooms in, a double click
// zooms out, and the pointer marks the same step in all charts of the page.
import { keep, query } from "./address.js";
import { h, number, replace, seconds } from "./dom.js";

/** Fixed colors of some series; all others get a color from `colorOf`. */
const OWN = {
  training: "--series-1",
  "held out, during training": "--series-2",
  "held out, before and after, sampled": "--series-3",
  "held out, before and after, greedy": "--series-4",
};
/** The horizontal axes, and their names. */
const AXES = { step: "steps", episodes: "episodes", tokens: "tokens sampled", time: "time" };
const COUNTS = Array.from({ length: 13 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power)).flat();
const TIMES = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 7200, 21600, 43200, 86400].concat(
  COUNTS.map((days) => 86400 * days),
);
const PALETTE = 12;
/** Functions that redraw the charts on the page in other colors. */
const redrawn = new Set();
document.addEventListener("scheme", () => [...redrawn].forEach((draw) => draw()));
/** A spread below this fraction of the values is noise, which must not fill the chart. */
const NOISE = 0.02;

/** A selection of the horizontal axis, hidden while there is only one. */
export function axisChoice(changed) {
  const select = h("select", {
    name: "over",
    onchange: () => keep("over", select.value === "step" ? "" : select.value, changed),
  });
  const label = h("label", { hidden: true }, h("span", {}, "Over"), select);
  label.offer = (axes) => {
    label.hidden = axes.length < 2;
    replace(
      select,
      axes.map((axis) => h("option", { value: axis, selected: axis === axisOf() }, AXES[axis])),
    );
  };
  return label;
}
/** The horizontal axis in the address. */
export const axisOf = () => (Object.hasOwn(AXES, query.get("over") ?? "") ? query.get("over") : "step");

/** The color of the nth of many series; distinct for any number of them. */
export const colorOf = (n) =>
  n < PALETTE ? `--run-${n + 1}` : `hsl(${Math.round(n * 137.5) % 360} 55% 52%)`;

/** sets: [{name, points: [[x, y], ...], dots, lone, color, low, high}], at most one point per step: `dots` marks the points, `lone` leaves out the line between them, and `low` and `high` are the points of a band. The returned figure can `grow` to newer sets with the same names, and `adjust` to other {smoothing, log}. The vertical axis spans at least `least`; the horizontal one is one of `AXES`. */
export function chart(
  title,
  sets,
  { about = "", height = 170, smoothing = 0, log = false, least = 0, axis: over = "step" } = {},
) {
  const figure = h(
    "figure",
    { class: "card chart" },
    h("figcaption", {}, title, about ? h("small", { class: "faint" }, about) : null),
  );
  const place = h("div", { class: "plot" });
  figure.append(place);
  let plot = null;

  function forget() {
    plot?.destroy();
    plot = null;
    redrawn.delete(draw);
  }

  function draw() {
    forget();
    redrawn.add(draw);
    const axis = {
      stroke: color("--faint"),
      grid: { stroke: color("--line"), width: 1 },
      ticks: { show: false },
      font: `11px ${getComputedStyle(document.body).fontFamily}`,
    };
    const across = (x) => (over === "time" && x ? seconds(x) : number(x));
    const drawn = sets.flatMap((set, i) =>
      series(set, color(set.color ?? OWN[set.name] ?? colorOf(i)), smoothing),
    );
    const numbers = drawn.map((one, i) => (one.band ? i + 1 : 0)).filter(Boolean);
    const isPositive = sets.every((set) => set.points.every(([, y]) => y > 0));
    plot = new uPlot(
      {
        width: place.clientWidth || 320,
        height,
        padding: [8, 8, 0, 0],
        cursor: { points: { size: 6 }, sync: { key: over } },
        legend: { live: true },
        scales: {
          y: log ? { distr: isPositive ? 3 : 4 } : { range: (_, low, high) => span(low, high, least) },
          x: { time: false, range: (_, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) },
        },
        axes: [
          {
            ...axis,
            size: 26,
            space: 60,
            incrs: over === "time" ? TIMES : COUNTS,
            values: (_, ticks) => ticks.map((tick) => across(tick)),
          },
          {
            ...axis,
            size: 48,
            values: (_, ticks) =>
              log ? ticks.map((tick) => (tick === null ? null : number(tick))) : apart(ticks),
          },
        ],
        series: [
          { label: over, value: (plot, _, i, at) => across(underPointer(plot, i, at)) },
          ...drawn.map((one) => one.series),
        ],
        bands: pairs(numbers).map(([high, low]) => ({ series: [high, low], fill: drawn[high - 1].band })),
      },
      columns(drawn.map((one) => one.points)),
      place,
    );
  }
  const columnsNow = () =>
    columns(sets.flatMap((set, i) => series(set, "", smoothing).map((one) => one.points)));
  requestAnimationFrame(() => {
    draw();
    // Also called when the figure leaves the page, to which it may return.
    new ResizeObserver(() => {
      if (!figure.isConnected) forget();
      else if (!plot) draw();
      else if (place.clientWidth) plot.setSize({ width: place.clientWidth, height });
    }).observe(place);
  });
  const shapes = (some) => some.map((set) => [set.name, set.color, set.low ? 1 : 0].join()).join("|");
  figure.grow = (others) => {
    if (shapes(others) !== shapes(sets)) return false;
    sets = others;
    plot?.setData(columnsNow());
    return true;
  };
  figure.adjust = (options) => {
    ({ smoothing = smoothing, log = log } = options);
    if (plot) draw();
  };
  return figure;
}

/** The series of a set: its curve, the unsmoothed curve behind it, and the two edges of its band. */
function series(set, stroke, smoothing) {
  const hidden = { class: "unlisted", points: { show: false } };
  const isSmooth = smoothing > 0 && !set.dots && !set.lone;
  const curve = {
    points: isSmooth ? smooth(set.points, smoothing) : set.points,
    series: {
      label: set.name,
      stroke,
      width: set.dots ? 1.5 : 2,
      spanGaps: true,
      value: legendValue,
      points: {
        show: set.dots || set.lone || ((made) => made.data[0].length < 40),
        size: set.lone ? 9 : set.dots ? 7 : 4,
        fill: stroke,
      },
      ...(set.lone ? { paths: () => null } : {}),
    },
  };
  const raw = {
    points: set.points,
    series: {
      ...hidden,
      label: set.name,
      stroke: `color-mix(in srgb, ${stroke} 28%, transparent)`,
      width: 1,
      spanGaps: true,
    },
  };
  const edge = (points) => ({
    points,
    band: `color-mix(in srgb, ${stroke} 18%, transparent)`,
    series: { ...hidden, label: set.name, stroke: "transparent", spanGaps: true },
  });
  return [...(isSmooth ? [raw] : []), curve, ...(set.low ? [edge(set.high), edge(set.low)] : [])];
}

/** Exponential moving average whose start is not pulled toward zero. */
function smooth(points, weight) {
  let sum = 0;
  let norm = 0;
  return points.map(([x, y]) => {
    sum = sum * weight + y;
    norm = norm * weight + 1;
    return [x, sum / norm];
  });
}

/** The range of the vertical axis, with a margin around the values, and not filled by noise. */
function span(low, high, least) {
  const size = Math.max(Math.abs(low), Math.abs(high)) || 1;
  if (high - low < least) return [(low + high - least) / 2, (low + high + least) / 2];
  if (high - low >= NOISE * size) return uPlot.rangeNum(low, high, 0.08, true);
  return [
    low >= 0 ? Math.max(0, low - 0.1 * size) : low - 0.1 * size,
    high <= 0 && low < 0 ? Math.min(0, high + 0.1 * size) : high + 0.1 * size,
  ];
}

const pairs = (list) => list.filter((_, i) => i % 2 === 0).map((one, i) => [one, list[2 * i + 1]]);

/** Labels with enough digits to distinguish neighboring grid lines. */
function apart(ticks) {
  for (let digits = 3; ; digits += 1) {
    const labels = ticks.map((tick) =>
      tick && Math.abs(tick) < 0.001
        ? Number(tick.toPrecision(digits)).toExponential()
        : number(tick, digits),
    );
    if (digits >= 12 || new Set(labels).size === labels.length) return labels;
  }
}

/** Legend value: the one under the pointer, or the last one. */
const legendValue = (plot, _, i, at) => number(underPointer(plot, i, at));
const underPointer = (plot, i, at) =>
  (at ?? null) === null ? plot.data[i].findLast((v) => v !== null) : plot.data[i][at];

/** A color for a canvas, in the current color scheme. */
function color(name) {
  if (!name.startsWith("--")) return name;
  const probe = h("span", { hidden: true, style: { color: `var(${name})` } });
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** The steps, and the value of each series at each step. */
function columns(all) {
  const xs = [...new Set(all.flatMap((points) => points.map(([x]) => x)))].sort((a, b) => a - b);
  return [
    xs,
    ...all.map((points) => {
      const at = new Map(points);
      return xs.map((x) => at.get(x) ?? null);
    }),
  ];
}
