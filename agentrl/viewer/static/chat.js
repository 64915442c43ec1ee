// A chat with a model. Its output only becomes text nodes.
import { get, h, keepToken, notice, post, replace } from "./lib/dom.js";

const LOOK_MS = 150;
/** Delay after a failed request. */
const AGAIN_MS = 2000;

keepToken();

const list = h("div", { class: "chat", "aria-live": "polite" });
const said = h("div");
const words = h("textarea", {
  class: "answer",
  "aria-label": "message",
  rows: "3",
  placeholder: "Enter sends, Shift+Enter starts a new line",
});
const files = h("input", { class: "unseen", type: "file", accept: "image/*", multiple: true });
/** Replaces the browser's own button, which would always show that no file is chosen. */
const add = h("label", { class: "button" }, "Add images", files);
const thumbs = h("div", { class: "thumbs" });
const send = h("button", { class: "button strong" }, "Send");
const stop = h(
  "button",
  { class: "button", type: "button", hidden: true, onclick: () => act("/api/chat/stop") },
  "Stop",
);
const reset = h(
  "button",
  { class: "button", type: "button", onclick: () => act("/api/chat/reset") },
  "New chat",
);
const save = h("a", { class: "button", href: "/api/chat/row", download: "chat.jsonl", hidden: true }, "Save");
const form = h(
  "form",
  {
    class: "composer",
    onsubmit: (event) => {
      event.preventDefault();
      ask();
    },
  },
  words,
  thumbs,
  h("div", { class: "filters" }, send, add, stop, reset, save),
);

/** Data URLs of the images of the next message. */
let images = [];
let version = -1;

files.addEventListener("change", async () => {
  images.push(...(await Promise.all([...files.files].map(read))));
  files.value = "";
  preview();
});

words.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  ask();
});

const read = (file) =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });

function preview() {
  replace(
    thumbs,
    images.map((url, i) =>
      h(
        "button",
        {
          class: "thumb",
          type: "button",
          "aria-label": `remove image ${i + 1}`,
          onclick: () => {
            images.splice(i, 1);
            preview();
          },
        },
        h("img", { src: url, alt: "" }),
      ),
    ),
  );
}

async function ask() {
  const text = words.value;
  if (send.disabled || (!text.trim() && !images.length)) return;
  if (await act("/api/chat/message", { text, images })) {
    words.value = "";
    images = [];
    preview();
  }
}

async function act(path, body) {
  try {
    await post(path, {}, body);
    await look();
    return true;
  } catch (error) {
    replace(said, notice(error.message));
    return false;
  }
}

function bubble(message, place) {
  const pictures = Array.from({ length: message.images ?? 0 }, (_, i) =>
    h("img", { src: `/api/chat/pictures/${place}/${i}`, alt: "image" }),
  );
  return h(
    "div",
    { class: `said ${message.role === "user" ? "" : "model"}` },
    h("div", { class: "who" }, message.role === "user" ? "you" : "model"),
    pictures,
    parts(message).map(([kind, text]) =>
      kind === "thought"
        ? h(
            "details",
            { class: "thought" },
            h("summary", {}, "Thought"),
            h("div", { class: "words", dir: "auto" }, text),
          )
        : h("div", { class: "words", dir: "auto" }, text),
    ),
  );
}

/** Split a message into thoughts and text; a thought without an end lasts to the end of the message. */
function parts({ role, text }) {
  if (role === "user") return [["said", text]];
  // Some templates begin the thought in the prompt, so the reply contains only its end.
  const isBegun = !text.includes("<think>") && text.includes("</think>");
  const split = (isBegun ? `<think>${text}` : text).split(/<think>([\s\S]*?)(?:<\/think>|$)/);
  const found = split.map((part, i) => [i % 2 ? "thought" : "said", part.trim()]);
  const shown = found.filter(([, part]) => part);
  return shown.length ? shown : [["said", text]];
}

/** Mark the message being written; its thoughts are open unless the reader has closed them. */
function open(shown) {
  const last = list.querySelector(".said.writing .thought");
  for (const thought of shown.querySelectorAll(".thought")) thought.open = last?.open ?? true;
  shown.classList.add("writing");
  return shown;
}

async function look() {
  const now = await get("/api/chat");
  if (now.version === version) return;
  version = now.version;
  document.getElementById("title").textContent = now.title;
  document.title = `${now.title} · agentrl`;
  const down = innerHeight + scrollY >= document.body.scrollHeight - 40;
  const kept = [...list.children].slice(0, list.complete ?? 0);
  // Keep the elements of complete messages, so that their images are not loaded again.
  const same = kept.length <= now.messages.length && kept.every((e, i) => e.text === now.messages[i].text);
  const complete = now.messages.map((message, i) => {
    if (same && i < kept.length) return kept[i];
    const shown = bubble(message, i);
    shown.text = message.text;
    return shown;
  });
  list.complete = complete.length;
  list.replaceChildren(
    ...complete,
    ...(now.answering ? [open(bubble({ role: "assistant", text: now.partial || "…" }))] : []),
  );
  replace(
    said,
    now.error ? notice(now.error) : null,
    now.cut ? h("p", { class: "faint" }, "Cut off at rollout.max_new_tokens.") : null,
  );
  send.disabled = reset.disabled = now.answering;
  stop.hidden = !now.answering;
  save.hidden = now.answering || !now.messages.length;
  if (down) scrollTo(0, document.body.scrollHeight);
}

replace(document.getElementById("view"), list, said, form);
const go = async () => {
  let pause = LOOK_MS;
  try {
    await look();
  } catch (error) {
    replace(said, notice(error.message));
    version = -1;
    pause = AGAIN_MS;
  }
  setTimeout(go, pause);
};
go();
