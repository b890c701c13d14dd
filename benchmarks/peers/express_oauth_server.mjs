// @node-oauth/express-oauth-server with a model in memory.

import { randomBytes, timingSafeEqual } from "node:crypto";
import OAuthServer from "@node-oauth/express-oauth-server";
import express from "express";
import {
  answerSignIn, answerWithCodes, client, CODE_LIFETIME, host, players, port, TOKEN_LIFETIME,
} from "./installation.mjs";

const registered = { id: client.id, grants: ["authorization_code"] };
const secret = Buffer.from(client.secret);
const codes = new Map();
const tokens = new Map();

// https://node-oauthoauth2-server.readthedocs.io/en/master/model/overview.html lists the methods.
const model = {
  async getClient(id, given) {
    const received = Buffer.from(given);
    const isRight = received.length === secret.length && timingSafeEqual(received, secret);
    return id === client.id && isRight ? registered : false;
  },

  async getAuthorizationCode(code) {
    return codes.get(code);
  },

  async revokeAuthorizationCode(code) {
    return codes.delete(code.authorizationCode);
  },

  async generateRefreshToken() {
    return undefined; // the servers that it races with issue none
  },

  async saveToken(token, toClient, user) {
    const saved = { ...token, client: toClient, user };
    tokens.set(token.accessToken, saved);
    return saved;
  },

  async getAccessToken(token) {
    return tokens.get(token);
  },
};

async function issueCode(playerId, scope) {
  const authorizationCode = randomBytes(32).toString("base64url");
  codes.set(authorizationCode, {
    authorizationCode,
    expiresAt: new Date(Date.now() + CODE_LIFETIME * 1000),
    redirectUri: client.redirectUri,
    scope: scope.split(" "),
    client: registered,
    user: players.get(playerId),
  });
  return authorizationCode;
}

const oauth = new OAuthServer({ model, accessTokenLifetime: TOKEN_LIFETIME });
const app = express();
app.disable("etag"); // of no use to these responses, and a hash of each
app.disable("x-powered-by");
app.get("/codes", (request, response) => answerWithCodes(request.url, response, issueCode));
app.post("/token", express.urlencoded({ extended: false }), oauth.token());
app.post("/sign-in", answerSignIn);
app.get("/me", oauth.authenticate(), (request, response) => {
  response.json(response.locals.oauth.token.user);
});
app.listen(Number(port), host);
