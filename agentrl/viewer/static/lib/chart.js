// A small chart with a legend that follows the pointer, drawn by uPlot.
import { h, number } from "./dom.js";

const COLORS = ["--series-1", "--series-2", "--series-3", "--series-4"];

/** sets: [{name, points: [[x, y], ...], dots, dashed}], at most one point per step. The returned figure can `grow` to newer sets with the same names. */
export function chart(title, sets, about = "") {
  const figure = h("figure", { class: "card chart" }, h("figcaption", {}, title, about ? h("small", { class: "faint" }, about) : null));
  const place = h("div", { class: "plot" });
  figure.append(place);
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  let plot = null;
  const axis = { stroke: color("--faint"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  requestAnimationFrame(() => {
    plot = new uPlot({
      width: place.clientWidth || 320, height: 170, padding: [8, 8, 0, 0],
      cursor: { points: { size: 6 } },
      legend: { live: true },
      scales: { y: { range: (_, low, high) => low === high ? [Math.min(low, 0), Math.max(high, 0) || 1] : uPlot.rangeNum(low, high, 0.08, true) }, x: { time: false, range: (_, low, high) => low === high ? [low - 1, high + 1] : [low, high] } },
      axes: [{ ...axis, size: 26, space: 60, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000] }, { ...axis, size: 48, values: (_, ticks) => apart(ticks) }],
      series: [{ label: "step", value: legendValue }, ...sets.map((set, i) => ({
        label: set.name, stroke: color(COLORS[i]), width: set.dots ? 1.5 : 2, spanGaps: true,
        points: { show: set.dots || ((made) => made.data[0].length < 40), size: set.dots ? 7 : 4, fill: color(COLORS[i]) },
        dash: set.dashed ? [4, 4] : undefined,
        value: legendValue,
      }))],
    }, columns(sets), place);
    new ResizeObserver(() => {
      if (place.clientWidth) plot.setSize({ width: place.clientWidth, height: 170 });
    }).observe(place);
  });
  const names = (some) => some.map((set) => set.name).join();
  figure.grow = (others) => {
    if (names(others) !== names(sets)) return false;
    plot?.setData(columns(others));
    sets = others;
    return true;
  };
  return figure;
}

/** Labels with enough digits to distinguish neighboring grid lines. */
function apart(ticks) {
  for (let digits = 3; ; digits += 1) {
    const labels = ticks.map((tick) => number(tick, digits));
    if (digits >= 12 || new Set(labels).size === labels.length) return labels;
  }
}

/** Legend value: the one under the pointer, or the last one. */
const legendValue = (plot, value, i, at) => number((at ?? null) === null ? plot.data[i].findLast((v) => v !== null) : value);

const steps = (sets) => [...new Set(sets.flatMap((set) => set.points.map(([x]) => x)))].sort((a, b) => a - b);

/** The steps, and the value of each set at each step. */
function columns(sets) {
  const xs = steps(sets);
  return [xs, ...sets.map((set) => {
    const at = new Map(set.points);
    return xs.map((x) => at.get(x) ?? null);
  })];
}
