// Two episodes of a group side by side, of which a person chooses the better one.
import { get, h, notice, post, replace, placeholder } from "../lib/dom.js";
import { picture } from "../lib/picture.js";

const WIDTH = 192;

export async function preferences(place) {
  const { pair, left, done } = await get("/api/choices");
  const title = h("h1", {}, "Which episode is better?");
  const about = h(
    "p",
    { class: "faint" },
    `${done} compared, ${left} left. Rewards are hidden. `,
    "agentrl pairs RUN pairs.jsonl --by choice makes training data of what you choose.",
  );
  if (!pair) {
    replace(
      place,
      title,
      about,
      placeholder(
        "empty",
        "No two episodes of a group are left to compare.",
        done ? "All have been compared." : "A job that plays groups of episodes records them.",
      ),
    );
    return;
  }
  const failed = h("div");
  const [a, b] = pair;
  const decide =
    (better, worse, skipped = false) =>
    async () => {
      try {
        await post("/api/choices", { better: better.id, worse: worse.id, skipped });
        await preferences(place);
      } catch (error) {
        replace(failed, notice(error.message));
      }
    };
  replace(
    place,
    title,
    about,
    failed,
    h(
      "div",
      { class: "filters card" },
      h("button", { class: "button", type: "button", onclick: decide(a, b) }, "A is better"),
      h("button", { class: "button", type: "button", onclick: decide(b, a) }, "B is better"),
      h("button", { class: "button", type: "button", onclick: decide(a, b, true) }, "Skip"),
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
      { class: "turns", tabindex: "0" },
      episode.played.map((turn) =>
        h(
          "li",
          {},
          shots(turn.frames, turn.mark),
          h("p", { class: "faint" }, turn.shown.replaceAll("<image>", "").trim()),
          h("p", {}, h("bdi", {}, turn.reply)),
        ),
      ),
    ),
    h("h3", {}, "End"),
    shots(episode.final.frames),
    h("p", { class: "faint" }, episode.final.shown.replaceAll("<image>", "").trim()),
  );

/** The screens of an observation; the touch is on the last one, which the action saw. */
const shots = (frames, mark = null) =>
  frames.map((id, i) => picture(id, i === frames.length - 1 ? mark : null, { width: WIDTH }));
