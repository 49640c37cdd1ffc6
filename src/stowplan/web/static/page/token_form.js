// Asks for a token of the cluster where the server wants one; it answers with a cookie.

import { element } from "../elements.js";

export class TokenForm {
  constructor(app) {
    this.app = app;
    this.token = element("input", { type: "password", autocomplete: "off", required: "", id: "token" });
    this.problem = element("p", { class: "bad", role: "alert" });
    const form = element("form", { class: "column" }, element("h2", { id: "token-title" }, "Token"),
      element("p", {}, "The API server reviews it: it must be allowed to get the paths of this page."),
      element("label", { class: "stacked" }, "Bearer token", this.token), this.problem, element("button", { type: "submit", class: "main" }, "Sign in"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.dialog = element("dialog", { "aria-labelledby": "token-title" }, form);
    document.body.append(this.dialog);
  }

  ask() {
    if (!this.dialog.open) this.dialog.showModal();
  }

  async send() {
    const answer = await fetch("/api/page/v1/login", {
      method: "POST", credentials: "same-origin", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token: this.token.value }),
    });
    this.token.value = "";
    if (answer.ok) location.reload();
    else this.problem.textContent = answer.status === 401 ? "The token was refused." : `HTTP status ${answer.status}`;
  }
}
