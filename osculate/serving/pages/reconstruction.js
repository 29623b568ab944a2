// A reconstruction: the image, its error bars, samples, and a row across it.

import { Chart, chooser, element, extent, floats, painted, scaled, section, short, slider, soft } from "./draw.js";

export function show(content, main) {
  const [height, width] = content.mean.shape;
  const arrays = { mean: floats(content.mean), deviation: floats(content.deviation) };
  const samples = content.samples.map(floats);
  const truth = content.truth && floats(content.truth);
  const error = truth && truth.map((value, at) => Math.abs(value - arrays.mean[at]));
  const grey = extent([...arrays.mean, ...(truth ?? [])], 0);
  const wide = [0, Math.max(...arrays.deviation, ...(error ?? []))];
  const kinds = [
    ["image", () => [arrays.mean, grey, false]], ["standard deviation", () => [arrays.deviation, wide, true]],
    ["sample", () => [samples[state.sample], grey, false]],
    ...(truth ? [["truth", () => [truth, grey, false]], ["distance from the truth", () => [error, wide, true]]] : []),
  ];
  const state = { kind: 0, sample: 0, x: width >> 1, y: height >> 1 };
  const canvas = element("canvas", {});
  const mark = element("canvas", { width, height, "aria-hidden": "true", class: "clear" });
  const plane = element("div", { class: "plane", tabindex: "0", role: "application", "aria-label": "image: a click or the arrow keys choose a pixel" }, canvas, mark);
  plane.style.aspectRatio = `${width} / ${height}`;
  const words = element("p", { role: "status" });
  const ends = element("p", { class: "soft" });
  const row = element("div", {});

  function draw() {
    const [values, [low, high], coloured] = kinds[state.kind][1]();
    const title = kinds[state.kind][0];
    painted(canvas, width, height, title, (place) => {
      const part = (values[place] - low) / (high - low || 1);
      return coloured ? scaled(part) : Array(3).fill(Math.round(255 * Math.min(Math.max(part, 0), 1)));
    });
    ends.textContent = `${title}: dark is ${short(low)}, light is ${short(high)}.`;
    move();
  }
  function move() {
    const context = mark.getContext("2d");
    context.clearRect(0, 0, width, height);
    context.fillStyle = "#ff3d7f";
    context.globalAlpha = 0.25;
    context.fillRect(0, state.y, width, 1);
    context.globalAlpha = 1;
    context.fillRect(state.x, state.y, 1, 1);
    const at = state.y * width + state.x;
    words.textContent = `Row ${state.y + 1}, column ${state.x + 1}: ${short(arrays.mean[at])} ± ${short(2 * arrays.deviation[at])} (two standard deviations)${truth ? `; truth ${short(truth[at])}` : ""}.`;
    profile();
  }
  function profile() {
    const at = (x) => state.y * width + x;
    const columns = Array.from({ length: width }, (_, x) => x);
    const band = columns.map((x) => [x + 1, arrays.mean[at(x)] - 2 * arrays.deviation[at(x)], arrays.mean[at(x)] + 2 * arrays.deviation[at(x)]]);
    const drawn = samples.length ? columns.map((x) => samples[state.sample][at(x)]) : [];
    const y = extent([...band.flatMap(([, low, high]) => [low, high]), ...drawn, ...(truth ? columns.map((x) => truth[at(x)]) : [])]);
    const chart = new Chart({ x: [1, width], y, xTitle: "column", yTitle: "value", title: `row ${state.y + 1} with error bars` });
    chart.band(band);
    chart.line(columns.map((x) => [x + 1, arrays.mean[at(x)]]), "second");
    if (state.kind === 2) chart.line(columns.map((x) => [x + 1, drawn[x]]), "mark");
    if (truth) chart.line(columns.map((x) => [x + 1, truth[at(x)]]), "first");
    const means = columns.map((x) => arrays.mean[at(x)]);
    const bars = columns.map((x) => arrays.deviation[at(x)]);
    chart.says(`means from ${short(Math.min(...means))} to ${short(Math.max(...means))}, standard deviations from ${short(Math.min(...bars))} to ${short(Math.max(...bars))}.`);
    row.replaceChildren(chart.svg);
  }
  function choose(x, y) {
    state.x = Math.min(Math.max(x, 0), width - 1);
    state.y = Math.min(Math.max(y, 0), height - 1);
    rows.set(state.y + 1);
    move();
  }
  plane.addEventListener("click", (event) => {
    const box = plane.getBoundingClientRect();
    choose(Math.floor(((event.clientX - box.left) / box.width) * width), Math.floor(((event.clientY - box.top) / box.height) * height));
  });
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
  plane.addEventListener("keydown", (event) => {
    if (!(event.key in steps)) return;
    event.preventDefault();
    choose(state.x + steps[event.key][0], state.y + steps[event.key][1]);
  });
  const rows = slider("Row", { min: 1, max: height, step: 1, value: state.y + 1, words: String, change: (value) => choose(state.x, value - 1) });
  const shown = chooser("Show", kinds.map(([name]) => name), (chosen) => { state.kind = chosen; draw(); });
  const which = samples.length ? slider("Sample", { min: 1, max: samples.length, step: 1, value: 1, words: String, change: (value) => {
    state.sample = value - 1;
    state.kind = 2;
    shown.input.value = 2;
    draw();
  } }) : null;
  main.append(section("Image and error bars", element("div", { class: "columns" },
    element("div", {}, plane, ends, shown.label, which?.label),
    element("div", {}, row, words, rows.label,
      soft(`Blue: mean of the row, with a band of two standard deviations.${truth ? " Orange: truth." : ""} A sample is a draw of the whole image from the posterior.`)))));
  draw();
}
