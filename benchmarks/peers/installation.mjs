// What both drivers serve: a client, and players who all allow it, in memory. Nothing expires within
// a race, so nothing is swept.

import { randomBytes, scrypt, timingSafeEqual } from "node:crypto";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";

export const client = {
  id: process.env.CLIENT_ID,
  secret: process.env.CLIENT_SECRET,
  redirectUri: process.env.REDIRECT_URI,
};

export const CODE_LIFETIME = 60; // seconds, as the lifetimes of the server that they race with
export const TOKEN_LIFETIME = 600;

export const players = new Map();
for (let id = 1; id <= Number(process.env.PLAYERS); id++) {
  players.set(String(id), {
    sub: String(id),
    name: `Player ${id}`,
    email: `player${id}@example.org`,
    updated_at: 1_700_000_000 + id,
  });
}

// Everyone's password, as the server that they race with stores it: scrypt:N:r:p$SALT$DIGEST.
const [method, salt, digest] = process.env.PASSWORD_HASH.split("$");
const [N, r, p] = method.split(":").slice(1).map(Number);
const stored = Buffer.from(digest, "hex");
const sessions = new Map();

// Answer POST /sign-in, a form with the player's id as `name` and a `password`. Neither peer has such
// a page. As programs for node do, it lets libuv's four threads hash; further sign-ins wait for them.
export async function answerSignIn(request, response) {
  const form = new URLSearchParams(await text(request));
  const options = { N, r, p, maxmem: 132 * N * r * p };
  const hash = await promisify(scrypt)(form.get("password"), salt, stored.length, options);
  const player = players.get(form.get("name"));
  if (!player || !timingSafeEqual(hash, stored)) {
    response.writeHead(401, { "Content-Length": 0 }).end();
    return;
  }
  const session = randomBytes(32).toString("base64url");
  sessions.set(session, player);
  const headers = { Location: "/", "Set-Cookie": `session=${session}; HttpOnly; SameSite=Lax` };
  response.writeHead(303, { ...headers, "Content-Length": 0 }).end();
}

// The address in the argument --bind=HOST:PORT.
export const [host, port] = process.argv[2].replace("--bind=", "").split(":");

// Answer GET /codes?count=N&scope=S with a JSON list of new codes, each for a random player.
// `issueCode(playerId, scope)` returns a promise of a code.
export async function answerWithCodes(url, response, issueCode) {
  const query = new URL(url, "http://localhost").searchParams;
  const codes = [];
  for (let number = 0; number < Number(query.get("count")); number++) {
    const id = String(1 + Math.floor(Math.random() * players.size));
    codes.push(await issueCode(id, query.get("scope")));
  }
  const body = JSON.stringify(codes);
  response.writeHead(200, { "Content-Type": "application/json", "Content-Length": body.length });
  response.end(body);
}
