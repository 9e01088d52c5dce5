// Parts that both pages use: requests, frames of an episode, charts of columns over time.

export async function getJson(path) {
  const response = await fetch(path, { cache: "no-store" });
  const document = await response.json();
  if (!response.ok) throw new Error(document.error);
  return document;
}

export async function postJson(path, body) {
  const response = await fetch(path, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
  });
  const document = await response.json();
  if (!response.ok) throw new Error(document.error);
  return document;
}

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export function format(value) {
  if (value === null || value === undefined) return "none";
  if (Array.isArray(value)) return value.map(format).join(", ");
  return Number.isInteger(value) ? String(value) : Number(value.toPrecision(4)).toString();
}

const encodeId = (id) => id.split("/").map(encodeURIComponent).join("/");

// The frames of a part of an episode on a canvas. All are fetched in the background, six at a time; the frame that is
// wanted now comes first, and until it is there the one before stays.
export class FrameView {
  constructor(episode, start, count) {
    this.episode = encodeId(episode);
    this.start = start;
    this.count = count;
    this.blobs = new Array(count);
    this.canvas = element("canvas");
    this.node = element("div", { class: "frame" }, this.canvas);
    this.wanted = 0;
    this.drawn = -1;
    this.closed = false;
    this.pending = new Map();
    this.next = 0;
  }

  fetchFrame(index) {
    if (this.blobs[index]) return Promise.resolve(this.blobs[index]);
    if (!this.pending.has(index)) {
      const request = fetch(`frames/${this.start + index}/${this.episode}`).then(async (response) => {
        if (!response.ok) throw new Error("a frame is missing");
        this.blobs[index] = await response.blob();
        return this.blobs[index];
      }).finally(() => this.pending.delete(index));
      this.pending.set(index, request);
    }
    return this.pending.get(index);
  }

  async fetchAll() {
    const worker = async () => {
      while (!this.closed && this.next < this.count) {
        const index = this.next++;
        try { await this.fetchFrame(index); } catch { return; }
      }
    };
    await Promise.all(Array.from({ length: 6 }, worker));
  }

  async show(index) {
    this.wanted = Math.max(0, Math.min(index, this.count - 1));
    if (this.wanted === this.drawn) return;
    const wanted = this.wanted;
    const image = await createImageBitmap(await this.fetchFrame(wanted));
    if (wanted !== this.wanted || this.closed) return;
    if (this.canvas.width !== image.width || this.canvas.height !== image.height) {
      this.canvas.width = image.width;
      this.canvas.height = image.height;
      this.node.classList.toggle("small", image.height <= 260);
    }
    this.canvas.getContext("2d").drawImage(image, 0, 0);
    this.drawn = wanted;
    this.node.dataset.frame = wanted;
  }

  close() { this.closed = true; }
}

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 72, LEFT = 6, RIGHT = 6, TOP = 18, BOTTOM = 6;

function svgNode(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

// A line chart of one column ([time], or [time][component]) with a mark at the current step. `onStep` is called with
// the step under the pointer. It is drawn anew when its width changes.
export class Chart {
  constructor(name, column, color, onStep) {
    this.name = name;
    this.color = color;
    this.rows = column.map((value) => (Array.isArray(value) ? value : [value]));
    this.length = this.rows.length;
    this.low = Infinity;
    this.high = -Infinity;
    for (const value of this.rows.flat()) {
      if (value === null) continue;
      this.low = Math.min(this.low, value);
      this.high = Math.max(this.high, value);
    }
    if (this.low > this.high) [this.low, this.high] = [null, null];
    this.step = 0;
    this.node = svgNode("svg", { height: HEIGHT, role: "img", "aria-label": name });
    this.draw(640);
    new ResizeObserver(([entry]) => {
      if (entry.contentRect.width > 0) this.draw(entry.contentRect.width);
    }).observe(this.node);
    const report = (event) => {
      const box = this.node.getBoundingClientRect();
      const share = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
      onStep(Math.round(Math.max(0, Math.min(1, share)) * (this.length - 1)));
    };
    this.node.addEventListener("pointerdown", (event) => {
      this.node.setPointerCapture(event.pointerId);
      report(event);
    });
    this.node.addEventListener("pointermove", (event) => {
      if (event.buttons) report(event);
    });
  }

  draw(width) {
    this.width = width;
    this.node.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const across = { x1: LEFT, x2: width - RIGHT, stroke: "var(--rule)" };
    this.node.replaceChildren(svgNode("line", { ...across, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }));
    if (this.low < 0 && this.high > 0) {
      this.node.append(svgNode("line", { ...across, y1: this.y(0), y2: this.y(0), "stroke-dasharray": "3 3" }));
    }
    this.rows[0].forEach((_, k, row) => {
      const stroke = row.length === 1 ? this.color : `var(--c${k % 8})`;
      this.node.append(svgNode("path", { d: this.path(k), fill: "none", stroke, "stroke-width": 1.4, "stroke-linejoin": "round" }));
    });
    this.value = svgNode("text", { x: width - RIGHT, y: 12, "text-anchor": "end" });
    this.mark = svgNode("line", { y1: TOP - 2, y2: HEIGHT - BOTTOM, stroke: "var(--c1)", "stroke-width": 1.5 });
    this.node.append(svgNode("text", { x: LEFT, y: 12, class: "name" }, this.name), this.value, this.mark);
    this.show(this.step);
  }

  x(step) { return LEFT + (this.width - LEFT - RIGHT) * (this.length > 1 ? step / (this.length - 1) : 0.5); }

  y(value) {
    const span = this.high - this.low;
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (span > 0 ? (value - this.low) / span : 0.5);
  }

  path(component) {
    let text = "", pen = "M";
    this.rows.forEach((row, step) => {
      if (row[component] === null) { pen = "M"; return; }
      text += `${pen}${this.x(step).toFixed(1)} ${this.y(row[component]).toFixed(1)}`;
      pen = "L";
    });
    return text;
  }

  show(step) {
    this.step = Math.min(step, this.length - 1);
    const row = this.rows[this.step];
    this.mark.setAttribute("x1", this.x(this.step));
    this.mark.setAttribute("x2", this.x(this.step));
    const text = row.length > 4 ? "" : format(row.length === 1 ? row[0] : row);
    this.value.textContent = `${text}   [${format(this.low)} to ${format(this.high)}]`;
  }
}
