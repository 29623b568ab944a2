// Requests to the server of this page. The token is kept in memory alone.

let token = "";

export class Refusal extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

export function setToken(value) {
  token = value;
}

async function answer(path, options) {
  const headers = { ...options.headers, ...(token && { authorization: `Bearer ${token}` }) };
  const response = await fetch(path, { ...options, headers });
  const content = await response.json();
  if (!response.ok) throw new Refusal(response.status, content.error);
  return content;
}

export const run = () => answer("api/run", {});

export const compute = (name, asked, signal) =>
  answer(`api/${name}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(asked),
    signal,
  });

// A function whose calls follow one another: while one waits for its answer, only the last further one is kept.
export function latest(work) {
  let busy = false;
  let next = null;
  return async function again(asked) {
    next = { asked };
    if (busy) return;
    busy = true;
    try {
      while (next) {
        const { asked: now } = next;
        next = null;
        await work(now);
      }
    } catch (error) {
      say(error.message);
    } finally {
      busy = false;
    }
  };
}

export function say(text) {
  document.getElementById("status").textContent = text;
}
