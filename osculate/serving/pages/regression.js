// A regression: predictions with bands, residuals, coverage, and partial dependence.

import { compute, latest } from "./api.js";
import { across, Chart, chooser, element, extent, inWords, mean as average, percent, section, short, slider, soft, table } from "./draw.js";

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
    parts.replaceChildren(predictions(rows, content.outputs[output]), coverage(rows), residuals(rows, content), ...dependence(content, output));
  };
  if (outputs > 1) main.append(chooser("Output", content.outputs, of).label);
  main.append(parts);
  of(0);
}

function predictions({ mean, deviation, function: clean, target }, name) {
  const place = element("div", {});
  const order = mean.map((_, at) => at).sort((a, b) => mean[a] - mean[b]);
  const shown = order.filter((_, at) => at % Math.ceil(order.length / 300) === 0);
  const control = slider("Width of the band, standard deviations", { min: 0.5, max: 4, step: 0.1, value: 2, change: (width) => {
    const ends = shown.flatMap((at) => [mean[at] - width * deviation[at], mean[at] + width * deviation[at], target[at]]);
    const chart = new Chart({ x: [0, Math.max(1, shown.length - 1)], y: extent(ends), xTitle: "test inputs in the order of their prediction", yTitle: name, title: "predictions with bands", width: innerWidth < 640 ? 420 : 860 });
    chart.band(shown.map((at, x) => [x, mean[at] - width * deviation[at], mean[at] + width * deviation[at]]));
    chart.band(shown.map((at, x) => [x, mean[at] - width * clean[at], mean[at] + width * clean[at]]));
    chart.line(shown.map((at, x) => [x, mean[at]]), "second");
    shown.forEach((at, x) => chart.dot(x, target[at], "first"));
    const inside = percent(average(mean.map((value, at) => Math.abs(target[at] - value) <= width * deviation[at])));
    chart.says(`means of ${mean.length} test inputs from ${short(Math.min(...mean))} to ${short(Math.max(...mean))}, standard deviation ${short(average(deviation))} on average, ${short(average(clean))} without noise; ${inside} of the targets are in the band of ${short(width)} standard deviations.`);
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
    chart.says(`${[...new Set([0.5, 0.9, 0.95, level])].map((each) => `${percent(share(each))} of the targets at the level ${percent(each)}`).join(", ")}.`);
    place.replaceChildren(chart.svg);
    const z = quantile((1 + level) / 2);
    numbers.replaceChildren(table(["Interval", ""], [
      ["targets inside", percent(share(level))], ["half-width, standard deviations", short(z)],
      ["mean half-width", short(z * average(deviation))],
    ]));
  } });
  control.moved();
  return section("Coverage", element("div", { class: "columns" }, element("figure", {}, place),
    element("div", {}, control.label, numbers, soft("On the dashed line, intervals hold as many targets as they should; below it they are too narrow."))));
}

function residuals({ mean, deviation, target }, content) {
  const place = element("div", {});
  const standard = mean.map((value, at) => (target[at] - value) / deviation[at]);
  const columns = [{ name: "prediction", kind: "number" }, ...content.columns];
  const draw = (choice) => {
    const values = choice ? content.x.map((row) => row[choice - 1]) : mean;
    const { axis, place: at } = across(columns[choice], values);
    const y = extent([...standard, -3, 3]);
    const chart = new Chart({ ...axis, y, yTitle: "residual, standard deviations", title: "residuals" });
    chart.band([[chart.x[0], -2, 2], [chart.x[1], -2, 2]]);
    chart.line([[chart.x[0], 0], [chart.x[1], 0]], "even");
    values.forEach((value, row) => {
      if (value !== null) chart.dot(at(value), standard[row], Math.abs(standard[row]) > 2 ? "mark" : "second");
    });
    const middle = average(standard);
    chart.says(`against ${columns[choice].name}, mean ${short(middle)} and root mean square ${short(Math.sqrt(average(standard.map((value) => value ** 2))))} in standard deviations; ${percent(outside)} are beyond two.`);
    place.replaceChildren(chart.svg);
  };
  const outside = standard.filter((value) => Math.abs(value) > 2).length / standard.length;
  draw(0);
  return section("Residuals", element("div", { class: "columns" }, element("figure", {}, place),
    element("div", {}, chooser("Against", columns.map(({ name }) => name), draw).label,
      soft(`${percent(outside)} of the targets are more than two standard deviations away; 4.6 % of normal ones would be.`))));
}

function dependence(content, output) {
  if (!content.columns.length) return [];
  const place = element("div", { "aria-busy": "true" });
  const draw = latest(async (input) => {
    const found = await compute("dependence", { input });
    const middle = found.mean.map((row) => row[output]);
    const spread = found.deviation.map((row) => row[output]);
    const column = content.columns[input];
    const { axis, place: x } = across(column, found.values, 0);
    const rows = found.values.map((value, at) => [x(value), middle[at] - 2 * spread[at], middle[at] + 2 * spread[at]]);
    const chart = new Chart({ ...axis, y: extent(rows.flatMap(([, low, high]) => [low, high])), yTitle: "mean of the function", title: "partial dependence" });
    if (column.kind === "category") {
      rows.forEach(([at, low, high], row) => {
        chart.line([[at, low], [at, high]], "second");
        chart.dot(at, middle[row], "second", 4);
      });
    } else {
      chart.band(rows);
      chart.line(rows.map(([at], row) => [at, middle[row]]), "second");
    }
    const shown = column.kind === "category" ? [...found.values.keys()] : [0, found.values.length >> 1, found.values.length - 1];
    chart.says(`${shown.map((at) => `${short(middle[at])} ± ${short(2 * spread[at])} at ${inWords(found.values[at], column)}`).join(", ")}; of ${column.name}.`);
    place.replaceChildren(chart.svg);
    place.setAttribute("aria-busy", "false");
  });
  const names = content.columns.map(({ name }) => name);
  draw(0);
  return [section("Partial dependence", element("div", { class: "columns" }, element("figure", {}, place),
    element("div", {}, chooser("Of", names, draw).label,
      soft("The function averaged over test inputs, of which one column is varied; the band is two standard deviations over functions drawn from the posterior. Where inputs depend on one another, some of these inputs never occur."))))];
}
