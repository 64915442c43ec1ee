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
      h("p", { class: "missing" }, "This frame was not recorded, or is damaged."),
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
