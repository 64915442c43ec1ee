// Show two episodes of a group side by side, so that a person can choose the better one.
import { get, h, notice, post, replace, placeholder } from "../lib/dom.js";
import { picture, screenText, textScreen } from "../lib/picture.js";

const WIDTH = 192;

/** The keys for the buttons' decisions. */
const decisions = {};

function forget() {
  for (const key of Object.keys(decisions)) delete decisions[key];
}

export async function preferences(place) {
  document.addEventListener("keydown", (event) => {
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    decisions[event.key.toLowerCase()]?.();
  });
  await showNext(place);
}

async function showNext(place) {
  const { pair, left, done } = await get("/api/choices");
  const title = h("h1", {}, "Which episode is better?");
  const about = h(
    "p",
    { class: "faint" },
    `${done} compared, ${left} left. Rewards are hidden. `,
    h("code", {}, "agentrl pairs RUN pairs.jsonl --by choice"),
    " turns your choices into training data.",
  );
  if (!pair) {
    replace(
      place,
      title,
      about,
      placeholder(
        "empty",
        "There are no episodes left to compare",
        done ? "All pairs have been compared." : "Jobs that play groups of episodes record pairs to compare.",
      ),
    );
    return;
  }
  const failed = h("div");
  const [a, b] = pair;
  const decide =
    (better, worse, skipped = false) =>
    async () => {
      forget(); // until the next pair is shown, so that each pair gets only one choice
      try {
        await post("/api/choices", { better: better.id, worse: worse.id, skipped });
        await showNext(place);
        scrollTo(0, 0);
      } catch (error) {
        offer();
        replace(failed, notice(error.message));
      }
    };
  const offer = () => Object.assign(decisions, { a: decide(a, b), b: decide(b, a), s: decide(a, b, true) });
  offer();
  const button = (words, key) =>
    h("button", { class: "button", type: "button", onclick: () => decisions[key]?.() }, words, h("kbd", {}, key));
  replace(
    place,
    title,
    about,
    h(
      "div",
      { class: "filters card decide" },
      button("A is better", "a"),
      button("B is better", "b"),
      button("Skip", "s"),
      failed,
    ),
    h("div", { class: "pair" }, side("A", a), side("B", b)),
  );
}

const side = (name, episode) =>
  h(
    "section",
    { class: "card" },
    h("h2", {}, name),
    h(
      "ol",
      { class: "turns", tabindex: "0", "aria-label": `turns of ${name}` },
      episode.played.map((turn, i) =>
        h("li", {}, h("span", { class: "who" }, `turn ${i + 1}`), seen(turn, turn.mark, turn.reply)),
      ),
    ),
    h("h3", {}, "End"),
    seen(episode.final),
  );

/** The screens of an observation, with its text and the reply next to them. */
const seen = ({ frames, shown }, mark, reply) =>
  h(
    "div",
    { class: "seen" },
    frames.length ? h("div", {}, shots(frames, mark)) : null,
    h(
      "div",
      {},
      screenText(shown) ? textScreen(screenText(shown), false) : null,
      reply ? h("p", {}, h("bdi", {}, reply)) : null,
    ),
  );

/** The screens of an observation; the touch is drawn on the last one, to which the action refers. */
const shots = (frames, mark = null) =>
  frames.map((id, i) => picture(id, i === frames.length - 1 ? mark : null, { width: WIDTH }));
