"use strict";

// The tree of a run's trials on a canvas: each trial right of the one that it was made from. The line of the best runs
// straight through the middle, and all else branches off above and below it.

const ROW = 14;
const NARROWEST = 26;
const NEAR = 14;
const TONES = ["--good", "--soft", "--bad", "--busy"];
const [KEPT, DISCARDED, FAILED, FLYING] = [0, 1, 2, 3];
const TONE_OF = { keep: KEPT, baseline: KEPT, discard: DISCARDED, running: FLYING };

class Trials {
  // Columns, since thousands of objects would be slow. A place in them stands for a trial.
  constructor() {
    this.number = [];
    this.parent = [];
    this.score = [];
    this.status = [];
    this.specialist = [];
    this.at = new Map();
    this.best = -1;
  }

  // Add a page, or what has changed of one.
  take(page) {
    for (let row = 0; row < page.number.length; row++) {
      const number = page.number[row];
      let place = this.at.get(number);
      if (place === undefined) {
        place = this.number.push(number) - 1;
        this.at.set(number, place);
      }
      this.parent[place] = this.at.get(page.parent[row]) ?? -1;
      this.score[place] = page.score[row];
      this.status[place] = page.statuses[page.status[row]];
      this.specialist[place] = page.specialists[page.specialist[row]];
    }
    this.best = this.at.get(page.best) ?? -1;
  }

  // After which number there may be news: all before it have ended.
  settled() {
    const open = this.status.indexOf("running");
    if (open >= 0) return this.number[open] - 1;
    return this.number.length ? this.number[this.number.length - 1] : -1;
  }
}

class Layout {
  constructor(trials) {
    const count = trials.number.length;
    this.depth = new Int32Array(count);
    this.row = new Float64Array(count);
    this.layers = [];
    this.children = Array.from({ length: count }, () => []);
    this.line = new Set();
    const roots = [];
    for (let place = 0; place < count; place++) {
      const parent = trials.parent[place];
      // A parent comes before its children; what says otherwise begins a tree of its own.
      if (parent >= 0 && parent < place) this.children[parent].push(place);
      else roots.push(place);
    }
    for (let at = trials.best; at >= 0; at = trials.parent[at] < at ? trials.parent[at] : -1) this.line.add(at);
    let layer = this.lineInTheMiddle(roots);
    while (layer.length) {
      this.place(layer, trials);
      this.layers.push(layer);
      layer = layer.flatMap((place) => this.lineInTheMiddle(this.children[place]));
    }
    this.low = this.row.reduce((low, row) => Math.min(low, row), 0);
    this.high = this.row.reduce((high, row) => Math.max(high, row), 0);
  }

  // Half of the siblings above the one that leads to the best, half below.
  lineInTheMiddle(siblings) {
    const main = siblings.find((place) => this.line.has(place));
    if (main === undefined) return siblings;
    const others = siblings.filter((place) => place !== main);
    const half = Math.ceil(others.length / 2);
    return [...others.slice(0, half).reverse(), main, ...others.slice(half)];
  }

  // Give a layer its rows: near the parent, pushed away from the middle where there is no room.
  place(layer, trials) {
    const depth = this.layers.length;
    const wanted = this.wanted(layer, trials);
    let middle = layer.findIndex((place) => this.line.has(place));
    if (middle < 0) middle = Math.max(0, wanted.findIndex((row) => row >= 0));
    let row = this.line.has(layer[middle]) ? 0 : wanted[middle];
    this.row[layer[middle]] = row;
    const start = row;
    for (let at = middle + 1; at < layer.length; at++) {
      row = Math.max(row + 1, wanted[at]);
      this.row[layer[at]] = row;
    }
    row = start;
    for (let at = middle - 1; at >= 0; at--) {
      row = Math.min(row - 1, wanted[at]);
      this.row[layer[at]] = row;
    }
    for (const place of layer) this.depth[place] = depth;
  }

  wanted(layer, trials) {
    const seen = new Map();
    return layer.map((place) => {
      const parent = trials.parent[place];
      if (parent < 0 || parent >= place) return 0;
      const nth = seen.get(parent) ?? 0;
      seen.set(parent, nth + 1);
      return this.row[parent] + nth - (this.children[parent].length - 1) / 2;
    });
  }
}

