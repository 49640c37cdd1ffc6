// The entry of the live page.

import { PageApp } from "./page_app.js";

new PageApp().start();
