// Elements, pictures and charts. Texts are set as text, never as HTML.

export function element(name, options = {}, ...children) {
  const { text, on, ...attributes } = options;
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  for (const [event, action] of Object.entries(on ?? {})) made.addEventListener(event, action);
  if (text !== undefined) made.textContent = text;
  made.append(...children.filter((child) => child != null));
  return made;
}

export function section(title, ...children) {
  return element("section", {}, element("h2", { text: title }), ...children);
}

export const soft = (text) => element("p", { class: "soft", text });

export const short = (value) => {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
};
export const percent = (value) => `${(100 * value).toFixed(1)} %`;

// A slider with its value in words; `change` is called with the number, and at once.
export function slider(title, { min, max, step, value, words = short, change }) {
  const shown = element("span", { class: "value", "aria-hidden": "true" }); // an <output> would take the label
  const input = element("input", { type: "range", min, max, step, value });
  const moved = () => {
    shown.textContent = words(Number(input.value));
    input.setAttribute("aria-valuetext", shown.textContent);
    change(Number(input.value));
  };
  input.addEventListener("input", moved);
  const label = element("label", {}, `${title}: `, shown, input);
  shown.textContent = words(value);
  return { label, input, moved, set(number) {
    input.value = number;
    shown.textContent = words(Number(input.value));
    input.setAttribute("aria-valuetext", shown.textContent);
  } };
}

export function chooser(title, names, change) {
  const options = names.map((name, place) => element("option", { value: place, text: name }));
  const input = element("select", {}, ...options);
  input.addEventListener("change", () => change(Number(input.value)));
  return { label: element("label", {}, `${title} `, input), input };
}

// Pictures

const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
export const floats = (array) => new Float32Array(bytes(array.values).buffer);

export function picture(found, title, canvas = element("canvas", {})) {
  const [channels, height, width] = found.shape;
  const pixels = bytes(found.pixels);
  return painted(canvas, width, height, title, (place) => {
    const at = (channel) => pixels[(channels === 1 ? 0 : channel) * width * height + place];
    return [at(0), at(1), at(2)];
  });
}

export function painted(canvas, width, height, title, colour) {
  canvas.width = width;
  canvas.height = height;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", title);
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  for (let place = 0; place < width * height; place += 1) image.data.set([...colour(place), 255], 4 * place);
  context.putImageData(image, 0, 0);
  return canvas;
}

// A scale from dark blue over green to yellow, which is also one from dark to light.
const SCALE = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
export function scaled(share) {
  const at = Math.min(Math.max(share, 0), 1) * (SCALE.length - 1);
  const low = Math.min(Math.floor(at), SCALE.length - 2);
  return SCALE[low].map((value, part) => Math.round(value + (at - low) * (SCALE[low + 1][part] - value)));
}

// Colours of classes, apart in hue and in lightness.
export const hue = (place, count) => `hsl(${Math.round((360 * place) / Math.max(count, 1))} 85% ${place % 2 ? 45 : 62}%)`;

// Charts

