// Show other positions that the action could have touched: the probabilities of its coordinates.
import { h, notice, replace, share } from "../lib/dom.js";
import { NOT_RECORDED, turnTokens } from "./tokens.js";

const LISTED = 4;
const percent = (value) => `${100 * value}%`;

/** Draw bands over a picture, columns for x and rows for y, and list the most probable values below. */
export async function drawCoordinates(picture, record, turn) {
  const caption = h("div", { class: "coordinates" }, h("p", { class: "loading" }, "Loading…"));
  picture.after(caption);
  let found;
  try {
    found = await turnTokens(record, turn);
  } catch (error) {
    replace(caption, notice(error.message));
    return;
  }
  const said =
    record.played[turn].mark === null
      ? "This action did not touch the screen."
      : !found.has_top
        ? NOT_RECORDED
        : !found.coordinates.length
          ? (found.note ?? "The reply does not contain the touch's coordinates as numbers.")
          : null;
  if (said) {
    replace(caption, h("p", { class: "faint" }, said));
    return;
  }
  const swipes = found.coordinates.length > 2;
  const named = ({ axis, end }) => `${axis}${swipes ? (end ? " of the end" : " of the start") : ""}`;
  const listed = found.coordinates.map((one) => one.parts.slice(0, LISTED));
  picture.append(h("svg", { class: "bands", "aria-hidden": "true" }, found.coordinates.map(bands)));
  replace(
    caption,
    h(
      "dl",
      {},
      found.coordinates.map((one, i) => [
        h("dt", {}, named(one)),
        h(
          "dd",
          {},
          listed[i].map((part) => h("span", {}, h("b", {}, part.text), ` ${share(part.mass)}`)),
        ),
      ]),
    ),
    h(
      "p",
      { class: "faint" },
      `The recorded tokens cover ${found.coordinates.map((one) => `${share(one.covered)} of ${named(one)}`).join(", ")}. Each distribution is conditional on the preceding tokens of the reply, so y on the sampled x.`,
      listed.flat().some((part) => part.text.endsWith("…"))
        ? " “…” stands for digits that were not sampled."
        : null,
    ),
  );
}

/** Bands of one coordinate. The more probable and the narrower, the darker. */
function bands({ axis, end, parts }) {
  const density = (part) => part.mass / (part.high - part.low);
  const highest = Math.max(...parts.map(density));
  return parts.map((part) => {
    const [start, size] = [percent(part.low), percent(part.high - part.low)];
    const place =
      axis === "x"
        ? { x: start, y: "0", width: size, height: "100%" }
        : { x: "0", y: start, width: "100%", height: size };
    return h("rect", {
      ...place,
      class: end ? "band end" : "band",
      "fill-opacity": 0.04 + 0.5 * Math.sqrt(density(part) / highest),
    });
  });
}