class Lineage {
  constructor(element) {
    this.element = element;
    this.canvas = element.querySelector("canvas");
    this.told = element.querySelector("output");
    this.pen = this.canvas.getContext("2d");
    this.trials = new Trials();
    this.layout = new Layout(this.trials);
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.zoom = 1;
    this.x = 0;
    this.y = 0;
    this.gap = NARROWEST;
    this.hovered = -1;
    this.chosen = -1;
    this.touched = false;
    this.waiting = false;
    this.pointers = new Map();
    this.listen();
    this.load();
  }

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("pointerdown", (event) => this.onDown(event));
    canvas.addEventListener("pointermove", (event) => this.onMove(event));
    canvas.addEventListener("pointerup", (event) => this.onUp(event));
    canvas.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => this.hover(-1));
    canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    this.element.addEventListener("click", (event) => this.onButton(event.target.closest("[data-do]")));
    new ResizeObserver(() => this.resize()).observe(canvas);
    new MutationObserver(() => this.recolour()).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    // The page has heard of changes.
    document.addEventListener("htmx:afterSettle", () => this.load());
    this.recolour();
  }

  // Read what is new, a page at a time; what comes in meanwhile is read after it.
  async load() {
    if (this.loading) {
      this.again = true;
      return;
    }
    this.loading = true;
    try {
      let after = this.trials.settled();
      do {
        const answer = await fetch(`${this.element.dataset.from}?after=${after}`, { cache: "no-cache" });
        if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
        const page = await answer.json();
        this.trials.take(page);
        after = page.next;
        this.arrange();
      } while (after !== null);
      this.begin();
    } catch (error) {
      this.say(`The tree could not be read: ${error.message}. The list below has the ancestors of the best.`);
    } finally {
      this.loading = false;
      if (this.again) {
        this.again = false;
        this.load();
      }
    }
  }

  arrange() {
    this.layout = new Layout(this.trials);
    if (!this.touched) this.fit();
    this.ask();
  }

  // Once: show what the address names, and say what there is.
  begin() {
    if (this.chosen >= 0) this.choose(this.chosen, false);
    else if (this.element.dataset.trial !== undefined) {
      const place = this.trials.at.get(Number(this.element.dataset.trial));
      if (place !== undefined) this.choose(place);
    } else this.say(this.summary());
  }

  summary() {
    const count = this.trials.number.length;
    if (!count) return "No trial yet.";
    const best = this.trials.best < 0 ? "" : ` The best is ${this.name(this.trials.best)}.`;
    return `${count.toLocaleString("en")} ${count === 1 ? "trial" : "trials"}.${best}`;
  }

  name(place) {
    return String(this.trials.number[place]).padStart(3, "0");
  }

  describe(place) {
    const { score, status, specialist, parent } = this.trials;
    const facts = [`Trial ${this.name(place)}`, status[place].replaceAll("_", " ")];
    if (score[place] !== null) facts.push(Number(score[place].toPrecision(7)).toString());
    facts.push(`by ${specialist[place]}`);
    if (parent[place] >= 0) facts.push(`from ${this.name(parent[place])}`);
    const count = this.layout.children[place].length;
    if (count) facts.push(`${count} made from it`);
    return `${facts.join(", ")}.`;
  }

  say(words) {
    this.told.textContent = words;
  }

  open(place) {
    location.assign(this.element.dataset.trials + this.name(place));
  }

  // Where things are on the canvas.
  left(place) {
    return this.x + this.layout.depth[place] * this.gap * this.zoom;
  }

  top(place) {
    return this.y + this.layout.row[place] * ROW * this.zoom;
  }

  fit() {
    const layers = Math.max(1, this.layout.layers.length - 1);
    const rows = this.layout.high - this.layout.low + 1;
    const margin = 28;
    // The last trials have their names to the right of them.
    const names = 24;
    const [width, height] = [Math.max(1, this.width - 2 * margin - names), Math.max(1, this.height - 2 * margin)];
    // Columns as far apart as makes the tree the shape of the canvas.
    this.gap = Math.min(600, Math.max(NARROWEST, (rows * ROW * width) / height / layers));
    this.zoom = Math.min(2, width / (layers * this.gap), height / (rows * ROW));
    this.x = margin + Math.max(0, (width - layers * this.gap * this.zoom) / 2);
    this.y = this.height / 2 - ((this.layout.low + this.layout.high) / 2) * ROW * this.zoom;
    this.ask();
  }

  zoomAt(x, y, factor) {
    const zoom = Math.min(8, Math.max(0.0005, this.zoom * factor));
    this.x = x - ((x - this.x) * zoom) / this.zoom;
    this.y = y - ((y - this.y) * zoom) / this.zoom;
    this.zoom = zoom;
    this.touched = true;
    this.ask();
  }

  move(x, y) {
    this.x += x;
    this.y += y;
    this.touched = true;
    this.ask();
  }

  choose(place, show = true) {
    this.chosen = place;
    this.say(this.describe(place));
    if (show) this.bringIntoView(place);
    this.ask();
  }

  bringIntoView(place) {
    this.touched = true;
    if (this.zoom * ROW < 6) this.zoomAt(this.left(place), this.top(place), 10 / (this.zoom * ROW));
    const [x, y, margin] = [this.left(place), this.top(place), 40];
    const inside = x > margin && x < this.width - margin && y > margin && y < this.height - margin;
    if (!inside) this.move(this.width / 2 - x, this.height / 2 - y);
  }

  hover(place) {
    if (place === this.hovered) return;
    this.hovered = place;
    this.canvas.classList.toggle("over", place >= 0);
    if (place >= 0) this.say(this.describe(place));
    else this.say(this.chosen >= 0 ? this.describe(this.chosen) : this.summary());
    this.ask();
  }

  // The trial under the pointer, if one is near.
  under(x, y) {
    const { layers } = this.layout;
    const step = this.gap * this.zoom;
    const first = Math.max(0, Math.ceil((x - NEAR - this.x) / step));
    const last = Math.min(layers.length - 1, Math.floor((x + NEAR - this.x) / step));
    let [found, nearest] = [-1, NEAR * NEAR];
    for (let depth = first; depth <= last; depth++) {
      for (const place of layers[depth]) {
        const [dx, dy] = [this.left(place) - x, this.top(place) - y];
        const distance = dx * dx + dy * dy;
        if (distance < nearest) [found, nearest] = [place, distance];
      }
    }
    return found;
  }

  onDown(event) {
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY, moved: 0 });
  }

  onMove(event) {
    const held = this.pointers.get(event.pointerId);
    if (!held) {
      this.hover(this.under(event.offsetX, event.offsetY));
      return;
    }
    const [dx, dy] = [event.offsetX - held.x, event.offsetY - held.y];
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const before = Math.hypot(held.x - other.x, held.y - other.y);
      const now = Math.hypot(event.offsetX - other.x, event.offsetY - other.y);
      if (before > 0) this.zoomAt(other.x, other.y, now / before);
    } else this.move(dx, dy);
    held.x = event.offsetX;
    held.y = event.offsetY;
    held.moved += Math.abs(dx) + Math.abs(dy);
  }

  onUp(event) {
    const held = this.pointers.get(event.pointerId);
    this.pointers.delete(event.pointerId);
    if (!held || held.moved > 6) return;
    const place = this.under(event.offsetX, event.offsetY);
    if (place < 0) return;
    // A finger cannot hover: the first touch tells, the second one opens.
    if (event.pointerType === "mouse" || place === this.chosen) this.open(place);
    else this.choose(place, false);
  }

  onWheel(event) {
    // Until somebody works with the tree, the wheel moves the page over it.
    if (document.activeElement !== this.canvas && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.zoomAt(event.offsetX, event.offsetY, Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)));
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = this.keyed(event.key);
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  keyed(key) {
    const middle = (factor) => () => this.zoomAt(this.width / 2, this.height / 2, factor);
    const to = (place) => () => place >= 0 && this.choose(place);
    const from = this.chosen >= 0 ? this.chosen : this.trials.best;
    const acts = {
      "+": middle(1.3),
      "=": middle(1.3),
      "-": middle(1 / 1.3),
      0: () => this.fit(),
      Home: to(this.trials.number.length ? 0 : -1),
      End: to(this.trials.best),
    };
    if (from >= 0) {
      acts.Enter = () => this.open(from);
      acts.ArrowLeft = to(this.trials.parent[from] < 0 ? from : this.trials.parent[from]);
      acts.ArrowRight = to(this.firstChild(from));
      acts.ArrowUp = to(this.beside(from, -1));
      acts.ArrowDown = to(this.beside(from, 1));
    }
    return acts[key];
  }

  firstChild(place) {
    const found = this.layout.children[place];
    return found.find((each) => this.layout.line.has(each)) ?? found[found.length - 1] ?? place;
  }

  beside(place, step) {
    const layer = this.layout.layers[this.layout.depth[place]];
    return layer[layer.indexOf(place) + step] ?? place;
  }

  onButton(button) {
    if (!button) return;
    const acts = {
      in: () => this.zoomAt(this.width / 2, this.height / 2, 1.5),
      out: () => this.zoomAt(this.width / 2, this.height / 2, 1 / 1.5),
      fit: () => this.fit(),
      best: () => this.trials.best >= 0 && this.choose(this.trials.best),
    };
    acts[button.dataset.do]();
  }

  resize() {
    const ratio = devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (!this.touched) this.fit();
    this.ask();
  }

  recolour() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    this.colours = { tones: TONES.map(read), edge: read("--soft"), line: read("--accent"), ink: read("--ink"), focus: read("--focus") };
    this.ask();
  }

  // Draw in the next frame, once for everything that has changed.
  ask() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  draw() {
    this.pen.clearRect(0, 0, this.width, this.height);
    if (!this.trials.number.length) return;
    const shown = this.visible();
    this.drawEdges(shown);
    this.drawLine();
    this.drawTrials(shown);
    if (this.zoom * ROW > 12 && this.zoom * this.gap > 30 && shown.length < 600) this.drawNames(shown);
    for (const place of new Set([this.chosen, this.hovered])) if (place >= 0) this.drawRing(place);
  }

  // What is on the canvas, one for every two pixels: more would be painted over. What was kept goes before the rest.
  visible() {
    const { layers } = this.layout;
    const step = this.gap * this.zoom;
    const first = Math.max(0, Math.floor(-this.x / step) - 1);
    const last = Math.min(layers.length - 1, Math.ceil((this.width - this.x) / step) + 1);
    const [low, high] = [-20, this.height + 20];
    const columns = (this.width >> 1) + 2;
    const taken = new Uint8Array(columns * ((this.height >> 1) + 2));
    const shown = [];
    for (let depth = first; depth <= last; depth++) {
      const column = Math.min(columns - 1, Math.max(0, (this.x + depth * step) >> 1));
      for (const place of layers[depth]) {
        const y = this.top(place);
        const rank = TONE_OF[this.trials.status[place]] === KEPT ? 2 : 1;
        if (y < low || y > high) {
          // Still worth a line, if it leads to where somebody looks.
          const parent = this.trials.parent[place];
          const from = parent < 0 ? y : this.top(parent);
          if ((from < low || from > high) && from < low === y < low) continue;
          if (step < 2) continue;
        } else {
          const cell = Math.max(0, Math.min(this.height, y) >> 1) * columns + column;
          if (taken[cell] >= rank) continue;
          taken[cell] = rank;
        }
        shown.push(place);
      }
    }
    return shown;
  }

  drawEdges(shown) {
    const pen = this.pen;
    pen.beginPath();
    for (const place of shown) {
      const parent = this.trials.parent[place];
      if (parent >= 0 && parent < place && !this.layout.line.has(place)) this.edge(parent, place);
    }
    pen.lineWidth = 1;
    pen.strokeStyle = this.colours.edge;
    pen.globalAlpha = 0.45;
    pen.stroke();
    pen.globalAlpha = 1;
  }

  // Level with the child from a third of the way on, so that brothers fan out near their parent.
  edge(parent, place) {
    const [x1, y1, x2, y2] = [this.left(parent), this.top(parent), this.left(place), this.top(place)];
    this.pen.moveTo(x1, y1);
    if (y1 !== y2) this.pen.lineTo(x1 + (x2 - x1) * 0.35, y2);
    this.pen.lineTo(x2, y2);
  }

  // The line of the best is straight: each layer was placed around it.
  drawLine() {
    if (this.trials.best < 0) return;
    const pen = this.pen;
    pen.beginPath();
    pen.moveTo(Math.max(-10, this.x), this.y);
    pen.lineTo(Math.min(this.width + 10, this.left(this.trials.best)), this.y);
    pen.lineWidth = 2.5;
    pen.strokeStyle = this.colours.line;
    pen.stroke();
  }

  drawTrials(shown) {
    const radius = Math.min(6, Math.max(1.3, 3.5 * Math.sqrt(this.zoom)));
    for (const tone of [DISCARDED, FAILED, FLYING, KEPT]) {
      const size = tone === KEPT ? Math.max(2.2, radius * 1.2) : radius;
      this.pen.beginPath();
      for (const place of shown) {
        if ((TONE_OF[this.trials.status[place]] ?? FAILED) !== tone) continue;
        const [x, y] = [this.left(place), this.top(place)];
        // Squares are quicker, and look the same when they are small.
        if (size < 2.5) this.pen.rect(x - size, y - size, 2 * size, 2 * size);
        else {
          this.pen.moveTo(x + size, y);
          this.pen.arc(x, y, size, 0, 2 * Math.PI);
        }
      }
      this.pen.fillStyle = this.colours.tones[tone];
      this.pen.fill();
    }
  }

  drawNames(shown) {
    this.pen.fillStyle = this.colours.ink;
    this.pen.font = "11px system-ui, sans-serif";
    for (const place of shown) {
      // Over the thick line, not through it.
      const up = this.layout.line.has(place) ? -7 : 4;
      this.pen.fillText(this.name(place), this.left(place) + 9, this.top(place) + up);
    }
  }

  drawRing(place) {
    this.pen.beginPath();
    this.pen.arc(this.left(place), this.top(place), 9, 0, 2 * Math.PI);
    this.pen.lineWidth = 2.5;
    this.pen.strokeStyle = this.colours.focus;
    this.pen.stroke();
  }
}

for (const element of document.querySelectorAll("[data-lineage]")) new Lineage(element);