const SVG = "http://www.w3.org/2000/svg";
export function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export class Chart {
  // `xNames`: words at 0, 1, … in place of numbers; `xWords`: a number as words.
  constructor({ x, y, xTitle, yTitle, title, xNames, xWords = short, width = 420, height = 280 }) {
    Object.assign(this, { x, y, title, xNames, xWords, width, height });
    this.svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
    this.axes(xTitle, yTitle);
  }

  px(value) {
    return 48 + ((value - this.x[0]) / (this.x[1] - this.x[0] || 1)) * (this.width - 60);
  }

  py(value) {
    return this.height - 40 - ((value - this.y[0]) / (this.y[1] - this.y[0] || 1)) * (this.height - 52);
  }

  // A sentence with the main numbers, for who does not see the chart.
  says(sentence) {
    this.svg.setAttribute("aria-label", `${this.title}: ${sentence}`);
  }

  add(name, attributes, text) {
    const made = shape(name, attributes, text);
    this.svg.append(made);
    return made;
  }

  axes(xTitle, yTitle) {
    const { width, height } = this;
    const step = this.xNames && Math.ceil(this.xNames.length / 7);
    for (const value of this.xNames ? this.xNames.keys() : ticks(this.x)) {
      if (step && value % step) continue;
      const words = this.xNames ? clipped(this.xNames[value]) : this.xWords(value);
      this.add("text", { x: this.px(value), y: height - 24, "text-anchor": "middle" }, words);
      this.add("line", { class: "axis", x1: this.px(value), x2: this.px(value), y1: 12, y2: height - 40 });
    }
    for (const value of ticks(this.y)) {
      this.add("text", { x: 43, y: this.py(value) + 4, "text-anchor": "end" }, short(value));
      this.add("line", { class: "axis", x1: 48, x2: width - 12, y1: this.py(value), y2: this.py(value) });
    }
    this.add("text", { x: (48 + width - 12) / 2, y: height - 6, "text-anchor": "middle" }, xTitle);
    this.add("text", { x: 48, y: 9 }, yTitle);
  }

  line(points, type) {
    const d = points.map(([x, y], place) => `${place ? "L" : "M"}${this.px(x).toFixed(1)} ${this.py(y).toFixed(1)}`);
    return this.add("path", { d: d.join(""), class: type, fill: "none", "stroke-width": 2 });
  }

  band(points) {
    const there = points.map(([x, low]) => `${this.px(x).toFixed(1)} ${this.py(low).toFixed(1)}`);
    const back = points.map(([x, , high]) => `${this.px(x).toFixed(1)} ${this.py(high).toFixed(1)}`).reverse();
    return this.add("path", { d: `M${[...there, ...back].join("L")}Z`, class: "band" });
  }

  dot(x, y, type, radius = 2.5) {
    return this.add("circle", { cx: this.px(x), cy: this.py(y), r: radius, class: `fill-${type}`, "fill-opacity": 0.7 });
  }
}

const clipped = (text) => (text.length > 9 ? `${text.slice(0, 8)}…` : text);

export const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
export const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

// A value of a column in words.
export function inWords(value, { kind }) {
  if (value === null) return "missing";
  if (kind === "date") return new Date(864e5 * value).toISOString().slice(0, 10);
  return typeof value === "number" ? short(value) : value;
}

// The axis of the values of a column, and the place of a value on it, which is null for a missing one.
export function across(column, values, margin) {
  if (column.kind === "category") {
    const names = column.categories.filter((name) => values.includes(name));
    const place = (value) => (value === null ? null : names.indexOf(value));
    return { axis: { x: [-0.5, names.length - 0.5], xNames: names, xTitle: column.name }, place };
  }
  const there = values.filter((value) => value !== null);
  const words = (value) => inWords(value, column);
  return { axis: { x: extent(there, margin), xWords: words, xTitle: column.name }, place: (value) => value };
}

function ticks([low, high]) {
  const span = high - low || 1;
  const power = 10 ** Math.floor(Math.log10(span / 4));
  const step = power * ([1, 2, 5, 10].find((times) => span / (times * power) <= 5) ?? 10);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + 1e-9 * span; at += step) found.push(Math.abs(at) < 1e-12 ? 0 : at);
  return found;
}

export function extent(values, margin = 0.04) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  const room = high > low ? margin * (high - low) : 1;
  return [low - room, high + room];
}

export function table(heads, rows) {
  const head = element("tr", {}, ...heads.map((text) => element("th", { scope: "col", text })));
  const body = rows.map(([first, ...rest]) =>
    element("tr", {}, element("th", { scope: "row", text: first }), ...rest.map((text) => element("td", { text }))));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": heads.join(", ") },
    element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
}

// The names of the curves of a chart, as pairs of a colour and a text.
export function legend(...pairs) {
  return element("p", { class: "soft" }, ...pairs.flatMap(([type, text]) => [element("span", { class: `key ${type}` }), text]));
}
