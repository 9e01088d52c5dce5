// The viewer: one or two recorded episodes, a step at a time. The address after # names episodes and step.
import { Chart, FrameView, element, format, getJson } from "./parts.js";

const COLORS = { reward: "var(--c2)", "return so far": "var(--c5)", value: "var(--c0)", advantage: "var(--c3)", spread: "var(--c6)" };
const find = (id) => document.getElementById(id);
const state = { step: 0, length: 0, panels: { a: null, b: null }, timer: null };

class Panel {
  constructor(name, episode, data) {
    this.episode = episode;
    this.data = data;
    this.length = data.about.length;
    this.node = find(`panel-${name}`);
    this.frames = data.num_frames ? new FrameView(episode, 0, data.num_frames) : null;
    this.charts = [];
    const about = data.about;
    const title = element("p", {}, element("strong", {}, `${about.method ?? ""} in ${about.env}`),
      ` seed ${about.seed}, ${about.mode}, after ${Number(about.step).toLocaleString("en")} steps: return ${format(about.return)} in ${about.length} steps` +
      (data.ends.terminated ? ", terminated" : data.ends.truncated ? ", truncated" : ""));
    this.left = element("div");
    this.right = element("div");
    this.node.replaceChildren(title, element("div", { class: "columns" }, this.left, this.right));
    if (data.turns) this.addTurns();
    else if (this.frames) this.left.append(this.frames.node);
    this.words = element("p", { class: "words" });
    this.words.hidden = true;
    this.details = element("dl");
    this.left.append(this.words, this.details);
    this.addCharts();
    if (data.report_card.length) this.addReportCard();
    if (this.frames) {
      this.frames.show(state.step).then(() => this.frames.fetchAll());
    }
  }

  addTurns() {
    this.turns = this.data.turns.map((turn, step) => {
      const speaker = turn.speaker ? [element("span", { class: "speaker" }, turn.speaker), " "] : [];
      const node = element("div", { class: "turn" }, element("div", {}, turn.observation),
        element("div", { class: "response" }, ...speaker, turn.response));
      const scores = ["reward", "value", "advantage"].filter((name) => turn[name] !== null && turn[name] !== undefined);
      node.append(element("div", { class: "score" }, scores.map((name) => `${name} ${format(turn[name])}`).join("   ")));
      node.addEventListener("click", () => setStep(step));
      return node;
    });
    this.left.append(element("div", { class: "turns" }, ...this.turns));
  }

  addCharts() {
    const box = element("div", { class: "charts" });
    const columns = { reward: this.data.columns.reward };
    let sum = 0;
    columns["return so far"] = this.data.columns.reward.map((reward) => (sum += reward ?? 0));
    Object.assign(columns, this.data.columns);
    const isPlotted = !this.frames && !this.data.turns;
    for (const [name, column] of Object.entries({ ...columns, ...(isPlotted ? this.data.components : {}) })) {
      const chart = new Chart(name, column, COLORS[name] ?? "var(--c0)", setStep);
      this.charts.push(chart);
      box.append(chart.node);
    }
    this.right.append(box);
  }

  addReportCard() {
    const rows = this.data.report_card.map(([name, mean, interval]) => mean
      ? element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, mean), element("td", {}, interval))
      : element("tr", { class: "warning" }, element("th", { colspan: 3 }, name)));
    this.right.append(element("details", { class: "card", open: "" }, element("summary", {}, "Report card of the run"),
      element("table", {}, ...rows)));
  }

  show(step) {
    const at = Math.min(step, this.length - 1);
    this.node.dataset.step = at;
    this.frames?.show(step >= this.length - 1 ? Math.max(at, Math.min(step + 1, this.frames.count - 1)) : at);
    for (const chart of this.charts) chart.show(at);
    this.turns?.forEach((node, i) => node.classList.toggle("current", i === at));
    if (this.turns) {
      const box = this.turns[at].parentElement;
      const top = this.turns[at].offsetTop - box.offsetTop;
      if (top < box.scrollTop || top + this.turns[at].offsetHeight > box.scrollTop + box.clientHeight) box.scrollTop = top;
    }
    const words = this.data.words?.[at];
    this.words.hidden = !words;
    this.words.textContent = words ?? "";
    const items = [];
    for (const [name, column] of Object.entries(this.data.components)) {
      const row = column[at];
      const values = Array.isArray(row) ? row : [row];
      values.forEach((value, k) => items.push([values.length > 1 ? `${name}[${k}]` : name, value]));
    }
    this.details.replaceChildren(...items.map(([name, value]) =>
      element("div", {}, element("dt", { title: name }, name), element("dd", {}, format(value)))));
  }

  close() {
    this.frames?.close();
    this.node.replaceChildren();
  }
}

