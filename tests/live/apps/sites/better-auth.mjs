// A site that signs in with Better Auth.

import { createServer } from "node:http";
import { betterAuth } from "better-auth";
import { memoryAdapter } from "better-auth/adapters/memory";
import { toNodeHandler } from "better-auth/node";

// SETTINGS
const tables = { user: [], session: [], account: [], verification: [] };
const secret = "a secret of the tests, long enough";
const database = memoryAdapter(tables);
const plugins = [identityServer];
const handle = toNodeHandler(betterAuth({ baseURL: process.env.ADDRESS, secret, database, plugins }));
const button = `<button>Sign in</button><script>
  document.querySelector("button").onclick = async () => {
    const body = JSON.stringify({ provider: "identity-server", callbackURL: "/api/auth/get-session" });
    const headers = { "Content-Type": "application/json" };
    const answer = await fetch("/api/auth/sign-in/social", { method: "POST", headers, body });
    location = (await answer.json()).url;
  };
</script>`;

createServer((request, response) => {
  if (request.url.startsWith("/api/auth/")) return handle(request, response);
  if (request.url === "/accounts") return response.end(JSON.stringify(tables.account));
  response.writeHead(200, { "Content-Type": "text/html" }).end(button);
}).listen(process.env.PORT, "127.0.0.1");
