// The environment's info after an action, and what the action changed in it.
import { fact, h, number } from "../lib/dom.js";

const LONGEST = 200;
const text = (value) => (value === undefined ? "absent" : JSON.stringify(value));
const isTree = (value) => value !== null && typeof value === "object";

/** [path, before, after] of each difference; a list whose length changed counts as one difference. */
function changes(before, after, path = "") {
  const isSame =
    isTree(before) &&
    isTree(after) &&
    Array.isArray(before) === Array.isArray(after) &&
    (!Array.isArray(before) || before.length === after.length);
  if (!isSame) return text(before) === text(after) ? [] : [[path, before, after]];
  const inner = (key) => (Array.isArray(before) ? `${path}[${key}]` : path ? `${path}.${key}` : key);
  return [...new Set([...Object.keys(before), ...Object.keys(after)])].flatMap((key) =>
    changes(before[key], after[key], inner(key)),
  );
}

export function info(record, turn) {
  const { info: after, state_key: state } = record.played[turn];
  const before = turn ? record.played[turn - 1].info : record.reset_info;
  const found = changes(before, after);
  const cell = (value) => h("td", {}, h("bdi", {}, h("code", {}, text(value).slice(0, LONGEST))));
  return [
    state ? h("dl", { class: "facts" }, fact("state", state)) : null,
    h("h3", {}, `Changed in turn ${turn + 1}`),
    found.length
      ? h(
          "div",
          { class: "scroll", tabindex: "0", role: "region", "aria-label": "changes" },
          h(
            "table",
            { class: "changed" },
            h(
              "thead",
              {},
              h(
                "tr",
                {},
                ["", "before", "after"].map((name) => h("th", {}, name)),
              ),
            ),
            h(
              "tbody",
              {},
              found
                .slice(0, LONGEST)
                .map(([path, old, now]) =>
                  h("tr", {}, h("td", {}, h("bdi", {}, path)), cell(old), cell(now)),
                ),
            ),
          ),
        )
      : h("p", { class: "empty" }, "Nothing."),
    found.length > LONGEST ? h("p", { class: "faint" }, `And ${number(found.length - LONGEST)} more.`) : null,
    h(
      "details",
      { class: "whole" },
      h("summary", {}, "Complete info after the action"),
      h("pre", { dir: "auto" }, JSON.stringify(after, null, 1)),
    ),
    h(
      "details",
      { class: "whole" },
      h("summary", {}, "After reset"),
      h("pre", { dir: "auto" }, JSON.stringify(record.reset_info, null, 1)),
    ),
  ];
}
