// A regression: predictions with bands, residuals, coverage, and partial dependence.

import { compute, latest } from "./api.js";
import { Chart, chooser, element, extent, percent, section, short, slider, soft, table } from "./draw.js";

// The quantile of the normal distribution, by Newton's method on its distribution function.
export function quantile(level) {
  let z = 0;
  for (let step = 0; step < 50; step += 1) z -= (normal(z) - level) / (Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI));
  return z;
}

// The distribution function of the normal distribution, by its series.
export function normal(z) {
  if (Math.abs(z) > 6) return z > 0 ? 1 : 0;
  let [term, sum] = [z, z];
  for (let n = 1; n < 100; n += 1) {
    term *= (z * z) / (2 * n + 1);
    sum += term;
  }
  return 0.5 + (sum * Math.exp((-z * z) / 2)) / Math.sqrt(2 * Math.PI);
}

export function show(content, main) {
  const outputs = content.mean[0].length;
  const parts = element("div", {});
  const of = (output) => {
    const column = (name) => content[name].map((row) => row[output]);
    const rows = { mean: column("mean"), deviation: column("deviation"), function: column("function"), target: column("target") };
    parts.replaceChildren(predictions(rows), coverage(rows), residuals(rows, content), ...dependence(content, output));
  };
  if (outputs > 1) main.append(chooser("Output", content.mean[0].map((_, at) => `output ${at + 1}`), of).label);
  main.append(parts);
  of(0);
}

function predictions({ mean, deviation, function: clean, target }) {
  const place = element("div", {});
  const order = mean.map((_, at) => at).sort((a, b) => mean[a] - mean[b]);
  const shown = order.filter((_, at) => at % Math.ceil(order.length / 300) === 0);
  const control = slider("Width of the band, standard deviations", { min: 0.5, max: 4, step: 0.1, value: 2, change: (width) => {
    const ends = shown.flatMap((at) => [mean[at] - width * deviation[at], mean[at] + width * deviation[at], target[at]]);
    const chart = new Chart({ x: [0, Math.max(1, shown.length - 1)], y: extent(ends), xTitle: "test inputs in the order of their prediction", yTitle: "target", title: "predictions with bands", width: innerWidth < 640 ? 420 : 860 });
    chart.band(shown.map((at, x) => [x, mean[at] - width * deviation[at], mean[at] + width * deviation[at]]));
    chart.band(shown.map((at, x) => [x, mean[at] - width * clean[at], mean[at] + width * clean[at]]));
    chart.line(shown.map((at, x) => [x, mean[at]]), "second");
    shown.forEach((at, x) => chart.dot(x, target[at], "first"));
    place.replaceChildren(chart.svg);
  } });
  control.moved();
  return section("Predictions", element("figure", {}, place), control.label,
    soft("Line: mean. Dots: targets. Wide band: standard deviation with observation noise; the darker band inside is without it."));
}

function coverage({ mean, deviation, target }) {
  const place = element("div", {});
  const numbers = element("div", { "aria-live": "polite" });
  const levels = mean.map((value, at) => Math.abs(2 * normal((target[at] - value) / deviation[at]) - 1)).sort((a, b) => a - b);
  const share = (level) => levels.filter((value) => value <= level).length / levels.length;
  const control = slider("Level of the interval", { min: 0.05, max: 0.99, step: 0.01, value: 0.9, words: percent, change: (level) => {
    const chart = new Chart({ x: [0, 1], y: [0, 1], xTitle: "level", yTitle: "share of targets inside", title: "coverage" });
    chart.line([[0, 0], [1, 1]], "even");
    chart.line(Array.from({ length: 101 }, (_, at) => [at / 100, share(at / 100)]), "second");
    chart.dot(level, share(level), "mark", 5);
    place.replaceChildren(chart.svg);
    const z = quantile((1 + level) / 2);
    numbers.replaceChildren(table(["Interval", ""], [
      ["targets inside", percent(share(level))], ["half-width, standard deviations", short(z)],
      ["mean half-width", short((z * deviation.reduce((sum, value) => sum + value, 0)) / deviation.length)],
    ]));
  } });
  control.moved();
  return section("Coverage", element("div", { class: "columns" }, element("figure", {}, place),
    element("div", {}, control.label, numbers, soft("On the dashed line, intervals hold as many targets as they should; below it they are too narrow."))));
}

function residuals({ mean, deviation, target }, content) {
  const place = element("div", {});
  const standard = mean.map((value, at) => (target[at] - value) / deviation[at]);
  const names = ["prediction", ...Array.from({ length: content.inputs }, (_, at) => `input ${at + 1}`)];
  const draw = (choice) => {
    const across = choice ? content.x.map((row) => row[choice - 1]) : mean;
    const y = extent([...standard, -3, 3]);
    const chart = new Chart({ x: extent(across), y, xTitle: names[choice], yTitle: "residual, standard deviations", title: "residuals" });
    chart.band([[chart.x[0], -2, 2], [chart.x[1], -2, 2]]);
    chart.line([[chart.x[0], 0], [chart.x[1], 0]], "even");
    across.forEach((x, at) => chart.dot(x, standard[at], Math.abs(standard[at]) > 2 ? "mark" : "second"));
    place.replaceChildren(chart.svg);
  };
  draw(0);
  const outside = standard.filter((value) => Math.abs(value) > 2).length / standard.length;
  return section("Residuals", element("div", { class: "columns" }, element("figure", {}, place),
    element("div", {}, chooser("Against", names, draw).label,
      soft(`${percent(outside)} of the targets are more than two standard deviations away; 4.6 % of normal ones would be.`))));
}

function dependence(content, output) {
  if (!content.inputs) return [];
  const place = element("div", { "aria-busy": "true" });
  const draw = latest(async (input) => {
    const found = await compute("dependence", { input });
    const middle = found.mean.map((row) => row[output]);
    const spread = found.deviation.map((row) => row[output]);
    const rows = found.values.map((value, at) => [value, middle[at] - 2 * spread[at], middle[at] + 2 * spread[at]]);
    const chart = new Chart({ x: extent(found.values, 0), y: extent(rows.flatMap(([, low, high]) => [low, high])), xTitle: `input ${input + 1}`, yTitle: "mean of the function", title: "partial dependence" });
    chart.band(rows);
    chart.line(found.values.map((value, at) => [value, middle[at]]), "second");
    place.replaceChildren(chart.svg);
    place.setAttribute("aria-busy", "false");
  });
  const names = Array.from({ length: content.inputs }, (_, at) => `input ${at + 1}`);
  draw(0);
  return [section("Partial dependence", element("div", { class: "columns" }, element("figure", {}, place),
    element("div", {}, chooser("Of", names, draw).label,
      soft("The function averaged over test inputs, of which one number is varied; the band is two standard deviations over functions drawn from the posterior. Where inputs depend on one another, some of these inputs never occur."))))];
}
