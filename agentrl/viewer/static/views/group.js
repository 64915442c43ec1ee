// The episodes of a group side by side: where they diverge, and their advantages.
import { fact, frame, get, h, named, number, outcomeBadge, replace, signed, tone } from "../lib/dom.js";

export async function group(place, name) {
  const found = await get(`/api/groups/${encodeURIComponent(name)}`);
  const members = found.members;
  const longest = Math.max(...members.map((m) => m.played.length));
  const valid = members.filter((m) => !m.void);
  const mean = valid.reduce((sum, m) => sum + m.reward, 0) / (valid.length || 1);
  const seeds = new Set(members.map((m) => m.seed));
  replace(
    place,
    h("h1", {}, h("bdi", {}, found.name)),
    h(
      "dl",
      { class: "facts" },
      fact("label", named(members[0].label)),
      fact("step", number(members[0].step)),
      fact(seeds.size === 1 ? "seed" : "seeds", [...seeds].join(", ")),
      fact("members", number(members.length)),
      fact("mean reward", number(mean)),
      fact("void", number(members.length - valid.length)),
    ),
    h(
      "section",
      { class: "card" },
      h("h2", {}, "Rewards"),
      h(
        "ul",
        { class: "bars short" },
        members.map((m) => rewardBar(m, members)),
      ),
    ),
    h(
      "section",
      { class: "card" },
      h("h2", {}, "Turn by turn"),
      h(
        "p",
        { class: "faint" },
        "A bar on the left means that other members of the group also reached this state. The color below shows the advantage.",
      ),
      h(
        "div",
        { class: "scroll" },
        h(
          "table",
          { class: "siblings" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              h("th", {}, "member"),
              Array.from({ length: longest }, (_, i) => h("th", {}, String(i + 1))),
              h("th", {}, "end"),
            ),
          ),
          h(
            "tbody",
            {},
            members.map((m, i) =>
              h(
                "tr",
                {},
                h(
                  "th",
                  { scope: "row" },
                  h("a", { href: link(m) }, `m${String(m.member).padStart(2, "0")}`),
                  outcomeBadge(m),
                ),
                m.played.map((turn, t) => cell(m, turn, t, found.meetings[i][t])),
                m.removed
                  ? h("td", { class: "faint", colspan: longest + 1 }, m.lost)
                  : [
                      Array.from({ length: longest - m.played.length }, () => h("td", { class: "none" })),
                      h(
                        "td",
                        {},
                        h(
                          "a",
                          {
                            class: "cell",
                            href: `${link(m)}?turn=${m.played.length}&after=1`,
                            "aria-label": "the end",
                          },
                          small(m.final.at(-1), "end"),
                        ),
                      ),
                    ],
              ),
            ),
          ),
        ),
      ),
    ),
  );
}

const link = (member) => `/episodes/${encodeURIComponent(member.id)}`;

function cell(member, turn, t, met) {
  const title = [
    `reached by ${met} other members`,
    turn.shown.replaceAll("<image>", ""),
    turn.reply,
    `reward ${signed(turn.reward)}, advantage ${signed(turn.advantage)}`,
  ]
    .filter(Boolean)
    .join("\n");
  return h(
    "td",
    {},
    h(
      "a",
      {
        class: `cell ${met ? "met" : ""} ${turn.unreadable ? "unread" : ""}`,
        href: `${link(member)}?turn=${t + 1}`,
        title,
      },
      small(turn.frames.at(-1), turn.shown.replaceAll("<image>", "").trim()),
      h("span", { class: `mark ${tone(turn.advantage ?? 0)}` }),
      h("span", { class: `n ${tone(turn.advantage)}` }, signed(turn.advantage ?? turn.reward, 2)),
    ),
  );
}

function small(id, words) {
  if (!id) return h("span", { class: "text-thumb" }, words.slice(0, 60) || "–");
  return h("img", {
    src: frame(id, 96),
    alt: "",
    loading: "lazy",
    onerror: (event) => event.target.replaceWith(h("span", { class: "text-thumb" }, "not recorded")),
  });
}

function rewardBar(member, members) {
  const all = members.filter((m) => !m.void).map((m) => m.reward);
  // All bars begin at zero, which is in the middle if a reward is negative. Otherwise the worst reward would have the longest bar.
  const hasNegative = all.some((total) => total < 0);
  const zero = hasNegative ? 50 : 0;
  const scale = (100 - zero) / (Math.max(...all.map(Math.abs)) || 1);
  return h(
    "li",
    {},
    h("a", { href: link(member) }, `m${String(member.member).padStart(2, "0")}`),
    member.void
      ? h("span", { class: "faint" }, `void: ${member.cause}`)
      : h(
          "span",
          { class: `track ${hasNegative ? "signed" : ""}` },
          h("span", {
            class: "fill",
            style: {
              marginLeft: `${zero + scale * Math.min(0, member.reward)}%`,
              width: `${scale * Math.abs(member.reward)}%`,
            },
          }),
        ),
    h("span", { class: "num" }, member.void ? "" : signed(member.reward)),
  );
}
