// A web site that signs in with openid-client. The settings of docs/apps/ stand above this.

import { createServer } from "node:http";
import * as client from "openid-client";

const options = { execute: [client.allowInsecureRequests] }; // the tests have no https
const config = await client.discovery(issuer, clientId, clientSecret, undefined, options);
let checks; // of the sign-in that was started last
let tokens;

async function signIn(more) {
  const pkceCodeVerifier = client.randomPKCECodeVerifier();
  const expectedState = client.randomState();
  const expectedNonce = client.randomNonce();
  checks = { pkceCodeVerifier, expectedState, expectedNonce, idTokenExpected: true };
  if (more.max_age) checks.maxAge = Number(more.max_age);
  return client.buildAuthorizationUrl(config, {
    redirect_uri: redirectUri, scope, state: expectedState, nonce: expectedNonce,
    code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier),
    code_challenge_method: "S256", ...more,
  });
}

async function show(address) {
  tokens = await client.authorizationCodeGrant(config, address, checks);
  const claims = tokens.claims();
  return { claims, user: await client.fetchUserInfo(config, tokens.access_token, claims.sub) };
}

const pages = {
  "/sign-in": (address) => signIn(Object.fromEntries(address.searchParams)),
  "/callback": show,
  "/sign-out": async () => client.buildEndSessionUrl(config, {
    id_token_hint: tokens.id_token, post_logout_redirect_uri: new URL("/", redirectUri).href,
  }),
  "/": async () => "Signed out",
};

createServer(async (request, response) => {
  const address = new URL(request.url, redirectUri);
  const shown = await pages[address.pathname]?.(address).catch(({ error }) => ({ error }));
  if (shown instanceof URL) return response.writeHead(302, { Location: shown.href }).end();
  response.setHeader("Content-Type", "application/json").end(JSON.stringify(shown ?? null));
}).listen(new URL(redirectUri).port, "127.0.0.1");
