// Requests of the data API. A 401 asks for a token, once for all that wait.

const BASE = "/api/page/v1/";

export class Requests {
  constructor(unauthorized) {
    this.unauthorized = unauthorized;
  }

  get(path, signal) {
    return this.answer(path, { signal });
  }

  post(path, body) {
    return this.answer(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  }

  async answer(path, options) {
    const answer = await fetch(BASE + path, { credentials: "same-origin", ...options });
    if (answer.status === 401) this.unauthorized();
    if (!answer.ok) throw new Error(await problemOf(answer));
    if (answer.status === 204) return null;
    return answer.headers.get("Content-Type")?.startsWith("application/json") ? answer.json() : answer.arrayBuffer();
  }
}

async function problemOf(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text).error || `HTTP status ${answer.status}`;
  } catch (problem) {
    if (problem instanceof SyntaxError) return `HTTP status ${answer.status}`;
    throw problem;
  }
}

// A path with its parameters; empty ones are left out.
export function pathOf(path, values) {
  const kept = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return kept.length ? `${path}?${new URLSearchParams(kept)}` : path;
}

export function podPath(pod) {
  return pod.split("/").map(encodeURIComponent).join("/");
}
