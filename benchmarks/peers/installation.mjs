// What both drivers serve: a client, and players who all allow it, in memory. Nothing expires within
// a race, so nothing is swept.

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