function setStep(step) {
  state.step = Math.max(0, Math.min(step, state.length - 1));
  find("step").value = state.step;
  find("place").textContent = `${state.step} / ${Math.max(state.length - 1, 0)}`;
  for (const panel of Object.values(state.panels)) panel?.show(state.step);
  writeAddress();
}

let addressTimer = null;
function writeAddress() {
  clearTimeout(addressTimer);
  addressTimer = setTimeout(() => history.replaceState(null, "", `#${addressText()}`), 150);
}

function addressText() {
  const parts = new URLSearchParams();
  for (const name of ["a", "b"]) if (state.panels[name]) parts.set(name, state.panels[name].episode);
  parts.set("step", state.step);
  return parts.toString();
}

async function openEpisode(name, episode) {
  state.panels[name]?.close();
  state.panels[name] = null;
  find(`panel-${name}`).hidden = !episode;
  find(`choose-${name}`).value = episode;
  if (episode) {
    const data = await getJson(`api/episodes/${episode.split("/").map(encodeURIComponent).join("/")}`);
    state.panels[name] = new Panel(name, episode, data);
  }
  state.length = Math.max(0, ...Object.values(state.panels).map((panel) => panel?.length ?? 0));
  find("step").max = Math.max(state.length - 1, 0);
  setStep(state.step);
}

function setPlaying(isPlaying) {
  clearInterval(state.timer);
  state.timer = null;
  if (isPlaying) {
    if (state.step >= state.length - 1) setStep(0);
    state.timer = setInterval(() => {
      if (state.step >= state.length - 1) setPlaying(false);
      else setStep(state.step + 1);
    }, 1000 / Number(find("speed").value));
  }
  find("play").textContent = state.timer ? "Pause" : "Play";
}

function say(text, isError = false) {
  find("message").textContent = text;
  find("message").className = isError ? "error" : "muted";
}

async function readAddress(episodes) {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const known = new Set(episodes.map((episode) => episode.id));
  const first = wanted.get("a") ?? episodes.at(-1)?.id ?? "";
  const second = wanted.get("b") ?? "";
  const missing = [first, second].filter((id) => id && !known.has(id));
  if (missing.length) say(`There is no episode ${missing.join(", ")}.`, true);
  state.step = Number.parseInt(wanted.get("step") ?? "0", 10) || 0;
  const step = state.step;
  await openEpisode("a", known.has(first) ? first : "");
  state.step = step;
  await openEpisode("b", known.has(second) ? second : "");
  setStep(step);
}

async function start() {
  const { episodes } = await getJson("api/episodes");
  const label = (e) => `${e.id.split("/")[0]}: ${e.id.split("/").at(-1)} (return ${format(e.return)}, ${e.length} steps)`;
  for (const name of ["a", "b"]) {
    const select = find(`choose-${name}`);
    if (name === "b") select.append(element("option", { value: "" }, "beside it: nothing"));
    select.append(...episodes.map((episode) => element("option", { value: episode.id }, label(episode))));
    select.addEventListener("change", () => openEpisode(name, select.value).catch((error) => say(error.message, true)));
  }
  if (!episodes.length) say("There is no recorded episode: record one with thespis record RUN.");
  await readAddress(episodes);
  addEventListener("hashchange", () => readAddress(episodes));
}

find("step").addEventListener("input", (event) => setStep(Number(event.target.value)));
find("play").addEventListener("click", () => setPlaying(!state.timer));
find("speed").addEventListener("change", () => state.timer && setPlaying(true));
find("copy").addEventListener("click", async () => {
  history.replaceState(null, "", `#${addressText()}`);
  try {
    await navigator.clipboard.writeText(location.href);
    say("Copied.");
  } catch {
    say("The link is in the address bar.");
  }
});
addEventListener("keydown", (event) => {
  if (event.target.tagName === "SELECT" || event.ctrlKey || event.metaKey || event.altKey) return;
  const stride = event.shiftKey ? 10 : 1;
  const actions = {
    " ": () => setPlaying(!state.timer), ArrowLeft: () => setStep(state.step - stride), ArrowRight: () => setStep(state.step + stride),
    Home: () => setStep(0), End: () => setStep(state.length - 1),
  };
  if (actions[event.key]) {
    event.preventDefault();
    actions[event.key]();
  }
});
start().catch((error) => say(error.message, true));
