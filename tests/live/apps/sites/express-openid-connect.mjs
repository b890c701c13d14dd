// A site that signs in with express-openid-connect.

import express from "express";

const kept = new Map();
const store = {  // as of express-session
  get: (id, done) => done(null, kept.get(id)),
  set: (id, session, done) => done(null, kept.set(id, session)),
  destroy: (id, done) => done(null, kept.delete(id)),
};
// SETTINGS

const app = express();
app.use(signIn);
app.get("/", (request, response) => response.json(request.oidc.user ?? null));
app.listen(process.env.PORT, "127.0.0.1");
