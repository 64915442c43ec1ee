// A recorded screen with the touch of the action that followed.
import { frame, h } from "./dom.js";

/** Radius of a touch, in pixels, of a screen in its full size. */
const RADIUS = 14;

/**
 * A screen, and the touch on it, if there is one.
 *
 * `width` scales it down, and loads it when it comes into view; `onclick` is called with the image's event.
 */
export function picture(id, mark, { width = null, onclick = null } = {}) {
  const lost = (event) =>
    event.target.parentElement.replaceWith(
      h("p", { class: "missing" }, "This frame was not recorded or is damaged."),
    );
  return h(
    "div",
    { class: "picture" },
    h("img", {
      src: frame(id, width),
      alt: "screen",
      loading: width ? "lazy" : null,
      onerror: lost,
      onclick,
    }),
    mark ? touch(mark, width ? RADIUS / 2 : RADIUS) : null,
  );
}

/** The text of an observation without its images; spaces at the start of a line may be part of a board. */
export const screenText = (shown) => (shown ?? "").replaceAll("<image>", "").replace(/^\s*\n|\s+$/g, "");

/** Maximum length of a board's row; longer lines are prose, which is wrapped. */
const LONGEST_ROW = 60;

/** The text of an observation; `alone` if it replaces a screen, and is as large as fits. */
export function textScreen(text, alone) {
  const lines = text.split("\n");
  const columns = Math.max(12, ...lines.map((line) => line.length));
  const kind = `shown${alone ? " alone" : ""}${columns > LONGEST_ROW ? "" : " board"}`;
  const shown = h("pre", { class: kind, dir: "auto", tabindex: "0" }, text);
  shown.style.setProperty("--columns", String(columns));
  shown.style.setProperty("--lines", String(lines.length));
  return shown;
}

function touch(mark, radius) {
  const percent = (value) => `${100 * value}%`;
  const [x, y] = [percent(mark.to_x), percent(mark.to_y)];
  return h(
    "svg",
    { role: "img", "aria-label": "touch" },
    mark.x !== mark.to_x || mark.y !== mark.to_y
      ? h("line", { class: "trail", x1: percent(mark.x), y1: percent(mark.y), x2: x, y2: y })
      : null,
    h("circle", { class: "tap", cx: x, cy: y, r: radius }),
    h("circle", { class: "tap-core", cx: x, cy: y, r: radius / 3.5 }),
  );
}
