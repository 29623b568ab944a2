// The page: reads the run, asks for a token where one is needed, and shows the view of its kind.

import { run, say, setToken } from "./api.js";
import { element, soft } from "./draw.js";

const main = document.getElementById("main");
const views = {
  classifier: () => import("./classifier.js"),
  regression: () => import("./regression.js"),
  autoencoder: () => import("./autoencoder.js"),
  reconstruction: () => import("./reconstruction.js"),
};

function ask() {
  const field = element("input", { type: "password", autocomplete: "off", required: "" });
  const given = (event) => {
    event.preventDefault();
    setToken(field.value);
    start();
  };
  main.replaceChildren(element("form", { on: { submit: given } },
    element("label", {}, "Token of this server ", field), element("button", { text: "Show the run" })));
  field.focus();
}

async function start() {
  say("");
  try {
    const content = await run();
    document.title = `${content.title} · osculate explore`;
    document.getElementById("title").textContent = `${content.title}: ${content.kind}`;
    const view = await views[content.kind]();
    main.replaceChildren(...(content.notes ?? []).map(soft));
    view.show(content, main);
  } catch (error) {
    if (error.status === 401) ask();
    else main.replaceChildren();
    say(error.message);
  } finally {
    main.setAttribute("aria-busy", "false");
  }
}

start();
