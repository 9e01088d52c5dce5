// The labelling page: one question at a time, answered by a key. Every answer is on the disk before the next question.
import { Chart, FrameView, element, getJson, postJson } from "./parts.js";

const find = (id) => document.getElementById(id);
const FRAMES_PER_SECOND = 15, PAUSE_FRAMES = 8;
const state = { query: null, sides: [], timer: null, since: 0, isBusy: true };

class Side {
  constructor(name, data) {
    this.node = element("section", { class: "panel side", "aria-label": name });
    this.node.append(element("h2", {}, name));
    this.frames = null;
    this.charts = [];
    this.length = data.length ?? 0;
    if (data.num_frames) {
      this.frames = new FrameView(data.episode, data.start, data.num_frames);
      this.node.append(this.frames.node);
      this.frames.show(0).then(() => this.frames.fetchAll());
      this.length = data.num_frames;
    } else if (data.text !== undefined) {
      this.node.append(element("div", { class: "text" }, data.text));
    } else {
      const box = element("div", { class: "charts" });
      for (const [label, column] of Object.entries(data.components)) {
        const chart = new Chart(label, column, "var(--c0)", () => {});
        this.charts.push(chart);
        box.append(chart.node);
      }
      this.node.append(box);
    }
  }

  show(tick) {
    this.frames?.show(Math.min(tick, this.length - 1)).catch(() => {});
    for (const chart of this.charts) chart.show(Math.min(tick, this.length - 1));
  }

  close() { this.frames?.close(); }
}

function say(text, isError = false) {
  find("message").textContent = text;
  find("message").className = isError ? "error" : "muted";
}

function showStatus(status) {
  const answered = Object.keys(status.answers).length;
  find("done").style.width = `${100 * answered / Math.max(status.total, 1)}%`;
  find("count").textContent = `${answered} of ${status.total} answered`;
  find("undo").disabled = answered === 0;
}

// Shows a question. While it is on its way the one before stays, and keys do nothing.
async function ask(query) {
  const question = query === null ? null : await getJson(`api/questions/${query}`);
  clearInterval(state.timer);
  state.sides.forEach((side) => side.close());
  state.query = query;
  state.sides = (question?.sides ?? []).map((side, i) => new Side(["First", "Second"][i], side));
  const rest = "All questions are answered. The answers are saved; you can close this page.";
  find("sides").replaceChildren(...(question ? state.sides.map((side) => side.node) : [element("p", {}, rest)]));
  find("prompt").textContent = question?.prompt ?? "";
  find("prompt").hidden = !question?.prompt;
  for (const name of ["first", "second", "equal", "skip"]) find(name).disabled = query === null;
  document.body.dataset.query = query === null ? "none" : query;
  state.isBusy = false;
  state.since = performance.now();
  const length = Math.max(0, ...state.sides.map((side) => side.length));
  if (length > 1) {
    let tick = 0;
    state.timer = setInterval(() => {
      state.sides.forEach((side) => side.show(tick));
      tick = tick >= length + PAUSE_FRAMES ? 0 : tick + 1;
    }, 1000 / FRAMES_PER_SECOND);
  }
}

async function act(path, body) {
  if (state.isBusy) return;
  state.isBusy = true;
  try {
    const status = await postJson(path, body);
    showStatus(status);
    say("");
    await ask(status.undone ?? status.next);
  } catch (error) {
    state.isBusy = false;
    state.sides.forEach((side) => side.node.classList.remove("chosen"));
    say(`Not saved: ${error.message}. Is the command still running?`, true);
  }
}

function answer(name) {
  if (state.query === null || state.isBusy) return;
  const place = { first: 0, second: 1 }[name];
  if (place !== undefined) state.sides[place]?.node.classList.add("chosen");
  act("api/labels", { query: state.query, answer: name, seconds: (performance.now() - state.since) / 1000 });
}

const KEYS = { ArrowLeft: "first", 1: "first", ArrowRight: "second", 2: "second", ArrowDown: "equal", 3: "equal", s: "skip" };
for (const name of ["first", "second", "equal", "skip"]) find(name).addEventListener("click", () => answer(name));
find("undo").addEventListener("click", () => act("api/undo", {}));
addEventListener("keydown", (event) => {
  if (event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  if (KEYS[event.key]) {
    event.preventDefault();
    answer(KEYS[event.key]);
  } else if (event.key === "u" || event.key === "Backspace") {
    event.preventDefault();
    act("api/undo", {});
  }
});

getJson("api/labels").then((status) => {
  showStatus(status);
  return ask(status.next);
}).catch((error) => say(error.message, true));
