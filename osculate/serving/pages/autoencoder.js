// An autoencoder: the plane of codes with its uncertainty and decoded images, and the image of any code.

import { compute, latest } from "./api.js";
import { chooser, element, hue, painted, picture, scaled, section, shape, short, slider, soft } from "./draw.js";

const SIZE = 400;

export function show(content, main) {
  const { codes, low, high, labels, classes } = content;
  const state = { code: [...content.middle], axes: [0, Math.min(1, low.length - 1)] };
  const heat = element("canvas", { "aria-hidden": "true" });
  const examples = element("canvas", { hidden: "", "aria-hidden": "true" });
  const svg = shape("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, "aria-hidden": "true" });
  const plane = element("div", { class: "plane", tabindex: "0", role: "application", "aria-label": "plane of codes: a click or the arrow keys choose a code" }, heat, examples, svg);
  const decoded = element("div", { class: "pair", "aria-live": "off" });
  const words = element("p", { class: "soft", role: "status" });
  const scale = element("p", { class: "soft" });

  const share = (axis, value) => (value - low[axis]) / (high[axis] - low[axis]);
  const cross = shape("g", {});
  function draw() {
    const [first, second] = state.axes;
    svg.replaceChildren();
    codes.forEach((code, at) => {
      const colour = labels ? hue(labels[at], classes.length) : "#fff";
      svg.append(shape("circle", { cx: SIZE * share(first, code[first]), cy: SIZE * (1 - share(second, code[second])), r: 3, fill: colour, stroke: "#000", "stroke-width": 0.5 }));
    });
    svg.append(cross);
    move();
  }
  function move() {
    const [first, second] = state.axes;
    const [x, y] = [SIZE * share(first, state.code[first]), SIZE * (1 - share(second, state.code[second]))];
    cross.replaceChildren(
      shape("path", { d: `M0 ${y}H${SIZE}M${x} 0V${SIZE}`, stroke: "#fff", "stroke-opacity": 0.5 }),
      shape("circle", { cx: x, cy: y, r: 8, fill: "none", stroke: "#fff", "stroke-width": 3 }),
      shape("circle", { cx: x, cy: y, r: 8, fill: "none", stroke: "#000", "stroke-width": 1 }));
  }
  function painting(found) {
    const top = Math.max(...found.heat) || 1;
    painted(heat, found.points, found.points, "", (place) => scaled(found.heat[place] / top));
    if (found.examples.length) together(examples, found);
    scale.textContent = content.networks > 1
      ? `Dark to light: standard deviation of the image by the weights, mean over its pixels, 0 to ${short(top)}.`
      : "The weights of this network are not random: its images have no uncertainty by weights.";
  }
  function images(found) {
    if (found.mean) {
      decoded.replaceChildren(
        element("figure", {}, picture(found.mean, "image of the code"), element("figcaption", { text: "image" })),
        element("figure", {}, picture(found.deviation, "standard deviation of the image"), element("figcaption", { text: `standard deviation, white is ${short(found.largest)}` })));
    } else decoded.replaceChildren(soft(`Begins with ${found.values.map(short).join(", ")}`));
    words.textContent = `Code ${state.code.map(short).join(", ")}: standard deviation ${short(found.average)} on average.`;
  }
  const decode = latest(async (code) => images(await compute("decode", { code })));
  const paint = latest(async (asked) => painting(await compute("plane", asked)));

  function choose(code, repaint = false) {
    state.code = code.map((value, axis) => Math.min(Math.max(value, low[axis]), high[axis]));
    sliders.forEach((each, axis) => each.set(state.code[axis]));
    move();
    decode(state.code);
    if (repaint) paint({ axes: state.axes, code: state.code });
  }
  plane.addEventListener("click", (event) => {
    const box = plane.getBoundingClientRect();
    const code = [...state.code];
    const [first, second] = state.axes;
    code[first] = low[first] + ((event.clientX - box.left) / box.width) * (high[first] - low[first]);
    if (second !== first) code[second] = high[second] - ((event.clientY - box.top) / box.height) * (high[second] - low[second]);
    choose(code);
  });
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowDown: [1, -1], ArrowUp: [1, 1] };
  plane.addEventListener("keydown", (event) => {
    if (!(event.key in steps)) return;
    event.preventDefault();
    const [which, sign] = steps[event.key];
    const axis = state.axes[which];
    const code = [...state.code];
    code[axis] += sign * (event.shiftKey ? 0.1 : 0.02) * (high[axis] - low[axis]);
    choose(code);
  });
  const sliders = low.map((_, axis) => slider(`Number ${axis + 1} of the code`, {
    min: low[axis], max: high[axis], step: (high[axis] - low[axis]) / 200, value: state.code[axis],
    change: (value) => {
      const code = [...state.code];
      code[axis] = value;
      choose(code, !state.axes.includes(axis));
    },
  }));
  const names = low.map((_, axis) => `number ${axis + 1}`);
  const axis = (title, which) => {
    const made = chooser(title, names, (chosen) => {
      state.axes[which] = chosen;
      draw();
      paint({ axes: state.axes, code: state.code });
    });
    made.input.value = state.axes[which];
    return made.label;
  };
  const layers = chooser("Show", ["uncertainty and codes of test inputs", "decoded images", "uncertainty alone"], (chosen) => {
    examples.hidden = chosen !== 1;
    svg.classList.toggle("bare", chosen !== 0);
  });
  const key = labels ? element("p", { class: "soft" }, ...classes.flatMap((name, at) => [swatch(hue(at, classes.length)), name])) : null;
  main.append(section("Codes", element("div", { class: "columns" },
    element("div", {}, plane, scale, key, layers.label, ...(low.length > 2 ? [axis("Across:", 0), axis("Up:", 1)] : [])),
    element("div", {}, decoded, words, ...sliders.map((each) => each.label)))));
  draw();
  painting(content.plane);
  images(content.decoded);
}

function swatch(colour) {
  const made = shape("svg", { viewBox: "0 0 10 10", class: "swatch", "aria-hidden": "true" });
  made.append(shape("circle", { cx: 5, cy: 5, r: 4.5, fill: colour, stroke: "#000" }));
  return made;
}

function together(canvas, found) {
  const [, height, width] = found.examples[0].shape;
  canvas.width = width * found.places;
  canvas.height = height * found.places;
  const context = canvas.getContext("2d");
  found.examples.forEach((example, at) => {
    context.drawImage(picture(example, ""), (at % found.places) * width, Math.floor(at / found.places) * height);
  });
}
