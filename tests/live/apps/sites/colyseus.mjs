// A game server with Colyseus, whose page signs in in a popup.

import http from "node:http";
import express from "express";
import { Server } from "@colyseus/core";
import { WebSocketTransport } from "@colyseus/ws-transport";
// SETTINGS

const app = express();
const server = new Server({ transport: new WebSocketTransport({ server: http.createServer(app) }) });
app.use("/auth", auth.routes());
const page = `<button onclick="window.open('/auth/provider/identity')">Sign in</button><pre></pre><script>
onmessage = (event) => document.querySelector("pre").append(JSON.stringify(event.data));
</script>`;
app.get("/", (request, response) => response.send(page));
await server.listen(Number(process.env.PORT), "127.0.0.1");
